"""What the parts that serve a run ask of Ray, and hand on to each other."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import ray.exceptions

from agentr.collect.agent import AgentSettings
from agentr.collect.job import TreeJob
from agentr.config.schema import TaskSelection
from agentr.methods import load, plan_of
from agentr.observe.progress import Reporter
from agentr.rounds import collecting
from agentr.rounds.coordinators import CoordinatorDied, Coordinators
from agentr.rounds.plan import Plan
from agentr.rounds.services import Services
from agentr.store.layout import Checkpoint
from agentr.train.launch import Workers
from agentr.train.online_job import OnlineJob
from tests.tiny import IMITATE, REINFORCE


class FakeRay:
    """Actors are what ``make`` returns, calls are their answers."""

    exceptions = ray.exceptions

    def __init__(self, make: Callable[..., Any] = lambda *_: None, gpus: float = 0, machines: Sequence[bool] = ()):
        self.made: list[tuple[dict[str, Any], tuple[Any, ...]]] = []
        self.killed: list[Any] = []
        self._make, self._gpus, self._machines = make, gpus, machines

    def remote(self, kind: type) -> Any:
        def options(**how: Any) -> Any:
            def start(*arguments: Any) -> Any:
                self.made.append((how, arguments))
                return self._make(*arguments)

            return SimpleNamespace(remote=start)

        return SimpleNamespace(options=options)

    def get(self, answer: Any, timeout: float) -> Any:
        return answer

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": alive} for alive in self._machines]

    def cluster_resources(self) -> dict[str, float]:
        return {"GPU": self._gpus}


def method(answer: Callable[..., Any]) -> Any:
    return SimpleNamespace(remote=answer)


def plan(*overrides: str, method: str = IMITATE) -> Plan:
    batch = ["train=[{batch_size: 256}]"] if method == REINFORCE else []
    return plan_of(load(None, [method, *batch, *overrides]))


def services(tmp_path: Path, ray: FakeRay, *overrides: str, method: str = IMITATE) -> Services:
    made = Services(plan(*overrides, method=method), tmp_path, Reporter())
    made.cluster._ray = ray
    return made


def test_coordinators_have_names_and_what_they_need_and_list_tasks(tmp_path: Path) -> None:
    asked: list[Any] = []

    def coordinator(*arguments: Any) -> Any:
        tasks = method(lambda *of: asked.append((arguments[-1], *of)) or ["a task"])
        return SimpleNamespace(ready=method(lambda: "the specification"), tasks=tasks)

    ray, of = FakeRay(coordinator), plan("collect.coordinators=2")
    given = (AgentSettings.of(of.config), ["http://here"], cast(Any, "token"), tmp_path, cast(Any, {"KEY": "x"}))
    settings, urls, token, model, secrets = given
    coordinators = Coordinators(ray, settings, of.places, urls, token, model, secrets)
    assert coordinators.start() == "the specification" and coordinators.up
    assert [arguments for _, arguments in ray.made] == [(*given, 0), (*given, 1)]
    assert [how["name"].rpartition("-")[0] for how, _ in ray.made] == ["coordinator-0", "coordinator-1"]
    selection = TaskSelection()
    assert coordinators.tasks(selection, False) == coordinators.tasks(selection, True) == ["a task"]
    assert asked == [(0, selection, False), (0, selection, True)]


def test_a_job_goes_on_with_coordinators_that_were_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both where tasks are listed and where trees grow; the watchdog is armed with the title of what is waited for."""
    died, armed, updates = [True, True], [], []
    now = {"done": 1, "failed": 0, "skipped": 0, "in_flight": 2, "total": 3, "successes": 1, "retried": 0}
    now |= {"counts": {"calls": 4, "completion_tokens": 56, "completions": 7}, "waiting": {}}

    class Twice:
        up = True

        def __init__(self, *_: Any) -> None:
            pass

        def tasks(self, *of: Any) -> Any:
            if died.pop() if len(died) == 2 else False:
                raise CoordinatorDied("coordinator 0")
            return of

        def run(self, title: str, job: TreeJob, policy: Any, engines: Any, update: Callable[[Any], None]) -> Any:
            armed.append((made.watchdog._title, policy, engines))
            if died and died.pop():
                raise CoordinatorDied("coordinator 0")
            update(now)
            return now

    monkeypatch.setattr(collecting, "Coordinators", Twice)
    made = services(tmp_path, FakeRay())
    made.collecting.environment = lambda: ([], "")  # type: ignore[method-assign]
    made.collecting.model = tmp_path
    selection = TaskSelection()
    assert made.collecting.tasks(selection, training=True) == (selection, True)
    made.engines.start = lambda path: [path]  # type: ignore[method-assign]
    job = cast(Any, TreeJob)(
        folder=tmp_path, tasks=(), seed=1, policy="p", work=cast(Any, None), sampling=cast(Any, None)
    )
    checkpoint = Checkpoint("warm start", tmp_path / "model")
    assert made.collect("rounds/01/collect", job, checkpoint, lambda *of: updates.append(of)) is now
    assert armed == [("rounds/01/collect", checkpoint.path, [checkpoint.path])] * 2
    assert updates and updates[-1][:2] == (1, 3) and "solved 1, calls 4, tokens 56" in updates[-1][2]
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("coordinator 0 died") == 2


@pytest.mark.parametrize(("online", "gpus", "asleep"), [(True, 1, True), (True, 0, False), (False, 1, False)])
def test_engines_sleep_only_where_an_online_trainer_takes_their_gpus(
    tmp_path: Path, online: bool, gpus: int, asleep: bool
) -> None:
    calls: list[str] = []
    settings = ["trainer.use_gpu=true", "trainer.share=time"]
    made = services(tmp_path, FakeRay(gpus=gpus), *settings, method=REINFORCE if online else IMITATE)
    made.engines._actors = {0: SimpleNamespace(sleep=method(lambda: calls.append("sleep")))}
    made.engines.sleep()
    assert calls == (["sleep"] if asleep else [])


def test_as_many_engines_end_as_the_trainer_needs_gpus_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those on other nodes than the trainer's stay."""
    node = SimpleNamespace(id="a", labels={"kind": "train"}, gpus=2.0)
    other = SimpleNamespace(id="b", labels={}, gpus=2.0)
    monkeypatch.setattr("agentr.rounds.engines.nodes", lambda: [node, other])
    ray = FakeRay(gpus=4)
    made = services(tmp_path, ray, "trainer.workers=1", "cluster.nodes={trainer: {kind: train}}")
    engines = {n: SimpleNamespace(node=method(lambda where=where: where), n=n) for n, where in enumerate("aabb")}
    made.engines._actors = dict(engines)
    made.engines.make_room()
    assert [engine.n for engine in ray.killed] == [1] and sorted(made.engines._actors) == [0, 2, 3]


def test_machines_are_those_that_are_alive(tmp_path: Path) -> None:
    assert services(tmp_path, FakeRay(machines=[True, False, True])).cluster.machines() == 2


def test_who_is_asked_why_nothing_moves_is_who_is_waited_for(tmp_path: Path) -> None:
    made = services(tmp_path, FakeRay())
    made.engines._actors = {0: "an engine"}
    assert not made.engines_early, "a stage by itself starts none beside a training"
    assert made._parts().engines == {}, "nothing is waited for"
    made.collecting._coordinators = cast(Any, SimpleNamespace(progress={}, answered=0.0))
    assert made._parts().engines == {"rollout-0": "an engine"}
    made.trainings.awaited = cast(Any, "a training")
    assert made._parts().engines == {} and made._parts().training == "a training"


def test_an_online_training_is_placed_and_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = services(tmp_path, FakeRay(), method=REINFORCE)
    trained: list[Any] = []

    def train(_: Workers, jobs: list[OnlineJob], follow: Any) -> Any:
        trained.extend((*jobs, follow))
        raise KeyError("seen")

    monkeypatch.setattr(Workers, "train", train)
    job = OnlineJob(tmp_path, tmp_path, tmp_path / "out", made._served.plan.config.train[0], steps=1)
    with pytest.raises(KeyError, match="seen"):
        made.trainings.beside(job).result()
    placed, follow = trained
    assert placed.name == job.name and placed.watch_s == made._served.plan.config.watchdog.after_s / 2
    assert follow == made.cluster.gauges.trained
