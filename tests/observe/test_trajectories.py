"""Which trajectories a report shows, and why."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

import agentr
from agentr.launch.run import decoder
from agentr.methods import load
from agentr.observe import trajectories as shown
from agentr.observe.trajectories import mark_up, policy_title, trajectories
from agentr.read.run import Run
from agentr.store.layout import EVAL, arm_of
from agentr.store.run import RunStore
from tests.runs import measured, small, written
from tests.support import tiny_model
from tests.trees import explored

Tasks = Mapping[str, tuple[str, float]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return small(folder / "run", tiny_model(folder / "model"))


def two(folder: Path, before: Tasks, after: Tasks) -> Run:
    """A run of two policies that were measured, and nothing else."""
    store = RunStore(folder)
    store.open(load(None, ["run.rounds=1"]))
    for number, tasks in enumerate((before, after)):
        measured(store, arm_of(number).stage(EVAL), tasks)
    store.close()
    return agentr.open(folder)


def test_one_that_was_won_one_that_was_lost_and_one_that_was_learnt(made: Path) -> None:
    run = agentr.open(made)
    won, lost, learnt = trajectories(run, decoder(run))
    assert (won.title, won.task, won.policy, won.length) == ("A held-out task that was won", "a", "round 1", 3)
    assert won.outcome == "success, return 1.00"
    assert "Of 1 held-out tasks that were won" in won.why and "Under warm start it ended after 3 turns: failure, return 0.00" in won.why
    assert "the first turn that differs is turn 1" in won.why
    assert [turn.text for turn in won.turns] == ["Thought: on open\nAction: open"] * 3 and won.turns[0].observation == "ok"
    assert (lost.task, lost.policy, lost.outcome) == ("c", "round 1", "failure, return 0.00") and "were lost" in lost.why
    assert (learnt.title, learnt.task, learnt.stage) == ("A row that was trained on", "door", "rounds/01/dataset, row 1")
    assert "of the kind 'revision'" in learnt.why and not learnt.turns
    assert '<mark class="learnt">Thought: on take key' in learnt.marked and '<span class="context">' in learnt.marked
    assert trajectories(run, decoder(run)) == [won, lost, learnt], "the same again"


def test_without_a_tokenizer_a_row_is_shown_by_its_turns(made: Path) -> None:
    *_, learnt = trajectories(agentr.open(made), None)
    assert not learnt.marked and [turn.text.rpartition(" ")[2] for turn in learnt.turns] == ["open", "wait", "key", "unlock"]
    assert [turn.about for turn in learnt.turns] == ["", "", "revision", "revision"]


def test_what_a_run_does_not_have_is_replaced(tmp_path: Path) -> None:
    run = two(tmp_path, {"a": ("x", 0.0), "b": ("y", 0.0), "c": ("z", 1.0)}, {"a": ("x", 1.0), "b": ("y", 0.0), "c": ("z", 1.0)})
    won, often, solved = trajectories(run, None)
    assert (won.task, often.task) == ("a", "b"), "nothing was lost, and nothing learnt"
    assert often.title == "The most frequent failure: repeated action" and "in 1 of its episodes" in often.why
    assert (solved.title, solved.task) == ("A held-out task that was solved", "c"), "a is there already"


def test_of_several_the_one_that_changed_most_and_then_the_first_by_name(tmp_path: Path) -> None:
    nothing = dict.fromkeys("dcba", ("x", 0.0))
    (won, *_) = trajectories(two(tmp_path, nothing, {"d": ("y", 1.0), "c": ("y", 1.0), "b": ("x", 0.0), "a": ("x", 0.0)}), None)
    assert won.task == "c" and "as did 1 more; it is the first of them by name" in won.why


def test_a_run_without_trees_has_none(tmp_path: Path) -> None:
    assert trajectories(Run(written(tmp_path, "run", 0, ["a", "ab"], 1).root), None) == []


def test_a_damaged_stage_leaves_the_others(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(made, copy)
    for file in (copy / "rounds/01/eval/trees").iterdir():
        file.write_bytes(b"broken")
    assert [one.title for one in trajectories(agentr.open(copy), None)] == ["A row that was trained on", "An episode of collect"]


def test_a_long_episode_is_shown_by_its_ends(tmp_path: Path) -> None:
    tree = explored((" ".join(f"w{number}" for number in range(60)), 0.0))
    (path,) = shown.episodes_of(tree)
    turns, left_out = shown._turns(path)
    assert (len(turns), left_out) == (shown.TURNS, 60 - shown.TURNS)
    assert (turns[0].number, turns[-1].number) == (1, 60)


def test_a_long_row_is_shown_by_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "TOKENS", 8)
    page = mark_up(tuple(range(20)), (0,) * 10 + (1,) * 10, lambda ids: "".join(chr(97 + each) for each in ids))
    assert page == (
        '<span class="context">ab</span><span class="faint">\n[12 tokens are left out]\n</span><mark class="learnt">opqrst</mark>'
    )
    assert mark_up((1,), (1,), lambda _: "</pre><img>\u202e") == '<mark class="learnt">&lt;/pre&gt;&lt;img&gt;[U+202E]</mark>'


def test_policies_have_the_titles_of_their_arms() -> None:
    titles = {"model": "base model", "": "base model", "rounds/00/train": "warm start", "rounds/02/train@7": "round 2, step 7"}
    assert {stage: policy_title(stage) for stage in titles} == titles
