"""Operators that ask a teacher, against a real environment server: what is asked, what becomes of answers of any kind,
and what is kept."""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.collect.advisor import ANSWERS, AdvisorConfig, Who
from agentr.collect.evolver import EvolveConfig
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, run_job
from agentr.collect.teacher_operators import read_answer, rewritten
from agentr.collect.units import Limits, StageProgress
from agentr.config.policy import OpenAIConfig
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.errors import BudgetExceeded, ConfigError, InfraError, RunError
from agentr.methods import load
from agentr.methods.et_agent.evolve import Evolve
from agentr.methods.et_agent.rows import FilterConfig, count_agreement, count_verdicts, evolved_rows
from agentr.observe.tables import judge_warning
from agentr.policy.base import GenerateRequest, Policy
from agentr.rows.targets import Targets
from agentr.search import Origin, Sample, Tree
from agentr.search.evolution import Evolution
from agentr.search.revision import Rating, Verdict
from agentr.search.stored import from_json, to_json
from agentr.search.tree import Node
from agentr.store.forest import Forest
from agentr.store.rows import Dropped, Row
from agentr.tasks.formats import FORMATS, ReAct
from agentr.types import Completion, FinishReason, Outcome, Task
from tests.collect.test_grow import play
from tests.players import sloppy_agent, thinking_agent
from tests.policy.test_families import codec_of
from tests.trees import add, child, new_tree

STEPS = 8
ASKING = EvolveConfig(
    evolutions=2,
    right=["drop_redundant", "refine_redundant", "rewrite_thoughts"],
    wrong=["correct_flawed", "correct_step"],
)

#: Gives a teacher's answer to a question; may raise.
Answer = Callable[[str], str]


class Taught:
    """A policy that answers a teacher's questions by a script and leaves everything else to another one."""

    def __init__(self, policy: Policy, answer: Answer) -> None:
        self.policy, self.answer, self.questions = policy, answer, list[str]()
        self.stats = policy.stats

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        question = request.messages[-1].content
        if not question.startswith("You check the work of an agent that"):
            return await self.policy.generate(request)
        self.questions.append(question)
        return [Completion(self.answer(question), (1, 2), (-0.5, -0.5), FinishReason.STOP)]


def wise(question: str) -> str:
    """Asks to look around in the first step's place; thinks in two words."""
    if "Write this thought anew" in question:
        return "  all\nright  "
    return f"Step: 1\nAnalysis: because.\nCorrected Step: {ReAct().compose('I look first', 'inventory')}"


def taught(
    server: EnvServer, tmp_path: Path, answer: Answer, config: EvolveConfig = ASKING
) -> tuple[list[Tree], list[str]]:
    """Evolved trees, and the questions that were asked."""

    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[list[Tree], list[str]]:
        agent = await sloppy_agent(env, tasks)
        plain = TreeJob(
            folder=tmp_path / "collect", tasks=tuple(tasks), seed=1, policy="p", work=Grow(Sample(1, STEPS))
        )
        if not Forest(plain.folder).sealed:
            await run_job(plain, agent, StageProgress())
            Forest(plain.folder).seal(stage={}, progress={})
        policy = Taught(agent.policy, answer)
        job = replace(
            plain,
            folder=tmp_path / "evolve",
            work=Evolve(config, STEPS),
            source=plain.folder,
            limits=Limits(infra_retries=0),
        )
        await run_job(job, replace(agent, policy=policy), StageProgress())
        return list(Forest(job.folder)), policy.questions

    return play(server, scenario, limit=8)


@pytest.fixture(scope="module")
def trees(server: EnvServer, tmp_path_factory: pytest.TempPathFactory) -> list[Tree]:
    return taught(server, tmp_path_factory.mktemp("taught"), wise)[0]


def uses(trees: list[Tree], *operators: str) -> list[tuple[Tree, Evolution]]:
    found = [(tree, made) for tree in trees for made in tree.evolutions if made.operator in operators]
    assert found, f"{operators} were not tried: the test would show nothing"
    return found


@pytest.mark.parametrize("operator", ["refine_redundant", "correct_step"])
def test_the_teachers_turn_stands_in_place_of_the_step_and_the_policy_goes_on(operator: str, trees: list[Tree]) -> None:
    for tree, made in uses(trees, operator):
        first, *rest = tree.path(made.end)
        assert (made.turn, made.kept, made.asked) == (1, 0, 1)
        assert (first.origin, first.action) == (Origin.REWRITE, "inventory")
        assert rest and all(node.origin is Origin.POLICY for node in rest)


def test_a_rewritten_thought_leaves_every_action_and_every_answer_as_it_was(trees: list[Tree]) -> None:
    for tree, made in uses(trees, "rewrite_thoughts"):
        before, after = tree.path(made.parent), tree.path(made.end)
        assert made.end > 0 and [n.action for n in after] == [n.action for n in before]
        assert [n.observation for n in after] == [n.observation for n in before] and tree.nodes[
            made.end
        ].reward == before[-1].reward
        for old, new in zip(before, after, strict=True):
            assert new.text.partition("Action:")[2] == old.text.partition("Action:")[2]
            assert ("all right" in new.text) == ("Action:" in old.text), (
                "case and words are the teacher's, white space is not"
            )


def test_execution_and_teacher_are_compared(trees: list[Tree]) -> None:
    agreement = count_agreement(trees)
    assert agreement["flawed"]["both"] == len(uses(trees, "correct_step"))
    tree = new_tree()
    leaf = add(tree, 0, child("a", 1.0, Outcome.SUCCESS)).id
    tree.evolutions += [
        Evolution(operator="drop_redundant", parent=leaf, turn=2),
        Evolution(operator="refine_redundant", parent=leaf, turn=1),
    ]
    assert count_agreement([tree]) == {"redundant": {"both": 1, "whether": 1, "which": 0}}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "cannot be read"),
        ("I would rather not.", "cannot be read"),
        ("Step: 99\nCorrected Step: Action: inventory", "cannot be read"),
        ("Step: 0\nCorrected Step: Action: inventory", "cannot be read"),
        ("Step: 1\nAnalysis: x", "cannot be read"),
        ("Step: 1\nCorrected Step: just do better", "cannot be read"),
        ("Step: no", "finds no such step"),
    ],
)
def test_what_a_teacher_may_say(answer: str, reason: str, server: EnvServer, tmp_path: Path) -> None:
    config = replace(ASKING, right=["refine_redundant"], wrong=["correct_step"], evolutions=1)
    found, _ = taught(server, tmp_path, lambda question: answer, config)
    for tree, made in uses(found, "refine_redundant", "correct_step"):
        assert made.end == -1 and reason in made.reason
        assert len(tree.nodes) == made.parent + 1, "nothing is left of what came to nothing"


@pytest.mark.parametrize(
    "mark", ["</think>", "<think>", "<result>x</result>", "</python>", "<search>q", "<answer>2</answer>", "</THINK>"]
)
def test_a_thought_with_a_tag_is_no_thought(mark: str) -> None:
    """Some of these would be read all the same; the original calls an episode with one not well formed, and nothing of
    it is learnt."""
    turn = "<think>long</think>\n<python>1</python>"
    assert rewritten(FORMATS["tags"], turn, "long", f"so {mark} on") is None
    assert rewritten(FORMATS["tags"], turn, "long", " so \n on ") == "<think>so on</think>\n<python>1</python>"


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    new=st.lists(
        st.sampled_from(["Action:", "Thought:", "Answer:", "End Action", "<think>", "\n", " ", "a", ".", "```"])
    ).map("".join)
)
def test_a_rewritten_turn_is_read_back_with_its_action_and_the_new_thought(new: str) -> None:
    for name, action in (("react", "go"), ("codeact", "python: 1"), ("tags", "python: 1")):
        turn = FORMATS[name].compose("long", action)
        again = rewritten(FORMATS[name], turn, "long", new)
        assert again is None or FORMATS[name].parse(again) == replace(
            FORMATS[name].parse(turn), thought=" ".join(new.split())
        )


def test_what_holds_a_mark_comes_to_nothing_with_its_reason(
    server: EnvServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentr.collect.teacher_operators.rewritten", lambda *_: None)
    config = replace(ASKING, right=["rewrite_thoughts"], wrong=["correct_step"], evolutions=1)
    found, _ = taught(server, tmp_path, wise, config)
    changed = [made for _, made in uses(found, "rewrite_thoughts")]
    assert {(made.end, made.reason) for made in changed} == {(-1, "the teacher's thought holds a mark of the format")}


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_a_teacher_that_reasons_is_taken_by_what_follows(closed: bool, server: EnvServer, tmp_path: Path) -> None:
    """The policy is its own teacher. Turns are rewritten without their reasoning, and come to the same actions."""

    def answer(question: str) -> str:
        return f"<think>\nStep: no? Corrected Step: none{'</think>' if closed else ''}\n\n{wise(question)}"

    async def scenario(env: EnvClient, tasks: list[Task]) -> list[Tree]:
        agent = await thinking_agent(env, tasks, codec_of("Qwen 3"), keeps=False)
        plain = TreeJob(
            folder=tmp_path / "collect", tasks=tuple(tasks), seed=1, policy="p", work=Grow(Sample(1, STEPS))
        )
        plain = replace(plain, sampling=agent.sampling)
        await run_job(plain, agent, StageProgress())
        asking = replace(plain, folder=tmp_path / "evolve", work=Evolve(ASKING, STEPS), source=plain.folder)
        await run_job(asking, replace(agent, policy=Taught(agent.policy, answer)), StageProgress())
        return list(Forest(asking.folder))

    found = play(server, scenario, limit=6)
    kept = [json.loads(line) for line in (Forest(tmp_path / "evolve").work / ANSWERS).read_text().splitlines()]
    assert all(line["whole"].startswith("<think>") and "think>" not in line["answer"] for line in kept)
    for tree, made in uses(found, "refine_redundant", "correct_step", "rewrite_thoughts"):
        if not closed:
            assert made.end == -1 and "cannot be read" in made.reason
        elif made.operator != "rewrite_thoughts":
            assert tree.path(made.end)[0].action == "inventory" and "<think>" not in tree.path(made.end)[0].text
        elif made.end > 0:
            before, after = tree.path(made.parent), tree.path(made.end)
            assert [n.action for n in after] == [n.action for n in before]
            assert all("think>" not in n.text and "all right" in n.text for n in after if n.action)
    assert not closed or any(made.end > 0 for _, made in uses(found, "rewrite_thoughts"))


@pytest.mark.parametrize("error", [InfraError("the server is gone."), BudgetExceeded("5.00 were spent.")])
def test_a_teacher_that_is_gone(error: Exception, server: EnvServer, tmp_path: Path) -> None:
    """The run goes on without it, and says so; or stops with the cause."""

    def gone(question: str) -> str:
        raise error

    found, _ = taught(server, tmp_path, gone)
    assert all(
        made.end == -1 and "did not answer" in made.reason
        for _, made in uses(found, "refine_redundant", "correct_step")
    )
    assert sum(tree.events.get("teacher_silent", 0) for tree in found) > 0
    assert any(made.end >= 0 for _, made in uses(found, "drop_redundant", "correct_flawed"))
    (tmp_path / "required").mkdir()
    with pytest.raises(RunError, match=re.escape(str(error).rstrip("."))):
        taught(server, tmp_path / "required", gone, replace(ASKING, teacher=AdvisorConfig(required=True)))


@pytest.mark.slow
def test_nothing_is_asked_twice(server: EnvServer, tmp_path: Path) -> None:
    """A stage that is started again takes the answers that it has, also where the process died in the middle of one."""
    first, asked = taught(server, tmp_path, wise)
    work = Forest(tmp_path / "evolve").work
    file = work / ANSWERS
    lines = file.read_text().splitlines()
    assert len(lines) == len(set(lines)) == len(asked)
    assert {json.loads(line)["question"] for line in lines} == set(asked)
    kept = "\n".join(lines[:-2]) + "\n" + lines[-2][:40]
    for path in work.iterdir():
        if path.name != ANSWERS:
            _delete(path)
    file.write_text(kept)
    again, asked_again = taught(server, tmp_path, wise)
    assert len(asked_again) == 2 and len(file.read_text().splitlines()) == len(lines)
    assert [to_json(tree) for tree in again] == [to_json(tree) for tree in first], "what answers cost is counted alike"


def _delete(path: Path) -> None:
    if path.is_dir():
        for each in path.iterdir():
            _delete(each)
        path.rmdir()
    else:
        path.unlink()


def test_a_teacher_behind_an_api(server: EnvServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real HTTP server that speaks the protocol; its key is read from the environment."""
    seen: list[dict] = []

    async def main() -> list[Tree]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(re.search(r"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
            body = json.loads(await reader.readexactly(length))
            seen.append({"key": "Bearer made-up" in head, **body})
            choice = {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": wise(body["messages"][-1]["content"])},
            }
            text = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
            writer.write(f"content-length: {len(text)}\r\n\r\n".encode() + text)
            await writer.drain()
            writer.close()

        api = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = api.sockets[0].getsockname()[1]
        openai = OpenAIConfig(base_url=f"http://127.0.0.1:{port}/v1", model="teacher", api_key_env="MADE_UP_KEY")
        config = replace(ASKING, evolutions=1, teacher=AdvisorConfig(who=Who.openai, openai=openai))
        env = EnvClient([server.url()], "secret", timeout_s=10, retries=2)
        try:
            from agentr.config.schema import TaskSelection

            tasks = await env.tasks(TaskSelection(split="train", where={"depth": [1, 2]}, limit=4))
            agent = await sloppy_agent(env, tasks)
            plain = TreeJob(
                folder=tmp_path / "collect", tasks=tuple(tasks), seed=1, policy="p", work=Grow(Sample(1, STEPS))
            )
            await run_job(plain, agent, StageProgress())
            await run_job(
                replace(plain, folder=tmp_path / "evolve", work=Evolve(config, STEPS), source=plain.folder),
                agent,
                StageProgress(),
            )
            return list(Forest(tmp_path / "evolve"))
        finally:
            await env.aclose()
            api.close()

    monkeypatch.setenv("MADE_UP_KEY", "made-up")
    found = asyncio.run(main())
    assert seen and all(request["key"] and request["model"] == "teacher" for request in seen)
    assert any(made.end >= 0 for _, made in uses(found, "refine_redundant", "correct_step"))


def test_the_answer_is_read_in_whole() -> None:
    text = "Step: 2\nAnalysis: It repeats Step 1.\nCorrected Step: <think>so</think>\n<python>\nprint(1)\n</python>\n"
    assert read_answer(text, 3) == (2, "<think>so</think>\n<python>\nprint(1)\n</python>")
    assert read_answer(text, 1) is None


# the judge ------------------------------------------------------------------------------------------------------------

JUDGED = EvolveConfig(evolutions=2, right=["rollout"], wrong=["hint_end"], judge=AdvisorConfig(who=Who.policy))


def judged(server: EnvServer, tmp_path: Path, answer: Answer, config: EvolveConfig = JUDGED) -> list[Tree]:
    tmp_path.mkdir(exist_ok=True)
    return taught(server, tmp_path, answer, config)[0]


def leaves(trees: list[Tree]) -> list[tuple[Tree, Node]]:
    """What was judged: the episodes that operators started from, and those that came of them."""
    places = [
        (tree, {place for made in tree.evolutions for place in (made.parent, made.end) if place >= 0}) for tree in trees
    ]
    return [(tree, tree.nodes[place]) for tree, found in places for place in sorted(found)]


def test_each_episode_is_judged_once_and_its_verdict_is_kept(server: EnvServer, tmp_path: Path) -> None:
    said = {True: "Done.\nJudgement: Good", False: "Not done.\nJudgement: Bad"}
    questions: list[str] = []

    def judge(question: str) -> str:
        questions.append(question)
        return said[len(questions) % 2 == 0]

    found = judged(server, tmp_path, judge)
    assert len(questions) == len(leaves(found)) > 8
    assert {"good", "bad"} == {node.verdict.rating.value for _, node in leaves(found) if node.verdict}
    for tree, node in leaves(found):
        assert node.verdict is not None and node.verdict.answer in said.values()
        question = next(
            q for q in questions if tree.messages[-1].content in q and f"Step {node.depth}:\n{node.text}\n" in q
        )
        assert f"Step {node.depth + 1}:" not in question
    assert to_json(from_json(to_json(found[0]))) == to_json(found[0])
    assert all(node.verdict is None for tree in found for node in tree.nodes if (tree, node) not in leaves(found))


def test_a_judge_is_checked_on_episodes_that_are_known_to_be_right_or_wrong(server: EnvServer, tmp_path: Path) -> None:
    """One that always says yes is found out; what cannot be read counts as uncertain."""
    found = judged(server, tmp_path, lambda question: "Judgement: Good")
    counts = count_verdicts(found, "")
    known = [node.outcome is Outcome.SUCCESS for _, node in leaves(found)]
    assert counts["right"] == {"good": known.count(True), "uncertain": 0, "bad": 0}
    assert counts["wrong"] == {"good": known.count(False), "uncertain": 0, "bad": 0}
    assert "100 % of the right episodes good, and 100 % of the wrong" in judge_warning(counts)
    able = {"right": {"good": 8, "uncertain": 1, "bad": 1}, "wrong": {"good": 2, "uncertain": 0, "bad": 8}}
    assert (
        judge_warning(able)
        == judge_warning({})
        == judge_warning({**able, "wrong": dict.fromkeys(able["wrong"], 0)})
        == ""
    )
    mute = judged(server, tmp_path / "mute", lambda question: "I would rather not say.")
    assert sum(tree.events["judge_malformed"] for tree in mute if tree.evolutions) == len(leaves(mute))
    assert count_verdicts(mute, "")["right"]["uncertain"] > 0


def test_a_judge_that_is_gone_holds_nothing_up_unless_it_is_required(server: EnvServer, tmp_path: Path) -> None:
    def gone(question: str) -> str:
        raise InfraError("the server is gone.")

    found = judged(server, tmp_path, gone)
    assert all(node.verdict is None for _, node in leaves(found)) and count_verdicts(found, "") == {}
    assert sum(tree.events["judge_silent"] for tree in found if tree.evolutions) >= len(leaves(found))
    with pytest.raises(
        RunError, match=r"the judge did not answer: the server is gone\. Or set method\.evolve\.judge\.required=false"
    ):
        judged(server, tmp_path / "required", gone, replace(JUDGED, judge=AdvisorConfig(who=Who.policy, required=True)))


def test_what_the_judge_finds_bad_can_be_left_out() -> None:
    tree = new_tree()
    for name, rating in (("a", Rating.BAD), ("b", Rating.GOOD), ("c", None)):
        add(tree, 0, child(name, 1.0, Outcome.SUCCESS)).verdict = Verdict(rating) if rating else None
    kept = {
        judged: list(evolved_rows(tree, FilterConfig(judged=judged), 1.0, "", Targets(invalid=True)))
        for judged in (False, True)
    }
    assert [isinstance(row, Row) for row in kept[False]] == [True, True, True]
    assert [row.reason if isinstance(row, Dropped) else row.provenance.nodes for row in kept[True]] == [
        "episode that the judge finds bad",
        (2,),
        (3,),
    ]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["method.filter.judged=true"], r"method\.filter\.judged: there is no judge\. Set method\.evolve\.judge\.who"),
        (["method.evolve.judge.who=openai"], r"method\.evolve\.judge\.openai\.model: who = openai needs a model"),
        (
            ["method.evolve.teacher.who=nobody", "method.evolve.right=[rewrite_thoughts]"],
            r"method\.evolve\.teacher\.who: nobody is asked, and rewrite_thoughts asks",
        ),
    ],
)
def test_who_is_to_be_asked_has_to_be_there(overrides: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(None, ["method.type=et_agent", *overrides], files=False)
