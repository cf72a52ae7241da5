"""Files of sealed stages, compared with their hashes; each once, while it does not change."""

from pathlib import Path

from agentr.errors import DataError
from agentr.store.seal import StageRecord, verify


class CheckedFiles:
    """What is known of the files of a run's sealed stages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        #: Files whose hashes were found right, by the stage's name, with their sizes and times then.
        self._right: dict[str, dict[str, tuple[int, int]]] = {}

    def check(self, record: StageRecord) -> None:
        """Compares the files of a stage with their hashes.

        Raises:
            DataError: Files are damaged or missing; the error names them and what to do.
        """
        times = self._times(record)
        if times == self._right.get(record.name):
            return
        if found := list(verify(self.root, record)):
            named = "; ".join(map(str, found[:3])) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
            raise DataError(
                f"the stage {record.name} of {self.root} is damaged: {named}",
                hint=f"'agentr doctor {self.root}' says what depends on it; with --repair it sets the stage aside, "
                f"and 'agentr resume {self.root}' makes it anew.",
            )
        self._right[record.name] = times

    def known(self, record: StageRecord) -> None:
        """Takes the files of a stage as right that were just hashed."""
        self._right[record.name] = self._times(record)

    def _times(self, record: StageRecord) -> dict[str, tuple[int, int]]:
        """Size and time of each file of a stage, and of a model outside."""
        outside = Path(record.summary["path"]) if record.summary.get("folder_hash") else None
        paths = [self.root / record.name / file for file in record.files] + (
            sorted(outside.glob("*")) if outside else []
        )
        return {
            str(path): (found.st_size, found.st_mtime_ns) for path in paths if path.exists() and (found := path.stat())
        }
