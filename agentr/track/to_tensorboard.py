"""TensorBoard: files of events in the run directory.
``tensorboard --logdir RUNS`` shows the curves of all runs below a folder."""

from collections.abc import Sequence

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from agentr.track.points import Point
from agentr.track.tracker import About


class TensorBoard:
    def start(self, about: About) -> None:
        self._folder = about.folder / "tensorboard"
        self._before = sorted(map(str, self._folder.glob("events.*")))
        self._writer = EventFileWriter(str(self._folder))
        if not self._before:
            table = "\n".join(
                ["key | value", "--- | ---", *(f"{key} | {value}" for key, value in about.config.items())]
            )
            self._writer.add_event(Event(summary=text_pb("config", table)))
            self._writer.flush()

    def held(self, points: Sequence[Point], logged: int) -> int:
        """Each point is one event, so that a killed process leaves it whole or not at all."""
        events = (event for path in self._before for event in EventFileLoader(path).Load())
        return sum(any(value.tag != "config" for value in event.summary.value) for event in events)

    def log(self, point: Point) -> None:
        values = [Summary.Value(tag=name, simple_value=number) for name, number in point.numbers.items()]
        self._writer.add_event(Event(wall_time=point.time, step=point.step, summary=Summary(value=values)))
        self._writer.flush()

    def finish(self) -> None:
        self._writer.close()
