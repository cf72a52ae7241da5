"""Engines as Ray actors: one is killed, and the router goes on with the right weights."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from agentr.cluster.places import Places
from agentr.cluster.ray_private import session_folder
from agentr.config.cluster import ClusterConfig
from agentr.config.model import ModelConfig
from agentr.config.policy import PolicyConfig
from agentr.config.schema import Config
from agentr.errors import ModelError
from agentr.policy.base import GenerateRequest
from agentr.policy.router import Router
from agentr.types import Sampling
from tests.support import tiny_model

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(900)]

CONFIG = Config(
    model=ModelConfig(dtype="float32", max_model_len=512),
    policy=PolicyConfig(kv_cache_gib=0.125, max_num_seqs=16, timeout_s=300.0),
    cluster=ClusterConfig(actor_restarts=2),
)


def test_router_recovers_a_killed_engine_with_the_right_weights(ray_session, tmp_path):
    import ray

    from agentr.policy.actor import start_engines

    first, second = tiny_model(tmp_path / "first", seed=0), tiny_model(tmp_path / "second", seed=1)
    actor = start_engines(Places.of(CONFIG), CONFIG.model, "small", first, [0])[0]

    def ask(max_tokens: int = 16) -> GenerateRequest:
        return GenerateRequest(tuple(range(10, 60)), 2, Sampling(max_tokens=max_tokens, seed=3))

    async def main():
        router = Router.over_actors([actor], CONFIG.policy)
        await router.load(str(first))
        with_first = await router.generate(ask())
        await router.load(str(second))
        with_second = await router.generate(ask())
        pid = await actor.pid.remote()
        in_flight = [asyncio.create_task(router.generate(ask(400))) for _ in range(4)]
        async with asyncio.timeout(30):
            while (await actor.health.remote()).running < 8:  # four calls of two samples
                await asyncio.sleep(0.005)
        os.kill(pid, signal.SIGKILL)
        answered = await asyncio.gather(*in_flight)
        after = await router.generate(ask())
        stats = await router.stats()
        assert await actor.pid.remote() != pid
        assert (await actor.health.remote()).checkpoint == str(second)
        await router.close()
        return with_first, with_second, after, answered, stats

    with_first, with_second, after, answered, stats = asyncio.run(main())
    ids = [[c.token_ids for c in answer] for answer in (with_first, with_second, after)]
    assert ids[0] != ids[1] == ids[2]
    assert len(list(Path(session_folder()).glob("vllm_dist_*"))) == 2, (
        "what each start of vLLM leaves goes with Ray's own files"
    )
    assert [len(a) for a in answered] == [2] * 4
    assert (stats.cost.calls, stats.cost.completions) == (7, 14)
    ray.kill(actor)


def test_an_engine_that_cannot_start_says_why(ray_session, tmp_path):
    from agentr.policy.actor import start_engines

    actor = start_engines(Places.of(CONFIG), CONFIG.model, "small", tmp_path / "missing", [0])[0]

    async def main():
        router = Router.over_actors([actor], CONFIG.policy)
        with pytest.raises(ModelError, match=r"rollout-0 could not start: .*vLLM could not load the model"):
            await router.load(str(tiny_model(tmp_path / "good")))
        await router.close()

    asyncio.run(main())
