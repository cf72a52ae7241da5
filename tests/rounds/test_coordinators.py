"""Several coordinators share a stage: real actors, a real environment server; the engine answers by prompt and seed
alone."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentr.cluster.places import Places
from agentr.collect.agent import AgentSettings
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob
from agentr.collect.units import Limits
from agentr.config.model import ModelConfig
from agentr.config.policy import SamplingConfig
from agentr.config.schema import Config, TaskSelection
from agentr.envs.server import EnvServer
from agentr.errors import InfraError, RunError
from agentr.methods import load
from agentr.models.load import load_codec
from agentr.models.nano import WEIGHTS
from agentr.policy.base import EngineHealth
from agentr.policy.wire import pack_answer, unpack_call
from agentr.rounds.coordinators import CoordinatorDied, Coordinators
from agentr.search import UCT, UCTConfig
from agentr.search.stored import to_json
from agentr.store.forest import Forest
from agentr.store.working import take_over
from agentr.types import Message, Task
from tests.players import SloppyExpert
from tests.tiny import IMITATE

FIRST, SECOND = "000001.0001", "000001.0002"


class Scripted:
    """An engine as an actor: it answers by prompt and seed. ``slow_s`` for each answer."""

    def __init__(self, tasks: Sequence[Task], slow_s: float, broken: Sequence[str] = ()) -> None:
        self.codec = load_codec(WEIGHTS, ModelConfig())
        self.expert = SloppyExpert(self.codec, tasks)
        self.slow_s, self.broken, self.checkpoint = slow_s, broken, ""

    async def generate(self, call: bytes) -> bytes:
        await asyncio.sleep(self.slow_s)
        request, _ = unpack_call(call)
        taken = re.findall("Action: .*", self.codec.decode(request.prompt_ids))
        request = replace(request, messages=(Message("user", ""), *(Message("assistant", action) for action in taken)))
        if request.affinity in self.broken:
            raise InfraError("it is broken")
        return pack_answer(await self.expert.generate(request))

    async def load(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint

    async def health(self) -> EngineHealth:
        return EngineHealth(checkpoint=self.checkpoint, running=0, queued=0)


SEVEN = TaskSelection(split="train", where={"depth": [1, 2]}, limit=7)


class Stage:
    """A stage, its tasks and its engine; coordinators are started for it."""

    def __init__(self, server: EnvServer, folder: Path) -> None:
        import ray

        self.ray, self.server, self.folder = ray, server, folder
        self.tasks: list[Task] = []
        self.started: list[Coordinators] = []
        self.actors: list[Any] = []
        self.tasks = self.coordinators(1).tasks(SEVEN, training=False)

    def config(self, number: int, *changes: str) -> Config:
        return load(
            None, [IMITATE, f"collect.coordinators={number}", "policy.timeout_s=20", "policy.retries=1", *changes]
        )

    def coordinators(self, number: int, *changes: str) -> Any:
        config = self.config(number, *changes)
        made = Shared(self.ray, AgentSettings.of(config), Places.of(config), [self.server.url()], "secret", WEIGHTS, {})
        self.started.append(made)
        made.start()
        return made

    def engine(self, slow_s: float = 0.0, broken: Sequence[str] = ()) -> Any:
        self.actors.append(
            self.ray.remote(Scripted).options(num_cpus=0, max_concurrency=64).remote(self.tasks, slow_s, broken)
        )
        return self.actors[-1]

    def job(self, name: str, epoch: str = FIRST, **limits: Any) -> TreeJob:
        return TreeJob(
            folder=self.folder / name,
            tasks=tuple(self.tasks),
            seed=7,
            policy="test",
            work=Grow(UCT(UCTConfig(iterations=4, max_depth=8, width=3))),
            sampling=SamplingConfig(max_tokens=64),
            limits=Limits(**{"infra_retries": 0, **limits}),
            epoch=epoch,
        )

    def end(self) -> None:
        for coordinators in self.started:
            coordinators.kill()
        for actor in self.actors:
            self.ray.kill(actor)


class Shared(Coordinators):
    """Coordinators that a test may ask more."""

    def processes(self) -> dict[int, int]:
        from ray._private.state import actors

        return {number: actors(actor._actor_id.hex())["Pid"] for number, actor in self._actors.items()}


@pytest.fixture
def stage(ray_session: None, server: EnvServer, tmp_path: Path) -> Any:
    made = Stage(server, tmp_path)
    yield made
    made.end()


def nothing(_: dict[str, Any]) -> None: ...


def trees(folder: Path) -> list[str]:
    return [to_json(tree) for tree in Forest(folder)]


@pytest.mark.cluster
def test_the_trees_of_three_are_those_of_one(stage: Stage) -> None:
    told: list[dict[str, Any]] = []
    one = stage.coordinators(1).run("one", stage.job("one"), WEIGHTS, [stage.engine()], nothing)
    three = stage.coordinators(3).run("three", stage.job("three"), WEIGHTS, [stage.engine()], told.append)
    assert (
        one["done"] == three["done"] == 7
        and one["counts"] == three["counts"]
        and one["successes"] == three["successes"]
    )
    assert trees(stage.folder / "one") == trees(stage.folder / "three") and len(trees(stage.folder / "one")) == 7
    assert told[-1]["total"] == 7 and told[-1]["done"] == 7
    hashes = [Forest(stage.folder / name).seal()["trees_hash"] for name in ("one", "three")]
    assert hashes[0] == hashes[1]


@pytest.mark.cluster
def test_one_of_three_is_killed_and_all_go_on_from_their_journals(stage: Stage) -> None:
    stage.coordinators(1).run("whole", stage.job("whole"), WEIGHTS, [stage.engine()], nothing)
    three, engine = stage.coordinators(3), stage.engine(slow_s=0.2)
    job = stage.job("broken")

    def kill() -> None:
        wait_for(lambda: sum(1 for _ in job.folder.glob("work-*/journal/*.jsonl")) >= 5)
        psutil.Process(three.processes()[1]).kill()

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(CoordinatorDied, match="coordinator 1"):
        three.run("broken", job, WEIGHTS, [engine], nothing)
    assert not three.up and len(three.processes()) == 2, "the others are kept"
    three.start()
    again = three.run("broken", replace(job, epoch=SECOND), WEIGHTS, [engine], nothing)
    assert again["done"] == 7
    assert trees(stage.folder / "broken") == trees(stage.folder / "whole")
    assert [path.name for path in job.folder.glob("work-*")] == [f"work-{SECOND}"]


@pytest.mark.cluster
def test_one_that_is_killed_between_stages_is_started_again_for_the_list_of_tasks(stage: Stage) -> None:
    one = stage.coordinators(1)
    psutil.Process(one.processes()[0]).kill()
    with pytest.raises(CoordinatorDied, match="coordinator 0"):
        one.tasks(SEVEN, training=False)
    assert not one.up
    one.start()
    assert one.tasks(SEVEN, training=False) == stage.tasks


@pytest.mark.cluster
def test_they_stop_when_a_later_attempt_has_their_stage(stage: Stage) -> None:
    two, job = stage.coordinators(2), stage.job("taken")

    def take() -> None:
        wait_for(lambda: list(job.folder.glob("work-*/journal/*.jsonl")))
        take_over(job.folder, SECOND)

    threading.Thread(target=take, daemon=True).start()
    with pytest.raises(RunError, match="its folder is gone"):
        two.run("taken", job, WEIGHTS, [stage.engine(slow_s=0.2)], nothing)


@pytest.mark.cluster
def test_failures_count_for_the_whole_stage(stage: Stage) -> None:
    three = stage.coordinators(3, "policy.retries=0")
    keys = sorted(task.key for task in stage.tasks)
    broken = stage.engine(broken=[stage.tasks[0].key, stage.tasks[1].key])
    with pytest.raises(RunError, match=r"of \d units failed for infrastructure reasons; the last: .*it is broken"):
        three.run("few", stage.job("few", max_failed=0.2), WEIGHTS, [broken], nothing)
    progress = three.run("some", stage.job("some", max_failed=0.9), WEIGHTS, [broken], nothing)
    forest = Forest(stage.folder / "some")
    assert progress["failed"] == len(forest.failures()) >= 2, "of all three, each in a file of its own"
    assert sorted({*forest.finished(), *forest.failures()}) == keys


def test_a_job_is_divided(tmp_path: Path) -> None:
    tasks = tuple(Task("textcraft", str(number), "train") for number in range(10))
    job = TreeJob(
        folder=tmp_path,
        tasks=tasks,
        seed=1,
        policy="",
        work=Grow(UCT(UCTConfig())),
        limits=Limits(in_flight=8, max_completions=20),
    )
    parts = job.divided(3)
    assert sorted((task.id for part in parts for task in part.tasks), key=int) == [task.id for task in tasks]
    assert [part.limits.in_flight for part in parts] == [2, 3, 3] and sum(
        part.limits.max_completions for part in parts
    ) == 20
    assert [part.part for part in parts] == [0, 1, 2]
    for part in parts:
        part.limits.check(int(job.limits.max_failed * 10), len(part.tasks), "")
    assert [
        len(replace(job, tasks=tasks[:2]).divided(3)),
        len(replace(job, limits=Limits(in_flight=1)).divided(3)),
    ] == [2, 1]
    assert len(replace(job, limits=Limits(max_completions=2)).divided(3)) == 2, (
        "a part without a budget would have no limit"
    )
    assert len(replace(job, tasks=()).divided(3)) == 1


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
