"""What is of a run lies in its directory: no name and no link leads outside, and all that lies there are files and
folders."""

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from agentr.errors import DataError
from agentr.store.layout import Layout
from agentr.words import seen

#: Bytes of the longest name that a folder can have in it.
_LONGEST = 255


def check_names(names: Iterable[str], what: str) -> None:
    """Checks names of stages and files as a manifest, a seal or an archive has them: relative, without ``..``, all of
    it seen.

    Raises:
        DataError: One leads outside, or is no name.
    """
    for name in names:
        path = PurePosixPath(name)
        shown = seen(name) == name and not {"\n", "\t"} & set(name)
        if (
            not (shown and path.parts)
            or path.is_absolute()
            or ".." in path.parts
            or max(len(p.encode()) for p in path.parts) > _LONGEST
        ):
            raise DataError(f"{what} names {name[:100]!r}, which is no place in it")


def check_folder(root: Path) -> None:
    """Checks that every link in a run directory leads to a place in it, and that nothing in it is a pipe, a device or a
    socket.

    What experiment trackers keep in it is left out: their libraries make links of their own there, and nobody here
    reads it.

    Raises:
        DataError: The error names the first that does not.
    """
    top, folders, trackers = os.path.realpath(root), [str(root)], Layout(root).tracking
    for folder in folders:
        try:
            entries = list(os.scandir(folder))
        except OSError:  # whoever reads it says why not; or it is gone by now
            continue
        for entry in entries:
            if entry.is_symlink():
                if not Path(os.path.realpath(entry.path)).is_relative_to(top):
                    hint = "Move what it leads to into the run, or name it in the configuration (model.path)."
                    raise DataError(f"{entry.path} is a link that leads out of the run", hint=hint)
            elif entry.is_dir(follow_symlinks=False):
                if entry.path != str(trackers):
                    folders.append(entry.path)
            elif not entry.is_file(follow_symlinks=False):
                raise DataError(f"{entry.path} is no file, and a run holds files and folders", hint="Remove it.")
