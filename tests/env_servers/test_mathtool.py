"""Math with Python: problems, answers, code, and the two ways to write actions."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from env_servers.base import Unavailable, UnknownTask
from env_servers.mathtool import MathTool, grading
from env_servers.mathtool.problems import generated_splits
from env_servers.sandbox import Limits, PythonTool, Sandbox, SandboxFailure
from tests.env_servers.support import ROOT

pytestmark = pytest.mark.skipif(
    not all(r.present for r in MathTool.requirements()),
    reason="; ".join(f"{r.name}: {r.how}" for r in MathTool.requirements() if not r.present),
)
DIGEST = """
import hashlib
from env_servers.mathtool.problems import generated_splits
print(hashlib.sha256(repr(generated_splits(80)).encode()).hexdigest())
"""
TASK = "divisors/1/1000"


@pytest.fixture(scope="module")
def game() -> MathTool:
    return MathTool()


@pytest.fixture(scope="module")
def impatient() -> PythonTool:
    """A tool that gives up soon."""
    return PythonTool(Sandbox(packages=(), setup="", limits=Limits(cpu_s=1)))


def play(game: MathTool, *actions: str, task: str = TASK) -> list[str]:
    state, _ = game.reset(task)
    return [game.step(state, action).observation for action in actions]


# problems -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_generated_problems_do_not_depend_on_the_hash_seed():
    def digest(seed: str) -> str:
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-c", DIGEST], env=environ, check=True, capture_output=True, text=True
        ).stdout

    assert digest("1") == digest("2")


def test_splits_share_no_problem(game: MathTool):
    tasks = {name: game.split(name) for name in game.spec.splits}
    problems = [{task.labels["problem"] for task in found} for found in tasks.values()]
    assert sum(map(len, problems)) == len(set().union(*problems)) == sum(map(len, tasks.values()))
    kinds = {(task.labels["family"], task.labels["difficulty"]) for task in tasks["train"]}
    for name in ("train", "dev", "test"):
        assert {(task.labels["family"], task.labels["difficulty"]) for task in tasks[name]} == kinds and len(
            kinds
        ) == 27
    with pytest.raises(UnknownTask):
        game.split("other")


def test_more_seeds_add_problems_and_move_none():
    few, more = MathTool(seeds=5), MathTool(seeds=10)
    for name in ("train", "dev", "test"):
        before, after = ([task.id for task in game.split(name)] for game in (few, more))
        assert set(before) < set(after)
        assert after[: len(before)] == before


def test_the_expert_earns_the_full_reward(game: MathTool):
    first = {(p.family, p.difficulty): task for task, p in reversed(generated_splits(80)["dev"].items())}
    for task in first.values():
        state, _ = game.reset(task)
        code, answer = [game.step(state, step.action) for step in game.expert(task) or ()]
        assert code.valid and not code.done and (answer.reward, answer.done) == (1.0, True), f"{task}: {code}"


def test_the_wasteful_expert_calls_once_or_twice_or_first_for_nothing_and_is_right():
    """A ground whose best number of calls is known: one."""
    game, calls = MathTool(wasteful=True), []
    for task in list(generated_splits(80)["dev"])[:30]:
        state, _ = game.reset(task)
        *before, code, answer = [game.step(state, step.action) for step in game.expert(task) or ()]
        assert code.valid and answer.reward == 1.0
        calls.append("once" if not before else "twice" if before[0].observation == code.observation else "for nothing")
    assert set(calls) == {"once", "twice", "for nothing"}
    assert [len(game.expert(task) or ()) for task in ("ratio/2/17", "ratio/2/17")] == [
        len(game.expert("ratio/2/17") or ())
    ] * 2


@pytest.mark.parametrize(
    "task",
    ["", "ratio", "ratio/4/0", "ratio/1/-1", "ratio/1/01", "nothing/1/1", "gsm8k_test/0", "../etc/1", "ratio/1/1\n"],
)
def test_an_unknown_task_is_named(game: MathTool, task: str):
    with pytest.raises(UnknownTask):
        game.reset(task)


# files ----------------------------------------------------------------------------------------------------------------

RECORDS = [
    {"question": "What is 20 - 2?", "answer": "20 - 2 = <<20-2=18>>18\n#### 1,018"},
    {"problem": "Half of one?", "answer": "\\frac{1}{2}", "level": "Level 3"},
    {"problem": "Twice $x$?", "solution": "It is \\boxed{\\frac{2x}{1}}, in short $2x$.", "level": "Level 5"},
    {"problem": "Six times seven?", "answer": 42, "id": "7"},
]


def test_files_in_the_usual_forms(tmp_path: Path):
    lines = "\n".join(map(json.dumps, RECORDS))
    (tmp_path / "mine.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    rows = [
        {
            "prompt": [{"role": "user", "content": "1 + 1?"}],
            "ability": ability,
            "reward_model": {"ground_truth": "2", "style": "rule"},
        }
        for ability in ("qa", "math")
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "arpo.v1.parquet")
    game = MathTool(train=str(tmp_path / "mine.jsonl.gz"), test=str(tmp_path / "arpo.v1.parquet"))
    assert [(task.id, task.labels["difficulty"]) for task in game.split("train")] == [
        ("mine/0", 0),
        ("mine/1", 3),
        ("mine/2", 5),
        ("mine/3", 0),
    ]
    assert [task.id for task in game.split("test")] == ["arpo/1"]
    assert len(game.split("dev")) > 100, "a split without a file keeps the generated problems"
    for task, answer in (("mine/0", "1018"), ("mine/1", "0.5"), ("mine/2", "x + x"), ("mine/3", "42"), ("arpo/1", "2")):
        assert play(game, f"answer: {answer}", task=task) == ["Your answer is correct."]
        assert game.expert(task) is None


def test_et_agents_files(tmp_path: Path):
    """Lists of ``question`` or ``input`` with an answer or several; verl's tables with a list of answers."""
    records = [
        {"question": "1 + 1?", "answer": "2", "source": "aime"},
        {"input": "2 + 2?", "answer": ["4", "four"], "source": "openr1"},
    ]
    (tmp_path / "source.json").write_text(json.dumps(records))
    row = {
        "prompt": [{"role": "user", "content": "3 + 3?"}],
        "ability": "math",
        "reward_model": {"ground_truth": ["6"], "style": "rule"},
    }
    parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "stage.parquet")
    game = MathTool(train=str(tmp_path / "source.json"), test=str(tmp_path / "stage.parquet"))
    for task, answer in (("source/0", "2"), ("source/1", "4"), ("stage/0", "6")):
        assert play(game, f"answer: {answer}", task=task) == ["Your answer is correct."]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{}", r"bad\.jsonl, line 1: .* no column answer or solution"),
        ("no json", r"bad\.jsonl, line 1: not JSON"),
        ("", "holds no problems"),
        ('{"question": "?", "answer": ""}', "holds no problems or questions; left out, without an answer: 1"),
    ],
)
def test_a_file_that_is_none_says_so(tmp_path: Path, content: str, complaint: str):
    (tmp_path / "bad.jsonl").write_text(content)
    with pytest.raises(ValueError, match=complaint):
        MathTool(dev=str(tmp_path / "bad.jsonl"))


def test_options_that_cannot_be(tmp_path: Path):
    with pytest.raises(ValueError, match=r"no file .*github.com"):
        MathTool(test=str(tmp_path / "gsm8k.jsonl"))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test.jsonl").write_text(json.dumps(RECORDS[0]))
    with pytest.raises(ValueError, match="same name"):
        MathTool(dev=str(tmp_path / "a" / "test.jsonl"), test=str(tmp_path / "b" / "test.jsonl"))
    for options in ({"format": "react"}, {"attempts": 0}, {"max_output": 1}):
        with pytest.raises(ValueError, match="must be"):
            MathTool(**options)


def test_the_public_sets(shared_data: Path):
    folder = shared_data / "math"
    game = MathTool(
        train=str(folder / "gsm8k_train.jsonl.gz"),
        dev=str(folder / "math500_test.jsonl"),
        test=str(folder / "aime24_test.jsonl"),
    )
    assert [len(game.split(name)) for name in ("train", "dev", "test")] == [7473, 500, 30]
    assert play(game, "answer: $18$", task="gsm8k_train/0") == ["Your answer is incorrect."]
    assert play(game, "answer: $72$", task="gsm8k_train/0") == ["Your answer is correct."]
    assert play(game, "answer: \\boxed{(3, \\pi/2)}", task="math500_test/0") == ["Your answer is correct."]
    assert play(game, "answer: 204", task="aime24_test/0") == ["Your answer is correct."]
    assert len(MathTool(test=str(shared_data / "qa" / "arpo_valid.parquet")).split("test")) == 100


# answers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("18", "18", True),
        (" $18.00$ .", "18", True),
        ("1,234", "1234", True),
        ("\\[ \\boxed{-\\frac{1}{2}} \\]", "-0.5", True),
        ("0.333333", "1/3", True),
        ("0.33", "1/3", False),
        ("1000000000000000000001", "1000000000000000000000", False),
        ("q - p", "-p+q", True),
        ("\\sqrt{8}", "2\\sqrt{2}", True),
        ("(3, \\pi/3)", "\\left( 3, \\frac{\\pi}{2} \\right)", False),
        ("__import__('os').system('id')", "3", False),
        *(
            (text, "27", True)
            for text in ("x = 27", "27.", "$27$", "$x = 27$", "\\boxed{27}", "27 apples", "The answer is 27", "26 + 1")
        ),
        *(
            (text, "27", True)
            for text in ("So we get 27.", "It is $27$", "27 dollars", "27 cm^2", "27 km/h", "about 27", "27\\text{ cm}")
        ),
        *(
            (text, "27", False)
            for text in ("27x", "27\\pi", "27i", "27!", "(27, 27)", "28, 27", "28 (not 27)", "not 27", "27 or 28")
        ),
        *(
            (text, "27", False)
            for text in ("the answer is not 27", "27 thousand", "27 pi", "27 times 2", "27; 28", "28 apples and 27")
        ),
        *((text, "18", False) for text in ("17, 18", "5 18", "18 19", "17 and 18")),
        ("0.0000001", "0", False),
        ("0.000", "0", True),
        ("The answer is Evelyn", "\\text{Evelyn}", True),
        ("The answer is \\frac{3}{4}", "0.75", True),
        (", ".join(map(str, range(200))) + ", 18", "18", False),
    ],
)
def test_which_answers_are_right(answer: str, gold: str, right: bool):
    assert grading.correct(answer, gold) is right


def test_wrong_answers_and_more_of_them():
    game = MathTool(attempts=3)
    assert game.spec.step_limit == MathTool().spec.step_limit + 2
    state, observed = game.reset(TASK)
    assert observed.observation.endswith("\nYou may answer 3 times.")
    answers = [game.step(state, f"answer: {n}") for n in (7, 9, 10)]
    assert [a.observation for a in answers] == [
        "Your answer is incorrect. You may answer 2 more times.",
        "Your answer is incorrect. You may answer 1 more time.",
        "Your answer is incorrect.",
    ]
    assert [(a.reward, a.done) for a in answers] == [(0.0, False), (0.0, False), (0.0, True)]
    assert play(game, "answer: 7", "answer: 8")[-1] == "Your answer is correct."


# code -----------------------------------------------------------------------------------------------------------------


def test_code_and_its_state(game: MathTool):
    steps = ("python: x = 20\nprint(x)", "python:\n    x += 1\n    1 / 0", "python: x * 2")
    first, second, third = play(game, *steps)
    assert (first, third) == ("20", "42") and second.endswith("ZeroDivisionError: division by zero")
    fresh = MathTool(format="tags")
    assert fresh.spec.action_format == "tags" and "<python>" in fresh.spec.instruction
    first, _, third = play(fresh, *steps)
    assert first == "<result>\n20\n</result>" and "NameError: name 'x' is not defined" in third
    assert play(MathTool(format="tags", stateful=True), *steps)[-1] == "<result>\n42\n</result>"


def test_what_the_agent_is_told_of_code(game: MathTool, impatient: PythonTool, monkeypatch: pytest.MonkeyPatch):
    assert play(game, "python: x = 1") == ["(The code printed nothing. Print what you want to see.)"]
    assert play(game, "python: import os; os._exit(1)") == ["(The code ended with an error.)"]
    assert play(game, "python: import ctypes; ctypes.string_at(0)") == ["(The interpreter crashed.)"]
    (long,) = play(game, "python: print('a' * 5000 + 'b' * 5000)")
    assert (
        long.startswith("aaa")
        and long.endswith("bbb")
        and "\n... (8000 characters left out) ...\n" in long
        and len(long) < 2100
    )
    (endless,) = play(game, "python: while True: print(1)")
    assert endless.endswith("(The code was stopped: it printed too much.)") and len(endless) < 2200
    monkeypatch.setattr(game, "_tool", impatient)
    assert play(game, "python: print(1)\nwhile True: pass") == ["1\n(The code was stopped: it may run for 1 seconds.)"]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("print(1)", "ok"),
        ("x = 1", "empty"),
        ("print()", "empty"),
        ("1 / 0", "error"),
        ("import os; os._exit(1)", "error"),
        ("import ctypes; ctypes.string_at(0)", "error"),
        ("x = bytearray(1 << 40)", "error"),
        ("while True: pass", "timeout"),
        ("while True: print(1)", "limit"),
    ],
)
@pytest.mark.parametrize("format", ["codeact", "tags"])
def test_how_code_came_out(impatient: PythonTool, monkeypatch: pytest.MonkeyPatch, code: str, status: str, format: Any):
    game = MathTool(format=format, stateful=True)
    monkeypatch.setattr(game, "_tool", impatient)
    state, _ = game.reset(TASK)
    observed = game.step(state, f"python: {code}")
    assert observed.status == status and observed.valid is (status in ("ok", "empty")) and not observed.scores
    killed = status in ("timeout", "limit") or "ctypes" in code
    assert state.cells == (() if killed else (code,)), "what was killed would be killed again"


def test_a_score_comes_with_the_answer_that_ends_the_episode(game: MathTool):
    patient = MathTool(attempts=2)
    for env, answers, right in ((game, "7", 0.0), (game, "8", 1.0), (patient, "78", 1.0), (patient, "79", 0.0)):
        state, _ = env.reset(TASK)
        *before, last = [env.step(state, f"answer: {answer}") for answer in answers]
        assert last.done and last.scores == {"math": right} and (last.reward, last.status) == (right, "ok")
        assert not any(answer.scores for answer in before)
    assert game.step(game.reset(TASK)[0], "nothing").status == "error"


def test_a_repeated_step_executes_nothing(game: MathTool):
    code = "python: import time\nprint(time.time())"
    assert play(game, code) == play(game, code)


@pytest.mark.parametrize(
    "action", ["", "python:", "answer: ", "search: what is it", "print(1)", "<python>print(1)</python>", "Action: 1"]
)
def test_what_is_no_action(game: MathTool, action: str):
    state, _ = game.reset(TASK)
    observed = game.step(state, action)
    assert not observed.valid and not observed.done and "neither code nor an answer" in observed.observation


@settings(max_examples=25, deadline=None)
@given(
    st.one_of(
        st.text(max_size=30),
        st.text(max_size=30).map("answer: {}".format),
        st.text(max_size=30).map("python: {}".format),
    )
)
def test_any_text_is_an_action(action: str):
    game = MathTool()
    state, _ = game.reset(TASK)
    assert game.step(state, action).observation.encode()


def test_a_sandbox_that_fails_is_no_wrong_answer(game: MathTool, monkeypatch: pytest.MonkeyPatch):
    def fail(*cells: str):
        raise SandboxFailure("no zygote")

    monkeypatch.setattr(game._tool, "_outcome", fail)
    state, _ = game.reset(TASK)
    with pytest.raises(Unavailable, match="no zygote") as refused:
        game.step(state, "python: 1")
    assert "may be tried again" in refused.value.hint and state == game.reset(TASK)[0]


def test_suggestions_can_be_done(game: MathTool):
    for task in ("ratio/1/0", "counting/3/1"):
        state, _ = game.reset(task)
        assert all(game.step(game.fork(state), action).valid for action in game.actions(state))


# copies ---------------------------------------------------------------------------------------------------------------


def test_a_fork_is_a_replay_and_independent(game: MathTool):
    prefix, rest = ["python: x = 5", "python: x += 1\nx", "nothing"], ["python: x += 1\nx", "answer: 7"]
    state, _ = game.reset(TASK)
    for action in prefix:
        game.step(state, action)
    before = game.snapshot(state)
    fork, restored = game.fork(state), game.restore(json.loads(json.dumps(before)))
    answers = [game.step(fork, action) for action in rest]
    assert answers == [game.step(restored, action) for action in rest] and answers[0].observation == "7"
    assert game.snapshot(state) == before and game.snapshot(fork) == game.snapshot(restored) != before


@pytest.mark.parametrize(
    "change",
    [
        {"task": "ratio/9/9"},
        {"task": 1},
        {"cells": [1]},
        {"cells": None},
        {"answers": 2},
        {"answers": 1},
        {"answers": True},
        {"done": 0},
        {"task": None},
    ],
)
def test_a_damaged_snapshot_is_refused(game: MathTool, change: dict):
    good = game.snapshot(game.reset(TASK)[0])
    assert game.restore(good) == game.reset(TASK)[0]
    with pytest.raises(ValueError, match="not a mathtool snapshot"):
        game.restore(good | change)
    with pytest.raises(ValueError, match="not a mathtool snapshot"):
        game.restore({key: value for key, value in good.items() if key not in change})
