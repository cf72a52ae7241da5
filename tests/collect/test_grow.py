"""Whole trees against a real environment server: determinism, resume, resets, failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentr.collect.player import Player
from agentr.collect.stage import Kind, Stage, can_recover, run_stage
from agentr.config.methods import ReviseConfig, SamplingConfig, SearchConfig

from agentr.build.export import export_demonstrations
from agentr.build.imports import demonstrated_turns
from agentr.collect.coordinator import Progress, run_units
from agentr.config.schema import TaskSelection
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.errors import InfraError, RunError
from agentr.policy.base import GenerateRequest
from agentr.search.tree import Origin, Tree
from agentr.store.forest import Forest
from agentr.types import Completion, FinishReason, Message, Outcome, Task
from tests.players import SloppyExpert, sloppy_player

SEARCH = SearchConfig(iterations=4, max_depth=8, width=3)


class Killed(Exception):
    """Stands for the death of the process: nothing in the code under test knows it."""


def play(server: EnvServer, scenario: Callable[[EnvClient, list[Task]], Awaitable[Any]], limit: int = 6) -> Any:
    """Runs a scenario with a client and some tasks."""

    async def main() -> Any:
        env = EnvClient([server.url()], "secret", timeout_s=10, retries=2)
        try:
            tasks = await env.tasks(TaskSelection(split="train", where={"depth": [1, 2]}, limit=limit))
            return await scenario(env, tasks)
        finally:
            await env.aclose()

    return asyncio.run(main())


def stage(folder: Path, tasks: list[Task], **changes: Any) -> Stage:
    plain = Stage(Kind.SEARCH, folder, tuple(tasks), 7, "test", SamplingConfig(max_tokens=64), search=SEARCH, infra_retries=1)
    return replace(plain, **changes)


def test_same_seed_same_trees_however_many_in_flight(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        player = await sloppy_player(env, tasks)
        for in_flight in (1, 6):
            await run_stage(stage(tmp_path / str(in_flight), tasks, in_flight=in_flight), player, Progress())

    play(server, scenario)
    one, six = Forest(tmp_path / "1"), Forest(tmp_path / "6")
    assert len(one) == 6
    assert [t.to_json() for t in one] == [t.to_json() for t in six]


def test_env_steps_are_one_for_each_new_state(server: EnvServer, tmp_path: Path) -> None:
    """The replay factor is 1: no step is ever played twice, equal actions of siblings share one."""

    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[int, int]:
        player = await sloppy_player(env, tasks)
        before = env.stats.steps
        await run_stage(stage(tmp_path, tasks), player, Progress())
        return env.stats.steps - before, env.stats.replayed_steps

    steps, replayed = play(server, scenario)
    trees = list(Forest(tmp_path))
    parsed_nodes = sum(1 for t in trees for n in t.nodes if n.action)
    assert replayed == 0
    assert steps == parsed_nodes


def test_a_killed_tree_continues_from_its_last_expansion(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[int, int]:
        player = await sloppy_player(env, tasks)
        await run_stage(stage(tmp_path / "whole", tasks), player, Progress())
        whole_calls = player.policy.calls  # type: ignore[attr-defined]

        class Dying(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                if self.calls >= whole_calls // 2:
                    raise Killed
                return await super().generate(request)

        dying = replace(player, policy=Dying(player.codec, tasks))
        with pytest.raises(Killed):
            await run_stage(stage(tmp_path / "cut", tasks), dying, Progress())
        assert any((tmp_path / "cut" / "journal").iterdir())
        second = replace(player, policy=SloppyExpert(player.codec, tasks))
        await run_stage(stage(tmp_path / "cut", tasks), second, Progress())
        return whole_calls, dying.policy.calls + second.policy.calls  # type: ignore[attr-defined]

    whole_calls, calls = play(server, scenario)
    whole, cut = Forest(tmp_path / "whole"), Forest(tmp_path / "cut")
    assert [t.to_json() for t in whole] == [t.to_json() for t in cut]
    assert calls == whole_calls, "an expansion was paid for twice"
    assert not any((tmp_path / "cut" / "journal").iterdir())


def spend(folder: Path, sizes: list[int], limit: int, in_flight: int) -> Progress:
    """Runs a stage of trees that draw one completion at a time, as many as ``sizes`` says."""
    progress = Progress()
    tasks = [Task("env", str(n), "train", {}) for n in range(len(sizes))]

    async def make(task: Task) -> Tree:
        tree = Tree.start(task, (Message("user", "Go."),), (), 0)
        progress.begin(tree)
        for _ in range(sizes[int(task.id)]):
            await asyncio.sleep(0)
            tree.count(completions=1)
        return tree

    limits = {"in_flight": in_flight, "infra_retries": 0, "max_failed": 0.0, "max_completions": limit, "most": max(sizes)}
    return asyncio.run(run_units(tasks, make, Forest(folder), progress, **limits))


@pytest.mark.parametrize("in_flight", [1, 8, 48])
def test_a_budget_of_completions_counts_the_trees_that_grow(tmp_path: Path, in_flight: int) -> None:
    progress = spend(tmp_path, [100] * 40, 1000, in_flight)
    assert progress.counts["completions"] == 1000
    assert (progress.done, progress.skipped, progress.in_flight, progress.growing) == (10, 30, 0, {})


@pytest.mark.parametrize("seed", range(5))
def test_a_budget_is_kept_though_cheap_trees_end_first(tmp_path: Path, seed: int) -> None:
    sizes = random.Random(seed).choices([10, 60, 270], k=300)
    assert 7000 <= spend(tmp_path, sizes, 7000, 48).counts["completions"] < 7270


def test_a_failing_policy_is_infra_and_no_data(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> Progress:
        player = await sloppy_player(env, tasks)

        class Broken(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                if request.affinity == tasks[0].key:
                    raise InfraError("the engine is gone")
                return await super().generate(request)

        broken = replace(player, policy=Broken(player.codec, tasks))
        return await run_stage(stage(tmp_path, tasks, max_failed=0.5), broken, Progress())

    progress = play(server, scenario)
    forest = Forest(tmp_path)
    assert (progress.done, progress.failed, progress.retried) == (5, 1, 1)
    assert list(forest.failures().values()) == ["the engine is gone"]
    assert all(n.outcome is not Outcome.INFRA for t in forest for n in t.nodes)


def test_too_many_failures_stop_the_stage(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        player = await sloppy_player(env, tasks)

        class Dead(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                raise InfraError("the engine is gone")

        await run_stage(stage(tmp_path, tasks, infra_retries=0), replace(player, policy=Dead(player.codec, tasks)), Progress())

    with pytest.raises(RunError, match="units failed for infrastructure reasons; the last: the engine is gone"):
        play(server, scenario)


@pytest.mark.parametrize(
    ("text", "finish", "problem"),
    [
        ("", FinishReason.STOP, "No action was found"),
        ("just prose", FinishReason.STOP, "No action was found"),
        ("Thought: x\nAction:", FinishReason.STOP, "The action is empty"),
        ("Thought: and so on and on Action: get 1 sti", FinishReason.LENGTH, "cut off"),
    ],
)
def test_answers_without_an_action_are_told_and_counted(
    server: EnvServer, tmp_path: Path, text: str, finish: FinishReason, problem: str
) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> Tree:
        player = await sloppy_player(env, tasks)

        class Babbling(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                ids = tuple(self.codec.encode(text)) + ((self.codec.eos_id,) if finish is FinishReason.STOP else ())
                return [Completion(text, ids, (), finish)] * request.n

        sample = stage(tmp_path, tasks[:1], kind=Kind.SAMPLE, max_steps=3)
        await run_stage(sample, replace(player, policy=Babbling(player.codec, tasks)), Progress())
        assert env.stats.steps == 0
        return Forest(tmp_path).read(tasks[0].key)

    tree = play(server, scenario)
    assert tree.counts["unparsed"] == 3
    assert [n.valid for n in tree.nodes[1:]] == [False] * 3
    assert problem in tree.nodes[1].observation
    prompt = tree.prompt(1)
    # A turn that was cut off is closed in the prompt, but the closing token is not part of what the policy said.
    assert prompt.count(tree.prompt_ids[-1]) >= 1
    assert (tree.nodes[1].token_ids[-1:] == (tree.nodes[1].bridge_ids[0],)) is False


def test_a_prompt_that_fills_the_context_ends_the_episode(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[Tree, Tree]:
        player = await sloppy_player(env, tasks, skill=0.0)
        tree, _ = await player.start(tasks[0], 0)
        tiny, small = len(tree.prompt_ids) + 63, len(tree.prompt_ids) + 160
        trees = []
        for name, length in (("tiny", tiny), ("small", small)):
            sample = stage(tmp_path / name, tasks[:1], kind=Kind.SAMPLE, max_steps=50)
            await run_stage(sample, replace(player, max_model_len=length), Progress())
            trees.append(Forest(tmp_path / name).read(tasks[0].key))
        return trees[0], trees[1]

    tiny, small = play(server, scenario)
    assert [n.outcome for n in tiny.nodes] == [Outcome.CONTEXT_LIMIT]
    assert small.nodes[-1].outcome is Outcome.CONTEXT_LIMIT
    assert 1 < len(small.nodes) < 50


def test_demonstrations_are_the_experts_successes(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        await run_stage(stage(tmp_path, tasks, kind=Kind.EXPERT), await sloppy_player(env, tasks), Progress())

    play(server, scenario)
    for tree in Forest(tmp_path):
        assert tree.nodes[-1].outcome is Outcome.SUCCESS
        assert {n.origin for n in tree.nodes[1:]} == {Origin.EXPERT}


def test_trajectories_of_a_file_are_played(server: EnvServer, tmp_path: Path) -> None:
    """What the environment's expert does, exported, read and played again, is the same demonstration; a poor one is no success."""
    file = tmp_path / "demos.jsonl"

    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        player = await sloppy_player(env, tasks)
        await run_stage(stage(tmp_path / "expert", tasks, kind=Kind.EXPERT), player, Progress())
        assert export_demonstrations(file, Forest(tmp_path / "expert")) == len(tasks)
        turns = demonstrated_turns([file])
        turns[tasks[0].id] = turns[tasks[0].id][:-1]
        await run_stage(stage(tmp_path / "file", tasks, kind=Kind.EXPERT, given=turns), player, Progress())

    play(server, scenario)
    expert, played = Forest(tmp_path / "expert"), Forest(tmp_path / "file")
    different = [key for key in expert.finished() if expert.read(key).to_json() != played.read(key).to_json()]
    assert len(different) == 1
    assert not played.read(different[0]).successes()
    assert len(played) == len(expert)


def test_revisions_are_executed_and_pay(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        player: Player = await sloppy_player(env, tasks)
        await run_stage(stage(tmp_path / "trees", tasks), player, Progress())
        for judge in ("actor", "tree"):
            config = ReviseConfig(judge=judge)  # type: ignore[arg-type]
            revising = stage(tmp_path / judge, tasks, kind=Kind.REVISE, source=tmp_path / "trees", revise=config, alpha=1.0)
            await run_stage(revising, player, Progress())

    play(server, scenario, limit=12)
    for judge in ("actor", "tree"):
        kept = 0
        for tree in Forest(tmp_path / judge):
            for revision in tree.search["revisions"]:
                end = revision["end"]
                if end < 0:
                    continue
                kept += 1
                path = tree.path(end)
                assert tree.nodes[end].outcome is Outcome.SUCCESS
                first = next(n for n in path if n.origin in (Origin.REVISION, Origin.CONTINUATION))
                assert first.parent == revision["transition"]
                assert revision["reflection"] in first.text
                assert tree.nodes[revision["transition"]].depth > tree.nodes[revision["ancestor"]].depth
        assert kept > 0, f"the {judge} judge gave no revision that pays"


def test_recovery_starts_from_the_same_bad_beginnings(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        hopeless = await sloppy_player(env, tasks, skill=0.0)
        await run_stage(stage(tmp_path / "failed", tasks, kind=Kind.SAMPLE, max_steps=6), hopeless, Progress())
        failed = [t.task for t in Forest(tmp_path / "failed") if can_recover(t)]
        for name, skill in (("weak", 0.0), ("strong", 1.0)):
            recovering = stage(tmp_path / name, failed, kind=Kind.RECOVER, source=tmp_path / "failed", max_steps=9)
            await run_stage(recovering, await sloppy_player(env, tasks, skill=skill), Progress())

    play(server, scenario)
    weak, strong = list(Forest(tmp_path / "weak")), list(Forest(tmp_path / "strong"))
    assert strong
    for a, b in zip(weak, strong, strict=True):
        prefix = [n.text for n in a.nodes if n.origin is Origin.PREFIX]
        assert prefix == [n.text for n in b.nodes if n.origin is Origin.PREFIX]
        assert 1 <= len(prefix) < 6
    assert sum(bool(t.successes()) for t in strong) > sum(bool(t.successes()) for t in weak)
