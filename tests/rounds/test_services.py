"""What goes on running when one experiment follows another."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentr.observe.progress import Reporter
from agentr.recipes import load
from agentr.rounds.coordinators import Coordinators
from agentr.rounds.services import Services
from agentr.store.run import RunStore


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
