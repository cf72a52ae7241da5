"""What the driver says of a run in metrics: the round, the stage, the training, what died, what stands still."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from agentr.cluster import metrics, push
from agentr.cluster.metrics import MetricSample, by_label
from agentr.observe.troubles import MIRROR, MOVES_AGAIN, STANDS_STILL
from agentr.store.layout import stage_of


class Gauges:
    """What a driver exports. Nothing is pushed before ``start``."""

    def __init__(self) -> None:
        self._round = 0
        self._stages: tuple[str, ...] = ()
        #: Kinds of causes for which nothing moves, by what they are about.
        self._still: dict[str, tuple[str, ...]] = {}
        self._moved: Any = None
        self._trees: dict[str, int] = {}
        self._trained: Mapping[str, Any] = {}
        self._starts: Counter[str] = Counter()
        self._pusher: push.Pusher | None = None

    def start(self, run: str) -> None:
        """Begins anew, under the name of a run. Ray must be there."""
        self.close()
        self._starts.clear()
        self._pusher = push.start(run, "driver", self.samples)

    def close(self) -> None:
        """Ends pushing."""
        if self._pusher is not None:
            self._pusher.close()
        self._pusher = None

    # what is exported -------------------------------------------------------------------------------------------------

    def event(self, kind: str, about: Mapping[str, Any]) -> None:
        """Takes note of an event of the run: stages begin and end, and may stand in one another; something stands still
        or moves again."""
        name = str(about.get("stage", ""))
        if kind == "stage_started":
            place = stage_of(name)
            if place is not None:
                self._round = place[0].number
            self._stages = (*self._stages, name.rpartition("/")[2])
        elif kind in ("stage_sealed", "stage_stopped"):
            self._stages = self._stages[:-1]
            self._moves(name)
        elif kind == STANDS_STILL:
            before, title = self._still, about["title"]
            kinds = (*before.get(title, ()), *(cause["kind"] for cause in about["causes"]))
            self._still = {**before, title: tuple(dict.fromkeys(kinds))}
        elif kind == MOVES_AGAIN:
            self._still = {title: kinds for title, kinds in self._still.items() if title != about["title"]}

    def collected(self, now: Mapping[str, Any]) -> None:
        """Takes note of how far the stage of trees is, over all coordinators (``agentr.collect.units.merged``)."""
        self._trees = {
            "growing": now["in_flight"],
            "done": now["done"],
            "failed": now["failed"],
            "skipped": now["skipped"],
        }
        self._trees["to_come"] = max(0, now["total"] - sum(self._trees.values()))
        self._moves(now["done"], now["failed"], now["skipped"], now["counts"].get("completions", 0))

    def trained(self, line: Mapping[str, Any]) -> None:
        """Takes note of a line of a training's ``metrics.jsonl``."""
        self._trained = line
        self._moves(line.get("job"), line.get("step"))

    def started(self, part: str) -> None:
        """Takes note that the driver has started a part that it starts again when it died."""
        self._starts[part] += 1

    # ------------------------------------------------------------------------------------------------------------------

    def _moves(self, *counters: Any) -> None:
        """Looks whether the work is elsewhere than before: then it does not stand still.
        The mirror says itself when it works again."""
        if counters != self._moved:
            self._moved = counters
            self._still = {title: kinds for title, kinds in self._still.items() if title == MIRROR}

    def samples(self) -> Iterator[MetricSample]:
        """Yields the present values."""
        yield MetricSample(metrics.ROUND, self._round)
        yield from by_label(metrics.TREES, **self._trees)
        for stage in self._stages[-1:]:
            yield MetricSample(metrics.STAGE, 1, {"stage": stage})
        for kind in dict.fromkeys(kind for kinds in self._still.values() for kind in kinds):
            yield MetricSample(metrics.STANDS_STILL, 1, {"kind": kind})
        for part, times in dict(self._starts).items():
            yield MetricSample(metrics.RESTARTS, times - 1, {"part": part})
        if "step" in self._trained:
            yield MetricSample(metrics.TRAIN_STEP, self._trained["step"])
        if self._trained.get("loss") is not None:
            yield MetricSample(metrics.TRAIN_LOSS, self._trained["loss"])
