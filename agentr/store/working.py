"""Working folders: what is not finished in a stage belongs to one process at a time.

A coordinator or a trainer works in ``work-<epoch>`` in the folder of its stage. It cannot be ended from afar: its
machine may be cut off from the cluster, or the cluster's head may be dead, and it goes on for minutes. So whoever takes
its work over *renames* the folder to an epoch of its own. From then on every path that the old one writes to is gone:
it fails at its next file, and nothing of it becomes visible.
"""

from pathlib import Path

from agentr.errors import RunError
from agentr.store.files import disk, disk_errors, make_folder, remove

#: Epoch of what is written by itself, by no run.
ALONE = "000000.0000"

PREFIX = "work-"


def working(folder: Path) -> Path | None:
    """Returns the working folder of a stage, if there is one."""
    return max(folder.glob(f"{PREFIX}*"), default=None)


def take_over(folder: Path, epoch: str) -> Path:
    """Takes over what is unfinished in a stage, and returns the working folder, which is empty if nothing is.

    Args:
        folder: Of the stage; it must exist.

    Raises:
        RunError: A later process works on the stage.
    """
    mine, before = folder / f"{PREFIX}{epoch}", working(folder)
    if before is not None and before > mine:
        raise _later(folder, before, epoch)
    if before is None:
        make_folder(mine)
    elif before != mine:
        with disk_errors(mine):
            disk.rename(before, mine)
        for older in folder.glob(f"{PREFIX}*"):
            if older < mine:
                remove(older)
    return mine


def join(folder: Path, epoch: str) -> Path:
    """Returns the working folder of a stage that was taken over for this epoch.

    Raises:
        RunError: A later process works on the stage, or nobody took it over.
    """
    mine, there = folder / f"{PREFIX}{epoch}", working(folder)
    if there != mine:
        raise _later(folder, there, epoch)
    return mine


def _later(folder: Path, there: Path | None, epoch: str) -> RunError:
    who = there.name.removeprefix(PREFIX) if there is not None else "its folder is gone"
    hint = "This process is of an earlier attempt, and ends here."
    return RunError(f"{folder} is worked on by a later process ({who}, this is {epoch})", hint=hint)
