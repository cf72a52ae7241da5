"""Whole trees against a real environment server: determinism, resume, resets, failures."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentr.collect.demonstrate import Demonstrate
from agentr.collect.grow import AfterHarm, AfterRefusals, BadBeginning, Grow
from agentr.collect.job import TreeJob, Unit, run_job
from agentr.collect.units import Limits, StageProgress, run_units
from agentr.config.policy import SamplingConfig
from agentr.config.schema import TaskSelection
from agentr.config.turns import CutOff, FullContext, TurnsConfig
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.errors import ContextOverflow, InfraError, PromptRefused, RunError
from agentr.evaluate.metrics import evaluate
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.rewards import RewardConfig, Rewards
from agentr.rewards.group import group_of
from agentr.rows.export_trees import export_demonstrations
from agentr.rows.imports import demonstrated_turns
from agentr.rows.sequences import recorded
from agentr.search import UCT, Child, Expansion, Origin, Sample, Strategy, Tree, UCTConfig
from agentr.search.stored import from_json, to_json
from agentr.search.uct import Dedupe
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.tasks.formats import ReAct
from agentr.types import Completion, Cost, FinishReason, Message, Outcome, Task
from env_servers.app import create_app
from env_servers.textcraft import TextCraft
from tests.env_servers.support import TOKEN, Counter, serving
from tests.players import SloppyExpert, ThinkingExpert, sloppy_agent, thinking_agent
from tests.policy.test_families import codec_of
from tests.trees import add, codec, new_tree, reasoned

SEARCH = UCTConfig(iterations=4, max_depth=8, width=3)


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


def job(folder: Path, tasks: list[Task], **changes: Any) -> TreeJob:
    """A stage of searched trees; ``changes`` may be of the job or of its limits."""
    limits = {name: changes.pop(name) for name in ("in_flight", "infra_retries", "max_failed") if name in changes}
    plain = TreeJob(
        folder=folder,
        tasks=tuple(tasks),
        seed=7,
        policy="test",
        work=Grow(UCT(SEARCH)),
        sampling=SamplingConfig(max_tokens=64),
        limits=Limits(**{"infra_retries": 1, **limits}),
    )
    return replace(plain, **changes)


def test_same_seed_same_trees_however_many_in_flight(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        agent = await sloppy_agent(env, tasks)
        for in_flight in (1, 6):
            await run_job(job(tmp_path / str(in_flight), tasks, in_flight=in_flight), agent, StageProgress())

    play(server, scenario)
    one, six = Forest(tmp_path / "1"), Forest(tmp_path / "6")
    assert len(one) == 6
    assert [to_json(t) for t in one] == [to_json(t) for t in six]


def test_another_seed_grows_other_trees(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        agent = await sloppy_agent(env, tasks)
        for name, seed in (("a", 7), ("b", 8)):
            await run_job(job(tmp_path / name, tasks, seed=seed), agent, StageProgress())

    play(server, scenario, limit=2)
    one, other = ([[n.text for n in tree.nodes] for tree in Forest(tmp_path / name)] for name in "ab")
    assert len(one) == len(other) == 2 and one != other


def test_env_steps_are_one_for_each_new_state(server: EnvServer, tmp_path: Path) -> None:
    """The replay factor is 1: no step is ever played twice, equal actions of siblings share one."""

    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[int, int]:
        agent = await sloppy_agent(env, tasks)
        before = env.stats.steps
        await run_job(job(tmp_path, tasks), agent, StageProgress())
        return env.stats.steps - before, env.stats.replayed_steps

    steps, replayed = play(server, scenario)
    trees = list(Forest(tmp_path))
    parsed_nodes = sum(1 for t in trees for n in t.nodes if n.action)
    assert replayed == 0
    assert steps == parsed_nodes


@pytest.mark.parametrize(
    ("strategy", "at_once"),
    [
        (UCT(SEARCH), 1),
        (UCT(replace(SEARCH, dedupe=Dedupe.none), leaves=5), 1),
        (Sample(3, max_steps=6), 3),
    ],
    ids=["uct", "uct for online training", "sample"],
)
def test_a_killed_tree_continues_from_its_last_expansion(
    server: EnvServer, tmp_path: Path, strategy: Strategy, at_once: int
) -> None:
    """Only what one ask asked for at the same time, and did not get whole, is asked for again; one tree grows at a
    time, so that no other one is between an answer and its journal when the process dies."""

    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[int, int]:
        agent = await sloppy_agent(env, tasks)
        await run_job(job(tmp_path / "whole", tasks, work=Grow(strategy)), agent, StageProgress())
        whole_calls = agent.policy.calls  # type: ignore[attr-defined]

        class Dying(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                if self.calls >= whole_calls // 2:
                    raise Killed
                return await super().generate(request)

        dying = replace(agent, policy=Dying(agent.codec, tasks))
        with pytest.raises(Killed):
            await run_job(job(tmp_path / "cut", tasks, work=Grow(strategy), in_flight=1), dying, StageProgress())
        assert any((Forest(tmp_path / "cut").work / "journal").iterdir())
        second = replace(agent, policy=SloppyExpert(agent.codec, tasks))
        await run_job(job(tmp_path / "cut", tasks, work=Grow(strategy)), second, StageProgress())
        return whole_calls, dying.policy.calls + second.policy.calls  # type: ignore[attr-defined]

    whole_calls, calls = play(server, scenario)
    whole, cut = Forest(tmp_path / "whole"), Forest(tmp_path / "cut")
    assert [to_json(t) for t in whole] == [to_json(t) for t in cut]
    assert whole_calls <= calls <= whole_calls + at_once - 1, "an expansion was paid for twice"
    assert not any((cut.work / "journal").iterdir())


def spend(folder: Path, sizes: list[int], limit: int, in_flight: int) -> StageProgress:
    """Runs a stage of trees that draw one completion at a time, as many as ``sizes`` says."""
    progress = StageProgress()
    tasks = [Task("env", str(n), "train", {}) for n in range(len(sizes))]

    async def make(task: Task) -> Tree:
        tree = Tree.start(task, (Message("user", "Go."),), (), 0)
        progress.track(tree)
        for _ in range(sizes[int(task.id)]):
            await asyncio.sleep(0)
            tree.spend(Cost(completions=1))
        return tree

    limits = Limits(in_flight=in_flight, infra_retries=0, max_failed=0.0, max_completions=limit)
    return asyncio.run(run_units(tasks, make, GrowingForest(folder), progress, limits, per_tree=max(sizes)))


@pytest.mark.parametrize("in_flight", [1, 8, 48])
def test_a_budget_of_completions_counts_the_trees_that_grow(tmp_path: Path, in_flight: int) -> None:
    progress = spend(tmp_path, [100] * 40, 1000, in_flight)
    assert progress.cost.completions == progress.spent().completions == 1000
    assert (progress.done, progress.skipped, progress.in_flight, progress.growing) == (10, 30, 0, {})


@pytest.mark.parametrize("seed", range(5))
def test_a_budget_is_kept_though_cheap_trees_end_first(tmp_path: Path, seed: int) -> None:
    sizes = random.Random(seed).choices([10, 60, 270], k=300)
    assert 7000 <= spend(tmp_path, sizes, 7000, 48).cost.completions < 7270


def test_a_failing_policy_is_infra_and_no_data(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> StageProgress:
        agent = await sloppy_agent(env, tasks)

        class Broken(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                if request.affinity == tasks[0].key:
                    raise InfraError("the engine is gone")
                return await super().generate(request)

        broken = replace(agent, policy=Broken(agent.codec, tasks))
        return await run_job(job(tmp_path, tasks, max_failed=0.5), broken, StageProgress())

    progress = play(server, scenario)
    forest = Forest(tmp_path)
    assert (progress.done, progress.failed, progress.retried) == (5, 1, 1)
    assert list(forest.failures().values()) == ["the engine is gone"]
    assert all(n.outcome is not Outcome.INFRA for t in forest for n in t.nodes)


@pytest.mark.parametrize(
    "strategy",
    [UCT(SEARCH), UCT(SEARCH, leaves=5), Sample(3, max_steps=6)],
    ids=["uct", "uct for online training", "sample"],
)
def test_a_refused_prompt_ends_its_episode_and_nothing_else(
    server: EnvServer, tmp_path: Path, strategy: Strategy
) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[int, StageProgress]:
        agent = await sloppy_agent(env, tasks)
        refused = 0

        class Filtered(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                nonlocal refused
                if request.affinity == tasks[0].key or (request.messages[1:] and sum(request.prompt_ids) % 4 == 0):
                    refused += 1
                    raise ContextOverflow("too long") if refused % 2 else PromptRefused("the content policy")
                return await super().generate(request)

        filtered = replace(agent, policy=Filtered(agent.codec, tasks))
        return refused, await run_job(
            job(tmp_path, tasks, work=Grow(strategy), max_failed=0.0), filtered, StageProgress()
        )

    _, progress = play(server, scenario)
    trees = list(Forest(tmp_path))
    leaves = [node for tree in trees for node in tree.nodes if node.outcome is Outcome.REFUSED]
    assert (progress.done, progress.failed) == (len(trees), 0) and len(trees) == 6 and len(leaves) > 1
    assert 1 < progress.events["refused"] <= len(leaves) and not any(leaf.token_ids or leaf.children for leaf in leaves)
    assert any(tree.successes() for tree in trees), "the others go on"
    for tree in trees:
        ended = list(tree.ended())
        assert not any(leaf in ended for leaf in leaves)
        assert tree.root.visits == len(ended) and tree.root.value == sum(leaf.reward for leaf in ended)
        assert to_json(from_json(to_json(tree))) == to_json(tree)
    found = evaluate(trees)
    assert found.outcomes["refused"] == len(leaves)
    assert set(found.per_task) == {tree.task.key for tree in trees if any(tree.ended())}


def test_too_many_failures_stop_the_stage(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        agent = await sloppy_agent(env, tasks)

        class Dead(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                raise InfraError("the engine is gone")

        await run_job(
            job(tmp_path, tasks, infra_retries=0), replace(agent, policy=Dead(agent.codec, tasks)), StageProgress()
        )

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
        agent = await sloppy_agent(env, tasks)

        class Babbling(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                ids = tuple(self.codec.encode(text)) + ((self.codec.end_id,) if finish is FinishReason.STOP else ())
                return [Completion(text, ids, (), finish)] * request.n

        sample = job(tmp_path, tasks[:1], work=Grow(Sample(1, max_steps=3)))
        await run_job(sample, replace(agent, policy=Babbling(agent.codec, tasks)), StageProgress())
        assert env.stats.steps == 0
        return Forest(tmp_path).read(tasks[0].key)

    tree = play(server, scenario)
    assert tree.events == {"unparsed": 3}
    assert (tree.cost.completions, tree.cost.env_steps) == (3, 0)
    assert [(n.valid, n.status) for n in tree.nodes[1:]] == [(False, "error")] * 3
    assert problem in tree.nodes[1].observation
    # A turn that was cut off is closed in the prompt, but the closing token is not part of what the policy said.
    said, bridge, eos = tree.nodes[1].token_ids, tree.nodes[1].bridge_ids, codec().end_id
    assert said.count(eos) == (1 if finish is FinishReason.STOP else 0)
    assert (bridge[0] == eos) is (finish is FinishReason.LENGTH)
    read = codec().decode(tree.prompt(1)[len(tree.prompt_ids) :], special=True)
    assert read == f"{text}<|im_end|>\n<|im_start|>user\n{tree.nodes[1].observation}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(("cut_off", "taken"), [(CutOff.refused, ""), (CutOff.run, "get 1 sti")])
def test_a_turn_that_was_cut_off_is_run_only_if_that_is_asked_for(
    server: EnvServer, cut_off: CutOff, taken: str
) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> Child:
        class Long(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                return [Completion(text, tuple(self.codec.encode(text)), (), FinishReason.LENGTH)]

        agent = await sloppy_agent(env, tasks)
        agent = replace(agent, policy=Long(agent.codec, tasks), turns=TurnsConfig(cut_off=cut_off))
        tree, session = await agent.start(tasks[0], 0)
        return (await agent.sample(tree, Expansion(0, 0, 1, 0), session)).children[0]

    text = "Thought: so\nAction: get 1 sti"
    child = play(server, scenario)
    assert child.action == taken and ("cut off" in child.observation) is not bool(taken)
    assert child.bridge_ids[0] == codec().end_id, "the turn is closed in the prompt, whatever became of it"


def test_a_full_context_forgets_the_oldest_turns_where_that_is_asked_for(server: EnvServer, tmp_path: Path) -> None:
    """The policy is asked with the opening and the last turns, with the ids that they were stored with, and each node
    says how many it did not see; those turns are in no loss."""
    asked: list[GenerateRequest] = []

    class Asked(SloppyExpert):
        async def generate(self, request: GenerateRequest) -> list[Completion]:
            asked.append(request)
            return await super().generate(request)

        def _action(self, request: GenerateRequest, rng: random.Random) -> str:
            return rng.choice(["inventory", "get 1 moon cheese"])

    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[Tree, int]:
        agent = await sloppy_agent(env, tasks, skill=0.0)
        tree, _ = await agent.start(tasks[0], 0)
        small = len(tree.prompt_ids) + 260
        turns = TurnsConfig(full_context=FullContext.truncate)
        agent = replace(agent, policy=Asked(agent.codec, tasks, 0.0), turns=turns, max_model_len=small)
        await run_job(job(tmp_path, tasks[:1], work=Grow(Sample(1, max_steps=12))), agent, StageProgress())
        return Forest(tmp_path).read(tasks[0].key), small

    tree, limit = play(server, scenario)
    path = tree.path(len(tree.nodes) - 1)
    assert tree.nodes[-1].outcome is not Outcome.CONTEXT_LIMIT and len(path) == 12
    assert [node.forgotten for node in path] == sorted(node.forgotten for node in path), "what is forgotten stays so"
    assert path[0].forgotten == 0 < path[-1].forgotten < len(path) - 1
    for node, request in zip(path, asked, strict=True):
        assert list(request.prompt_ids) == tree.prompt(node.parent, node.forgotten)
        assert len(request.prompt_ids) + 64 <= limit
        more = tree.prompt(node.parent, node.forgotten - 1) if node.forgotten else []
        assert not node.forgotten or len(more) + 64 > limit, "no more is forgotten than has to be"
        assert list(request.messages) == tree.conversation(node.parent, node.forgotten)
    trained = [turn.trained for turn in recorded(path, trained=True)]
    assert trained == [not node.forgotten for node in path]
    assert [n.forgotten for n in from_json(to_json(tree)).nodes] == [n.forgotten for n in tree.nodes]


@pytest.mark.parametrize("family", ["Qwen 3", "GLM 4.5"])
@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "left out"])
def test_reasoning_of_earlier_turns_is_in_prompts_or_is_not(
    family: str, keeps: bool, server: EnvServer, tmp_path: Path
) -> None:
    """Of a searched tree that was stopped and went on: what the policy was sent is what the stored tree says."""
    asked: list[GenerateRequest] = []

    class Asked(ThinkingExpert):
        async def generate(self, request: GenerateRequest) -> list[Completion]:
            asked.append(request)
            if len(asked) == 4:
                raise InfraError("the engine is gone")
            return await super().generate(request)

    async def scenario(env: EnvClient, tasks: list[Task]) -> Tree:
        agent = await thinking_agent(env, tasks, codec_of(family), keeps=keeps)
        agent = replace(agent, policy=Asked(agent.codec, tasks))
        one = job(tmp_path, tasks[:1], sampling=agent.sampling)
        await run_job(one, agent, StageProgress())
        return Forest(tmp_path).read(tasks[0].key)

    tree = play(server, scenario)
    said = [node for node in tree.nodes[1:] if node.finish is FinishReason.STOP]
    assert (tree.hiding is None) == keeps and any(node.reasoning for node in said)
    prompts = {node.id: tuple(tree.prompt(node.id)) for node in tree.nodes}
    assert {request.prompt_ids for request in asked} <= set(prompts.values()) and len(asked) > 5
    deep = [request for request in asked if len(request.messages) > 3]
    assert deep and all(("moon cheese? J" in codec_of(family).decode(request.prompt_ids)) == keeps for request in deep)
    assert all(any("<think>" in message.content for message in request.messages[1:]) == keeps for request in deep)
    for node in said:
        whole = node.reasoning == len(node.token_ids)
        assert node.action != "get 1 moon cheese?" and (node.action == "" or not whole), (
            "the action is not read from the reasoning"
        )
        assert node.answer == ("" if whole else node.text.rpartition("</think>")[2].lstrip("\n"))
    assert from_json(to_json(tree)) == tree


def test_a_context_is_full_by_what_later_prompts_show(server: EnvServer, tmp_path: Path) -> None:
    """The same turns fit where their reasoning is left out, and end the path where it stays."""

    class Idle(ThinkingExpert):
        def _action(self, request: GenerateRequest, rng: random.Random) -> str:
            return "inventory"

    async def scenario(env: EnvClient, tasks: list[Task]) -> dict[bool, Tree]:
        found, codec = {}, codec_of("Qwen 3")
        for keeps in (True, False):
            agent = await thinking_agent(env, tasks, codec, keeps=keeps)
            start, _ = await agent.start(tasks[0], 0)
            agent = replace(
                agent, policy=Idle(codec, tasks), max_model_len=len(start.prompt_ids) + agent.sampling.max_tokens + 500
            )
            folder = tmp_path / str(keeps)
            await run_job(
                job(folder, tasks[:1], work=Grow(Sample(1, 30)), sampling=agent.sampling), agent, StageProgress()
            )
            found[keeps] = Forest(folder).read(tasks[0].key)
        return found

    trees = play(server, scenario)
    for tree in trees.values():
        assert tree.nodes[-1].outcome is Outcome.CONTEXT_LIMIT
        room = len(tree.prompt_ids) + 500
        assert len(tree.prompt(tree.nodes[-1].parent)) <= room < len(tree.prompt(len(tree.nodes) - 1))
    assert len(trees[False].nodes) > len(trees[True].nodes)


class Saying:
    """A policy that says the same, turn by turn."""

    def __init__(self, *actions: str) -> None:
        self.actions = actions

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        said = sum(message.role == "assistant" for message in request.messages)
        text = ReAct().compose("hm", self.actions[said])
        ids = tuple(codec().turn(text))
        return [Completion(text, ids, (-0.25,) * len(ids), FinishReason.STOP)] * request.n

    async def stats(self) -> PolicyStats:
        return PolicyStats()


def test_how_actions_came_out_and_what_an_answer_is_worth_are_in_the_tree_and_in_what_is_made_of_it(
    tmp_path: Path,
) -> None:
    async def scenario(url: str) -> None:
        env = EnvClient([url], TOKEN, timeout_s=10, retries=2)
        try:
            tasks = await env.tasks(TaskSelection(split="train", limit=1))
            agent = replace(
                await sloppy_agent(env, []), policy=Saying("add 50", "status empty", "status limit", "grade 0.75")
            )
            for folder, policy in (("whole", agent.policy), ("wordless", Saying("add 50", "end"))):
                await run_job(
                    job(tmp_path / folder, tasks, work=Grow(Sample(1, max_steps=9))),
                    replace(agent, policy=policy),
                    StageProgress(),
                )
        finally:
            await env.aclose()

    with serving(create_app(Counter(), token=TOKEN)) as url:
        asyncio.run(scenario(url))
    (tree,), (wordless,) = Forest(tmp_path / "whole"), Forest(tmp_path / "wordless")
    assert [node.status for node in tree.nodes] == ["ok", "ok", "empty", "limit", "ok"]
    assert [dict(node.scores) for node in tree.nodes] == [{}, {}, {}, {}, {"share": 0.75}]
    assert tree.nodes[-1].reward == 0.5 and not {"status", "scores"} & json.loads(to_json(wordless))["nodes"][-1].keys()
    score = Rewards.of([RewardConfig("score", options={"name": "share"})])
    assert [reward.total for reward in score(group_of(tree))] == [0.75]
    measured = evaluate([tree])
    assert (measured.reward.mean, measured.scores["share"].mean) == (0.5, 0.75)
    assert measured.statuses == {"ok": 0.5, "empty": 0.25, "error": 0.0, "timeout": 0.0, "limit": 0.25}


def test_a_prompt_that_fills_the_context_ends_the_episode(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[Tree, Tree]:
        agent = await sloppy_agent(env, tasks, skill=0.0)
        tree, _ = await agent.start(tasks[0], 0)
        tiny, small = len(tree.prompt_ids) + 63, len(tree.prompt_ids) + 160
        trees = []
        for name, length in (("tiny", tiny), ("small", small)):
            sample = job(tmp_path / name, tasks[:1], work=Grow(Sample(1, max_steps=50)))
            await run_job(sample, replace(agent, max_model_len=length), StageProgress())
            trees.append(Forest(tmp_path / name).read(tasks[0].key))
        return trees[0], trees[1]

    tiny, small = play(server, scenario)
    assert [n.outcome for n in tiny.nodes] == [Outcome.CONTEXT_LIMIT]
    assert small.nodes[-1].outcome is Outcome.CONTEXT_LIMIT
    assert 1 < len(small.nodes) < 50


def test_a_turn_that_is_finished_keeps_within_the_context(server: EnvServer) -> None:
    """A prompt may leave room for a turn, but not for a turn after a beginning that is given."""

    async def scenario(env: EnvClient, tasks: list[Task]) -> list[tuple[bool, int]]:
        agent = await sloppy_agent(env, tasks)
        tree, session = await agent.start(tasks[0], 0)
        begun = agent.codec.encode(prefix)
        used = len(tree.prompt_ids) + len(begun)
        asked: list[GenerateRequest] = []

        class Asked(SloppyExpert):
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                asked.append(request)
                return await super().generate(request)

        found = []
        for room in (0, 1, 20, 64, 100):
            tight = replace(agent, policy=Asked(agent.codec, tasks), max_model_len=used + room)
            possible = await tight.complete(tree, 0, session, prefix, 1) is not None
            found.append((possible, asked[-1].sampling.max_tokens if possible else 0))
        return found

    prefix = "Thought: That did not work."
    assert play(server, scenario) == [(False, 0), (True, 1), (True, 20), (True, 64), (True, 64)]


def test_demonstrations_are_the_experts_successes(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        await run_job(job(tmp_path, tasks, work=Demonstrate()), await sloppy_agent(env, tasks), StageProgress())

    play(server, scenario)
    assert len(Forest(tmp_path)) == 6
    for tree in Forest(tmp_path):
        assert tree.nodes[-1].outcome is Outcome.SUCCESS
        assert {n.origin for n in tree.nodes[1:]} == {Origin.EXPERT}


def test_trajectories_of_a_file_are_played(server: EnvServer, tmp_path: Path) -> None:
    """What the environment's expert does, exported, read and played again, is the same demonstration; a poor one is no
    success."""
    file = tmp_path / "demos.jsonl"

    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        agent = await sloppy_agent(env, tasks)
        await run_job(job(tmp_path / "expert", tasks, work=Demonstrate()), agent, StageProgress())
        assert export_demonstrations(file, Forest(tmp_path / "expert")) == len(tasks)
        turns = demonstrated_turns([file])
        turns[tasks[0].id] = turns[tasks[0].id][:-1]
        await run_job(job(tmp_path / "file", tasks, work=Demonstrate(turns)), agent, StageProgress())

    play(server, scenario)
    expert, played = Forest(tmp_path / "expert"), Forest(tmp_path / "file")
    different = [key for key in expert.finished() if to_json(expert.read(key)) != to_json(played.read(key))]
    assert len(different) == 1
    assert not played.read(different[0]).successes()
    assert len(played) == len(expert)


def test_recovery_starts_from_the_same_bad_beginnings(server: EnvServer, tmp_path: Path) -> None:
    work = Grow(Sample(1, max_steps=9), BadBeginning(seed=7))

    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        hopeless = await sloppy_agent(env, tasks, skill=0.0)
        await run_job(job(tmp_path / "failed", tasks, work=Grow(Sample(1, max_steps=6))), hopeless, StageProgress())
        failed = work.tasks(tasks, Forest(tmp_path / "failed"))
        for name, skill in (("weak", 0.0), ("strong", 1.0)):
            recovering = job(tmp_path / name, failed, work=work, source=tmp_path / "failed")
            await run_job(recovering, await sloppy_agent(env, tasks, skill=skill), StageProgress())

    play(server, scenario)
    assert work.kind == "recover", "the seeds of its trees come from it"
    failed, weak, strong = (
        Forest(tmp_path / "failed"),
        list(Forest(tmp_path / "weak")),
        list(Forest(tmp_path / "strong")),
    )
    assert strong
    for a, b in zip(weak, strong, strict=True):
        prefix = [n.text for n in a.nodes if n.origin is Origin.PREFIX]
        assert prefix == [n.text for n in b.nodes if n.origin is Origin.PREFIX]
        assert prefix == [n.text for n in failed.read(a.task.key).nodes[1 : len(prefix) + 1]]
        assert 1 <= len(prefix) < 6
    assert sum(bool(t.successes()) for t in strong) > sum(bool(t.successes()) for t in weak)


def refused(*turns: bool, outcome: Outcome = Outcome.FAILURE, other: bool = False) -> Tree:
    """An episode whose turns were carried out or not; perhaps with a second one that was refused at once."""
    tree, node = new_tree(), 0
    for place, valid in enumerate(turns):
        ended = outcome if place == len(turns) - 1 else None
        node = add(tree, node, reasoned(f"turn {place}", 0.0, ended, valid)).id
    if other:
        add(tree, add(tree, 0, reasoned("wrong", valid=False)).id, reasoned("x", 0.0, Outcome.FAILURE))
    return tree


@pytest.mark.parametrize(
    ("tree", "one", "two"),
    [
        (refused(True, False, True, False, False, True), 2, 5),
        (refused(False, False, True, outcome=Outcome.SUCCESS), 1, 2),
        (refused(True, False), None, None),  # it ended with it
        (refused(True, True, True), None, None),
        (refused(False, True, False, True), 1, None),
        (refused(True, True, True, other=True), None, None),  # the first episode counts
        (new_tree(), None, None),
    ],
)
def test_a_beginning_ends_after_the_first_refusals_in_a_row(tree: Tree, one: int | None, two: int | None) -> None:
    for count, last in ((1, one), (2, two)):
        work = AfterRefusals(count)
        assert work.applies(tree) is (last is not None)
        if last is not None:
            assert asyncio.run(work.last(cast(Unit, SimpleNamespace(begun=lambda: tree)))) == (tree, last)


def wasted() -> tuple[str, list[str], int]:
    """A task, its expert's actions with a craft among them that takes what was fetched for the goal, and its place."""
    game = TextCraft(recipes="exact", distractors=3)
    for task in (task.id for task in game.split("train") if task.labels["depth"] == 2):
        steps = [step.action for step in game.expert(task) or []]
        state, seen = game.reset(task)
        others = [line for line in seen.observation.splitlines() if line.startswith("craft ") and line not in steps]
        for place, action in enumerate(steps):
            if game.step(state, action).done:
                break
            for craft in others:
                other = game.fork(state)
                if (
                    game.step(other, craft).valid
                    and len(mended := game.expert_from(other) or []) > len(steps) - place - 1
                ):
                    return task, [*steps[: place + 1], craft, *(step.action for step in mended)], place + 2
    raise AssertionError("nothing can be wasted")


def test_harm_is_a_turn_that_leaves_more_to_do(server: EnvServer, tmp_path: Path) -> None:
    work = Grow(Sample(1, max_steps=14), AfterHarm())
    spoilt, actions, last = wasted()

    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        played = [Task("textcraft", spoilt, "train"), *tasks]
        agent = await sloppy_agent(env, played, skill=1.0)
        scripted = {spoilt: tuple(ReAct().compose("so", action) for action in actions)}
        for some, expert in ((played[:1], Demonstrate(scripted)), (tasks, Demonstrate())):
            await run_job(job(tmp_path / "played", some, work=expert), agent, StageProgress())
        on = job(tmp_path / "on", work.tasks(played, Forest(tmp_path / "played")), work=work)
        await run_job(replace(on, source=tmp_path / "played"), agent, StageProgress())

    play(server, scenario)
    assert len(Forest(tmp_path / "played")) == 7
    (tree,) = Forest(tmp_path / "on")
    assert tree.task.id == spoilt, "who plays as the expert does no harm"
    prefix = [node.action for node in tree.nodes if node.origin is Origin.PREFIX]
    assert prefix == actions[:last]
