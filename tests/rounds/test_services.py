"""What goes on running when one experiment follows another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentr.methods import load
from agentr.observe.progress import Reporter
from agentr.rounds.coordinators import Coordinators
from agentr.rounds.services import Services
from agentr.store.run import RunStore
from agentr.train.checkpoints import seal
from agentr.train.job import TrainJob


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
        (["method.type=eto", "method.episodes=2", "run.seed=3"], ["coordinator"], True),
        (["policy.threads=2"], ["coordinator", "engine"], True),
        (["model.max_model_len=4096"], ["coordinator", "engine"], True),
        (["env.options.distractors=1"], ["coordinator", "server"], True),
        (["cluster.cpus=3"], ["server", "engine"], False),
    ],
)
def test_what_another_experiment_would_start_the_same_runs_on(tmp_path: Path, changes: list[str], killed: list[str], up: bool) -> None:
    services = Services(load(None), tmp_path, Reporter())
    ray = FakeRay()
    services._coordinators = Coordinators(ray, services.config, [], "", tmp_path)
    services._coordinators._actors = {0: "coordinator"}
    services._ray, services._engines = ray, {0: "engine"}
    services._servers = FakeServers(ray)  # type: ignore[assignment]
    services.model, services.engines_early = tmp_path, True
    services.take_over(load(None, changes), RunStore(tmp_path))
    assert (ray.killed, ray.up) == (killed, up)
    assert services.config == load(None, changes)
    assert services._coordinators is None and services.model is None and not services.engines_early
    assert (services._servers is None) == ("server" in killed) and (services._engines == {}) == ("engine" in killed)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], saved: list[int], reached: int, said: str
) -> None:
    config = load(None)
    job = TrainJob(dataset=tmp_path, start=tmp_path, out=tmp_path / "train", config=config.train, trainer=config.trainer, name="one")
    for step in [*saved, 900]:
        (job.checkpoints / f"checkpoint-{step}").mkdir(parents=True)
    for step in saved:  # the other one is torn
        seal(job.checkpoints / f"checkpoint-{step}")

    def interrupted(_: list[TrainJob], follow: Callable[[dict[str, Any]], None]) -> None:
        follow({"job": "one", "step": reached, "steps": 900})
        raise KeyboardInterrupt

    monkeypatch.setattr("agentr.train.launch.train_many", interrupted)
    monkeypatch.setattr(Services, "_start_ray", lambda self: None)
    monkeypatch.setattr(Services, "_placed", lambda self, *jobs: list(jobs))
    with pytest.raises(KeyboardInterrupt):
        Services(config, tmp_path, Reporter()).train([job], "one")
    assert said in " ".join(capsys.readouterr().out.split())
