"""The pages that show runs: a read-only server (``agentr ui``) and single files (``agentr report --tree``), from run directories alone.

``library`` finds runs, ``views`` answers questions about them as plain data, ``server`` serves the answers and the page, ``show`` puts both
into one file. ``web`` is the page's source in TypeScript and ``web/src/api.ts`` the answers' types; ``static`` is the page as it was built.
"""
