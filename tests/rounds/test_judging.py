"""A judge in a round of online training: what is kept, what is left out, what is said; and a run with real parts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import agentr
from agentr.collect.job import TreeJob
from agentr.config.checks import find_problems
from agentr.config.policy import AdvisorConfig, Who
from agentr.errors import ConfigError
from agentr.methods import load, method_of
from agentr.observe.summary import summarise
from agentr.observe.tables import tables
from agentr.read.stage import Rollouts
from agentr.rewards import RewardConfig
from agentr.rounds.judging import try_judges
from agentr.rounds.online_config import OnlineConfig
from agentr.rounds.step_notes import rewarded
from agentr.search.tree import Tree
from agentr.store.rows import Provenance, Rollout
from agentr.types import Message, Task
from tests.chaos.driver import end
from tests.chaos.online import started
from tests.policy.test_openai_api import Stub, listener, status, stub
from tests.rewards.test_judge import saying
from tests.rounds.test_steps import Made, trained
from tests.runs import round_of
from tests.tiny import REINFORCE
from tests.trees import expert, tree_of

__all__ = ["listener", "stub"]  # fixtures

TWO = ("method.steps=2", "collect.tasks.limit=2")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentr.policy.openai_api.pause_before_retry", lambda *_: 0.01)


class Telling(Made):
    """Rollouts whose opening names their task and whose step, so that no two questions are the same."""

    def _tree(self, task: Task, job: TreeJob, index: int, of: int) -> Tree:
        tree = Tree.start(task, (Message("user", f"{task.id}, {job.seed}"),), (1, 2, 3), job.seed, job.policy)
        return tree_of("x: 0.0", "y: 1.0", into=tree)


def judged(stub: Stub, how: str = "rubric", **api: Any) -> list[str]:
    values = {"base_url": stub.url, "model": "m", "api_key_env": "TEST_API_KEY", **api}
    asked = {"who": "openai", "openai": values, "timeout_s": 5, "retries": 1, "sampling": {"max_tokens": 64}}
    rewards = [{"name": "judge", "options": {"how": how}}]
    return [f"method.judge={json.dumps(asked)}", f"method.rewards={json.dumps(rewards)}"]


def fair(asked: str) -> str:
    return f"Score: {int('> y' in asked)}"


def rollouts(root: Path) -> Rollouts:
    found = agentr.open(root).rounds[1].rollouts
    assert isinstance(found, Rollouts)
    return found


def rows(root: Path, step: int) -> list[Rollout]:
    return [row for row in rollouts(root).steps[step].dataset.rows if isinstance(row, Rollout)]


def lines(root: Path) -> list[dict[str, Any]]:
    return rollouts(root).curve_lines()


def manifest(root: Path, step: int = 1) -> dict[str, Any]:
    return json.loads((root / f"rounds/01/rollouts/{step:06d}/dataset/manifest.json").read_text())


def test_scores_are_rewards_and_agree_with_the_environment_or_do_not(stub: Stub, tmp_path: Path) -> None:
    stub.answers = [saying(fair)]
    assert trained(tmp_path / "fair", Telling(), *TWO, *judged(stub)).online_steps == 2
    for line in lines(tmp_path / "fair"):
        assert (line["judge/rubric_agreement"], line["judge/rubric_pairs"]) == (1.0, 2)
        assert line["rewards"] == {"judge/rubric": 0.5, "total": 0.5} and line["lost_groups"] == 0
    assert len(stub.bodies) == 8, "each of two rollouts of two tasks in two steps"
    stub.answers = [saying(lambda asked: fair(asked) if "train0" in asked else "Score: 0.5")]
    trained(tmp_path / "half", Telling(), *TWO, *judged(stub))
    assert [line["judge/rubric_agreement"] for line in lines(tmp_path / "half")] == [0.75, 0.75], "equal counts half"
    (table,) = [t for t in tables(summarise(agentr.open(tmp_path / "half"))) if t.title == "Judge and environment"]
    assert table.lines["round 1"] == {"rubric agrees, share": 0.75, "rubric, pairs": 4, "tasks without a reward": 0}


def test_a_ranking_is_a_request_for_a_task(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best = re.compile(r"Attempt (\d)\nTurn 1 of the agent:\n> y")
    stub.answers = [saying(lambda asked: "Ranking: " + {"1": "1 > 2", "2": "2 > 1"}[best.findall(asked)[0]])]
    monkeypatch.setattr("agentr.observe.progress.LOG_EVERY_S", 0.0)
    trained(tmp_path, Telling(), *TWO, *judged(stub, "ranking"))
    assert len(stub.bodies) == 4 and [line["judge/ranking_agreement"] for line in lines(tmp_path)] == [1.0, 1.0]
    assert "judge agrees 100 %" in capsys.readouterr().out


def test_a_run_that_goes_on_asks_nothing_twice_and_gives_the_same_rewards(stub: Stub, tmp_path: Path) -> None:
    numbers = iter(range(1, 100))
    stub.answers = [saying(lambda _: f"Score: 0.{next(numbers):02}")]  # never the same answer again

    def rewards(root: Path) -> list[Any]:
        return [row.rewards for step in (1, 2) for row in rows(root, step)]

    with pytest.raises(AssertionError, match="engine died"):
        trained(tmp_path, Telling(breaks_at=2), *TWO, *judged(stub))
    asked = len(stub.bodies)
    (tmp_path / "rounds/01/rollouts/000001/dataset/rows.parquet").unlink()
    (tmp_path / "rounds/01/rollouts/000001/dataset/manifest.json").unlink()
    (tmp_path / "rounds/01/rollouts/steps.jsonl").unlink()
    trained(tmp_path, Telling(), *TWO, *judged(stub))
    assert (asked, len(stub.bodies)) == (4, 8), "the first step's rows are made anew of the answers that are kept"
    assert len({each["judge/rubric"] for each in rewards(tmp_path)}) == 8
    assert {each["judge/rubric"] for each in rewards(tmp_path)[:4]} == {0.01, 0.02, 0.03, 0.04}


def test_a_group_without_an_answer_is_left_out_and_counted(
    stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stub.answers = [saying(lambda asked: "Well." if "train0" in asked and "> x" in asked else fair(asked))]
    assert trained(tmp_path, Telling(), *TWO, *judged(stub)).online_steps == 2
    assert manifest(tmp_path)["dropped"] == {"a reward gave no answer": 1} and manifest(tmp_path)["rows"] == 2
    assert [(line["lost_groups"], line["groups"], line["judge/rubric_pairs"]) for line in lines(tmp_path)] == [
        (1, 1, 1)
    ] * 2
    said = " ".join(capsys.readouterr().out.split())
    assert "the judge gave no value: no score from 0 to 1 at the end of 'Well.'" in said


def test_a_budget_that_is_used_up_ends_no_run(stub: Stub, tmp_path: Path) -> None:
    """An answer costs 100 x 1 millionths: of a budget of 350 four are given, those of the first step."""
    stub.answers = [saying(fair)]
    prices = {"prompt_price_per_mtok": 1.0, "max_cost": 350e-6, "concurrency": 1}
    assert trained(tmp_path, Telling(), *TWO, *judged(stub, **prices)).online_steps == 2
    assert len(stub.bodies) == 4
    first, second = lines(tmp_path)
    assert (first["lost_groups"], first["rows"], first["judge/rubric_agreement"]) == (0, 4, 1.0)
    assert (second["lost_groups"], second["silent_groups"], second["groups"]) == (2, 2, 2)
    silent = rows(tmp_path, 2)
    assert len(silent) == 4 and not any(any(row.advantages) for row in silent), "they teach nothing"


def test_an_endpoint_that_is_down_ends_no_run(stub: Stub, tmp_path: Path) -> None:
    stub.answers = [status(500)]
    assert trained(tmp_path, Telling(), *TWO, *judged(stub), "method.max_tasks=2").online_steps == 2
    assert [line["lost_groups"] for line in lines(tmp_path)] == [2, 2]
    assert "judge/rubric_agreement" not in lines(tmp_path)[0]


def test_without_returns_that_differ_there_is_no_agreement() -> None:
    def row(group: str, earned: float, judged: float) -> Rollout:
        made = Provenance(group, (1,), "rollout", {"earned": earned})
        return Rollout((1, 2), (0, 1), made, (None, -0.5), (0.0, 1.0), group, {"total": judged, "judge/rubric": judged})

    found = rewarded([row("a", 0.0, 0.1), row("a", 0.0, 0.9), row("b", 0.0, 0.1), row("c", 1.0, 0.9)])
    assert found["judge/rubric_agreement"] is None and found["judge/rubric_pairs"] == 0


def test_the_configuration_must_say_who_is_asked(stub: Stub) -> None:
    (problem,) = find_problems(OnlineConfig(rewards=[RewardConfig("judge")], judge=AdvisorConfig(Who.policy)))
    assert problem.key == "judge.who" and "asks a model behind an API" in problem.message
    with pytest.raises(ConfigError, match=r"method\.judge\.who: nobody is asked"):
        load(None, [REINFORCE, "method.rewards=[{name: judge}]"], files=False)
    config = load(None, [REINFORCE, "train=[{batch_size: 256}]", *judged(stub, max_cost=2, prompt_price_per_mtok=1)])
    said = method_of(config.method).describe()
    assert "m is asked to judge at most 7,680 times, for 491,520 generated tokens; as often again" in said
    assert said.endswith("the limit is 2")


CHECKS = [{"task": "2 + 2", "answer": "4", "right": True}, {"task": "2 + 2", "answer": "5", "right": False}]


@pytest.mark.parametrize(
    ("says", "said"),
    [
        (
            lambda asked: f"Score: {int('> 4' in asked)}",
            "the judge orders 100 % of 1 pairs of a right and a wrong answer so",
        ),
        (
            lambda _: "Score: 1",
            "the judge orders 50 % of 1 pairs of a right and a wrong answer so; its rewards may mean",
        ),
        (lambda _: "Well.", "the judge was not tried: the judge gave no value: no score from 0 to 1"),
    ],
)
def test_a_judge_is_tried_before_the_run(
    stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Any, said: str
) -> None:
    stub.answers = [saying(says)]
    rewards = f"method.rewards={json.dumps([{'name': 'judge', 'options': {'checks': CHECKS}}])}"
    overrides = [REINFORCE, "train=[{batch_size: 256}]", *judged(stub), rewards]
    round_ = round_of(tmp_path, overrides)
    method_of(round_.config.method).before(round_.experiment, 1)
    assert said in " ".join(capsys.readouterr().out.split())
    asked = len(stub.bodies)
    method_of(round_.config.method).before(round_.experiment, 1)
    assert len(stub.bodies) == asked, "nothing is asked twice"


def test_demonstrations_are_right_and_those_of_other_tasks_wrong(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trees = [tree_of(f"to {name}: 1.0", into=_opened(name)) for name in "abc"]
    trees.append(tree_of("to d: 0.0", into=_opened("d")))
    monkeypatch.setattr("agentr.rounds.judging.demonstrations", lambda _: trees)
    stub.answers = [
        saying(lambda asked: f"Score: {int(re.findall('user: (.)', asked) == re.findall('> to (.)', asked))}")
    ]
    round_ = round_of(tmp_path, [REINFORCE, "train=[{batch_size: 256}]", *judged(stub)])
    assert isinstance(round_.config.method, OnlineConfig)
    try_judges(round_.config.method, round_.experiment)
    assert "orders 100 % of 9 pairs" in " ".join(capsys.readouterr().out.split()) and len(stub.bodies) == 6
    monkeypatch.setattr("agentr.rounds.judging.demonstrations", lambda _: [expert()])
    try_judges(round_.config.method, round_.experiment)
    assert "was not tried: there are no answers that are known" in " ".join(capsys.readouterr().out.split())


def _opened(name: str) -> Tree:
    return Tree.start(Task("toy", name, "train"), (Message("user", name),), (1, 2, 3), 0)


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_a_run_of_grpo_whose_rewards_are_a_judges(stub: Stub, tmp_path: Path) -> None:
    stub.answers = [saying(lambda asked: f"Score: {min(1.0, len(asked) % 97 / 97):.2f}")]
    driver = started(
        tmp_path / "run",
        "method={type: grpo, steps: 2, tasks: 3, episodes: 2, max_steps: 3}",
        "method.validation.every=0",
        "train=[{batch_size: 6, micro_batch_size: 3, bf16: false, max_length: 768}]",
        *judged(stub),
    )
    try:
        assert driver.wait(800) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        end(driver)
    found = lines(tmp_path / "run")
    assert len(found) == 2 and all(line["rewards"]["judge/rubric"] > 0 for line in found)
    assert "the judge was not tried" in (tmp_path / "log").read_text(), "there are neither checks nor demonstrations"
    assert "secret" not in (tmp_path / "run/judged.jsonl").read_text()
