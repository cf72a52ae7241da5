"""Trackio: a database in the run directory, or the place that ``TRACKIO_DIR``, ``TRACKIO_SPACE_ID`` or
``TRACKIO_SERVER_URL`` names."""

import os
from collections.abc import Sequence

from agentr.track.points import Point
from agentr.track.tracker import PROJECT, About


class Trackio:
    def start(self, about: About) -> None:
        os.environ.setdefault("TRACKIO_DIR", str(about.folder / "trackio"))  # it is read when the library is imported
        import trackio  # type: ignore[import-not-found]

        self._project, self._name = os.environ.get("TRACKIO_PROJECT") or PROJECT, f"{about.name}-{about.id}"
        self._run = trackio.init(
            self._project,
            self._name,
            config=about.config,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def held(self, points: Sequence[Point], logged: int) -> int:
        """Each point is a row; what was logged last may be lost with a process.
        How many rows a server has is not asked."""
        if os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL"):
            return logged
        from trackio.sqlite_storage import SQLiteStorage  # type: ignore[import-not-found]

        return len(SQLiteStorage.get_logs(self._project, self._name))

    def log(self, point: Point) -> None:
        self._run.log(dict(point.numbers), step=point.step)

    def finish(self) -> None:
        self._run.finish()
