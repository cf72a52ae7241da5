"""R3L against a real environment server: what is begun again, what the policy sees there, and what becomes rows."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentr.collect.advice import advised
from agentr.collect.job import TreeJob, run_job
from agentr.collect.units import Limits, StageProgress
from agentr.config.policy import AdvisorConfig
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.errors import ConfigError, InfraError, RunError
from agentr.methods import load
from agentr.methods.r3l import R3LConfig
from agentr.methods.r3l.retry import Retry
from agentr.methods.r3l.rows import auxiliary_rows
from agentr.policy.base import GenerateRequest, Policy
from agentr.policy.chat import ChatCodec
from agentr.rewards.group import Reward, group_of
from agentr.rows.rollouts import rollout_rows
from agentr.search import Tree
from agentr.search.evolution import Evolution
from agentr.search.stored import from_json, to_json
from agentr.store.forest import Forest
from agentr.store.rows import Rollout
from agentr.types import Asked, Completion, FinishReason, Message, Task
from tests.collect.test_grow import play
from tests.players import sloppy_agent, thinking_agent
from tests.policy.test_families import codec_of
from tests.policy.test_openai_api import Stub, listener, stub
from tests.presets import reflection
from tests.rewards.test_judge import config as behind_api
from tests.rewards.test_judge import saying

__all__ = ["listener", "stub"]  # fixtures

STEPS = 8
ADVICE = "Follow the plan."

#: What is written about an episode, by what was asked; may raise.
Writes = Callable[[str], str]


class Reflecting:
    """A policy that reflects by a script, and leaves everything else to another one."""

    def __init__(self, policy: Policy, writes: Writes, codec: ChatCodec) -> None:
        self.policy, self.writes, self.codec = policy, writes, codec
        self.stats, self.seen = policy.stats, list[GenerateRequest]()

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        if "retry_from_step" not in request.messages[0].content:
            self.seen.append(request)
            return await self.policy.generate(request)
        text = self.writes(request.messages[0].content)
        ids = tuple(self.codec.plain.turn(text))
        return [Completion(text, ids, tuple(-0.01 * n for n in range(len(ids))), FinishReason.STOP)]


def failed_at_second(question: str) -> str:
    """Finds fault with each episode from its second step on, if it has one."""
    return reflection("failure", min(2, steps_of(question)))


def steps_of(question: str) -> int:
    found = re.search(r"from 1 to (\d+)", question)
    assert found is not None
    return int(found[1])


def grown(
    server: EnvServer,
    folder: Path,
    writes: Writes,
    reflect: AdvisorConfig | None = None,
    *,
    reasons: bool = False,
    policy: Callable[[Policy], Policy] = lambda policy: policy,
) -> tuple[list[Tree], Reflecting, ChatCodec]:
    """Trees of four rollouts and at most four retries."""

    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[list[Tree], Reflecting, ChatCodec]:
        agent = await sloppy_agent(env, tasks)
        if reasons:
            agent = await thinking_agent(env, tasks, codec_of("Qwen 3"), keeps=False)
        script = Reflecting(policy(agent.policy), writes, agent.codec)
        work = Retry(4, 4, reflect or R3LConfig().reflect, STEPS)
        limits = Limits(infra_retries=1)
        job = TreeJob(folder=folder, tasks=tuple(tasks), seed=3, policy="p", work=work, limits=limits)
        job = replace(job, sampling=agent.sampling)
        secrets = {"TEST_API_KEY": "secret"}
        await run_job(job, replace(agent, policy=script, secrets=secrets), StageProgress())
        return list(Forest(folder)), script, agent.codec

    return play(server, scenario, limit=4)


@pytest.fixture(scope="module")
def retried(server: EnvServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Tree], Reflecting, ChatCodec]:
    return grown(server, tmp_path_factory.mktemp("r3l"), failed_at_second)


def retries(trees: list[Tree]) -> list[tuple[Tree, Evolution]]:
    found = [(tree, made) for tree in trees for made in tree.evolutions if made.end >= 0]
    assert len(found) > 8, "there are retries, or the test would show nothing"
    return found


def test_each_rollout_is_begun_again_once_where_it_was_said_to_go_wrong(retried: Any) -> None:
    trees, _, _ = retried
    for tree in trees:
        assert len(tree.evolutions) == 4 and len(list(tree.ended())) == len(group_of(tree)) == 8
        assert from_json(to_json(tree)) == tree
    for tree, made in retries(trees):
        before, after = tree.path(made.parent), tree.path(made.end)
        assert made.kept == min(2, len(before)) - 1 and made.answer_ids
        assert before[: made.kept] == after[: made.kept] and before[made.kept].id != after[made.kept].id
        assert len(after) <= STEPS, "turns before it count"
        assert made.completions == len(after) - made.kept >= made.env_steps
    spent = [sum(made.completions for made in tree.evolutions) for tree in trees]
    turns = [sum(len(tree.path(made.parent)) for made in tree.evolutions) for tree in trees]
    assert [tree.cost.completions for tree in trees] == [a + b for a, b in zip(spent, turns, strict=True)]
    assert all(tree.cost.judge_calls == 4 for tree in trees)


@pytest.mark.parametrize("reasons", [False, True], ids=["plain", "reasoning hidden"])
def test_advice_is_seen_from_there_on_and_stands_in_no_row_of_a_rollout(
    reasons: bool, server: EnvServer, tmp_path: Path
) -> None:
    """Token for token: what the policy was asked is the tree's own prompt with the advice in one place."""
    trees, policy, codec = grown(server, tmp_path, failed_at_second, reasons=reasons)
    asked = {request.prompt_ids for request in policy.seen}
    told = {ids for ids in asked if ADVICE in codec.decode(ids)}
    expected = set()
    for tree, made in retries(trees):
        path = tree.path(made.end)
        view = advised(tree, path[made.kept].parent, made.guidance, codec)
        for turn in path[made.kept :]:
            plain, shown = tuple(tree.prompt(turn.parent)), tuple(view.prompt(turn.parent))
            assert shown in told and len(shown) > len(plain)
            assert codec.decode(shown, special=True).replace(f"\n\n{made.guidance}", "", 1) == codec.decode(
                plain, special=True
            )
            expected.add(shown)
    assert told == expected, "and nobody else is told"
    for tree in trees:
        group = group_of(tree)
        rewards = [Reward(episode.earned) for episode in group.episodes]
        for row in rollout_rows(group, rewards, R3LConfig().advantages):
            assert isinstance(row, Rollout) and ADVICE not in codec.decode(row.input_ids)


def test_what_helped_is_imitated_with_its_advice_as_context(retried: Any) -> None:
    trees, _, codec = retried
    kinds = dict.fromkeys(("reflection", "guided"), 0)
    for tree in trees:
        group = group_of(tree)
        rewards = [Reward(episode.earned) for episode in group.episodes]
        earned = {episode.leaf.id: episode.earned for episode in group.episodes}
        helped = [made for made in tree.evolutions if earned[made.end] > earned[made.parent]]
        rows = list(auxiliary_rows(group, rewards, codec))
        assert len(rows) == 2 * len(helped)
        for made, reflected, guided in zip(helped, rows[::2], rows[1::2], strict=True):
            assert isinstance(reflected, Rollout) and isinstance(guided, Rollout)
            for row in (reflected, guided):
                kinds[row.provenance.kind] += 1
                assert row.group == tree.task.key and row.rewards["total"] > row.rewards["before"]
                assert {a for a, m in zip(row.advantages, row.loss_mask, strict=True) if m} == {1.0}
            assert trained(reflected) == list(made.answer_ids)
            assert [p for p, m in zip(reflected.logprobs, reflected.loss_mask, strict=True) if m] == list(
                made.answer_logprobs
            )
            question = codec.decode([i for i, m in zip(reflected.input_ids, reflected.loss_mask, strict=True) if not m])
            assert "retry_from_step" in question and ADVICE not in question
            assert ADVICE in codec.decode(guided.input_ids) and ADVICE not in codec.decode(trained(guided))
            turns = tree.path(made.end)[made.kept :]
            assert trained(guided) == [i for turn in turns for i in turn.token_ids]
    assert kinds["reflection"] == kinds["guided"] > 0


def trained(row: Rollout) -> list[int]:
    return [token for token, mask in zip(row.input_ids, row.loss_mask, strict=True) if mask]


@pytest.mark.parametrize(
    ("writes", "reason"),
    [
        (lambda _: reflection("success", 1), "nothing went wrong"),
        (lambda question: reflection("failure", steps_of(question) + 1), "cannot be read"),
        (lambda _: "I would rather not.", "cannot be read"),
        (lambda _: "", "cannot be read"),
        (lambda _: '{"outcome": "failure"}', "cannot be read"),
        (lambda _: "[" * 5000, "cannot be read"),
        (lambda _: "{" * 5000 + "}" * 5000, "cannot be read"),
        (lambda _: reflection("failure", 1).replace("1}", "1e400}"), "cannot be read"),
        (lambda _: reflection("failure", 1).replace("Follow", "Follow" * 9000), "no room for the advice"),
    ],
)
def test_what_is_not_begun_again(writes: Writes, reason: str, server: EnvServer, tmp_path: Path) -> None:
    trees, _, codec = grown(server, tmp_path, writes)
    for tree in trees:
        assert len(list(tree.ended())) == 4 and all(reason in made.reason for made in tree.evolutions)
        assert tree.events.get("reflection_malformed", 0) == 4 * ("read" in reason)
        group = group_of(tree)
        assert not list(auxiliary_rows(group, [Reward(e.earned) for e in group.episodes], codec))


def test_a_failure_in_a_retry_changes_no_tree(retried: Any, server: EnvServer, tmp_path: Path) -> None:
    """The rollouts come from the journal, and what was written from its file."""
    failures = [InfraError("an engine is gone")]

    class Failing:
        def __init__(self, policy: Policy) -> None:
            self.policy, self.stats, self.told = policy, policy.stats, 0

        async def generate(self, request: GenerateRequest) -> list[Completion]:
            self.told += any(ADVICE in message.content for message in request.messages)
            if self.told == 7 and failures:
                raise failures.pop()
            return await self.policy.generate(request)

    asked = list[str]()
    again, _, _ = grown(
        server, tmp_path, lambda q: asked.append(q) or failed_at_second(q), policy=lambda policy: Failing(policy)
    )
    assert not failures and len(asked) == 4 * len(again), "nothing is asked twice"
    assert [to_json(tree) for tree in again] == [to_json(tree) for tree in retried[0]]


@pytest.mark.parametrize("required", [False, True])
def test_nobody_answers(required: bool, server: EnvServer, tmp_path: Path) -> None:
    def gone(question: str) -> str:
        raise InfraError("the server is gone.")

    config = replace(R3LConfig().reflect, required=required)
    if required:
        with pytest.raises(RunError, match=r"the server is gone\. Or set method\.reflect\.required=false"):
            grown(server, tmp_path, gone, config)
    else:
        trees, _, _ = grown(server, tmp_path, gone, config)
        assert all(made.reason == "nobody answered" for tree in trees for made in tree.evolutions)
        assert all(tree.events["reflect_silent"] == 4 for tree in trees)


def test_a_model_behind_an_api_reflects(stub: Stub, server: EnvServer, tmp_path: Path) -> None:
    """What it wrote is no row: the policy did not draw it. The retry with its advice is."""
    stub.answers = [saying(failed_at_second)]
    trees, _, codec = grown(server, tmp_path, lambda _: "not asked", behind_api(stub))
    assert len(stub.bodies) == 4 * len(trees) and stub.keys[0] == "Bearer secret"
    assert all(not made.answer_ids and ADVICE in made.guidance for _, made in retries(trees))
    groups = [group_of(tree) for tree in trees]
    rows = [row for g in groups for row in auxiliary_rows(g, [Reward(e.earned) for e in g.episodes], codec)]
    assert rows and {row.provenance.kind for row in rows if isinstance(row, Rollout)} == {"guided"}


def test_a_program_is_refused(server: EnvServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "agentr.methods.r3l.retry.grow",
        lambda *_: _one(Tree.start(Task("t", "1", "train"), (Message("user", "Go."),), (), 0)),
    )
    with pytest.raises(ConfigError, match="a program writes its prompts itself"):
        grown(server, tmp_path, failed_at_second)


async def _one(tree: Tree) -> Tree:
    tree.root.asked = Asked()
    return tree


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["method.initial=3"], "method.initial"),
        (["method.initial=8"], "method.initial"),
        (["method.reflect.who=nobody"], "method.reflect.who"),
        (["turns.full_context=truncate"], "turns.full_context"),
        (["train=[{batch_size: 16}]"], "train[0].grpo.ratio"),
        (["train=[{batch_size: 8, grpo: {ratio: none}}]"], "train[0].batch_size"),
    ],
)
def test_what_cannot_be_is_refused(overrides: list[str], key: str) -> None:
    good = ["method.type=r3l", "method.tasks=1", "train=[{batch_size: 16, grpo: {ratio: none}}]"]
    load(None, good, files=False)
    with pytest.raises(ConfigError, match=re.escape(key)):
        load(None, [*good, *overrides], files=False)
