"""agentr: distributed self-training of language-model agents on their own search trees. A run is read so::

    import agentr

    run = agentr.open("runs/demo")
    run.rounds[2].collect.table()  # an Arrow table; .to_pandas() for pandas

``open`` and what it returns (``agentr.read``) are the public interface: names and columns stay as they are within a
version of the stored form, and what is to go warns for one release before it goes. Reading takes no lock, starts
nothing and never changes a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentr.read.run import Run

__version__ = "0.1.0"


def open(path: str | Path) -> Run:
    """Opens a run directory for reading, also while a driver works on it.

    Raises:
        DataError: The folder holds no run (the error names runs below it), or one of another format.
    """
    from agentr.read.run import Run

    return Run(path)
