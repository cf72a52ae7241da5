"""What an export came to: what it wrote, what it left out, and what the reader of a format does not get of what is
there."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agentr.errors import DataError
from agentr.words import counted


def _counters() -> defaultdict[str, Counter[str]]:
    return defaultdict(Counter)


def make_place(path: Path) -> None:
    """Makes the folder that a file of somebody's own choice will be in.

    Raises:
        DataError: The path is a folder, or goes through a file.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder", hint="Name the file to write into, such as one in that folder.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(
            f"{path} cannot be written: {error.filename} is a file, not a folder", hint="Name another place."
        ) from error


@dataclass
class Exported:
    """What an export came to.

    Attributes:
        path: File or folder that was written.
        what: Name of an entry: row, turn, pair, tree.
        written: Entries by kind.
        left_out: What is not in the file, by reason and kind.
        changed: Entries that are there, and in which something is not as it was, by what that is and kind.
    """

    path: Path
    what: str
    written: Counter[str] = field(default_factory=Counter)
    left_out: defaultdict[str, Counter[str]] = field(default_factory=_counters)
    changed: defaultdict[str, Counter[str]] = field(default_factory=_counters)

    @property
    def entries(self) -> int:
        """Entries of the file."""
        return self.written.total()

    def lines(self) -> Iterator[str]:
        """Yields what was made, a line each, counts by kind included."""
        yield f"{counted(self.entries, self.what)} in {self.path}{_kinds(self.written)}"
        for what, kinds in self.changed.items():
            yield f"{kinds.total()} of them{_kinds(kinds)} {what}"
        for why, kinds in self.left_out.items():
            yield f"left out: {kinds.total()}{_kinds(kinds)}: {why}"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _kinds(counts: Counter[str]) -> str:
    found = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()) if kind)
    return f" ({found})" if found else ""
