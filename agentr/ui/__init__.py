"""The pages that show runs: a read-only server (``agentr ui``) and single files (``agentr report``), from run
directories alone.

``library`` finds runs, ``views`` answers questions about them as plain data, ``server`` serves the answers and the
page, ``show`` puts both into one file, and ``report`` a whole run. ``web`` is the page's source in TypeScript, ``api``
has the answers' types, and ``static`` is the page as it was built.
"""
