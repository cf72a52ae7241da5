"""ETO's pair rules, one golden test each, on trees that can be checked by eye."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import agentr
from agentr.errors import DataError
from agentr.methods import load
from agentr.methods.eto import ETOConfig
from agentr.methods.eto.rows import ComparedWith, ContrastConfig, Granularity, contrast_rows
from agentr.search.tree import Origin, Tree
from agentr.store.dataset import read_rows
from agentr.store.layout import arm_of
from agentr.store.rows import Dropped, Preference
from agentr.types import Message, Outcome, Task
from tests.runs import dataset, round_of
from tests.trees import OPENING, codec, conversed, expert, explored, play

CODEC = codec()


def start() -> Tree:
    return conversed(*OPENING)


def said(ids: tuple[int, ...], mask: tuple[int, ...]) -> str:
    """What is trained on."""
    return (
        CODEC.decode([i for i, m in zip(ids, mask, strict=True) if m], special=True).replace("<|im_end|>", " ").strip()
    )


def sides(pairs: list[Preference]) -> list[tuple[str, str]]:
    return [(said(p.chosen_ids, p.chosen_mask), said(p.rejected_ids, p.rejected_mask)) for p in pairs]


def contrast(tree: Tree, shown: Tree | None = None, /, **rules: Any) -> tuple[list[Preference], Counter[str]]:
    max_length = rules.pop("max_length", 1000)
    found = list(contrast_rows(tree, shown, ContrastConfig(**rules), max_length))
    reasons = [candidate for candidate in found if isinstance(candidate, Dropped)]
    assert {reason.provenance.tree for reason in reasons} <= {tree.task.key}
    compared = [d for d in reasons if not d.reason.startswith(("no ", "the demonstration ", "run without "))]
    assert all(d.provenance.nodes and d.provenance.rejected for d in compared), (
        "of two runs that were compared both are named"
    )
    return [pair for pair in found if isinstance(pair, Preference)], Counter(d.reason for d in reasons)


# what a pair is -------------------------------------------------------------------------------------------------------


def test_a_pair_is_the_opening_and_two_whole_runs_masked_to_the_agents_own_turns() -> None:
    pairs, dropped = contrast(explored(("wait ? sleep", 0.2)), expert())
    (pair,) = pairs
    assert pair.prompt_ids == tuple(CODEC.prompt(OPENING))
    whole = CODEC.decode([*pair.prompt_ids, *pair.rejected_ids], special=True)
    bridge = "<|im_end|>\n<|im_start|>user\nsaw {}<|im_end|>\n<|im_start|>assistant\n"
    assert whole.endswith("assistant\nwait" + bridge.format("wait") + "?" + bridge.format("?") + "sleep<|im_end|>")
    assert sides(pairs) == [("take unlock", "wait ? sleep")], "turns that were not understood count too"
    untrained = CODEC.decode([i for i, m in zip(pair.chosen_ids, pair.chosen_mask, strict=True) if not m])
    assert "saw take" in untrained
    assert "unlock" not in untrained
    assert pair.provenance.nodes == (1, 2)
    assert pair.provenance.rejected == (1, 2, 3)
    assert pair.provenance.kind == "trajectory"
    assert pair.provenance.detail == {
        "chosen_by": "expert", "rejected_by": "policy", "chosen_return": 1.0, "rejected_return": 0.2, "depth": 0,
        "cut": 0
    }  # fmt: skip
    assert not dropped


def test_turns_that_both_sides_begin_with_stay_in_both() -> None:
    pairs, _ = contrast(explored(("take sleep", 0.0)), expert())
    assert sides(pairs) == [("take unlock", "take sleep")]


# the rules of construct_preference ------------------------------------------------------------------------------------


def test_the_better_run_is_chosen_whoever_made_it() -> None:
    pairs, _ = contrast(explored(("pull push open", 0.9)), expert("take unlock", 0.5))
    assert sides(pairs) == [("pull push open", "take unlock")]
    assert pairs[0].provenance.detail["chosen_by"] == "policy"
    assert pairs[0].provenance.nodes == (1, 2, 3)


def test_equal_returns_are_a_tie() -> None:
    pairs, dropped = contrast(explored(("other way", 1.0)), expert())
    assert not pairs
    assert dropped == {"tie": 1}


@pytest.mark.parametrize(("margin", "made"), [(0.0, 1), (0.4, 1), (0.5, 0), (0.6, 0)])
def test_the_difference_must_exceed_the_margin(margin: float, made: int) -> None:
    pairs, dropped = contrast(explored(("wait", 0.5)), expert(), margin=margin)
    assert len(pairs) == made
    assert dropped == ({} if made else {"difference within the margin": 1})


def test_a_pair_is_of_the_conversations_in_which_two_runs_first_differ() -> None:
    for actions, compared in (("wait sleep", ("take unlock", "wait")), ("wait", ("take unlock", "wait"))):
        tree = explored((actions, 0.5))
        tree.nodes[1].behind = (0, 0)  # what follows the first turn is another conversation
        (pair,), dropped = contrast(tree, expert())
        assert sides([pair]) == [compared] and not dropped and pair.prompt_ids == tree.prompt_ids

    tree, shown = explored(("take sleep", 0.5)), expert()
    for other in (tree, shown):
        other.nodes[1].behind, other.nodes[1].bridge_ids = (0, 0), (7, 8)
    (pair,), dropped = contrast(tree, shown)
    assert sides([pair]) == [("unlock", "sleep")] and pair.prompt_ids == (7, 8)
    tree.nodes[1].bridge_ids = (7, 9)
    assert contrast(tree, shown) == ([], {"a side with nothing to train on": 1}), "they were asked different things"


def test_the_policy_may_be_kept_from_winning() -> None:
    pairs, dropped = contrast(explored(("open", 0.9), ("wait", 0.1)), expert(earned=0.5), policy_may_win=False)
    assert sides(pairs) == [("take unlock", "wait")]
    assert dropped == {"the policy did better than the expert": 1}


def test_a_perfect_expert_cannot_lose() -> None:
    tree = explored(("open", 0.9), ("win", 1.0))
    assert contrast(tree, expert(earned=0.5), pairs_per_task=0)[0][0].provenance.detail["chosen_by"] == "policy"
    pairs, dropped = contrast(tree, expert(earned=0.5), expert_is_perfect=True, pairs_per_task=0)
    assert sides(pairs) == [("take unlock", "open")]
    assert pairs[0].provenance.detail["chosen_return"] == 1.0
    assert dropped == {"tie": 1}


@pytest.mark.parametrize(("extra", "kept"), [(5, "a b c d e f g"), (1, "a b c"), (0, "a b"), (-1, "a b c d e f g h i")])
def test_a_rejected_run_is_cut_after_an_agents_turn(extra: int, kept: str) -> None:
    pairs, _ = contrast(explored(("a b c d e f g h i", 0.0)), expert(), extra_turns=extra)
    assert sides(pairs) == [("take unlock", kept)]
    assert CODEC.decode(pairs[0].rejected_ids, special=True).endswith(kept[-1] + "<|im_end|>")
    assert pairs[0].provenance.detail["cut"] == 9 - len(kept.split())
    assert len(pairs[0].provenance.rejected) == len(kept.split())


def test_runs_that_did_not_end_for_their_own_reasons_are_left_out() -> None:
    tree = explored(("a", 0.0, Outcome.INFRA), ("b", 0.0, Outcome.CONTEXT_LIMIT), ("c", 0.0, Outcome.STEP_LIMIT))
    pairs, dropped = contrast(tree, expert(), pairs_per_task=0)
    assert sides(pairs) == [("take unlock", "c")]
    assert dropped == {"run without an end: infra": 1, "run without an end: context_limit": 1}


def test_a_full_context_may_be_rejected_but_never_chosen() -> None:
    tree = explored(("a", 0.0, Outcome.INFRA), ("b", 0.1, Outcome.CONTEXT_LIMIT), ("c", 0.9, Outcome.CONTEXT_LIMIT))
    pairs, dropped = contrast(tree, expert(earned=0.5), pairs_per_task=0, unfinished=True)
    assert sides(pairs) == [("take unlock", "b")]
    assert dropped == {"run without an end: infra": 1, "the better run has no end": 1}


def test_tasks_without_a_demonstration_are_counted() -> None:
    assert contrast(explored(("a", 0.0)), None) == ([], {"no demonstration of the task": 1})
    endless = expert(outcome=Outcome.CONTEXT_LIMIT)
    assert contrast(explored(("a", 0.0)), endless) == ([], {"the demonstration has no end": 1})


def test_sides_of_different_prompts_are_no_pair() -> None:
    shown = expert(opening=(Message("user", "Open the other door."),))
    assert contrast(explored(("a", 0.0)), shown) == ([], {"the demonstration has another prompt": 1})


def test_a_tree_without_a_run_is_counted() -> None:
    assert contrast(start(), expert()) == ([], {"no run of the policy in the tree": 1})


# how many -------------------------------------------------------------------------------------------------------------


def test_the_largest_difference_comes_first_and_the_cap_is_counted() -> None:
    tree = explored(("a", 0.5), ("b", 0.0), ("c", 0.2))
    assert sides(contrast(tree, expert(), pairs_per_task=0)[0]) == [("take unlock", w) for w in "bca"]
    pairs, dropped = contrast(tree, expert())
    assert sides(pairs) == [("take unlock", "b")]
    assert dropped == {"pairs over the cap": 2}


def test_identical_pairs_are_made_once_and_long_ones_are_dropped_before_the_cap() -> None:
    long = "x " * 30
    tree = explored((long, 0.0), ("a", 0.1), ("a", 0.1), ("b", 0.2))
    pairs, dropped = contrast(tree, expert(), pairs_per_task=2, extra_turns=-1, max_length=200)
    assert sides(pairs) == [("take unlock", "a"), ("take unlock", "b")]
    assert dropped == {"longer than build.max_length": 1, "pair made twice": 1}
    assert max(p.longest for p in pairs) <= 200


def test_the_same_turns_with_other_returns_are_no_pair() -> None:
    pairs, dropped = contrast(explored(("take unlock", 0.0)), expert())
    assert not pairs
    assert dropped == {"both sides are the same": 1}


def test_own_runs_are_compared_with_each_other() -> None:
    tree = explored(("a", 0.0), ("b b", 1.0), ("c", 1.0), ("d", 0.5), ("a", 0.0))
    pairs, dropped = contrast(tree, None, baseline=ComparedWith.own, pairs_per_task=0)
    # Differences of 1 first, and among them the shortest chosen side; then those of 0.5.
    assert sides(pairs) == [("c", "a"), ("b b", "a"), ("d", "a"), ("c", "d"), ("b b", "d")]
    assert dropped == {"tie": 2, "pair made twice": 3}
    assert sides(contrast(tree, None, baseline=ComparedWith.own, pairs_per_task=2)[0]) == [("c", "a"), ("b b", "a")]


def test_the_same_two_runs_never_make_opposite_pairs() -> None:
    tree = explored(("a", 0.0), ("b", 1.0), ("a", 1.0), ("b", 0.5))
    pairs, dropped = contrast(tree, None, baseline=ComparedWith.own, pairs_per_task=0)
    assert sides(pairs) == [("b", "a")]
    assert dropped == {"tie": 1, "both sides are the same": 2, "pair made twice": 2}


# step by step ---------------------------------------------------------------------------------------------------------


def stepwise() -> Tree:
    """The expert's ``take unlock open`` (1.0) with rollouts from each of its points:

    root: sleep (0.0), take-other open (1.0); after take: wait unlock (0.4), unlock (0.0, drawn by the policy); after
    unlock: kick (0.6).
    """
    tree = start()
    play(tree, "take unlock open", 1.0, origin=Origin.PREFIX)
    play(tree, "sleep", 0.0)
    play(tree, "grab open", 1.0)
    play(tree, "wait unlock", 0.4, parent=1)
    play(tree, "unlock cry", 0.0, parent=1)
    play(tree, "kick", 0.6, parent=2)
    return tree


def test_step_pairs_are_single_turns_after_the_experts_conversation() -> None:
    tree = stepwise()
    pairs, dropped = contrast(tree, None, granularity=Granularity.step, pairs_per_task=0)
    assert sides(pairs) == [("take", "sleep"), ("unlock", "wait"), ("open", "kick")]
    assert dropped == {"tie": 1, "both sides are the same": 1}
    assert [p.provenance.detail["depth"] for p in pairs] == [0, 1, 2]
    assert [p.provenance.detail["rejected_return"] for p in pairs] == [0.0, 0.4, 0.6]
    assert [list(p.prompt_ids) for p in pairs] == [tree.prompt(node) for node in (0, 1, 2)]
    for pair in pairs:
        assert pair.provenance.kind == "step"
        assert all(pair.chosen_mask)
        assert all(pair.rejected_mask)


def test_a_turn_that_led_further_than_the_experts_is_chosen() -> None:
    tree = start()
    play(tree, "take unlock", 0.5, origin=Origin.PREFIX)
    play(tree, "kick walk", 0.9, parent=1)
    pairs, _ = contrast(tree, None, granularity=Granularity.step)
    assert sides(pairs) == [("kick", "unlock")]
    assert pairs[0].provenance.detail["chosen_by"] == "policy"
    assert contrast(tree, None, granularity=Granularity.step, policy_may_win=False)[0] == []


def test_the_same_two_turns_at_two_points_are_two_pairs_and_early_ones_come_first() -> None:
    tree = start()
    play(tree, "take take", 1.0, origin=Origin.PREFIX)
    play(tree, "sleep", 0.0, parent=1)
    play(tree, "sleep", 0.0)
    pairs, _ = contrast(tree, None, granularity=Granularity.step, pairs_per_task=0)
    assert sides(pairs) == [("take", "sleep")] * 2
    assert [p.provenance.detail["depth"] for p in pairs] == [0, 1]


def test_a_step_whose_rollout_had_no_end_is_never_chosen() -> None:
    tree = start()
    play(tree, "take unlock", 0.5, origin=Origin.PREFIX)
    play(tree, "kick", 0.9, Outcome.CONTEXT_LIMIT, parent=1)
    play(tree, "wait", 0.1, Outcome.CONTEXT_LIMIT, parent=1)
    pairs, dropped = contrast(tree, None, granularity=Granularity.step, pairs_per_task=0, unfinished=True)
    assert sides(pairs) == [("unlock", "wait")]
    assert dropped == {"the better run has no end": 1}


def test_each_granularity_takes_its_own_trees() -> None:
    whole, steps = explored(("a", 0.0)), stepwise()
    for granularity, from_whole, from_steps in (
        (Granularity.trajectory, ["trajectory"], ["trajectory"]),  # the rollouts from the root are whole runs too
        (Granularity.step, [], ["step"] * 3),
        (Granularity.mixture, ["trajectory"], ["step"] * 3),
    ):
        made = [
            [p.provenance.kind for p in contrast(t, expert(), granularity=granularity, pairs_per_task=0)[0]]
            for t in (whole, steps)
        ]
        assert made == [from_whole, from_steps]
    assert contrast(whole, expert(), granularity=Granularity.step)[1] == {
        "no finished path of the expert in the tree": 1
    }


# datasets -------------------------------------------------------------------------------------------------------------


def test_a_dataset_compares_each_tree_with_the_demonstration_of_its_task(tmp_path: Path) -> None:
    trees = [explored(("wait", 0.0)), explored(("sleep", 0.5)), explored(("kick", 0.0))]
    for tree, name in zip(trees, ("door", "window", "gate"), strict=True):
        tree.task = Task("toy", name, "train")
    shown = [expert("take unlock"), expert("pull", 0.7)]
    shown[1].task = Task("toy", "window", "train")
    folder, manifest = dataset(round_of(tmp_path, ["method.type=eto"], collect=trees, experts=shown))
    pairs = {pair.provenance.tree: pair for pair in read_rows(folder)}
    assert {name: sides([pair])[0] for name, pair in pairs.items()} == {
        "door": ("take unlock", "wait"),
        "window": ("pull", "sleep"),
    }
    assert manifest["dropped"] == {"no demonstration of the task": 1}
    assert manifest["tasks"] == 2


def test_a_mixture_of_granularities_reads_both_stages(tmp_path: Path) -> None:
    method = "method={type: eto, pairs: {granularity: mixture, pairs_per_task: 0}}"
    _, manifest = dataset(
        round_of(tmp_path, [method], collect=[explored(("wait", 0.0))], steps=[stepwise()], experts=[expert()])
    )
    assert manifest["kinds"] == {"trajectory": 1, "step": 3}


def test_pairs_of_files_stand_beside_the_methods_own(tmp_path: Path) -> None:
    file = tmp_path / "pairs.json"
    file.write_text(json.dumps([{"prompt": f"Say {n}.", "chosen": "yes", "rejected": "no"} for n in range(5)]))
    method = f"method={{type: eto, extra_pairs: [{{path: {file}, limit: 2}}]}}"
    folder, manifest = dataset(
        round_of(tmp_path / "run", [method], collect=[explored(("wait", 0.0))], experts=[expert()])
    )
    assert manifest["kinds"] == {"trajectory": 1, "imported": 2}
    assert manifest["tasks"] == 1, "those of the agent's own trees"
    assert len(read_rows(folder)) == 3
    file.write_text(
        json.dumps([{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}])
    )
    with pytest.raises(DataError, match=r"in method\.extra_pairs holds sequences, and pairs are wanted"):
        dataset(round_of(tmp_path / "other", [method], collect=[explored(("wait", 0.0))], experts=[expert()]))


def test_a_pair_is_traced_to_both_its_sides(tmp_path: Path) -> None:
    method = ["method.type=eto"]
    round_ = round_of(tmp_path, method, experts=[expert()], collect=[explored(("wait wait", 0.0))])
    dataset(round_)
    round_.experiment.store.close()
    trace = agentr.open(tmp_path).rounds[1].dataset.rows.trace(0)
    assert (trace.chosen.stage, trace.rejected and trace.rejected.stage) == (
        arm_of(0).stage("demonstrations"),
        "rounds/01/collect",
    )
    assert [node and node.action for node in trace.chosen.nodes] == ["take", "unlock"]
    uses = agentr.open(tmp_path).rounds[1].collect.trace("door", 1)
    assert [(use.side, use.index) for use in uses] == [("rejected", 0)]
    uses = agentr.open(tmp_path).rounds[0].demonstrations.trace("door", 1)
    assert [(use.side, use.index) for use in uses] == [("chosen", 0)]


# documentation --------------------------------------------------------------------------------------------------------


def test_the_variants_in_the_documentation_are_valid_configurations(tmp_path: Path) -> None:
    snippets = re.findall(r"```yaml\n(.*?)```", (Path(__file__).parents[2] / "docs/eto.md").read_text(), re.DOTALL)
    path = tmp_path / "config.yaml"
    loaded = []
    for snippet in snippets:
        path.write_text(snippet)
        loaded.append(load(path).method)
    pairs = [method.pairs for method in loaded if isinstance(method, ETOConfig)]
    assert {p.baseline for p in pairs} == set(ComparedWith)
    assert Granularity.step in {p.granularity for p in pairs}
