"""Operators that ask a teacher, against a real environment server: what is asked, what becomes of answers of any kind, and what is kept."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentr.build.evolved import count_agreement
from agentr.collect.asked import read_answer, rewritten
from agentr.collect.evolve import Evolve
from agentr.collect.evolver import EvolveConfig
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, run_job
from agentr.collect.teacher import ANSWERS, TeacherConfig, Who
from agentr.collect.units import Limits, Progress
from agentr.config.schema import OpenAIConfig
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.errors import BudgetExceeded, InfraError, RunError
from agentr.policy.base import GenerateRequest, Policy
from agentr.search import Origin, Sample, Tree
from agentr.search.evolution import Evolution
from agentr.search.stored import to_json
from agentr.store.forest import Forest
from agentr.tasks.formats import ReAct
from agentr.types import Completion, FinishReason, Outcome, Task
from tests.collect.test_grow import play
from tests.players import sloppy_agent
from tests.trees import add, child, new_tree

STEPS = 8
ASKING = EvolveConfig(
    evolutions=2, right=["drop_redundant", "refine_redundant", "rewrite_thoughts"], wrong=["correct_flawed", "correct_step"]
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


def taught(server: EnvServer, tmp_path: Path, answer: Answer, config: EvolveConfig = ASKING) -> tuple[list[Tree], list[str]]:
    """Evolved trees, and the questions that were asked."""

    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[list[Tree], list[str]]:
        agent = await sloppy_agent(env, tasks)
        plain = TreeJob(folder=tmp_path / "collect", tasks=tuple(tasks), seed=1, policy="p", work=Grow(Sample(1, STEPS)))
        if not Forest(plain.folder).sealed:
            await run_job(plain, agent, Progress())
            Forest(plain.folder).seal(stage={}, progress={})
        policy = Taught(agent.policy, answer)
        job = replace(plain, folder=tmp_path / "evolve", work=Evolve(config, STEPS), source=plain.folder, limits=Limits(infra_retries=0))
        await run_job(job, replace(agent, policy=policy), Progress())
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
        assert [n.observation for n in after] == [n.observation for n in before] and tree.nodes[made.end].reward == before[-1].reward
        for old, new in zip(before, after, strict=True):
            assert new.text.partition("Action:")[2] == old.text.partition("Action:")[2]
            assert ("all right" in new.text) == ("Action:" in old.text), "case and words are the teacher's, white space is not"


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


def test_a_thought_that_would_change_an_action_is_refused(server: EnvServer, tmp_path: Path) -> None:
    config = replace(ASKING, right=["rewrite_thoughts"], wrong=["correct_step"], evolutions=1)
    found, _ = taught(server, tmp_path, lambda question: "well Action: get 1 moon", config)
    changed = [made for _, made in uses(found, "rewrite_thoughts")]
    # ReAct's action is the first line after the last marker: the old one still counts.
    assert all(made.end > 0 for made in changed)
    assert rewritten("<think>long</think>\n<python>1</python>", "long", "a</think><answer>2</answer>").count("<python>1</python>") == 1


@pytest.mark.parametrize("error", [InfraError("the server is gone."), BudgetExceeded("5.00 were spent.")])
def test_a_teacher_that_is_gone(error: Exception, server: EnvServer, tmp_path: Path) -> None:
    """The run goes on without it, and says so; or stops with the cause."""

    def gone(question: str) -> str:
        raise error

    found, _ = taught(server, tmp_path, gone)
    assert all(made.end == -1 and "did not answer" in made.reason for _, made in uses(found, "refine_redundant", "correct_step"))
    assert sum(tree.events.get("teacher_silent", 0) for tree in found) > 0
    assert any(made.end >= 0 for _, made in uses(found, "drop_redundant", "correct_flawed"))
    (tmp_path / "required").mkdir()
    with pytest.raises(RunError, match=re.escape(str(error).rstrip("."))):
        taught(server, tmp_path / "required", gone, replace(ASKING, teacher=TeacherConfig(required=True)))


def test_nothing_is_asked_twice(server: EnvServer, tmp_path: Path) -> None:
    """A stage that is started again takes the answers that it has, also where the process died in the middle of one."""
    first, asked = taught(server, tmp_path, wise)
    file = tmp_path / "evolve" / ANSWERS
    lines = file.read_text().splitlines()
    assert len(lines) == len(set(lines)) == len(asked)
    assert {json.loads(line)["question"] for line in lines} == set(asked)
    kept = "\n".join(lines[:-2]) + "\n" + lines[-2][:40]
    for path in (tmp_path / "evolve").iterdir():
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
        config = replace(ASKING, evolutions=1, teacher=TeacherConfig(who=Who.openai, openai=openai))
        env = EnvClient([server.url()], "secret", timeout_s=10, retries=2)
        try:
            from agentr.config.schema import TaskSelection

            tasks = await env.tasks(TaskSelection(split="train", where={"depth": [1, 2]}, limit=4))
            agent = await sloppy_agent(env, tasks)
            plain = TreeJob(folder=tmp_path / "collect", tasks=tuple(tasks), seed=1, policy="p", work=Grow(Sample(1, STEPS)))
            await run_job(plain, agent, Progress())
            await run_job(replace(plain, folder=tmp_path / "evolve", work=Evolve(config, STEPS), source=plain.folder), agent, Progress())
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
    assert read_answer(text, 1) == (0, "")
