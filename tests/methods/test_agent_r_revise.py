"""What a judge is asked, and which revisions pay, with a counter that pays what it stands at: each figure can be
checked by hand."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from agentr.collect.agent import Agent
from agentr.collect.job import run_job
from agentr.collect.judge import Judge, find_transition
from agentr.collect.sessions import Sessions
from agentr.collect.units import StageProgress
from agentr.config.policy import SamplingConfig
from agentr.config.turns import PromptConfig
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.errors import ConfigError, InfraError
from agentr.methods.agent_r import AgentR, AgentRConfig, Revise
from agentr.methods.agent_r.revise import Begin, End, ReviseConfig, execute, good_turns, searched_on, splice
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.rows.revision import demonstrated_rows, instead, revision_rows
from agentr.rows.targets import Targets
from agentr.search import Origin, Tree, UCTConfig
from agentr.search.pairs import Pair
from agentr.search.revision import Rating, Revision, Splice, Verdict
from agentr.search.stored import to_json
from agentr.store.forest import Forest
from agentr.store.rows import Dropped, Row
from agentr.tasks.formats import ReAct
from agentr.types import Completion, FinishReason, Outcome, Task
from tests.collect.test_grow import SEARCH, job, play
from tests.env_servers.support import TOKEN, Counter, counter_server
from tests.players import sloppy_agent
from tests.policy.test_families import codec_of
from tests.reasoning import drawn
from tests.trees import codec

T = TypeVar("T")


class Scripted:
    """Finds a step bad if its action is among ``bad``, and all others uncertain.

    Attributes:
        asked: The prompts, in order.
    """

    def __init__(self, *bad: str) -> None:
        self.bad = bad
        self.codec, self.thought = codec(), ""
        self.asked: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        self.asked.append(request)
        step = request.messages[0].content.partition("Step to judge:\n")[2]
        bad = step.startswith(tuple(f"Action: {action}\n" for action in self.bad))
        text = f"{self.thought}Judgement: {'Bad' if bad else 'Uncertain'}"
        return [Completion(text, drawn(self.codec, text), (), FinishReason.STOP)]

    async def stats(self) -> PolicyStats:
        return PolicyStats()

    def steps(self) -> list[str]:
        """The actions that were judged."""
        return [
            request.messages[0].content.partition("Step to judge:\nAction: ")[2].partition("\n")[0]
            for request in self.asked
        ]


def with_agent(judge: Scripted, work: Callable[[Agent, Tree, Sessions], Awaitable[T]]) -> T:
    """What comes of an agent with a tree of the counter, at 0."""

    async def main(url: str) -> T:
        env = EnvClient([url], TOKEN, retries=0)
        agent = Agent(
            policy=judge,
            env=env,
            codec=judge.codec,
            spec=Counter().spec,
            format=ReAct(),
            prompt=PromptConfig(),
            sampling=SamplingConfig(max_tokens=32),
            max_model_len=8192,
        )
        tree, session = await agent.start(Task("counter", "train-0", "train"), 0)
        try:
            return await work(agent, tree, Sessions(tree, env, session))
        finally:
            await env.aclose()

    with counter_server() as client:
        return asyncio.run(main(str(client.base_url).rstrip("/")))


async def played(agent: Agent, tree: Tree, sessions: Sessions, *actions: str, at: int = 0) -> int:
    """Adds a path of the policy's to a tree, and returns its last node."""
    for action in actions:
        turns = await agent.act(tree, at, await sessions.at(at), ReAct().compose("", action))
        at = tree.add(at, turns.children[0], Origin.POLICY).id
        sessions.keep(at, turns.sessions[0])
    return at


# the judge ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whole_path", "judged"),
    [(False, ["add 2", "add 3"]), (True, ["add 1", "add 2", "add 3"])],
    ids=["ours", "the original"],
)
def test_steps_are_judged_from_where_the_paths_part_or_from_the_first_on(whole_path: bool, judged: list[str]) -> None:
    judge = Scripted("add 3")

    async def work(agent: Agent, tree: Tree, sessions: Sessions) -> tuple[int, int]:
        bad = await played(agent, tree, sessions, "add 1", "add 2", "add 3", "add 4")
        good = await played(agent, tree, sessions, "add 50", at=1)
        found = await find_transition(
            tree, Pair(bad, good, 1), agent, ReviseConfig(judge_shared_prefix=whole_path), 0.2
        )
        assert found is not None
        return found.id, tree.cost.judge_calls

    assert with_agent(judge, work) == (3, len(judged)), "the first bad step; nothing after it is asked"
    assert judge.steps() == judged


def test_a_judge_without_room_for_all_steps_sees_the_last_ones() -> None:
    judge = Scripted()

    async def work(agent: Agent, tree: Tree, sessions: Sessions) -> None:
        last = await played(agent, tree, sessions, *(f"add {number}" for number in range(1, 7)))
        pair, config = Pair(last, last, 0), ReviseConfig()
        assert await find_transition(tree, pair, agent, config, 0.2) is None
        for node in tree.nodes:
            node.verdict = None
        whole = len(judge.asked[-1].prompt_ids) + config.judge_sampling.max_tokens
        await find_transition(tree, pair, replace(agent, max_model_len=whole - 1), config, 0.2)

    with_agent(judge, work)
    whole, cut = judge.asked[5].messages[0].content, judge.asked[11].messages[0].content
    assert all(f"Action: add {number}\n" in whole for number in range(1, 7))
    assert "Action: add 1\n" not in cut and all(f"Action: add {number}\n" in cut for number in range(2, 7))


# the splice -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("detour", "earned", "pays"), [("add -30", 0.5, False), ("add 5", 0.85, True)])
def test_a_revision_pays_if_it_earns_what_the_good_path_does(detour: str, earned: float, pays: bool) -> None:
    """The good path ends at 80 of 100. After a bad beginning the same actions end at 50, or at 85."""

    async def work(agent: Agent, tree: Tree, sessions: Sessions) -> tuple[Revision, float]:
        good = await played(agent, tree, sessions, "add 80", "end")
        bad = await played(agent, tree, sessions, detour, "end")
        config, pair = ReviseConfig(continue_with_policy=False), Pair(bad, good, 0)
        revision = splice(tree, pair, tree.nodes[bad - 1], config)
        await execute(
            tree, revision, good_turns(tree, pair, agent), tree.nodes[good].reward, agent, sessions, config, max_depth=9
        )
        made = tree.nodes[-2:]
        assert [node.action for node in made] == ["add 80", "end"] and {node.origin for node in made} == {
            Origin.REVISION
        }
        assert (
            made[0].parent == revision.transition
            and revision.reflection in made[0].text
            and revision.reflection not in made[1].text
        )
        return revision, made[-1].reward

    revision, reward = with_agent(Scripted(), work)
    assert reward == pytest.approx(earned)
    assert (revision.spliced, revision.end >= 0, revision.continued) == (pays, pays, False)


# policies that reason -------------------------------------------------------------------------------------------------


def reasoner(*bad: str, thought: str) -> Scripted:
    judge = Scripted(*bad)
    judge.codec, judge.thought = codec_of("Qwen 3"), thought
    return judge


@pytest.mark.parametrize(
    ("thought", "rating", "reason", "malformed"),
    [
        ("<think>\nJudgement: Good?\n</think>\n\nIt is far. ", Rating.BAD, "It is far.", 0),
        ("<think>\nIs it? ", Rating.UNCERTAIN, "", 1),
    ],
    ids=["closed", "open"],
)
def test_a_verdict_is_read_from_what_follows_the_reasoning(
    thought: str, rating: Rating, reason: str, malformed: int
) -> None:
    async def work(agent: Agent, tree: Tree, sessions: Sessions) -> tuple[Verdict | None, int]:
        last = await played(agent, tree, sessions, "add 3")
        await find_transition(tree, Pair(last, last, 0), agent, ReviseConfig(), 0.2)
        return tree.nodes[last].verdict, tree.events.get("judge_malformed", 0)

    verdict, unread = with_agent(reasoner("add 3", thought=thought), work)
    assert verdict is not None and (verdict.rating, verdict.reason, unread) == (rating, reason, malformed)
    assert verdict.answer is not None and verdict.answer.startswith(thought), "the whole answer is kept"


def test_a_revision_takes_over_the_thought_of_a_turn_and_not_its_reasoning() -> None:
    async def work(agent: Agent, tree: Tree, sessions: Sessions) -> Tree:
        good = await played(agent, tree, sessions, "add 80", "end")
        for node in tree.nodes[1:]:
            thought = f"<think>\nAction: add {node.id}?\n</think>\n\n"
            node.text, node.token_ids = f"{thought}{ReAct().compose('So', node.action)}", ()
        bad = await played(agent, tree, sessions, "add -1", "end")
        config, pair = ReviseConfig(continue_with_policy=False), Pair(bad, good, 0)
        revision = splice(tree, pair, tree.nodes[bad - 1], config)
        await execute(
            tree, revision, good_turns(tree, pair, agent), tree.nodes[good].reward, agent, sessions, config, max_depth=9
        )
        return tree

    tree = with_agent(reasoner(thought=""), work)
    first, second = tree.nodes[-2:]
    assert [node.origin for node in (first, second)] == [Origin.REVISION] * 2
    assert first.text.endswith(" So\nAction: add 80") and second.text == "Thought: So\nAction: end"
    assert "think>" not in first.text and first.reasoning == 0


@pytest.mark.parametrize("judge", Judge)
def test_revisions_are_executed_and_pay(server: EnvServer, tmp_path: Path, judge: Judge) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        agent = await sloppy_agent(env, tasks)
        await run_job(job(tmp_path / "trees", tasks), agent, StageProgress())
        work = Revise(ReviseConfig(judge=judge), alpha=1.0, search=SEARCH)
        await run_job(job(tmp_path / "revised", tasks, work=work, source=tmp_path / "trees"), agent, StageProgress())

    play(server, scenario, limit=12)
    searched = Forest(tmp_path / "trees")
    judged = kept = 0
    for tree in Forest(tmp_path / "revised"):
        before = searched.read(tree.task.key)
        assert [n.text for n in tree.nodes[: len(before.nodes)]] == [n.text for n in before.nodes], (
            "the searched tree stays as it was"
        )
        judged += tree.cost.judge_calls
        assert sum(n.verdict is not None for n in tree.nodes) >= tree.cost.judge_calls, "a step is judged once"
        for revision in tree.revisions:
            if revision.end < 0:
                continue
            kept += 1
            path = tree.path(revision.end)
            assert tree.nodes[revision.end].outcome is Outcome.SUCCESS
            first = next(n for n in path if n.origin in (Origin.REVISION, Origin.CONTINUATION))
            assert first.parent == revision.transition
            assert revision.reflection in first.text
            assert tree.nodes[revision.transition].depth > tree.nodes[revision.ancestor].depth
            assert revision.continued == any(n.origin is Origin.CONTINUATION for n in path)
    assert kept > 0, f"the {judge} judge gave no revision that pays"
    assert (judged > 0) is (judge is Judge.actor)


# other beginnings, other ends -----------------------------------------------------------------------------------------


def revised(server: EnvServer, folder: Path, config: ReviseConfig, limit: int = 16) -> list[Tree]:
    """The trees of a stage of revisions as a round makes it, by a policy that is wrong in half of its turns."""
    method = AgentR(AgentRConfig(search=SEARCH, revise=config))

    async def scenario(env: EnvClient, tasks: list[Task]) -> None:
        agent = await sloppy_agent(env, tasks, skill=0.5)
        for stage, work in method.exploration(1).items():
            source = folder / work.source if work.source else None
            await run_job(job(folder / stage, tasks, work=work, source=source), agent, StageProgress())

    play(server, scenario, limit=limit)
    return list(Forest(folder / "revise"))


@pytest.mark.parametrize(
    ("begin", "end"), [(begin, end) for begin in Begin for end in End if (begin, end) != (Begin.greedy, End.path)]
)
def test_a_good_end_follows_a_bad_beginning_whatever_both_are_from(
    server: EnvServer, tmp_path: Path, begin: Begin, end: End
) -> None:
    config = ReviseConfig(begin=begin, end=end, judge=Judge.tree, alpha=[1.0], pairs_per_task=2)
    kept, refused = [], 0
    trees = revised(server, tmp_path, config)
    for tree in trees:
        before = Forest(tmp_path / ("collect" if begin is Begin.trees else "greedy")).read(tree.task.key)
        assert [n.text for n in tree.nodes[: len(before.nodes)]] == [n.text for n in before.nodes]
        for revision in tree.revisions:
            refused += not tree.nodes[revision.transition].valid
            if revision.end < 0:
                continue
            kept.append(revision)
            path = tree.path(revision.end)
            above, *follow = path[tree.nodes[revision.transition].depth - 1 :]
            assert above.id == revision.transition and path[-1].outcome is Outcome.SUCCESS
            assert revision.reflection in follow[0].text
            assert not any(revision.reflection in turn.text for turn in follow[1:])
            assert {turn.origin for turn in follow} <= {Origin.REVISION, Origin.CONTINUATION}
            assert end is End.path or (revision.good == revision.end and not revision.continued)
        if begin is Begin.greedy:
            leaf = next(before.ended())
            assert bool(tree.revisions) is (leaf.reward < 1)
            assert len(tree.revisions) <= 1 and all(revision.bad == leaf.id for revision in tree.revisions)
    assert kept and refused, "the policy makes no mistake, or none is mended"
    rows = [row for tree in trees for row in rows_of(tree)]
    assert {row.provenance.kind for row in rows} == {"revision"} and len(rows) >= len(kept) / 2


def rows_of(tree: Tree) -> list[Row]:
    made = revision_rows(tree, Splice.executed, codec(), ReAct(), limit=0, targets=Targets())
    return [row for row in made if isinstance(row, Row)]


def test_the_expert_goes_on_from_where_the_policy_is(server: EnvServer, tmp_path: Path) -> None:
    config = ReviseConfig(begin=Begin.greedy, end=End.expert, alpha=[1.0])
    trees = revised(server, tmp_path, config)
    assert sum(tree.cost.completions for tree in trees) == sum(
        tree.cost.completions for tree in Forest(tmp_path / "greedy")
    ), "the expert is no policy"

    async def asked(env: EnvClient, _: list[Task]) -> None:
        for tree in trees:
            for revision in tree.revisions:
                session = await Sessions(tree, env).at(revision.transition)
                steps = await session.expert()
                assert steps is not None and revision.end >= 0, "it can always be mended here"
                said = [turn.action for turn in tree.path(revision.end)[tree.nodes[revision.transition].depth :]]
                assert said == [action for _, action in steps]

    play(server, asked)


def test_a_search_goes_on_as_long_and_costs_what_it_draws(server: EnvServer, tmp_path: Path) -> None:
    config = ReviseConfig(begin=Begin.greedy, end=End.search, alpha=[1.0])
    work = Revise(config, 1.0, SEARCH)
    trees = revised(server, tmp_path, config)
    for tree in trees:
        greedy = Forest(tmp_path / "greedy").read(tree.task.key)
        drawn = tree.cost.completions - greedy.cost.completions
        assert (drawn > 0) is bool(tree.revisions) and drawn <= work.max_completions(30)
    assert work.max_completions(30) > 0 and replace(work, config=ReviseConfig()).max_completions(30) == 0


def test_a_search_after_refusals_is_allowed_as_many_as_any(server: EnvServer) -> None:
    """After two refused turns, with three allowed, a search goes on below two more."""

    async def scenario(env: EnvClient, tasks: list[Task]) -> Tree:
        agent = await sloppy_agent(env, tasks, skill=0.0)
        tree, session = await agent.start(tasks[0], 0)
        sessions = Sessions(tree, env, session)
        last = await played(agent, tree, sessions, "nonsense", "nonsense")
        search, seen = UCTConfig(iterations=3, max_depth=8, width=3, max_invalid=3), list[Tree]()
        watched = replace(agent, on_start=seen.append)
        await searched_on(tree, tree.nodes[last], watched, search, goal=1.0)
        return seen[0]

    found = play(server, scenario, limit=1)
    stuck = [node.depth for node in found.ended() if node.outcome is Outcome.STEP_LIMIT]
    assert stuck and min(stuck) >= 2 + 3


def test_whole_episodes_have_as_many_trained_tokens_as_the_revisions(server: EnvServer, tmp_path: Path) -> None:
    config = ReviseConfig(begin=Begin.greedy, end=End.expert, whole_episodes=True, alpha=[1.0])
    candidates: list[Row | Dropped] = []
    for tree in revised(server, tmp_path, config):
        candidates += [*rows_of(tree), *demonstrated_rows(tree, Targets())]
    revisions = sum(sum(c.loss_mask) for c in candidates if isinstance(c, Row) and c.provenance.kind == "revision")
    made = list(instead(candidates))
    whole = [row for row in made if isinstance(row, Row)]
    assert len(made) == len(candidates), "what is left out is told"
    assert {row.provenance.kind for row in whole} == {"demonstration"}
    longest = max(sum(c.loss_mask) for c in candidates if isinstance(c, Row))
    assert revisions - 2 * longest < sum(sum(row.loss_mask) for row in whole) <= revisions


@pytest.mark.parametrize(
    ("switches", "key"),
    [
        ({"begin": Begin.greedy}, "end"),
        ({"end": End.search, "splice": Splice.paper}, "splice"),
        ({"end": End.expert, "splice": Splice.direct}, "splice"),
        ({"end": End.search, "pairs_per_task": 0}, "pairs_per_task"),
        ({"whole_episodes": True}, "whole_episodes"),
        ({"begin": Begin.greedy, "end": End.expert, "worlds": 4}, "worlds"),
    ],
)
def test_what_cannot_be_revised_so_is_refused(switches: dict[str, Any], key: str) -> None:
    assert [problem.key for problem in ReviseConfig(**switches).problems()] == [key]


def test_what_the_environment_has_not_is_refused_before_the_run() -> None:
    spec = SimpleNamespace(name="webshop", guides=False, hidden=True, redraws=False)
    experiment: Any = SimpleNamespace(store=SimpleNamespace(sealed=lambda stage: False), spec=lambda: spec)
    AgentR(AgentRConfig()).before(experiment, 1)
    method = AgentR(AgentRConfig(revise=ReviseConfig(end=End.expert)))
    with pytest.raises(ConfigError, match="webshop has no expert that goes on"):
        method.before(experiment, 1)
    spec.guides = True
    method.before(experiment, 1)
    worlds = AgentR(AgentRConfig(revise=ReviseConfig(worlds=4)))
    with pytest.raises(ConfigError, match="webshop draws no other worlds"):
        worlds.before(experiment, 1)
    spec.hidden = False
    with pytest.raises(ConfigError, match="webshop does not say that it hides anything"):
        worlds.before(experiment, 1)
    spec.redraws = True
    worlds.before(experiment, 1)


@pytest.mark.parametrize("end", [End.search, End.path, End.expert])
def test_a_revision_that_was_interrupted_is_made_anew_and_comes_out_the_same(
    server: EnvServer, tmp_path: Path, end: End
) -> None:
    """The policy is away for one request in ten: what a unit had done so far is done again, and counted once."""
    config = ReviseConfig(end=end, judge=Judge.actor, alpha=[1.0], pairs_per_task=2)
    method = AgentR(AgentRConfig(search=SEARCH, revise=config))

    async def scenario(env: EnvClient, tasks: list[Task]) -> int:
        agent, lost = await sloppy_agent(env, tasks, skill=0.5), 0

        class Away:
            async def generate(self, request: GenerateRequest) -> list[Completion]:
                nonlocal lost
                if random.Random(f"{request.sampling.seed}").random() < 0.1 and request.sampling.seed not in away:
                    away.add(request.sampling.seed)
                    lost += 1
                    raise InfraError("nobody is at home")
                return await agent.policy.generate(request)

            stats = agent.policy.stats

        away: set[int | None] = set()
        await run_job(job(tmp_path / "collect", tasks), agent, StageProgress())
        work = method.exploration(1)["revise"]
        for folder, policy in (("plain", agent.policy), ("away", Away())):
            asked = job(tmp_path / folder, tasks, work=work, source=tmp_path / "collect", infra_retries=20)
            await run_job(asked, replace(agent, policy=policy), StageProgress())
        return lost

    lost = play(server, scenario, limit=8)
    assert lost > 0
    plain, away = Forest(tmp_path / "plain"), Forest(tmp_path / "away")
    assert [to_json(tree) for tree in plain] == [to_json(tree) for tree in away]
