"""Rows of policies that reason: what is context in them, what is learnt, and that their prompts are those that the
policy saw."""

from collections.abc import Sequence

import pytest

from agentr.errors import ConfigError, DataError
from agentr.methods import load
from agentr.methods.dense_policy.rows import SiblingsConfig, preference_rows
from agentr.methods.eto.rows import ContrastConfig, Granularity, contrast_rows
from agentr.policy.chat import ChatCodec
from agentr.rows.revision import good_rows, revision_rows
from agentr.rows.sequences import inserted, make_pair, make_rows, recorded
from agentr.rows.targets import Targets
from agentr.search.revision import Revision, Splice
from agentr.search.tree import Origin, Tree
from agentr.store.rows import Dropped, Preference, Row
from agentr.tasks.formats import ReAct
from agentr.types import Outcome
from tests.policy.test_families import codec_of
from tests.policy.test_tools import calls_of, tooled
from tests.reasoning import begun, grown, taken

QWEN, DEEPSEEK = codec_of("Qwen 3"), codec_of("DeepSeek V3")
THOUGHT = "<think>\nA door?\n</think>\n\n"


def said(action: str) -> str:
    return ReAct().compose(f"on {action}", action)


def text_of(codec: ChatCodec, ids: Sequence[int], mask: Sequence[int]) -> str:
    """What is learnt."""
    return codec.decode([i for i, m in zip(ids, mask, strict=True) if m], special=True)


def learnt(row: Row, codec: ChatCodec = QWEN) -> str:
    return text_of(codec, row.input_ids, row.loss_mask)


def rows_of(tree: Tree, **rules: bool) -> list[Row]:
    return make_rows(tree, recorded(tree.path(len(tree.nodes) - 1), trained=True, **rules), "good")


# what is learnt -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["Qwen 3", "DeepSeek V3", "GLM 4.5"])
def test_reasoning_is_learnt_or_is_context(family: str) -> None:
    codec = codec_of(family)
    thought = {"Qwen 3": THOUGHT, "DeepSeek V3": "A door?\n</think>\n\n", "GLM 4.5": "\n<think>A door?</think>\n"}[
        family
    ]
    tree = grown(codec, [thought + said("open"), thought + said("go")], keeps=True)
    end = codec.decode([codec.end_id], special=True)
    (whole,), (answers,) = rows_of(tree), rows_of(tree, on_reasoning=False)
    assert learnt(whole, codec) == f"{thought}{said('open')}{end}{thought}{said('go')}{end}"
    assert learnt(answers, codec) == f"{said('open')}{end}{said('go')}{end}"
    assert whole.input_ids == answers.input_ids


def test_of_reasoning_that_was_never_closed_nothing_is_learnt() -> None:
    tree = grown(QWEN, ["<think>\nA door", said("go")], keeps=True)
    (row,) = rows_of(tree, on_reasoning=False)
    assert learnt(row) == f"{said('go')}<|im_end|>"


@pytest.mark.parametrize("reasons", [True, False])
def test_an_inserted_turn_is_answered_by_the_tool_where_it_calls_one(reasons: bool) -> None:
    codec = tooled("Qwen 3")
    turn = inserted(codec, f"{THOUGHT}{calls_of(codec).compose('', 'wait')}", "ok.", True, reasons)
    assert codec.decode(turn.bridge_ids, special=True).count("<tool_response>\nok.\n</tool_response>") == 1
    assert "<tool_response>" not in codec.decode(inserted(codec, "I wait.", "ok.", True).bridge_ids, special=True)
    learnt_of_it = codec.decode([i for i, m in zip(turn.token_ids, turn.mask, strict=True) if m], special=True)
    assert learnt_of_it.startswith(THOUGHT if reasons else "<tool_call>")


# what the policy saw --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [QWEN, DEEPSEEK], ids=["Qwen 3", "DeepSeek V3"])
def test_each_turn_after_hidden_reasoning_is_a_row_with_the_prompt_that_the_policy_saw(codec: ChatCodec) -> None:
    thought = THOUGHT if codec is QWEN else "A door?\n</think>\n\n"
    tree = grown(codec, [thought + said(action) for action in ("open", "look", "go")])
    rows = rows_of(tree)
    assert [row.input_ids for row in rows] == [(*tree.prompt(n - 1), *tree.nodes[n].token_ids) for n in (1, 2, 3)]
    for row, n in zip(rows, (1, 2, 3), strict=True):
        size = len(tree.nodes[n].token_ids)
        assert row.loss_mask == (*(0 for _ in row.input_ids[size:]), *(1,) * size)
        assert row.logprobs == (*(None for _ in row.input_ids[size:]), *(-0.5,) * size)
        assert row.provenance.nodes == tuple(range(1, n + 1))


def test_turns_that_later_prompts_show_whole_share_a_row() -> None:
    tree = grown(QWEN, [said("open"), THOUGHT + said("look"), said("wait"), said("go")])
    first, second = rows_of(tree)
    assert first.input_ids == (*tree.prompt(1), *tree.nodes[2].token_ids)
    assert learnt(first) == f"{said('open')}<|im_end|>{THOUGHT}{said('look')}<|im_end|>"
    assert second.input_ids == (*tree.prompt(3), *tree.nodes[4].token_ids)
    assert learnt(second) == f"{said('wait')}<|im_end|>{said('go')}<|im_end|>"
    demonstrated = grown(QWEN, [QWEN.turn(said("open")), QWEN.turn(said("go"))])
    assert len(rows_of(demonstrated)) == 1


def test_context_alone_is_no_row() -> None:
    tree = grown(QWEN, [THOUGHT + said("open"), THOUGHT + said("go")])
    (row,) = make_rows(
        tree, [*recorded([tree.nodes[1]], trained=False), *recorded([tree.nodes[2]], trained=True)], "revision"
    )
    assert row.input_ids == (*tree.prompt(1), *tree.nodes[2].token_ids)


def test_observations_that_are_learnt_are_learnt_in_the_row_that_shows_them() -> None:
    tree = grown(QWEN, [THOUGHT + said("open"), THOUGHT + said("go")], ["A door.", "A hall."])
    first, second = make_rows(tree, recorded(tree.path(2), trained=True), "good", observations=True)
    assert learnt(first) == f"{THOUGHT}{said('open')}<|im_end|>"
    assert learnt(second) == f"{QWEN.decode(tree.nodes[1].bridge_ids, special=True)}{THOUGHT}{said('go')}<|im_end|>"


def test_what_must_be_one_sequence_is_refused_with_the_key_to_change() -> None:
    tree = grown(QWEN, [THOUGHT + said("open"), THOUGHT + said("go")])
    turns = recorded(tree.path(2), trained=True)
    with pytest.raises(DataError, match=r"turns 1, 2 are no one sequence.*Set turns\.keep_reasoning=true"):
        make_pair(tree.prompt_ids, (tree, turns), (tree, turns[:1]), "trajectory")
    assert make_pair(tree.prompt_ids, (tree, turns[:1]), (tree, turns[:1]), "trajectory")


# the methods' rows ----------------------------------------------------------------------------------------------------


def test_a_cap_on_trajectories_counts_trajectories_and_not_their_rows() -> None:
    tree = grown(QWEN, [THOUGHT + said("open"), THOUGHT + said("go")])
    tree.add(1, taken(QWEN, tree, THOUGHT + said("run"), 1.0, Outcome.SUCCESS), Origin.POLICY)
    found = list(good_rows(tree, 1.0, limit=1, targets=Targets(reasoning=False)))
    rows, left_out = [r for r in found if isinstance(r, Row)], [d for d in found if isinstance(d, Dropped)]
    assert [learnt(row) for row in rows] == [f"{said('open')}<|im_end|>", f"{said('go')}<|im_end|>"]
    assert [(d.reason, d.provenance.nodes) for d in left_out] == [("trajectories over the cap", (1, 3))]


@pytest.mark.parametrize("splice", [Splice.executed, Splice.paper])
def test_a_revision_is_a_row_for_each_turn_from_its_reflection_on(splice: Splice) -> None:
    """The bad prefix is context, shown without its reasoning; nobody's reasoning is copied into what is written."""
    tree = grown(QWEN, [THOUGHT + said("open"), THOUGHT + said("go")])
    tree.add(1, taken(QWEN, tree, THOUGHT + said("wait")), Origin.POLICY)
    tree.add(
        3, taken(QWEN, tree, QWEN.turn(ReAct().compose("Wrong. on go", "go")), 1.0, Outcome.SUCCESS), Origin.REVISION
    )
    tree.revisions = [Revision(bad=3, good=2, ancestor=1, transition=3, reflection="Wrong.", spliced=True, end=4)]
    found = revision_rows(tree, splice, QWEN, ReAct(), limit=0, targets=Targets(reasoning=False))
    rows = [row for row in found if isinstance(row, Row)]
    shown = QWEN.decode(rows[-1].input_ids, special=True)
    if splice is Splice.executed:
        assert [learnt(row) for row in rows] == [f"{ReAct().compose('Wrong. on go', 'go')}<|im_end|>"]
        assert "<think>" not in shown
    else:
        (row,) = rows  # the inserted turn has no reasoning, so what follows it saw it whole
        assert learnt(row) == f"{ReAct().compose('Wrong.', 'wait')}<|im_end|>{said('go')}<|im_end|>"
        assert shown.count("<think>") == 1 and shown.endswith(f"{THOUGHT}{said('go')}<|im_end|>")


def siblings() -> Tree:
    """Two turns after the same one: the second fails."""
    tree = begun(QWEN)
    tree.add(0, taken(QWEN, tree, THOUGHT + said("open")), Origin.POLICY)
    for action, reward, outcome in (("go", 1.0, Outcome.SUCCESS), ("sleep", 0.0, Outcome.FAILURE)):
        tree.back_up(tree.add(1, taken(QWEN, tree, THOUGHT + said(action), reward, outcome), Origin.POLICY).id)
    return tree


def test_siblings_are_a_pair_after_the_prompt_that_both_saw() -> None:
    tree, config = siblings(), SiblingsConfig(min_gap=0, max_visits=0, dedupe=False)
    (pair,) = preference_rows(tree, config, 1000, train_on_invalid=False, train_on_reasoning=False)
    assert isinstance(pair, Preference) and list(pair.prompt_ids) == tree.prompt(1)
    assert "<think>" not in QWEN.decode(pair.prompt_ids, special=True)
    assert text_of(QWEN, pair.chosen_ids, pair.chosen_mask) == f"{said('go')}<|im_end|>"
    assert text_of(QWEN, pair.rejected_ids, pair.rejected_mask) == f"{said('sleep')}<|im_end|>"
    cut = taken(QWEN, tree, "<think>\nsleep")
    tree.nodes[3].token_ids, tree.nodes[3].logprobs, tree.nodes[3].reasoning = (
        cut.token_ids,
        cut.logprobs,
        cut.reasoning,
    )
    (left_out,) = preference_rows(tree, config, 1000, train_on_invalid=False, train_on_reasoning=False)
    assert isinstance(left_out, Dropped) and left_out.reason == "pairs with a turn that is reasoning alone"
    (pair,) = preference_rows(tree, config, 1000, train_on_invalid=False, train_on_reasoning=True)
    assert isinstance(pair, Preference), "reasoning that is learnt may be rejected"


def test_steps_of_experts_are_pairs_and_whole_runs_are_refused() -> None:
    tree = grown(QWEN, [QWEN.turn(said("open")), QWEN.turn(said("go"))])
    for node in tree.nodes[1:]:
        node.origin = Origin.EXPERT
    tree.add(1, taken(QWEN, tree, THOUGHT + said("sleep"), 0.0, Outcome.FAILURE), Origin.POLICY)
    (pair,) = contrast_rows(tree, None, ContrastConfig(granularity=Granularity.step), 1000, train_on_reasoning=False)
    assert isinstance(pair, Preference) and list(pair.prompt_ids) == tree.prompt(1)
    assert text_of(QWEN, pair.rejected_ids, pair.rejected_mask) == f"{said('sleep')}<|im_end|>"
    run, expert = grown(QWEN, [THOUGHT + said("open"), THOUGHT + said("sleep")]), tree
    run.nodes[2].reward = 0.0
    with pytest.raises(DataError, match="no one sequence"):
        list(contrast_rows(run, expert, ContrastConfig(), 1000))


def test_pairs_of_whole_runs_are_refused_without_earlier_reasoning() -> None:
    with pytest.raises(ConfigError, match=r"turns\.keep_reasoning.*method\.pairs\.granularity=step"):
        load(None, ["method.type=eto", "turns.keep_reasoning=false"])


ONLINE = ["method.type=grpo", "train=[{batch_size: 16, micro_batch_size: 4}]", "method.tasks=4", "method.episodes=4"]


def test_methods_that_learn_turns_or_conversations_go_without_earlier_reasoning() -> None:
    for method in (
        ["method.type=eto", "method.pairs.granularity=step"],
        ["method.type=agent_r"],
        ["method.type=dense_policy"],
        ONLINE,
    ):
        assert not load(None, [*method, "turns.keep_reasoning=false"]).turns.keep_reasoning
