"""What other tools say of their entries is understood or refused: marks of turns, bad examples, tools, keys that nobody
knows."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.rows.entries import _MARKS, _NOT_READ, _NOT_READ_OF_TURNS
from agentr.rows.imports import demonstrated_turns, import_file
from agentr.store.rows import Preference, Row
from tests.policy.test_tools import calling, rendered, tooled
from tests.test_cli import agentr
from tests.trees import codec

INPUTS = Path(__file__).parents[1] / "inputs"
CODEC = codec()
OPEN, PUSH, UNLOCK = "Open the door.", "Action: push", "Action: unlock"


def human(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def gpt(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


TALK = [human(OPEN), gpt(PUSH), human("Locked."), gpt(UNLOCK)]


def imported(path: Path, entries: Any, by: ChatCodec = CODEC, **more: Any) -> tuple[list[Any], Counter[str]]:
    path.write_text(json.dumps(entries))
    return import_file(path, "auto", by, 2000, **more)


def learnt(row: Row, by: ChatCodec = CODEC) -> str:
    return by.decode([i for i, m in zip(row.input_ids, row.loss_mask, strict=True) if m], special=True)


def sides(pair: Preference) -> tuple[str, str, str]:
    return CODEC.decode(pair.prompt_ids), CODEC.decode(pair.chosen_ids), CODEC.decode(pair.rejected_ids)


# marks of turns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [False, 0, 0.0])
@pytest.mark.parametrize(("key", "of_learnt"), _MARKS.items())
def test_every_mark_of_a_turn_makes_context(tmp_path: Path, key: str, of_learnt: bool, context: Any) -> None:
    """Also within a pair, after a prompt, and with the mark on turns of others, where it says what is so anyway."""
    value = context if of_learnt else type(context)(not context)
    bad, good = gpt(PUSH, **{key: value}), gpt(UNLOCK, **{key: not value})
    said = [human(OPEN) | {key: value}, bad, human("Locked."), good]
    notes = Counter[str]()
    for entry in ({"messages": said}, {"prompt": OPEN, "completion": [bad, human("Locked."), good]}):
        (row,), _ = imported(tmp_path / "f.json", [entry], notes=notes)
        assert learnt(row) == f"{UNLOCK}<|im_end|>" and PUSH in CODEC.decode(row.input_ids)
    assert not notes
    (pair,), _ = imported(tmp_path / "f.json", [{"prompt": OPEN, "chosen": said[1:], "rejected": [gpt("kick")]}])
    assert CODEC.decode([i for i, m in zip(pair.chosen_ids, pair.chosen_mask, strict=True) if m]) == UNLOCK
    rows, dropped = imported(tmp_path / "f.json", [{"prompt": OPEN, "chosen": [bad], "rejected": [gpt("kick")]}])
    assert not rows and dropped == {"no turn to train on": 1}


@pytest.mark.parametrize("value", [0.5, 2, "false", [0], {"a": 1}])
@pytest.mark.parametrize("key", _MARKS)
def test_a_mark_that_is_neither_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(DataError, match=rf"f\.json, entry 1: turn 2: {key} is true or false, not "):
        imported(tmp_path / "f.json", [{"messages": [human("a"), gpt("b", **{key: value})]}])


def test_marks_that_contradict_each_other_are_refused_and_nulls_say_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="turn 2: its marks mean that it is trained on, and that it is not"):
        imported(tmp_path / "f.json", [{"messages": [human("a"), gpt("b", loss=True, masked=True)]}])
    (row,), _ = imported(
        tmp_path / "f.json", [{"messages": [human("a"), gpt("b", **dict.fromkeys(_MARKS), tool_calls=None)]}]
    )
    assert learnt(row) == "b<|im_end|>"


def test_turns_of_others_that_are_marked_as_trained_on_are_context_and_counted(tmp_path: Path) -> None:
    notes = Counter[str]()
    (row,), _ = imported(tmp_path / "f.json", [{"messages": [human("a") | {"train": True}, gpt("b")]}], notes=notes)
    assert learnt(row) == "b<|im_end|>" and notes == {"marks of turns of others as trained on": 1}


# bad examples ---------------------------------------------------------------------------------------------------------

ANSWERED = [
    {"prompt": OPEN, "completion": PUSH},
    {"prompt": [human(OPEN)], "completion": [gpt(PUSH)]},
    {"conversations": [{"from": "human", "value": OPEN}, {"from": "gpt", "value": PUSH}]},
    {"messages": [human(OPEN), gpt(PUSH)]},
    {"instruction": OPEN, "input": "", "output": PUSH},
]


@pytest.mark.parametrize("bad", [False, 0])
@pytest.mark.parametrize("key", ["label", "kto_tag"])
@pytest.mark.parametrize("entry", ANSWERED)
def test_an_answer_that_is_labelled_bad_is_not_imitated(
    tmp_path: Path, entry: dict[str, Any], key: str, bad: Any
) -> None:
    rows, dropped = imported(
        tmp_path / "f.json", [entry | {key: bad}, entry | {key: not bad, "id": "x"}, entry | {key: None, "id": "y"}]
    )
    assert [learnt(row) for row in rows] == [f"{PUSH}<|im_end|>"] * 2 and dropped == {"labelled as a bad example": 1}
    assert demonstrated_turns([tmp_path / "f.json"]) == {"x": (PUSH,), "y": (PUSH,)}
    with pytest.raises(DataError, match=f"entry 1: {key} is true or false, not 'bad'"):
        imported(tmp_path / "f.json", [entry | {key: "bad"}])


@pytest.mark.parametrize(
    "entry",
    [
        {"messages": TALK, "rejected_response": "kick"},
        {"messages": TALK, "rejected_messages": [*TALK[:-1], gpt("kick")]},
        {"chosen": TALK, "rejected": [*TALK[:-1], gpt("kick")]},
        {"prompt": TALK[:-1], "chosen": TALK[-1:], "rejected": [gpt("kick")]},
        {"prompt": TALK[:-1], "chosen": TALK, "rejected": [*TALK[:-1], gpt("kick")], "messages": TALK},
        {"conversations": TALK[:-1], "chosen": TALK[-1], "rejected": gpt("kick")},
    ],
)
def test_a_bad_answer_beside_a_good_one_makes_a_pair(tmp_path: Path, entry: dict[str, Any]) -> None:
    (pair,), dropped = imported(tmp_path / "f.json", [entry])
    prompt, chosen, rejected = sides(pair)
    assert (chosen, rejected) == (UNLOCK, "kick") and not dropped and PUSH in prompt and "Locked." in prompt


def test_sides_that_part_at_an_observation_begin_with_the_turn_before_it(tmp_path: Path) -> None:
    entry = {"chosen": TALK, "rejected": [*TALK[:2], human("It bites."), gpt(UNLOCK)]}
    (pair,), _ = imported(tmp_path / "f.json", [entry])
    prompt, chosen, rejected = sides(pair)
    assert OPEN in prompt and PUSH not in prompt and chosen.startswith(PUSH) and rejected.startswith(PUSH)
    rows, dropped = imported(
        tmp_path / "f.json", [{"chosen": TALK, "rejected": TALK}, {"chosen": "a", "rejected": "b"}]
    )
    assert not rows and dropped == {"both sides are the same": 1, "nobody speaks to the agent before its first turn": 1}


@pytest.mark.parametrize("blank", ["", " \n"])
def test_an_empty_turn_is_nothing_to_learn_unless_the_file_says_so(tmp_path: Path, blank: str) -> None:
    said = [human("a"), gpt(blank), human("b"), gpt("c")]
    rows, dropped = imported(
        tmp_path / "f.json", [{"messages": said}, {"prompt": "a", "chosen": blank, "rejected": "b"}][:1]
    )
    assert not rows and dropped == {"an empty turn of the agent": 1}
    rows, dropped = imported(tmp_path / "f.json", [{"prompt": "a", "chosen": blank, "rejected": "b"}])
    assert not rows and dropped == {"an empty turn of the agent": 1}
    said[1]["loss"] = False
    (row,), _ = imported(tmp_path / "f.json", [{"messages": said}])
    assert learnt(row) == "c<|im_end|>"


# tools ----------------------------------------------------------------------------------------------------------------

LOOK = {
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
CALLS: list[Any] = [
    gpt(
        "I look.",
        tool_calls=[{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "é"}'}}],
    ),
    gpt("I look.", tool_calls=[{"function": {"name": "look", "arguments": {"at": "é"}}}]),
    gpt("I look.", function_call={"name": "look", "arguments": {"at": "é"}}),
]


@pytest.mark.parametrize("tools", [[LOOK], [{"type": "function", "function": LOOK}], json.dumps([LOOK])])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("answer", ["tool", "observation", "function", "tool_response"])
def test_calls_are_written_as_the_template_writes_them(tmp_path: Path, call: Any, tools: Any, answer: str) -> None:
    by = tooled("Qwen 2.5")
    entry = {
        "messages": [human("Go."), call, {"role": answer, "content": "A door.", "tool_call_id": "c1"}, gpt("Done.")],
        "tools": tools,
    }
    (row,), dropped = imported(tmp_path / "f.json", [entry], by.plain)
    function = {"name": "look", "arguments": {"at": "é"}}
    said = [human("Go."), calling("I look.", "") | {"tool_calls": [{"type": "function", "function": function}]}]
    said += [{"role": "tool", "content": "A door."}, gpt("Done.")]
    schemas = [{"type": "function", "function": LOOK}]
    text = by.tokenizer.apply_chat_template(said, tools=schemas, tokenize=False)
    assert not dropped and text.startswith(by.decode(row.input_ids, special=True))
    assert learnt(row, by).count("<|im_end|>") == 2 and '{"name": "look", "arguments": {"at": "é"}}' in learnt(row, by)


def test_speakers_of_calls_and_observations(tmp_path: Path) -> None:
    by = tooled("Qwen 2.5")
    said = [
        ("human", "Go."),
        ("function_call", '{"name": "look", "arguments": {}}'),
        ("observation", "A door."),
        ("gpt", "Done."),
    ]
    entry = {
        "conversations": [{"from": speaker, "value": value} for speaker, value in said],
        "tools": json.dumps([LOOK]),
    }
    (row,), _ = imported(tmp_path / "f.json", [entry], by.plain)
    assert learnt(row, by) == '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call><|im_end|>Done.<|im_end|>'
    assert "<tool_response>\nA door.\n</tool_response>" in by.decode(row.input_ids, special=True)
    said[1] = ("gpt", "Action: a")  # without tools, what is observed is the user's, as in agentr's own runs
    plain = {"conversations": [{"from": speaker, "value": value} for speaker, value in said]}
    (row,), _ = imported(tmp_path / "f.json", [plain])
    assert learnt(row) == "Action: a<|im_end|>Done.<|im_end|>"
    assert rendered(by, human("Go.")) != ""


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"messages": [human("Go."), CALLS[0]]}, "it calls tools, and does not list them"),
        (
            {
                "messages": [human("Go."), gpt("", tool_calls=[{"function": {"name": "look", "arguments": {}}}] * 2)],
                "tools": [LOOK],
            },
            "a turn calls several tools",
        ),
    ],
)
def test_calls_that_cannot_be_written_are_counted(tmp_path: Path, entry: Any, reason: str) -> None:
    rows, dropped = imported(tmp_path / "f.json", [entry], tooled("Qwen 2.5").plain)
    assert not rows and dropped == {reason: 1}
    with pytest.raises(DataError, match="has tool_calls"):
        (tmp_path / "f.json").write_text(json.dumps([entry | {"id": "1"}]))
        demonstrated_turns([tmp_path / "f.json"])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"tools": "no json"}, "Expecting value"),
        ({"tools": {"look": LOOK}}, "tools: a list is wanted"),
        ({"tools": [{"type": "function", "function": {"name": 'a"b'}}]}, "is no name of a tool"),
        ({"tools": [LOOK | {"returns": "x"}]}, "the key 'returns' is not known"),
        ({"messages": [human("a"), gpt("b", tool_calls=["look"])]}, "turn 2: tools: an object is wanted, not str"),
        (
            {"messages": [human("a"), gpt("b", tool_calls=[{"function": {"name": "look", "arguments": "{"}}])]},
            "turn 2: Expecting",
        ),
        (
            {"messages": [human("a"), gpt("b", tool_calls=[{"function": {"name": "look", "arguments": "[1]"}}])]},
            "turn 2: arguments: an object",
        ),
        (
            {"messages": [human("a") | {"tool_calls": [{"function": {"name": "look"}}]}]},
            "the speaker 'user' calls tools",
        ),
    ],
)
def test_tools_that_are_none_are_refused(tmp_path: Path, change: Any, complaint: str) -> None:
    with pytest.raises(DataError, match=rf"f\.json, entry 1: .*{complaint}"):
        imported(tmp_path / "f.json", [{"messages": [human("a"), gpt("b")]} | change])


# tokens ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "labels", "complaint"),
    [
        ([1, 2], [1], "of the same length"),
        ([1, True], [1, 1], "whole numbers"),
        ([1, 2], [1, 3], "a label is the token itself"),
        ([1, 10**9], [1, -100], "the token 1000000000 is none of the model's. Token ids belong to one tokenizer"),
        ([-1], [-1], "the token -1 is none"),
    ],
)
def test_tokens_that_are_none_are_refused(tmp_path: Path, ids: list[int], labels: list[int], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        imported(tmp_path / "f.json", [{"input_ids": ids, "labels": labels}])


# keys that nobody knows -----------------------------------------------------------------------------------------------

FORMS = [
    *ANSWERED,
    {"prompt": OPEN, "chosen": PUSH, "rejected": "kick"},
    {"chosen": TALK, "rejected": [*TALK[:3], gpt("kick")]},
]
FORMS += [{"instruction": OPEN, "chosen": PUSH, "rejected": "kick"}, {"input_ids": [1, 2], "labels": [-100, 2]}]
USED = {
    "id",
    "reward",
    "system",
    "tools",
    "input",
    "history",
    "label",
    "kto_tag",
    "prompt",
    "completion",
    "instruction",
    "output",
}
USED |= {
    "chosen",
    "rejected",
    "rejected_response",
    "rejected_messages",
    "conversations",
    "messages",
    "trajectory",
    "revise_log",
}
USED |= {"input_ids", "labels"}
unknown = st.text(min_size=1, max_size=12) | st.sampled_from(
    ["mask", "weights", "score", "rejected_reason", "train_detail", "images", "lables"]
)
values = (
    st.booleans()
    | st.integers()
    | st.text(min_size=1, max_size=3).filter(str.strip)
    | st.lists(st.integers(), min_size=1, max_size=2)
)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(entry=st.sampled_from(FORMS), key=unknown, value=values)
def test_an_unknown_key_of_an_entry_is_refused_and_one_that_says_nothing_is_not(
    tmp_path_factory: pytest.TempPathFactory, entry: dict[str, Any], key: str, value: Any
) -> None:
    path = tmp_path_factory.mktemp("f") / "f.json"
    if key in USED | _NOT_READ:
        return
    with pytest.raises(DataError, match=r"f\.json, entry 1: the key .* is not known"):
        imported(path, [entry | {key: value}])
    for nothing in (None, "", [], {}):
        assert imported(path, [entry | {key: nothing}])[0]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(key=unknown, value=values, who=st.integers(0, 3))
def test_an_unknown_key_of_a_turn_is_refused(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any, who: int
) -> None:
    turns = [dict(turn) for turn in TALK]
    turns[who][key] = value
    if key not in {*_MARKS, *_NOT_READ_OF_TURNS, "role", "from", "content", "value"}:
        with pytest.raises(DataError, match=rf"f\.json, entry 1: turn {who + 1}: the key .* is not known"):
            imported(tmp_path_factory.mktemp("f") / "f.json", [{"messages": turns}])


def test_keys_that_say_nothing_are_counted(tmp_path: Path) -> None:
    notes = Counter[str]()
    said = [turn | {"name": "x"} for turn in TALK]
    imported(tmp_path / "f.json", [{"messages": said, "source": "s", "id": 1, "reward": 0.5}] * 3, notes=notes)
    assert notes == {"source": 3, "name": 12}


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["user", "gpt", "tool", "{}", "[]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "from", "content", "value", "loss", "tool_calls", "function", "name", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(entry=st.dictionaries(st.sampled_from(sorted(USED)), anything, max_size=4) | anything)
def test_any_entry_is_rows_or_counted_or_refused_with_its_place(
    tmp_path_factory: pytest.TempPathFactory, entry: Any
) -> None:
    path = tmp_path_factory.mktemp("f") / "f.json"
    try:
        rows, dropped = imported(path, [entry])
    except DataError as error:
        assert "f.json, entry 1: " in str(error) or "f.json#1: the token" in str(error)
        return
    assert len(rows) + dropped.total() == 1


def test_the_command_says_what_it_left_out_and_did_not_read(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(
        json.dumps([{"messages": TALK, "source": "s"}, {"messages": TALK, "kto_tag": False}])
    )
    shown = agentr("import", tmp_path / "f.json", "--config", "configs/demo.yaml", "--out", tmp_path / "rows")
    assert shown.exit_code == 0, shown.exception
    assert "1 sequences with" in shown.stdout
    assert "left out: 1 x labelled as a bad example" in shown.stdout and "not read: 1 x source" in shown.stdout


# inputs of bug reports ------------------------------------------------------------------------------------------------

RIGHT: dict[str, Any] = {
    "mask-weight": [f"{UNLOCK}<|im_end|>"],
    "mask-trainable": [f"{UNLOCK}<|im_end|>"],
    "label-trl": [f"{PUSH}<|im_end|>"],
    "label-llamafactory": [f"{PUSH}<|im_end|>"],
    "calls-empty": [],
    "roles-observation": ["Action: a<|im_end|>Action: b<|im_end|>"],
    "pairs-without-prompt": [("push", "kick")],
    "empty-turn": [],
}


@pytest.mark.parametrize("line", [line for line in (INPUTS / "imports.jsonl").read_text().split("\n") if line])
def test_what_users_of_other_tools_ran_into(tmp_path: Path, line: str) -> None:
    case = json.loads(line)
    rows, dropped = imported(tmp_path / "f.json", case["data"])
    assert [learnt(row) if isinstance(row, Row) else sides(row)[1:] for row in rows] == RIGHT[case["id"]]
    assert len(rows) + dropped.total() == len(case["data"])
