"""What goes on running when one experiment follows another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentr.collect.agent import AgentSettings
from agentr.methods import load, plan_of
from agentr.observe.progress import Reporter
from agentr.rounds.coordinators import Coordinators
from agentr.rounds.ray_cluster import RayCluster
from agentr.rounds.services import Services
from agentr.rounds.trainings import Trainings
from agentr.store.run import RunStore
from agentr.train.checkpoints import seal
from agentr.train.job import TrainJob
from agentr.train.launch import Workers
from tests.tiny import IMITATE, PREFER


class FakeRay:
    """Records what is killed, and whether it was shut down."""

    def __init__(self) -> None:
        self.killed: list[str] = []
        self.up = True

    def kill(self, actor: str) -> None:
        self.killed.append(actor)

    def shutdown(self) -> None:
        self.up = False


class FakeServers:
    def __init__(self, ray: FakeRay) -> None:
        self.ray = ray

    async def stop(self) -> None:
        self.ray.killed.append("server")


@pytest.mark.parametrize(
    "changes, killed, up",
    [
        ([], ["coordinator"], True),
        ([PREFER, "run.seed=3"], ["coordinator"], True),
        (["policy.threads=2"], ["coordinator", "engine"], True),
        (["model.max_model_len=4096"], ["coordinator", "engine"], True),
        (["env.options.distractors=1"], ["coordinator", "server"], True),
        (["cluster.cpus=3"], ["server", "engine"], False),
    ],
)
def test_what_another_experiment_would_start_the_same_runs_on(
    tmp_path: Path, changes: list[str], killed: list[str], up: bool
) -> None:
    plan = plan_of(load(None, [IMITATE]))
    services = Services(plan, tmp_path, Reporter())
    ray = FakeRay()
    collecting = services.collecting
    collecting._coordinators = Coordinators(ray, AgentSettings.of(plan.config), plan.places, [], "", tmp_path, {})
    collecting._coordinators._actors = {0: "coordinator"}
    services.cluster._ray, services.engines._actors = ray, {0: "engine"}
    collecting.servers = FakeServers(ray)  # type: ignore[assignment]
    collecting.model, services.engines_early = tmp_path, True
    after = plan_of(load(None, [IMITATE, *changes]))
    services.take_over(after, RunStore(tmp_path))
    assert (ray.killed, ray.up) == (killed, up)
    assert all(
        part.served.plan is after for part in (collecting, services.engines, services.trainings, services.cluster)
    )
    assert collecting._coordinators is None and collecting.model is None and not services.engines_early
    assert (collecting.servers is None) == ("server" in killed) and (services.engines.by_name == {}) == (
        "engine" in killed
    )
    services.close()
    assert not ray.up


@pytest.mark.parametrize(
    "saved, reached, said",
    [
        ([100, 200], 250, "optimiser steps 201 to 250 are lost, it goes on after optimiser step 200"),
        ([], 7, "optimiser steps 1 to 7 are lost, it goes on after optimiser step 0"),
        ([100], 100, "nothing is lost, it goes on after optimiser step 100"),
    ],
)
def test_who_stops_a_training_is_told_what_is_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    saved: list[int],
    reached: int,
    said: str,
) -> None:
    config = load(None, [IMITATE])
    job = TrainJob(
        dataset=tmp_path,
        start=tmp_path,
        out=tmp_path / "train",
        config=config.train,
        trainer=config.trainer,
        name="one",
    )
    for step in [*saved, 900]:
        (job.checkpoints / f"checkpoint-{step}").mkdir(parents=True)
    for step in saved:  # the other one is torn
        seal(job.checkpoints / f"checkpoint-{step}")

    def interrupted(_: Workers, jobs: list[TrainJob], follow: Callable[[dict[str, Any]], None]) -> None:
        follow({"job": "one", "step": reached, "steps": 900})
        raise KeyboardInterrupt

    monkeypatch.setattr(Workers, "train", interrupted)
    monkeypatch.setattr(RayCluster, "connect", lambda self: None)
    monkeypatch.setattr(Trainings, "_placed", lambda self, *jobs: list(jobs))
    with pytest.raises(KeyboardInterrupt):
        Services(plan_of(config), tmp_path, Reporter()).train([job], "one")
    assert said in " ".join(capsys.readouterr().out.split())
