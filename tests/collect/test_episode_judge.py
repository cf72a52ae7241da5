"""A judge of held-out episodes, against real environment servers: what it is shown, what its answers are counted as."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentr.collect.advisor import ANSWERS
from agentr.collect.episode_judge import Assess
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, run_job
from agentr.collect.units import Limits, StageProgress
from agentr.config.policy import AdvisorConfig, Who
from agentr.config.schema import EnvConfig, TaskSelection
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.errors import InfraError, RunError
from agentr.evaluate.metrics import judged
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.search import Sample, Tree
from agentr.search.revision import Rating
from agentr.store.files import read_lines
from agentr.store.forest import Forest
from agentr.tasks.formats import ActionFormat, ReAct
from agentr.types import Completion, Cost, FinishReason, Outcome, Task
from tests.collect.test_grow import play
from tests.players import sloppy_agent

JUDGE = AdvisorConfig(who=Who.policy)
STEPS = 3


class Judging:
    """A policy whose turns are written down by task, and which answers a judge's questions as ``judge`` says."""

    def __init__(self, turns: dict[str, str], judge: Callable[[str], str]) -> None:
        self.turns, self.judge, self.questions = turns, judge, list[str]()
        self.format: ActionFormat = ReAct()

    async def stats(self) -> PolicyStats:
        return PolicyStats(Cost())

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        question = request.messages[-1].content
        if not question.startswith("You check the work of an agent"):
            text = self.format.compose("so", self.turns[request.affinity])
        else:
            self.questions.append(question)
            text = self.judge(question)
        return [Completion(text, (1, 2), (-0.5, -0.5), FinishReason.STOP)]


@pytest.fixture(scope="module")
def maths(tmp_path_factory: pytest.TempPathFactory):
    running = EnvServer(EnvConfig(name="mathtool"), "secret", str(tmp_path_factory.mktemp("env") / "server.log"))
    yield running
    running.stop()


async def assessed(
    env: EnvClient, tasks: Sequence[Task], folder: Path, policy: Judging, config: AdvisorConfig = JUDGE
) -> list[Tree]:
    """Plays an episode of each task, then asks about it."""
    agent = replace(await sloppy_agent(env, []), policy=policy)
    policy.format = agent.format
    folder.mkdir(exist_ok=True)
    held_out = TreeJob(folder=folder / "eval", tasks=tuple(tasks), seed=1, policy="p", work=Grow(Sample(1, STEPS)))
    if not Forest(held_out.folder).sealed:
        await run_job(held_out, agent, StageProgress())
        Forest(held_out.folder).seal(stage={}, progress={})
    work = Assess(config)
    job = replace(held_out, folder=folder / "judged", work=work, tasks=tuple(work.tasks([], Forest(held_out.folder))))
    await run_job(replace(job, source=held_out.folder, limits=Limits(in_flight=2)), agent, StageProgress())
    return list(Forest(folder / "judged"))


def on_maths(
    server: EnvServer, folder: Path, judge: Callable[[str], str], config: AdvisorConfig = JUDGE
) -> tuple[list[Tree], list[str]]:
    """Judged episodes of twelve problems, whose answers are right, wrong, or never given; and what was asked."""

    async def main() -> tuple[list[Tree], list[str]]:
        env = EnvClient([server.url()], "secret", timeout_s=20, retries=1)
        try:
            tasks = await env.tasks(TaskSelection(split="test", limit=12))
            golds = [(await env.expert(task) or [])[-1][1] for task in tasks]
            said = [(gold, "answer: 123456789", "python: print(1)")[n % 3] for n, gold in enumerate(golds)]
            policy = Judging({task.key: action for task, action in zip(tasks, said, strict=True)}, judge)
            return await assessed(env, tasks, folder, policy, config), policy.questions
        finally:
            await env.aclose()

    return asyncio.run(main())


def fair(question: str) -> str:
    """Compares the two answers that it is shown."""
    right, given = re.findall(r"^(?:Right answer|Answer of the agent): (.*)$", question, re.MULTILINE)
    return f"They are {right} and {given}.\nJudgement: {'Good' if right == given else 'Bad'}"


def test_answers_are_judged_beside_the_experts(maths: EnvServer, tmp_path: Path) -> None:
    trees, questions = on_maths(maths, tmp_path, fair)
    assert len(questions) == 8, "who gives no answer is wrong, and nobody is asked"
    leaves = [leaf for tree in trees for leaf in tree.ended()]
    assert [leaf.verdict.rating for leaf in leaves if leaf.verdict].count(Rating.GOOD) == 4
    assert all(
        (leaf.outcome is Outcome.SUCCESS) == (leaf.verdict is not None and leaf.verdict.rating is Rating.GOOD)
        for leaf in leaves
    )
    found = judged(trees)
    assert (found["judged right"].mean, found["judge agrees"].mean, found["judged right"].n) == (
        pytest.approx(1 / 3),
        1.0,
        12,
    )
    assert sum(tree.cost.judge_calls for tree in trees) == 8 and {tree.cost.calls for tree in trees} == {0}


def test_a_judge_that_says_yes_or_nothing_of_use_does_not_agree(maths: EnvServer, tmp_path: Path) -> None:
    found = judged(on_maths(maths, tmp_path / "yes", lambda _: "Judgement: Good")[0])
    assert (found["judged right"].mean, found["judge agrees"].mean) == (pytest.approx(8 / 12), pytest.approx(8 / 12))
    mute, _ = on_maths(maths, tmp_path / "mute", lambda _: "I would rather not say.")
    assert judged(mute)["judged right"].mean == 0 and judged(mute)["judge agrees"].mean == pytest.approx(4 / 12)
    assert sum(tree.events.get("judge_malformed", 0) for tree in mute) == 8


def test_a_judge_that_is_gone_leaves_the_rest_measured_unless_it_is_required(maths: EnvServer, tmp_path: Path) -> None:
    def gone(_: str) -> str:
        raise InfraError("the server is gone.")

    trees, _ = on_maths(maths, tmp_path, gone)
    assert judged(trees)["judged right"].n == 4, "those without an answer"
    assert judged([tree for tree in trees if not any(leaf.verdict for leaf in tree.ended())]) == {}
    with pytest.raises(
        RunError, match=r"the judge did not answer: the server is gone\. Or set eval\.judge\.required=false"
    ):
        on_maths(maths, tmp_path / "required", gone, replace(JUDGE, required=True))


def test_where_nothing_is_answered_the_judge_sees_the_work_and_is_asked_once(server: EnvServer, tmp_path: Path) -> None:
    async def scenario(env: EnvClient, tasks: list[Task]) -> tuple[list[Tree], list[str]]:
        policy = Judging({task.key: "inventory" for task in tasks}, lambda _: "Nothing was made.\nJudgement: Bad")
        await assessed(env, tasks, tmp_path, policy)
        work = Forest(tmp_path / "judged").work
        answers = (work / ANSWERS).read_bytes()
        for path in work.iterdir():  # all but the answers is lost
            if path.is_dir():
                for file in path.iterdir():
                    file.unlink()
        trees = await assessed(env, tasks, tmp_path, policy)
        assert (work / ANSWERS).read_bytes() == answers
        return trees, policy.questions

    trees, questions = play(server, scenario, limit=4)
    assert len(questions) == 4 == len(read_lines(Forest(tmp_path / "judged").work / ANSWERS))
    assert all(f"Step {STEPS}:" in question and "Right answer" not in question for question in questions)
    assert judged(trees)["judge agrees"].mean == 1.0
