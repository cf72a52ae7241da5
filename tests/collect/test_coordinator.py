"""A coordinator in this process: which tasks it gives, and a job from its start to its end."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agentr.collect.agent import AgentSettings
from agentr.collect.coordinator import Coordinator
from agentr.collect.demonstrate import Demonstrate, NoPolicy
from agentr.collect.job import TreeJob
from agentr.config.schema import TaskSelection
from agentr.errors import ConfigError
from agentr.methods import load
from agentr.search.tree import Origin
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from env_servers.protocol import EnvironmentSpec
from tests.env_servers.support import TOKEN, Counter, counter_server
from tests.support import tiny_tokenizer
from tests.tiny import IMITATE

T = TypeVar("T")


class SameProblems(Counter):
    """The same problems in train and in test: a task's size."""

    @property
    def spec(self) -> EnvironmentSpec:  # type: ignore[override]
        return super().spec.model_copy(update={"identity": "size"})


def coordinating(environment: Counter, root: Path, work: Callable[[Coordinator], Awaitable[T]], *overrides: str) -> T:
    """What comes of a coordinator beside a server of ``environment``, whose evaluation is of the test task of size
    3."""
    tiny_tokenizer().save_pretrained(root / "model")

    async def main(url: str) -> T:
        config = load(None, [IMITATE, "eval.tasks={split: test, where: {size: 3}}", *overrides])
        coordinator = Coordinator(AgentSettings.of(config), [url], TOKEN, root / "model", {})
        try:
            return await work(coordinator)
        finally:
            await coordinator.env.aclose()

    with counter_server(environment) as client:
        return asyncio.run(main(str(client.base_url).rstrip("/")))


def selected(root: Path, selection: TaskSelection, training: bool, *overrides: str) -> list[Any]:
    """Sizes of the tasks that a coordinator gives."""
    tasks = coordinating(SameProblems(), root, lambda coordinator: coordinator.tasks(selection, training), *overrides)
    return [task.labels["size"] for task in tasks]


def test_what_is_held_out_is_not_given_for_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="held-out tasks of counter in a training stage"):
        selected(tmp_path, TaskSelection(split="test"), True)
    assert len(selected(tmp_path, TaskSelection(split="test"), False)) == 10
    assert len(selected(tmp_path, TaskSelection(split="test"), True, "env.allow_leaks=true")) == 10


def test_a_problem_that_is_evaluated_on_is_not_given_for_training_whatever_its_split(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="1 problems of counter are both trained on and evaluated on: 3"):
        selected(tmp_path, TaskSelection(split="train"), True)
    assert sorted(selected(tmp_path, TaskSelection(split="train", where={"size": {"max": 2}}), True)) == [0, 1, 2]
    assert len(selected(tmp_path, TaskSelection(split="train"), True, "env.allow_leaks=true")) == 10


def test_no_task_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="split 'train' with these filters has no task"):
        selected(tmp_path, TaskSelection(split="train", limit=0), False)


def test_a_job_goes_from_its_tasks_to_its_trees(tmp_path: Path) -> None:
    """Without a checkpoint nobody answers: an expert's turns are given."""

    async def work(coordinator: Coordinator) -> tuple[EnvironmentSpec, dict[str, Any], dict[str, Any]]:
        spec = await coordinator.ready()
        tasks = await coordinator.tasks(TaskSelection(split="train", limit=2), True)
        scripts = {task.id: ("Action: add 60", "Action: add 40", "Action: end") for task in tasks}
        job = TreeJob(folder=tmp_path / "trees", tasks=tuple(tasks), seed=1, policy="", work=Demonstrate(scripts))
        GrowingForest(job.folder)
        done = await coordinator.run(job, None, ())
        assert isinstance(await coordinator._ready_policy(None, ()), NoPolicy)
        return spec, done, await coordinator.progress()

    spec, done, after = coordinating(Counter(), tmp_path, work)
    assert spec.name == "counter"
    assert (done["total"], done["done"], done["failed"], done["successes"]) == (2, 2, 0, 2)
    assert done["counts"]["env_steps_executed"] == 6
    assert after["done"] == 2 and after["waiting"] == {}
    for tree in Forest(tmp_path / "trees"):
        assert [node.action for node in tree.nodes[1:]] == ["add 60", "add 40", "end"]
        assert {node.origin for node in tree.nodes[1:]} == {Origin.EXPERT} and tree.nodes[-1].reward == 1.0
