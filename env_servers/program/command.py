"""The command of a program, before it is started."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path


def checked_command(
    command: Sequence[str], workdir: Path | None, environment: Mapping[str, str], preload: Sequence[str]
) -> list[str]:
    """Returns a command with its program's path.

    Args:
        preload: Modules that its Python is to import once.

    Raises:
        ValueError: It is no command, there is no such program, or no fork of it could run with what it has imported.
    """
    if isinstance(command, str) or not command:
        raise ValueError(f"command is {command!r}, and must be a list of the program and its arguments")
    if isinstance(preload, str):
        raise ValueError(f"preload is {preload!r}, and must be a list of modules")
    name, *rest = map(str, command)
    inside = workdir / name if workdir is not None else None
    if "/" in name and not name.startswith("/") and inside is not None and inside.is_file():
        found = name
    elif (path := shutil.which(name, path=environment.get("PATH"))) is not None:
        found = str(Path(path).absolute())  # not resolved: an environment's python is a link out of it
    else:
        raise ValueError(f"command: there is no program {name!r}")
    runs = len(rest) > 1 if rest[:1] == ["-m"] else bool(rest) and not rest[0].startswith("-")
    if preload and not (runs and found.startswith("/")):
        raise ValueError(
            f"preload is for a command of a Python outside of workdir and a script, or -m and a module, not {command}"
        )
    return [found, *rest]
