"""Conciseness, proved by execution, against the environment itself."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, run_job
from agentr.collect.shorten import Shorten
from agentr.collect.units import StageProgress
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.evaluate.metrics import conciseness
from agentr.search import Sample, Tree
from agentr.search.episode import EVOLVED, Episode, episodes
from agentr.store.forest import Forest
from agentr.types import Cost, Task
from env_servers.textcraft import TextCraft
from tests.collect.test_grow import play
from tests.players import OPTIONS, sloppy_agent

STEPS = 8


def reward_of(task: Task, actions: Sequence[str]) -> float:
    """What actions earn in the environment itself, from its opening."""
    game = TextCraft(**OPTIONS)
    state, seen = game.reset(task.id)
    for action in actions:
        seen = game.step(state, action)
    return seen.reward


@pytest.fixture(scope="module")
def stages(server: EnvServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Tree], list[Tree]]:
    """Episodes of an agent that does nonsense now and then, and their successes shortened."""
    root: Path = tmp_path_factory.mktemp("stages")

    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[list[Tree], list[Tree]]:
        agent = await sloppy_agent(env, tasks)
        held_out = TreeJob(folder=root / "eval", tasks=tuple(tasks), seed=1, policy="p", work=Grow(Sample(3, STEPS)))
        await run_job(held_out, agent, StageProgress())
        source, work = Forest(held_out.folder), Shorten(max_steps=STEPS)
        source.seal(stage={}, progress={})
        chosen = tuple(work.tasks([], source))
        await run_job(
            replace(held_out, folder=root / "shortened", work=work, tasks=chosen, source=source.folder),
            agent,
            StageProgress(),
        )
        return list(source), list(Forest(root / "shortened"))

    return play(server, scenario, limit=12)


def needed(episode: Episode) -> bool:
    """Whether the episode earns less without any one of its turns but the last."""
    actions = [
        [n.action for at, n in enumerate(episode.path) if at != left_out and n.action]
        for left_out in range(len(episode.path) - 1)
    ]
    return all(reward_of(episode.tree.task, one) < episode.earned for one in actions)


def test_an_episode_is_concise_if_the_environment_can_do_without_none_of_its_turns(
    stages: tuple[list[Tree], list[Tree]],
) -> None:
    played, shortened = stages
    by_hand = {tree.task.key: [needed(e) for e in episodes(tree) if e.succeeded] for tree in played if tree.successes()}
    assert {tree.task.key for tree in shortened} == set(by_hand) != {tree.task.key for tree in played}
    found = {tree.task.key: [made.end < 0 for made in tree.evolutions] for tree in shortened}
    assert found == by_hand and {True, False} <= {one for each in by_hand.values() for one in each}
    assert conciseness(shortened)["concise"].mean == pytest.approx(fmean(fmean(each) for each in by_hand.values()))


def test_the_turns_that_were_needed_are_counted(stages: tuple[list[Tree], list[Tree]]) -> None:
    _, shortened = stages
    shares = []
    for tree in shortened:
        ends = {e.leaf.id: len(e.path) for e in episodes(tree, origins=EVOLVED) if e.succeeded}
        shares.append(fmean(ends[made.end] / ends[made.parent] if made.end >= 0 else 1.0 for made in tree.evolutions))
    found = conciseness(shortened)["needed turns"]
    assert found.mean == pytest.approx(fmean(shares)) and found.mean < 1 and found.n == len(shortened)
    assert conciseness([]) == {}


def test_the_cost_is_that_of_trying_alone(stages: tuple[list[Tree], list[Tree]]) -> None:
    for tree in stages[1]:
        assert tree.cost == Cost(env_steps=sum(made.env_steps for made in tree.evolutions)) and tree.cost.env_steps > 0
