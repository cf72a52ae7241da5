"""Measures the growth of trees in agentr and in the original's way, on the same engine, environment server, tasks and
tree parameters.

The reference does what Agent-R's released code does: one tree at a time, one completion a call, no prefix cache, and
before every action a fresh session into which the whole path is replayed. Both grow full trees: no early stop, siblings
merged by text.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, run_job
from agentr.collect.units import Limits, StageProgress
from agentr.commands.run import opened
from agentr.config.schema import MethodConfig
from agentr.envs.client import Recorded
from agentr.envs.connect import connect
from agentr.errors import ConfigError
from agentr.models.load import load_codec
from agentr.observe.cost import ideal_prefill
from agentr.observe.progress import Reporter
from agentr.policy.router import Router
from agentr.policy.vllm_engine import BLOCK
from agentr.rounds.plan import Plan
from agentr.rounds.warm_start import warm_start
from agentr.search import UCT, Child, Expansion, Tree, UCTConfig
from agentr.search.uct import Dedupe
from agentr.store.forest import Forest
from agentr.types import Cost, Task


@dataclass(frozen=True)
class BenchSide:
    """The measured cost of one way of growing trees.

    Attributes:
        calls: Requests to the engine.
        prefill: Prompt tokens that the engine computed, over all sequences.
        ideal: Fewest prompt tokens that an engine with a cache of whole blocks computes for the same trees, sampled as
            on this side.
        distinct: Distinct prefix tokens, rounded to blocks, for any number of completions.
        env_steps: Actions executed by the environment, replays included.
        nodes: Nodes of the trees, without roots.
    """

    trees: int
    seconds: float
    calls: int
    completions: int
    completion_tokens: int
    prefill: int
    ideal: int
    distinct: int
    env_steps: int
    nodes: int

    @property
    def trees_per_minute(self) -> float:
        return 60 * self.trees / self.seconds

    @property
    def excess_prefill(self) -> float:
        return self.prefill / self.ideal

    @property
    def replay_factor(self) -> float:
        """Environment steps per node; NaN if the policy never took an action."""
        return self.env_steps / self.nodes if self.nodes else float("nan")

    def as_dict(self) -> dict[str, Any]:
        derived = {
            "trees_per_minute": self.trees_per_minute,
            "excess_prefill": self.excess_prefill,
            "prefill_over_distinct": self.prefill / self.distinct,
            "replay_factor": self.replay_factor,
            "calls_per_tree": self.calls / self.trees,
        }
        return {**asdict(self), **derived}


def compare(plan: Plan, reporter: Reporter, *, trees: int, reference_trees: int) -> dict[str, Any]:
    """Runs both sides and returns their figures and the ratio of trees per minute.

    The policy is the configuration's warm start, which is trained first and kept in the run directory for the next
    time.

    Args:
        trees: Number of trees that agentr grows, at the same time.
        reference_trees: Number of those tasks that the reference works on; it is slow, and its trees do not depend on
            one another.
    """
    config, search = plan.config, _search(plan.config.method)
    if not 0 < reference_trees <= trees:
        raise ConfigError(
            f"{reference_trees} reference trees of {trees}", hint="Give 0 < --reference-trees <= --trees."
        )
    with (
        opened(plan, reporter) as experiment,
        tempfile.TemporaryDirectory(prefix="trees-", dir=experiment.root) as folder,
    ):
        policy, _ = warm_start(experiment)
        services = experiment.services
        tasks = services.collecting.tasks(replace(config.collect.tasks, limit=trees), training=True)
        engines = services.engines.start(policy.path)
        urls, token = services.collecting.environment()
        env = connect(config.env, urls, token)
        codec, router = load_codec(policy.path, config.model), Router.over_actors(engines, config.policy)

        async def both() -> tuple[BenchSide, BenchSide]:
            try:
                await router.load(str(policy.path))
                agent = Agent.of(AgentSettings.of(config), router, env, codec, await env.spec())
                job = TreeJob(
                    folder=Path(folder),
                    tasks=tuple(tasks),
                    seed=config.run.seed,
                    policy="bench",
                    work=Grow(UCT(search)),
                    sampling=config.collect.sampling,
                    limits=Limits(in_flight=config.collect.in_flight),
                )
                # One call outside the clock: the first one compiles and allocates.
                warm, session = await agent.start(tasks[0], 0)
                await agent.sample(warm, Expansion(0, 0, 1, 0), session)
                reference = await _reference(
                    replace(job, tasks=job.tasks[:reference_trees]), search, reporter, agent, engines
                )
                return await _ours(job, search, reporter, agent, engines), reference
            finally:
                await router.close()
                await env.aclose()

        ours, reference = asyncio.run(both())
    return {
        "model": config.model.path or config.model.source.value,
        "environment": config.env.name,
        "search": {k: getattr(search, k) for k in ("iterations", "max_depth", "width")},
        "max_tokens": config.collect.sampling.max_tokens,
        "block": BLOCK,
        "threads": config.policy.threads,
        "seed": config.run.seed,
        "ours": ours.as_dict(),
        "reference": reference.as_dict(),
        "speedup": ours.trees_per_minute / reference.trees_per_minute,
    }


def _search(method: MethodConfig) -> UCTConfig:
    """Returns the configuration of the search, for both sides: full trees.

    Raises:
        ConfigError: The configuration's method does not search by UCT.
    """
    search = getattr(method, "search", None)
    if not isinstance(search, UCTConfig):
        raise ConfigError(
            f"method.type = {method.type} does not search by UCT",
            hint="Use a configuration such as configs/bench.yaml.",
        )
    return replace(search, dedupe=Dedupe.text, stop_simulation_at_success=False, enough_good=0, stop_hopeless_after=0)


async def _ours(job: TreeJob, search: UCTConfig, reporter: Reporter, agent: Agent, engines: Sequence[Any]) -> BenchSide:
    stats, progress, before = agent.env.stats, StageProgress(), await _computed(engines)
    steps = stats.steps + stats.replayed_steps
    started = time.perf_counter()
    with reporter.task("ours") as update:
        running = asyncio.ensure_future(run_job(job, agent, progress))
        while not running.done():
            await asyncio.wait([running], timeout=0.5)
            update(progress.done, progress.total, "")
        await running
    seconds = time.perf_counter() - started
    executed = stats.steps + stats.replayed_steps - steps
    return _side(list(Forest(job.folder)), seconds, await _computed(engines) - before, executed, BLOCK, search.width)


async def _reference(
    job: TreeJob, search: UCTConfig, reporter: Reporter, agent: Agent, engines: Sequence[Any]
) -> BenchSide:
    stats = agent.env.stats
    steps, before, started = stats.steps + stats.replayed_steps, await _computed(engines), time.perf_counter()
    trees = []
    with reporter.task("the original's way") as update:
        for done, task in enumerate(job.tasks):
            update(done, len(job.tasks), "")
            trees.append(await _original_tree(task, UCT(search), agent, job.seed))
    seconds, executed = time.perf_counter() - started, stats.steps + stats.replayed_steps - steps
    return _side(trees, seconds, await _computed(engines) - before, executed, BLOCK, 1)


async def _original_tree(task: Task, uct: UCT, agent: Agent, seed: int) -> Tree:
    """Grows a tree as the released code does: every completion is a call of its own, every action comes after a reset
    and a replay."""
    tree, session = await agent.start(task, seed)
    await agent.env.close_all([session])
    while expansions := uct.ask(tree):
        (expansion,) = expansions
        children: list[Child] = []
        for sample in range(expansion.n):
            path = [Recorded(n.played, n.observation) for n in tree.path(expansion.node) if n.played]
            session = await agent.env.open(task, path)
            one = Expansion(
                expansion.node, expansion.attempt, 1, random.Random(f"{expansion.seed}/{sample}").getrandbits(31)
            )
            turns = await agent.sample(tree, one, session, reuse_prefix=False)
            children += turns.children
            tree.spend(turns.cost)
            tree.count(**turns.events)
            await agent.env.close_all([session, *turns.sessions])
        uct.tell(tree, expansion, children)
    return tree


def _side(trees: list[Tree], seconds: float, prefill: int, env_steps: int, block: int, samples: int) -> BenchSide:
    total = sum((tree.cost for tree in trees), Cost())
    return BenchSide(
        trees=len(trees),
        seconds=seconds,
        calls=total.calls,
        completions=total.completions,
        completion_tokens=total.completion_tokens,
        prefill=prefill,
        ideal=ideal_prefill(trees, block, samples),
        distinct=ideal_prefill(trees, block),
        env_steps=env_steps,
        nodes=sum(1 for t in trees for n in t.nodes if n.action),
    )


async def _computed(engines: Sequence[Any]) -> int:
    """Returns the number of prompt tokens that the engines have computed so far, over all sequences."""
    health = await asyncio.gather(*(engine.health.remote() for engine in engines))
    return sum(h.prefix_queries - h.prefix_hits for h in health)
