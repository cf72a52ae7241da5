"""Which turns of a path are learnt: by hand, on paths of one tree."""

from pathlib import Path

import pytest

from agentr.config.schema import BuildConfig
from agentr.rows.dataset import write_dataset
from agentr.rows.revision import good_rows
from agentr.rows.targets import Targets, said_twice
from agentr.search.tree import Origin, Tree
from agentr.types import Outcome
from tests.trees import child, new_tree

SENTENCE = "That did not work."


def walked(*moves: tuple[str, str, bool], name: str = "task") -> Tree:
    """A tree of one successful path of (text, observation, valid); the text is the action, and each turn one token."""
    tree, parent = new_tree(name=name), 0
    for position, (text, observation, valid) in enumerate(moves):
        last = position == len(moves) - 1
        ending = (1.0, Outcome.SUCCESS) if last else (0.0, None)
        made = child(text, *ending, valid=valid, observation=observation, logprobs=(-0.5 - position,))
        parent = tree.add(parent, made, Origin.POLICY).id
    tree.back_up(parent)
    return tree


def learnt(tree: Tree, targets: Targets, start: int = 0) -> tuple[list[int], dict[str, int]]:
    path = tree.path(len(tree.nodes) - 1)
    turns, reasons = targets.turns(path, start)
    assert [turn.node for turn in turns] == [node.id for node in path], "every turn stays in the row"
    return [turn.node for turn in turns if turn.trained], dict(reasons)


def test_by_default_all_turns_are_learnt_that_the_environment_understood() -> None:
    tree = walked(
        ("get", "Got it", True),
        ("hm", "What?", False),
        ("get", "Got it", True),
        (f"{SENTENCE} {SENTENCE}", "Done", True),
    )
    assert learnt(tree, Targets()) == ([1, 3, 4], {})
    assert learnt(tree, Targets(invalid=True)) == ([1, 2, 3, 4], {})
    assert learnt(tree, Targets(), start=2) == ([3, 4], {})


def test_a_reflection_is_learnt_after_a_refused_move_alone() -> None:
    tree = walked(
        (f"{SENTENCE} one", "ok", True),  # nothing before it
        (f"{SENTENCE} two", "What?", False),  # after a move that worked
        (f"{SENTENCE} three", "ok", True),  # after a move that was refused
        ("I was wrong.", "Done", True),
    )
    false = "reflection on a move that worked"
    assert learnt(tree, Targets(invalid=True, reflections=(SENTENCE,))) == ([3, 4], {false: 2})
    assert learnt(tree, Targets(invalid=True, reflections=("It is late.", "I was wrong."))) == ([1, 2, 3], {false: 1})
    assert learnt(tree, Targets(reflections=(SENTENCE,)), start=2) == ([3, 4], {}), (
        "what could not be learnt in any case is not counted"
    )


def test_unlikely_turns_are_context_and_what_no_policy_drew_has_no_likelihood() -> None:
    tree = walked(("a", "ok", True), ("b", "ok", True), ("c", "Done", True))  # -0.5, -1.5, -2.5
    assert learnt(tree, Targets(least_logprob=-1.5)) == ([1, 2], {"unlikely turn": 1})
    tree.nodes[3].logprobs = ()
    assert learnt(tree, Targets(least_logprob=-1.5)) == ([1, 2, 3], {})


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("Thought: That did not work. That did not work.\nAction: look", True),
        ("I need string. i need string\nAction: look", True),
        ("Thought: wool needs string.\nAction: get 4 string", False),
        ("No. No. Action: look", False),  # a sentence of one word says nothing
        ("", False),
    ],
)
def test_sentences_said_twice(text: str, twice: bool) -> None:
    assert said_twice(text) == twice
    assert learnt(walked((text, "Done", True)), Targets(said_twice=False))[1] == (
        {"sentence said twice": 1} if twice else {}
    )


def test_the_configuration_says_it() -> None:
    config = BuildConfig(train_on_invalid=True, train_on_said_twice=False, least_logprob=-2.0)
    assert Targets.of(config, ["a"]) == Targets(True, False, -2.0, True, ("a",))
    assert Targets.of(BuildConfig()) == Targets()


def test_a_dataset_counts_what_is_context_by_reason_and_a_row_says_its_own(tmp_path: Path) -> None:
    trees = [
        walked(("get it. get it", "no", True), ("make it. make it", "ok", True), ("go", "Done", True), name=name)
        for name in ("a", "b")
    ]
    targets = Targets(said_twice=False)
    rows = [row for tree in trees for row in good_rows(tree, 1.0, limit=1, targets=targets)]
    assert [row.provenance.detail["context: sentence said twice"] for row in rows] == [2, 2]
    assert write_dataset(tmp_path / "some", rows, 1000)["context"] == {"sentence said twice": 4}
    assert write_dataset(tmp_path / "none", good_rows(trees[0], 1.0, limit=1, targets=Targets()), 1000)["context"] == {}
