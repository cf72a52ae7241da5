"""The table of metrics, and what is handed to Ray of it."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentr.cluster import push
from agentr.cluster.metrics import (
    CAUSES,
    COMMON,
    CPU,
    EXPANSIONS,
    METRICS,
    RETRIES,
    SECONDS,
    TREES,
    MetricKind,
    MetricSample,
    by_bucket,
    histogram,
)
from agentr.cluster.metrics import POLICY_SECONDS as SECONDS_METRIC
from agentr.cluster.push import Lag, Pusher, start


def test_names_are_prometheus_s_and_no_label_names_a_task() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS) > 20
    for metric in METRICS:
        assert re.fullmatch(r"agentr_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is not MetricKind.GAUGE)
        assert metric.name.endswith("_bucket_total") == (metric.kind is MetricKind.BUCKETS) == ("le" in metric.labels)
        assert not {"task", "tree", "node", *COMMON} & set(metric.labels)
        assert metric.help and not metric.help.endswith(".")


def test_buckets_count_what_is_at_most_their_bound() -> None:
    counted = histogram()
    for value in (0.5, 1.0, 1.1, 10.0, 999.0):
        counted.observe(value)
    found = {sample.labels["le"]: sample.value for sample in by_bucket(SECONDS_METRIC, counted)}
    assert list(found) == [*map(str, SECONDS), "+Inf"]
    assert (found["0.3"], found["1.0"], found["10.0"], found["300.0"], found["+Inf"]) == (0, 2, 4, 4, 5)


def test_outside_of_ray_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)  # other tests may have connected this process
    asked = []
    assert start("run", "part", lambda: asked.append(1) or []) is None
    assert not asked


class Told:
    """Stands where Ray's metrics do."""

    made: dict[str, Told] = {}  # noqa: RUF012

    def __init__(self, name: str, about: str, tag_keys: tuple[str, ...]) -> None:
        self.keys, self.calls = tag_keys, []
        Told.made[name] = self

    def inc(self, value: float, tags: dict[str, str]) -> None:
        assert value > 0 and set(tags) == set(self.keys)
        self.calls.append((value, tags))

    set = inc


@pytest.fixture
def ray_told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Told]:
    from ray.util import metrics

    Told.made = {}
    monkeypatch.setattr(metrics, "Counter", Told)
    monkeypatch.setattr(metrics, "Gauge", Told)
    return Told.made


def pusher(samples: list[MetricSample]) -> Pusher:
    """One that pushes when it is told to."""
    return Pusher("run", "part", lambda: list(samples), every_s=3600.0)


def test_ray_is_told_by_how_much_a_counter_grew(ray_told: dict[str, Told]) -> None:
    samples: list[MetricSample] = []
    pushing = pusher(samples)
    for value in (0, 0, 5, 5, 8, 2):  # the last: who counts began anew
        samples[:] = [MetricSample(EXPANSIONS, value)]
        pushing.push()
    told = ray_told[EXPANSIONS.name].calls
    assert [value for value, _ in told][1:] == [5, 3, 2]
    assert sum(value for value, _ in told) == 10, "what a counter begins with is in no sum"
    assert {tuple(sorted(tags.items())) for _, tags in told} == {(("part", "part"), ("run", "run"))}
    assert len(ray_told[CPU.name].calls) == 6
    pushing.close()


def test_labels_are_counted_apart_and_may_speak_for_another_part(ray_told: dict[str, Told]) -> None:
    samples = [
        MetricSample(RETRIES, 1, {"cause": "tree"}),
        MetricSample(RETRIES, 4, {"cause": "server_down"}),
        MetricSample(TREES, 3, {"state": "done", "part": "x"}),
    ]
    pushing = pusher(samples)
    pushing.push()
    assert [(value, tags["cause"]) for value, tags in ray_told[RETRIES.name].calls] == [(1, "tree"), (4, "server_down")]
    assert ray_told[TREES.name].calls == [(3, {"run": "run", "part": "x", "state": "done"})]
    pushing.close()


def test_what_cannot_be_read_ends_nothing(ray_told: dict[str, Told], caplog: pytest.LogCaptureFixture) -> None:
    times = []

    def read() -> Iterator[MetricSample]:
        times.append(1)
        raise OSError("gone")
        yield

    pushing = Pusher("run", "part", read, every_s=0.01)
    deadline = time.monotonic() + 30
    while len(times) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pushing.close()
    assert caplog.text.count("cannot be sent") == 1


def test_the_lag_of_a_blocked_loop_is_seen_while_it_is_blocked() -> None:
    made: list[Lag] = []
    blocked, free, over = threading.Event(), threading.Event(), threading.Event()

    async def loop() -> None:
        made.append(Lag())
        blocked.set()
        free.wait(60)
        while not over.is_set():
            await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(loop()))
    thread.start()
    assert blocked.wait(60)
    made[0].look()
    time.sleep(0.2)
    seen = made[0].look()
    assert seen >= 0.2
    free.set()
    deadline = time.monotonic() + 30
    while made[0]._asked is not None:  # until the loop has answered
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert made[0].look() >= seen, "the longest of the last looks"
    over.set()
    thread.join(60)


def test_causes_are_what_is_counted() -> None:
    """The names in the router and the pool are those of the table: a counter begins with 0, so that its first step is
    seen."""
    from agentr.envs.transport import RequestFailed

    failures: list[Any] = [RequestFailed(""), RequestFailed("", session_lost=True), RequestFailed("", server_down=True)]
    assert {failure.cause for failure in failures} < set(CAUSES)
    assert push.EVERY_S > 0
