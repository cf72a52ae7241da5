"""Pairs, splices, masks and mixtures on a golden tree that can be checked by eye."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from agentr.errors import DataError, NoRows, RunError
from agentr.methods.agent_r import AgentRConfig
from agentr.methods.agent_r.revise import ReflectionFor, ReviseConfig, splice
from agentr.rows.dataset import Keep, write_dataset
from agentr.rows.mixture import ExtraPairs, mix, mix_pairs_from_files
from agentr.rows.revision import demonstrated_rows, good_rows, revision_rows
from agentr.rows.sequences import NO_LOGPROBS, dropped
from agentr.rows.targets import Targets
from agentr.search.pairs import Pairing, falls_behind, good_suffix, pair_paths
from agentr.search.revision import Revision, Splice
from agentr.search.tree import Origin, Tree
from agentr.store.dataset import read_row, read_row_table, read_rows, write_rows
from agentr.store.rows import Dropped, Preference, Provenance, Row
from agentr.store.summaries import DatasetSummary
from agentr.tasks.formats import ReAct
from agentr.types import Message, Outcome
from tests.runs import dataset, round_of
from tests.trees import add, child, codec, conversed, door, reasoned, tree_of

CODEC = codec()


def trained_text(row: Row) -> str:
    return CODEC.decode([i for i, m in zip(row.input_ids, row.loss_mask, strict=True) if m], special=True)


# pairs ----------------------------------------------------------------------------------------------------------------


def test_pairs_prefer_the_deepest_common_ancestor_and_ignore_revisions() -> None:
    pairs = pair_paths(door(), ReviseConfig(), alpha=0.5)
    assert [(p.bad, p.good, p.ancestor) for p in pairs] == [(5, 3, 1), (6, 3, 0)]


@pytest.mark.parametrize(
    ("change", "alpha", "expected"),
    [
        ({"beta": 1.0}, 0.5, []),  # gap: more than beta, and not only as much
        ({"beta": 0.9}, 0.5, [(5, 3)]),  # gap: 1.0 - 0.2 is not more than 0.9
        ({"pairing": Pairing.threshold, "beta": 0.2}, 0.5, [(5, 3)]),  # strictly below beta
        ({"alpha_inclusive": False}, 1.0, []),  # the released code at alpha = 1
        ({"pairs_per_task": 1}, 0.5, [(5, 3)]),
        ({"alpha_inclusive": True}, 0.2, [(5, 3), (6, 3), (5, 6)]),
    ],
)
def test_pair_rules(change: dict, alpha: float, expected: list[tuple[int, int]]) -> None:
    pairs = pair_paths(door(), ReviseConfig(**({"beta": 0.1} | change)), alpha)
    assert [(p.bad, p.good) for p in pairs] == expected


def test_all_pairs_in_the_originals_way_are_shuffled_but_seeded() -> None:
    config = ReviseConfig(pairs_per_task=0, beta=0.1)
    first, second = pair_paths(door(), config, 0.2), pair_paths(door(), config, 0.2)
    assert first == second
    assert {(p.bad, p.good) for p in first} == {(5, 3), (6, 3), (5, 6)}


def test_value_judge_and_suffix() -> None:
    tree = door()
    assert falls_behind(tree, tree.nodes[4], 0.2)
    assert not falls_behind(tree, tree.nodes[4], 1.0), "by more than the margin, and not only by as much"
    assert not falls_behind(tree, tree.nodes[2], 0.2)
    assert [n.action for n in good_suffix(tree, pair_paths(tree, ReviseConfig(), 0.5)[0])] == ["take key", "unlock"]


# rows -----------------------------------------------------------------------------------------------------------------


def revised(tree: Tree, splice: Splice, limit: int = AgentRConfig().revisions_per_task) -> tuple[list[Row], list[str]]:
    """The revision rows of a tree, and the reasons of those that were dropped."""
    found = list(revision_rows(tree, splice, CODEC, ReAct(), limit=limit, targets=Targets()))
    return [r for r in found if isinstance(r, Row)], [d.reason for d in found if isinstance(d, Dropped)]


def rows(splice: Splice) -> list[Row]:
    return revised(door(), splice)[0]


def good(tree: Tree, min_return: float, train_on_invalid: bool = False) -> list[Row]:
    found = good_rows(tree, min_return, limit=AgentRConfig().good_per_task, targets=Targets(invalid=train_on_invalid))
    return [row for row in found if isinstance(row, Row)]


def test_executed_revision_trains_on_everything_after_the_bad_prefix() -> None:
    (row,) = rows(Splice.executed)
    assert row.provenance.nodes == (1, 4, 7, 8)
    assert trained_text(row) == (
        "Thought: on take key\nAction: take key<|im_end|>Thought: on unlock\nAction: unlock<|im_end|>"
    )
    text = CODEC.decode(row.input_ids, special=True)
    assert "Action: wait<|im_end|>\n<|im_start|>user\nTime passes.<|im_end|>\n<|im_start|>assistant\n" in text
    assert text.endswith("Action: unlock<|im_end|>")


def test_paper_splice_inserts_a_reflection_that_nobody_executed() -> None:
    row = rows(Splice.paper)[0]
    assert row.provenance.nodes == (1, 4, -1, 2, 3)
    assert trained_text(row).startswith("Thought: That was wrong.\nAction: wait<|im_end|>Thought: on take key")
    assert "user\nok.<|im_end|>" in CODEC.decode(row.input_ids, special=True)


def test_direct_revision_has_the_whole_bad_path() -> None:
    tree = door()
    tree.revisions[0].transition = 5
    made, _ = revised(tree, Splice.direct)
    assert made[0].provenance.nodes == (1, 4, 5, -1, 2, 3)


def test_revisions_that_do_not_pay_are_dropped_and_counted() -> None:
    made, dropped = revised(door(), Splice.executed)
    assert len(made) == 1
    assert dropped == ["executed revision earned less than the good path"]


def test_revisions_over_the_cap_and_those_made_twice_are_dropped_and_counted() -> None:
    tree = door()
    tree.revisions.append(tree.revisions[0])
    made, dropped = revised(tree, Splice.executed, limit=0)
    assert len(made) == 1
    assert sorted(dropped) == ["executed revision earned less than the good path", "revision made twice"]
    made, dropped = revised(door(), Splice.paper, limit=1)
    assert [row.provenance.nodes for row in made] == [(1, 4, -1, 2, 3)]
    assert dropped == ["revisions over the cap"]


def test_equal_revisions_are_kept_where_that_is_asked_for() -> None:
    tree = door()
    tree.revisions.append(tree.revisions[0])
    kept = list(revision_rows(tree, Splice.executed, CODEC, ReAct(), limit=0, targets=Targets(), dedupe=False))
    made = [row for row in kept if isinstance(row, Row)]
    assert len(made) == 2 and made[0].input_ids == made[1].input_ids


def test_good_rows_with_the_same_actions_are_kept_where_that_is_asked_for() -> None:
    tree = tree_of("open / take: 1.0", "open / wait: 0.5")
    add(tree, 1, child("take", 1.0, Outcome.SUCCESS))
    found = {
        (inclusive, dedupe): [
            row.provenance.nodes
            for row in good_rows(tree, 0.5, limit=9, targets=Targets(), inclusive=inclusive, dedupe=dedupe)
            if isinstance(row, Row)
        ]
        for inclusive in (True, False)
        for dedupe in (True, False)
    }
    assert found[True, True] == [(1, 2), (1, 3)] and found[True, False] == [(1, 2), (1, 3), (1, 4)]
    assert found[False, True] == [(1, 2)] and found[False, False] == [(1, 2), (1, 4)]


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ("", ["good", "revision"]),
        ("method.dedupe_revisions=false", ["good", "revision", "revision"]),
        ("method.dedupe_good=false", ["good", "good", "revision"]),
        ("method.revise.alpha_inclusive=false", ["revision"]),
    ],
)
def test_a_rounds_rows_are_distinct_and_good_enough_as_the_method_says(
    tmp_path: Path, change: str, kinds: list[str]
) -> None:
    tree = door()
    tree.revisions.append(tree.revisions[0])
    for node in tree.successes():
        node.reward = 0.5
    add(tree, tree.nodes[3].parent, reasoned("unlock", 0.5, Outcome.SUCCESS))
    made, _ = dataset(
        round_of(tmp_path, ["method.type=agent_r", "method.revise.alpha=[0.5]", *filter(None, [change])], revise=[tree])
    )
    assert sorted(row.provenance.kind for row in read_rows(made)) == kinds


@pytest.mark.parametrize(
    ("changes", "context"),
    [
        ([], {}),
        (["method.false_reflections=false"], {"reflection on a move that worked": 1}),
        (["build.train_on_said_twice=false"], {"sentence said twice": 1}),
        (["build.least_logprob=-0.9"], {"unlikely turn": 2}),
    ],
)
def test_a_round_learns_the_turns_that_its_configuration_chooses(
    tmp_path: Path, changes: list[str], context: dict[str, int]
) -> None:
    """Node 7 reflects, node 2 says a sentence twice, and nodes 2 and 3 are unlikely."""
    tree = door()
    tree.nodes[7].text, tree.nodes[2].text = "That was wrong. take key", "I need it. I need it. take key"
    for node in (2, 3):
        tree.nodes[node].logprobs = tuple(-1.0 for _ in tree.nodes[node].token_ids)
    settings = ["method.type=agent_r", "method.revise.alpha=[0.5]", "method.revise.reflections=[That was wrong.]"]
    made, manifest = dataset(round_of(tmp_path, [*settings, *changes], revise=[tree]))
    assert manifest["context"] == context
    learnt = {row.provenance.kind: sum(row.loss_mask) for row in read_rows(made)}
    assert learnt.keys() == {"good", "revision"}, "a turn that is not learnt stays in its row"


@pytest.mark.parametrize(("reflection_for", "most"), [(ReflectionFor.transition, 1), (ReflectionFor.pair, 9)])
def test_a_reflection_is_drawn_for_each_transition_or_for_each_pair(reflection_for: ReflectionFor, most: int) -> None:
    tree = tree_of("open / wait / sleep: 0.0", *(f"open / take {n}: 1.0" for n in range(9)))
    config = ReviseConfig(pairs_per_task=0, reflection_for=reflection_for)
    revisions = [splice(tree, pair, tree.nodes[2], config) for pair in pair_paths(tree, config, 1.0)]
    drawn = {revision.reflection for revision in revisions}
    assert len(revisions) == 9 and (len(drawn) == 1 if most == 1 else len(drawn) > 2)
    again = [splice(tree, pair, tree.nodes[2], config).reflection for pair in pair_paths(tree, config, 1.0)]
    assert again == [revision.reflection for revision in revisions]


def test_a_turn_whose_beginning_was_forgotten_is_context() -> None:
    tree = tree_of("open / take: 1.0")
    tree.nodes[2].forgotten = 1
    (row,) = (row for row in good_rows(tree, 1.0, limit=1, targets=Targets()) if isinstance(row, Row))
    assert row.loss_mask == (0, 0, 0, 1, 0, 0), (
        "the opening, the first turn, its bridge, the turn that saw only the opening"
    )


def test_the_good_paths_own_actions_come_before_those_with_which_the_policy_went_on() -> None:
    tree = door()
    tree.revisions[0].continued = True
    made, dropped = revised(tree, Splice.paper, limit=1)
    assert [(row.provenance.nodes, row.provenance.detail["continued"]) for row in made] == [((6, -1, 1, 2, 3), 0)]
    assert dropped == ["revisions over the cap"]


def test_a_first_error_before_the_paths_part_leaves_nothing_out() -> None:
    """open - take key - { unlock: 1.0, sleep: 0.0 }, of which open is the first bad step: its end goes on with take
    key."""
    tree = conversed(Message("user", "Open the door."))
    tree_of(
        "open / take key / unlock: 1.0",
        "open / take key / sleep: 0.0",
        into=tree,
        make=lambda _, *turn: reasoned(*turn),
    )
    tree.revisions = [Revision(bad=4, good=3, ancestor=2, transition=1, reflection="That was wrong.")]
    made, _ = revised(tree, Splice.paper)
    assert [row.provenance.nodes for row in made] == [(1, -1, 2, 3)]


def test_invalid_turns_of_a_revision_are_context_unless_asked_for() -> None:
    tree = door()
    tree.nodes[7].valid = False
    for wanted in (False, True):
        (row, *_) = revision_rows(tree, Splice.executed, CODEC, ReAct(), limit=0, targets=Targets(invalid=wanted))
        assert isinstance(row, Row)
        assert ("take key" in trained_text(row)) is wanted and "unlock" in trained_text(row)


def test_good_rows_train_on_every_turn_and_on_nothing_else() -> None:
    (row,) = good(door(), 0.5)
    assert row.provenance.nodes == (1, 2, 3)
    assert trained_text(row).count("<|im_end|>") == 3
    untrained = CODEC.decode([i for i, m in zip(row.input_ids, row.loss_mask, strict=True) if not m], special=True)
    assert "Action" not in untrained
    assert "It is locked." in untrained


def task(*turns: Any, origin: Origin = Origin.POLICY) -> Tree:
    """A tree whose root has these turns below it."""
    tree = conversed(Message("user", "x"))
    for turn in turns:
        add(tree, 0, turn, origin)
    return tree


def test_invalid_turns_are_context_unless_asked_for() -> None:
    tree = task(reasoned("blub", valid=False))
    add(tree, 1, reasoned("win", 1.0, Outcome.SUCCESS))
    for wanted in (False, True):
        (row,) = good(tree, 1.0, wanted)
        assert ("blub" in trained_text(row)) is wanted


def test_what_has_nothing_to_train_on_is_dropped_with_its_reason() -> None:
    """All that would be learnt was not understood."""
    (left_out,) = good_rows(task(reasoned("blub", 1.0, Outcome.SUCCESS, valid=False)), 1.0, limit=1, targets=Targets())
    assert isinstance(left_out, Dropped)
    assert (left_out.reason, left_out.provenance.nodes) == ("trajectory with nothing to train on", (1,))
    tree = door()
    tree.nodes[7].valid = tree.nodes[8].valid = False
    left_out, _ = revision_rows(tree, Splice.executed, CODEC, ReAct(), limit=0, targets=Targets())
    assert isinstance(left_out, Dropped)
    assert (left_out.reason, left_out.provenance.nodes) == ("revision with nothing to train on", (1, 4, 7, 8))


def test_a_demonstration_counts_if_it_succeeded_whatever_it_earned() -> None:
    tree = task(
        reasoned("win slowly", 0.9, Outcome.SUCCESS), reasoned("come close", 0.9, Outcome.FAILURE), origin=Origin.EXPERT
    )
    add(tree, 0, reasoned("win", 1.0, Outcome.SUCCESS))
    row, left_out, *_ = demonstrated_rows(tree, Targets())
    assert isinstance(row, Row) and isinstance(left_out, Dropped)
    assert (left_out.reason, left_out.provenance.nodes) == ("demonstration without a success", (2,))
    assert "win slowly" in trained_text(row) and row.provenance.kind == "demonstration"


AGENT_R = ["method.type=agent_r", "method.revise.alpha=[0.5]"]


def test_dataset_accounts_for_every_row_and_reads_back_equal(tmp_path: Path) -> None:
    folder, manifest = dataset(round_of(tmp_path / "run", AGENT_R, revise=[door()]))
    assert manifest["kinds"] == {"revision": 1, "good": 1}
    assert manifest["splices"] == {"tried": 2, "text splice would fail": 1, "kept after execution": 1}
    assert manifest["dropped"] == {
        "executed revision earned less than the good path": 1,
        "trajectory with too low a return": 2,
    }
    assert manifest["tasks"] == 1
    back = read_rows(folder)
    write_rows(tmp_path / "again", back)
    assert read_rows(tmp_path / "again") == back
    assert sum(len(r.input_ids) for r in back) == manifest["tokens"]


def test_a_round_without_any_row_is_an_error_that_says_why(tmp_path: Path) -> None:
    reasons = (
        r"gave no row to train on: 2 x longer than build\.max_length, 1 x executed revision earned less than the good "
        r"path"
    )
    with pytest.raises(NoRows, match=reasons) as failed:
        dataset(round_of(tmp_path, [*AGENT_R, "build.max_length=3"], revise=[door()]))
    assert failed.value.hint == "Raise build.max_length."
    with pytest.raises(NoRows, match="1 x no log-probabilities") as failed:
        write_dataset(tmp_path / "drawn", [dropped(door(), NO_LOGPROBS, [1])], 10, hint="another")
    assert failed.value.hint.startswith("Turns that followed a grammar")


def test_filtering_keeps_the_runs_that_earned_enough_in_their_round(tmp_path: Path) -> None:
    """RFT imitates whole runs of the policy by the threshold of the round; of the same tree it makes no revision."""
    method = ["method.type=rft", "method.min_return=[1.0,0.2]"]
    for number, expected in ((1, [(1, 2, 3)]), (2, [(1, 2, 3), (6,)])):
        folder, manifest = dataset(round_of(tmp_path / str(number), method, number=number, collect=[door()]))
        assert sorted(row.provenance.nodes for row in read_rows(folder)) == expected
        assert manifest["kinds"] == {"good": len(expected)}
        assert "splices" not in manifest
    with pytest.raises(DataError, match="gave no row to train on: 1 x trajectory with too low a return"):
        dataset(round_of(tmp_path / "none", method, collect=[task(reasoned("give up", 0.2, Outcome.FAILURE))]))


@pytest.mark.parametrize("place", [60, -60, None], ids=["page", "footer", "cut"])
def test_a_corrupt_dataset_is_refused_however_it_is_read(tmp_path: Path, place: int | None) -> None:
    write_rows(tmp_path, good(door(), 0.5))
    path = tmp_path / "rows.parquet"
    data = bytearray(path.read_bytes())
    if place is not None:
        data[place] ^= 1
    path.write_bytes(data if place is not None else data[:-10])
    for read in (read_rows, read_row_table, lambda folder: read_row(folder, 0)):
        with pytest.raises(DataError, match=r"rows\.parquet is damaged or missing"):
            read(tmp_path)


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


def test_a_round_trains_on_demonstrations_and_on_its_own_rows_of_earlier_rounds(tmp_path: Path) -> None:
    """The warm start's rows are drawn from by their share; of an earlier round only what its own trees gave comes
    again."""
    method = [*AGENT_R, "method.mixture={demonstrations: 0.5, earlier_rounds: 1}"]
    first = round_of(tmp_path, method, revise=[door()])
    before = Row((1, 2), (0, 1), Provenance("shown", (), "demonstration"))

    def demonstrated(folder: Path) -> DatasetSummary:
        return DatasetSummary.read(write_rows(folder, [before]))

    first.experiment.store.stages.run("rounds/00/dataset", DatasetSummary, demonstrated)
    _, manifest = dataset(first)
    assert manifest["kinds"] == {"revision": 1, "good": 1, "demonstration": 2}
    first.experiment.store.close()
    _, manifest = dataset(round_of(tmp_path, method, number=2, revise=[door()]))
    assert manifest["kinds"] == {"revision": 2, "good": 2, "demonstration": 4}
    assert manifest["tasks"] == 1
    with pytest.raises(RunError, match=r"has no rounds/01/dataset yet"):
        dataset(round_of(tmp_path / "second alone", method, number=2, revise=[door()]))


def test_the_first_round_has_no_round_before_it(tmp_path: Path) -> None:
    """The warm start is none: without one there is no dataset of it."""
    _, manifest = dataset(round_of(tmp_path, [*AGENT_R, "method.mixture.earlier_rounds=2"], revise=[door()]))
    assert manifest["kinds"] == {"revision": 1, "good": 1}


def solved(name: str, *paths: str) -> Tree:
    """A tree of a task whose paths all succeed."""
    tree = conversed(Message("user", "Open the door."), name=name)
    return tree_of(*(f"{path}: 1.0" for path in paths), into=tree, make=lambda _, *turn: reasoned(*turn))


def order(folder: Path) -> list[str]:
    return [row.provenance.tree for row in read_rows(folder)]


def test_the_order_of_a_dataset_is_that_of_the_runs_seed(tmp_path: Path) -> None:
    trees = [solved(f"door{number:02d}", "open") for number in range(12)]
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        folder, _ = dataset(round_of(tmp_path / name, ["method.type=rft", f"run.seed={seed}"], collect=trees))
        orders.append(order(folder))
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == [f"door{number:02d}" for number in range(12)] != orders[0]


def test_eta_is_the_share_of_the_agents_own_rows(tmp_path: Path) -> None:
    """Agent-R, Eq. 6: two rows of the agent are a quarter of eight."""
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    (tmp_path / "general.json").write_text(json.dumps([{"id": "a", "conversations": turns}]))
    mixture = f"method.mixture={{general_path: {tmp_path / 'general.json'}, eta: 0.25}}"
    _, manifest = dataset(round_of(tmp_path / "run", [*AGENT_R, mixture], revise=[door()]))
    assert manifest["kinds"] == {"revision": 1, "good": 1, "general": 6}


def test_which_pairs_of_files_are_drawn_and_in_which_order_is_seeded(tmp_path: Path) -> None:
    pairs = [{"prompt": f"Say {number}.", "chosen": f"{number}", "rejected": "no"} for number in range(9)]
    for name in ("some.json", "all.json"):
        (tmp_path / name).write_text(json.dumps(pairs))
    extra = [ExtraPairs(str(tmp_path / "some.json"), limit=2), ExtraPairs(str(tmp_path / "all.json"))]

    def mixed(seed: int) -> list[Any]:
        """The pairs themselves, where a dataset keeps them on disk."""
        found, _ = mix_pairs_from_files(
            [], extra, keep=cast(Keep, lambda pair: pair), codec=CODEC, max_length=1000, seed=seed
        )
        return [cast(Preference, pair).chosen_ids for pair in found]

    assert len(mixed(0)) == 2 + 9
    assert mixed(0) == mixed(0) != mixed(1)


def test_general_conversations_that_cannot_be_learnt_are_counted(tmp_path: Path) -> None:
    """A bad example is not imitated, and one with tools would not be readable in a run whose agents have none."""
    said = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]
    tool = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
    entries = [{"conversations": said, **more} for more in ({}, {"kto_tag": False}, {"tools": [tool]})]
    (tmp_path / "general.json").write_text(json.dumps(entries))
    mixture = f"method.mixture={{general_path: {tmp_path / 'general.json'}, eta: 0.5}}"
    folder, manifest = dataset(round_of(tmp_path / "run", [*AGENT_R, mixture], revise=[door()]))
    assert {trained_text(row) for row in read_rows(folder) if row.provenance.kind == "general"} == {"Hello<|im_end|>"}
    dropped = {why: count for why, count in manifest["dropped"].items() if "tools" in why or "labelled" in why}
    assert dropped == {"labelled as a bad example": 1, "it offers other tools than the run's agents have": 1}
