"""Agent-R where part of the state is hidden: which turns it learns of a policy that guesses."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from agentr.collect.agent import Agent
from agentr.collect.job import TreeJob, run_job
from agentr.collect.judge import Judge
from agentr.collect.sessions import Sessions
from agentr.collect.units import StageProgress
from agentr.config.schema import TaskSelection
from agentr.methods.agent_r import AgentR, AgentRConfig
from agentr.methods.agent_r.revise import End, ReviseConfig
from agentr.policy.base import GenerateRequest
from agentr.rows.revision import count_luck, good_rows, revision_rows
from agentr.rows.targets import Targets
from agentr.search import Tree, UCTConfig
from agentr.search.revision import Splice
from agentr.store.forest import Forest
from agentr.store.rows import Dropped, Row
from agentr.tasks.formats import ReAct
from agentr.types import Completion, FinishReason
from env_servers.base import Environment
from tests.collect.test_worlds import Opens, doors, left, with_agent
from tests.trees import codec

__all__ = ["doors"]


class Guesses(Opens):
    """Listens in the middle of the doors that are left, or opens any of them."""

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        text = "\n".join(message.content for message in request.messages)
        low, high = left(text)
        rng, drawn = random.Random(request.sampling.seed), []
        for _ in range(request.n):
            listens = low < high and rng.random() < 0.5
            said = ReAct().compose("so", f"listen {(low + high) // 2}" if listens else f"open {rng.randint(low, high)}")
            drawn.append(Completion(said, tuple(codec().turn(said)), (), FinishReason.STOP))
        return drawn


@pytest.mark.parametrize(
    "end", [End.path, *(pytest.param(end, marks=pytest.mark.slow) for end in (End.search, End.expert))]
)
def test_a_method_learns_fewer_guesses(doors: Environment, tmp_path: Path, end: End):
    """Of what is learnt when worlds are tried, few turns open a door that nobody could know of."""
    search = UCTConfig(iterations=6, max_depth=7, width=4)
    learnt: dict[bool, int] = {}
    for luck in (True, False):
        revise = ReviseConfig(worlds=4, learn_luck=luck, end=end, judge=Judge.tree, alpha=[1.0], pairs_per_task=3)
        method = AgentR(AgentRConfig(search=search, revise=revise))

        async def work(agent: Agent, tree: Tree, sessions: Sessions, luck=luck, method=method) -> list[Tree]:
            agent = replace(agent, policy=Guesses())
            tasks = await agent.env.tasks(TaskSelection(split="train", limit=30))
            for stage, made in method.exploration(1).items():
                source = tmp_path / f"{luck}-{made.source}" if made.source else None
                folder, about = tmp_path / f"{luck}-{stage}", {"seed": 3, "policy": "guesses", "work": made}
                job = TreeJob(folder=folder, tasks=tuple(tasks), sampling=agent.sampling, source=source, **about)
                await run_job(job, agent, StageProgress())
            return list(Forest(tmp_path / f"{luck}-revise"))

        trees = with_agent(doors, work)
        counted = count_luck(trees)
        assert 0 < counted["of them luck"] < counted["turns tried in other worlds"]
        targets = Targets(luck=luck)
        rows: list[Row | Dropped] = []
        for tree in trees:
            rows += revision_rows(tree, Splice.executed, codec(), ReAct(), limit=0, targets=targets)
            rows += good_rows(tree, 1.0, limit=2, targets=targets)
        learnt[luck] = sum(guesses(tree, row) for tree in trees for row in rows if is_of(row, tree))
    assert learnt[True] > 10 and learnt[False] < learnt[True] / 2, learnt


def is_of(row: Row | Dropped, tree: Tree) -> bool:
    return isinstance(row, Row) and row.provenance.tree == tree.task.key


def guesses(tree: Tree, row: Row) -> int:
    """How many trained turns of a row open one of several doors that are left."""
    found, place = 0, len(tree.prompt_ids)
    for node in (tree.nodes[number] for number in row.provenance.nodes):
        trained = any(row.loss_mask[place : place + len(node.token_ids)])
        place += tree.length(node)
        low, high = left("\n".join(message.content for message in tree.conversation(node.parent)))
        found += trained and node.action.startswith("open") and low < high
    return found
