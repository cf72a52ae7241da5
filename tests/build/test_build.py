"""Pairs, splices, masks and mixtures on a golden tree that can be checked by eye, and exports that read back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from agentr.build.assemble import build_revisions
from agentr.config.methods import BuildConfig, Pairing, ReviseConfig, Splice

from agentr.build.export import export_rows, export_trees
from agentr.build.mixture import general_rows, mix
from agentr.build.revision import demonstrated_rows, good_rows, revision_rows
from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.search.pairs import falls_behind, good_suffix, pair_paths
from agentr.search.tree import Child, Node, Origin, Tree
from agentr.store.forest import Forest
from agentr.store.rows import Provenance, Row, read_rows, write_rows
from agentr.tasks.formats import ReAct
from agentr.types import FinishReason, Message, Outcome, Task
from tests.support import tiny_tokenizer

CODEC = ChatCodec(tiny_tokenizer())


def say(tree: Tree, parent: int, action: str, observation: str, reward: float = 0.0, outcome: Outcome | None = None, **more) -> Node:
    text = ReAct().compose(f"on {action}", action)
    origin = more.pop("origin", Origin.POLICY)
    child = Child(
        text, tuple(CODEC.turn(text)), tuple(CODEC.bridge(observation)), (), FinishReason.STOP, action, observation, reward,
        more.pop("valid", True), outcome,
    )  # fmt: skip
    node = tree.add(parent, child, origin)
    if outcome is not None and origin is Origin.POLICY:
        tree.back_up(node.id)
    return node


def golden() -> Tree:
    """root - open(1) - take key(2) - unlock(3): success 1.0
              \\ wait(4) - sleep(5): failure 0.0 ; with a revision below 4: take key(7), unlock(8)
    \\ give up(6): failure 0.2
    """
    opening = (Message("user", "Open the door."),)
    tree = Tree.start(Task("toy", "door", "train"), opening, tuple(CODEC.prompt(opening)), 3)
    say(tree, 0, "open", "It is locked.")
    say(tree, 1, "take key", "Taken.")
    say(tree, 2, "unlock", "It opens.", 1.0, Outcome.SUCCESS)
    say(tree, 1, "wait", "Time passes.")
    say(tree, 4, "sleep", "You sleep.", 0.0, Outcome.FAILURE)
    say(tree, 0, "give up", "You leave.", 0.2, Outcome.FAILURE)
    reflected = say(tree, 4, "take key", "Taken.", origin=Origin.REVISION)
    done = say(tree, reflected.id, "unlock", "It opens.", 1.0, Outcome.SUCCESS, origin=Origin.REVISION)
    tree.search["revisions"] = [
        {
            "bad": 5,
            "good": 3,
            "ancestor": 1,
            "transition": 4,
            "reflection": "That was wrong.",
            "spliced": True,
            "end": done.id,
            "continued": False,
        },
        {
            "bad": 6,
            "good": 3,
            "ancestor": 0,
            "transition": 6,
            "reflection": "That was wrong.",
            "spliced": False,
            "end": -1,
            "continued": False,
        },
    ]
    return tree


def trained_text(row: Row) -> str:
    return CODEC.decode([i for i, m in zip(row.input_ids, row.loss_mask, strict=True) if m], special=True)


# pairs ----------------------------------------------------------------------------------------------------------------


def test_pairs_prefer_the_deepest_common_ancestor_and_ignore_revisions() -> None:
    pairs = pair_paths(golden(), ReviseConfig(), alpha=0.5)
    assert [(p.bad, p.good, p.ancestor) for p in pairs] == [(5, 3, 1), (6, 3, 0)]


@pytest.mark.parametrize(
    ("change", "alpha", "expected"),
    [
        ({"beta": 0.9}, 0.5, [(5, 3)]),  # gap: 1.0 - 0.2 is not more than 0.9
        ({"pairing": Pairing.threshold, "beta": 0.2}, 0.5, [(5, 3)]),  # strictly below beta
        ({"alpha_inclusive": False}, 1.0, []),  # the released code at alpha = 1
        ({"pairs_per_task": 1}, 0.5, [(5, 3)]),
        ({"alpha_inclusive": True}, 0.2, [(5, 3), (6, 3), (5, 6)]),
    ],
)
def test_pair_rules(change: dict, alpha: float, expected: list[tuple[int, int]]) -> None:
    pairs = pair_paths(golden(), ReviseConfig(**({"beta": 0.1} | change)), alpha)
    assert [(p.bad, p.good) for p in pairs] == expected


def test_all_pairs_in_the_originals_way_are_shuffled_but_seeded() -> None:
    config = ReviseConfig(pairs_per_task=0, beta=0.1)
    first, second = pair_paths(golden(), config, 0.2), pair_paths(golden(), config, 0.2)
    assert first == second
    assert {(p.bad, p.good) for p in first} == {(5, 3), (6, 3), (5, 6)}


def test_value_judge_and_suffix() -> None:
    tree = golden()
    assert falls_behind(tree, tree.nodes[4], 0.2)
    assert not falls_behind(tree, tree.nodes[2], 0.2)
    assert [n.action for n in good_suffix(tree, pair_paths(tree, ReviseConfig(), 0.5)[0])] == ["take key", "unlock"]


# rows -----------------------------------------------------------------------------------------------------------------


def rows(splice: Splice, **build) -> list[Row]:
    return list(revision_rows(golden(), ReviseConfig(splice=splice), BuildConfig(**build), CODEC, ReAct(), Counter()))


def test_executed_revision_trains_on_everything_after_the_bad_prefix() -> None:
    (row,) = rows(Splice.executed)
    assert row.provenance.nodes == (1, 4, 7, 8)
    assert trained_text(row) == ("Thought: on take key\nAction: take key<|im_end|>Thought: on unlock\nAction: unlock<|im_end|>")
    text = CODEC.decode(row.input_ids, special=True)
    assert "Action: wait<|im_end|>\n<|im_start|>user\nTime passes.<|im_end|>\n<|im_start|>assistant\n" in text
    assert text.endswith("Action: unlock<|im_end|>")


def test_paper_splice_inserts_a_reflection_that_nobody_executed() -> None:
    row = rows(Splice.paper)[0]
    assert row.provenance.nodes == (1, 4, -1, 2, 3)
    assert trained_text(row).startswith("Thought: That was wrong.\nAction: wait<|im_end|>Thought: on take key")
    assert "user\nok.<|im_end|>" in CODEC.decode(row.input_ids, special=True)


def test_direct_revision_has_the_whole_bad_path() -> None:
    tree = golden()
    tree.search["revisions"][0]["transition"] = 5
    made = list(revision_rows(tree, ReviseConfig(splice=Splice.direct), BuildConfig(), CODEC, ReAct(), Counter()))
    assert made[0].provenance.nodes == (1, 4, 5, -1, 2, 3)


def test_revisions_that_do_not_pay_are_dropped_and_counted() -> None:
    dropped: Counter[str] = Counter()
    list(revision_rows(golden(), ReviseConfig(), BuildConfig(), CODEC, ReAct(), dropped))
    assert dropped == {"executed revision did not pay": 1}


def test_good_rows_train_on_every_turn_and_on_nothing_else() -> None:
    (row,) = good_rows(golden(), BuildConfig(), alpha=0.5)
    assert row.provenance.nodes == (1, 2, 3)
    assert trained_text(row).count("<|im_end|>") == 3
    untrained = CODEC.decode([i for i, m in zip(row.input_ids, row.loss_mask, strict=True) if not m], special=True)
    assert "Action" not in untrained
    assert "It is locked." in untrained


def test_invalid_turns_are_context_unless_asked_for() -> None:
    opening = (Message("user", "x"),)
    tree = Tree.start(Task("toy", "t", "train"), opening, tuple(CODEC.prompt(opening)), 0)
    say(tree, 0, "blub", "What?", valid=False)
    say(tree, 1, "win", "Yes.", 1.0, Outcome.SUCCESS)
    for wanted in (False, True):
        (row,) = good_rows(tree, BuildConfig(train_on_invalid=wanted), alpha=1.0)
        assert ("blub" in trained_text(row)) is wanted


def test_a_demonstration_counts_if_it_succeeded_whatever_it_earned() -> None:
    opening = (Message("user", "x"),)
    tree = Tree.start(Task("toy", "t", "train"), opening, tuple(CODEC.prompt(opening)), 0)
    say(tree, 0, "win slowly", "Yes.", 0.9, Outcome.SUCCESS, origin=Origin.EXPERT)
    say(tree, 0, "come close", "No.", 0.9, Outcome.FAILURE, origin=Origin.EXPERT)
    say(tree, 0, "win", "Yes.", 1.0, Outcome.SUCCESS)
    (row,) = demonstrated_rows(tree, BuildConfig())
    assert "win slowly" in trained_text(row) and row.provenance.kind == "demonstration"


def test_dataset_accounts_for_every_row_and_reads_back_equal(tmp_path: Path) -> None:
    manifest = build_revisions(
        tmp_path, [golden()], [], revise=ReviseConfig(), build=BuildConfig(), alpha=0.5, codec=CODEC, action_format=ReAct(), seed=0
    )
    assert manifest["kinds"] == {"revision": 1, "good": 1}
    assert manifest["splices"] == {"tried": 2, "text splice would fail": 1, "kept after execution": 1}
    assert manifest["dropped"] == {"executed revision did not pay": 1}
    back = read_rows(tmp_path)
    write_rows(tmp_path / "again", back)
    assert read_rows(tmp_path / "again") == back
    assert sum(len(r.input_ids) for r in back) == manifest["tokens"]


def test_a_round_without_any_row_is_an_error_that_says_why(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gave no training row: 2 x longer than build\.max_length|executed revision did not pay"):
        build_revisions(
            tmp_path, [golden()], [], revise=ReviseConfig(), build=BuildConfig(max_length=3), alpha=0.5, codec=CODEC,
            action_format=ReAct(), seed=0,
        )  # fmt: skip


def test_a_corrupt_dataset_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path, good_rows(golden(), BuildConfig(), 0.5))
    path = tmp_path / "rows.parquet"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="does not match its manifest"):
        read_rows(tmp_path)


def test_a_row_that_trains_on_nothing_cannot_be_made() -> None:
    with pytest.raises(DataError, match="trains on nothing"):
        Row((1, 2), (0, 0), Provenance("t", (), "good"))


# mixtures -------------------------------------------------------------------------------------------------------------


def some_rows(count: int, kind: str) -> list[Row]:
    return [Row((i, i), (0, 1), Provenance(str(i), (), kind)) for i in range(count)]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.5, 10), (0.8, 40), (0.25, 3)])
def test_mixing_share(share: float, expected: int) -> None:
    mixed = mix(some_rows(10, "good"), some_rows(4, "demonstration"), share, seed=0)
    assert sum(r.provenance.kind == "demonstration" for r in mixed) == expected


def test_general_conversations_are_read_and_masked(tmp_path: Path) -> None:
    path = tmp_path / "general.json"
    turns = [
        {"from": "human", "value": "Hi"},
        {"from": "gpt", "value": "Hello"},
        {"from": "human", "value": "Bye"},
        {"from": "gpt", "value": "Ciao"},
    ]
    path.write_text(json.dumps([{"id": "a", "conversations": turns}]))
    (row,) = general_rows(path, CODEC, 1000)
    assert trained_text(row) == "Hello<|im_end|>Ciao<|im_end|>"
    path.write_text(json.dumps([{"id": "a", "conversations": [{"role": "x"}]}]))
    with pytest.raises(DataError, match="conversation 1 is not in ShareGPT form"):
        general_rows(path, CODEC, 1000)
    path.write_text("{broken")
    with pytest.raises(DataError, match="is not JSON"):
        general_rows(path, CODEC, 1000)


# exports --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def forest(tmp_path: Path) -> Forest:
    made = Forest(tmp_path / "forest")
    made.write(golden())
    made.seal()
    return made


@pytest.mark.parametrize("splice", [Splice.executed, Splice.paper])
def test_sharegpt_says_which_turns_are_trained_on(tmp_path: Path, forest: Forest, splice: Splice) -> None:
    path = tmp_path / "rows.json"
    assert export_rows(path, rows(splice)[:1], forest, ReAct(), "sharegpt") == 1
    (entry,) = json.loads(path.read_text())
    said = [(t["value"].split("Action: ")[1], t["loss"]) for t in entry["conversations"] if t["from"] == "gpt"]
    middle = [("take key", True), ("unlock", True)] if splice is Splice.executed else [("wait", True), ("take key", True), ("unlock", True)]
    assert said == [("open", False), ("wait", False), *middle]
    assert entry["conversations"][0] == {"from": "human", "value": "Open the door."}
    assert general_rows(path, CODEC, 10_000), "our own export is not ShareGPT"


def test_trl_export_is_masked_by_token(tmp_path: Path) -> None:
    (row,) = rows(Splice.executed)
    export_rows(tmp_path / "rows.jsonl", [row], None, ReAct(), "trl")
    entry = json.loads((tmp_path / "rows.jsonl").read_text())
    assert [label for label in entry["labels"] if label != -100] == [i for i, m in zip(row.input_ids, row.loss_mask, strict=True) if m]


def test_agent_r_jsonl_and_trees_have_the_originals_keys(tmp_path: Path, forest: Forest) -> None:
    export_rows(tmp_path / "rows.jsonl", rows(Splice.executed), forest, ReAct(), "agent_r")
    entry = json.loads((tmp_path / "rows.jsonl").read_text())
    assert set(entry) == {"task_num", "revise_log", "high_log", "low_log", "task_description", "revise", "revise_feedback"}
    assert export_trees(tmp_path / "trees", forest) == 1
    root = json.loads((tmp_path / "trees" / "search_results_door.json").read_text())
    assert root["llm_response"] == root["action"] == "ROOT"
    assert root["visits"] == 3
    assert root["value"] == pytest.approx(1.2)
    leaf = root["children"][0]["children"][0]["children"][0]
    assert leaf["recent_actions"] == [["open", "It is locked."], ["take key", "Taken."], ["unlock", "It opens."]]
    assert leaf["env_score"] == 1.0
    # The original's pairing looks at exactly this: terminal leaves without children, and value over visits.
    assert leaf["is_terminal"]
    assert leaf["children"] == []
