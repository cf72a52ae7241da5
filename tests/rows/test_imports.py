"""Files of other tools as rows and back again: the same ids and masks, and errors that name the entry."""

import copy
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.errors import DataError
from agentr.methods.eto.rows import ContrastConfig, contrast_rows
from agentr.policy.chat import ChatCodec
from agentr.rows.conversations import ConversationReader
from agentr.rows.export import export_rows
from agentr.rows.imports import demonstrated_turns, import_file
from agentr.store.dataset import read_rows, write_rows
from agentr.store.rows import Preference, Provenance, Row
from agentr.types import Message
from tests.support import tiny_tokenizer
from tests.trees import codec, expert, explored

CODEC = codec()


def human(text: str) -> dict[str, Any]:
    return {"from": "human", "value": text}


def gpt(text: str, **more: Any) -> dict[str, Any]:
    return {"from": "gpt", "value": text, **more}


INSTRUCTION = [human("You play a game."), gpt("OK")]
DEMONSTRATION = [*INSTRUCTION, human("Open the door."), gpt("Action: take"), human("Taken."), gpt("Action: open")]
ETO_SFT = {"id": "7", "reward": 0.75, "conversations": DEMONSTRATION}
ETO_DPO = {
    "id": "7",
    "prompt": DEMONSTRATION[:3],
    "chosen": DEMONSTRATION[3:],
    "rejected": [gpt("Action: wait")],
}


def imported(
    folder: Path, entries: Any, format: str = "auto", max_length: int = 1000, **more: Any
) -> tuple[list[Any], Counter[str]]:
    path = folder / "file.json"
    path.write_text(entries if isinstance(entries, str) else json.dumps(entries))
    rows, dropped = import_file(path, format, CODEC, max_length, **more)
    return list(rows), dropped


def text(ids: tuple[int, ...], mask: tuple[int, ...]) -> str:
    return CODEC.decode([i for i, m in zip(ids, mask, strict=True) if m], special=True)


# expert trajectories --------------------------------------------------------------------------------------------------


def test_the_turns_of_experts_by_task(tmp_path: Path) -> None:
    untrained_mistake = [
        human("Go."),
        gpt("Action: look"),
        human("A door."),
        gpt("Action: kick", loss=False),
        human("Ow."),
        gpt("Action: open"),
    ]
    example = [
        human("Rules."),
        gpt("Ok.", loss=False),
        human("Task: a"),
        gpt("Action: b", loss=False),
        human("Task: c"),
        gpt("Action: d"),
    ]
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps([ETO_SFT]))
    second.write_text(
        json.dumps(
            [
                {"id": number, "conversations": said}
                for number, said in (("7", untrained_mistake), (8, untrained_mistake), ("9", example))
            ]
        )
    )
    assert demonstrated_turns([first, second]) == {
        "7": ("Action: take", "Action: open"),
        "8": ("Action: look", "Action: kick", "Action: open"),
        "9": ("Action: d",),
    }


@pytest.mark.parametrize(
    "entry, complaint",
    [({"conversations": DEMONSTRATION}, "entry 1 has no id"), (ETO_DPO, "expert trajectories are wanted")],
)
def test_what_is_no_experts_trajectory(tmp_path: Path, entry: dict[str, Any], complaint: str) -> None:
    (tmp_path / "file.json").write_text(json.dumps([entry]))
    with pytest.raises(DataError, match=complaint):
        demonstrated_turns([tmp_path / "file.json"])


# formats --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("format", "trained"), [("eto-sft", ""), ("sharegpt", "OK<|im_end|>")])
def test_eto_demonstrations(tmp_path: Path, format: str, trained: str) -> None:
    (row,), dropped = imported(tmp_path, [ETO_SFT], format)
    assert text(row.input_ids, row.loss_mask) == trained + "Action: take<|im_end|>Action: open<|im_end|>"
    messages = [Message("assistant" if t["from"] == "gpt" else "user", t["value"]) for t in DEMONSTRATION]
    assert list(row.input_ids) == CODEC.prompt(messages[:-1]) + CODEC.turn("Action: open")
    assert row.provenance == Provenance("file.json#1", (), "imported", {"id": "7", "reward": 0.75})
    assert not dropped


def test_a_file_that_says_what_is_trained_on_is_believed(tmp_path: Path) -> None:
    said = [human("You play a game."), gpt("OK", loss=True), *DEMONSTRATION[2:-1], gpt("Action: open", loss=False)]
    (row,), _ = imported(tmp_path, [{"conversations": said}], "eto-sft")
    assert text(row.input_ids, row.loss_mask) == "OK<|im_end|>Action: take<|im_end|>"


def test_eto_pairs(tmp_path: Path) -> None:
    (pair,), _ = imported(tmp_path, [ETO_DPO], "eto-dpo")
    assert CODEC.decode(pair.prompt_ids, special=True).endswith(
        "user\nOpen the door.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert text(pair.chosen_ids, pair.chosen_mask) == "Action: take<|im_end|>Action: open<|im_end|>"
    assert text(pair.rejected_ids, pair.rejected_mask) == "Action: wait<|im_end|>"
    assert "Taken." in CODEC.decode(pair.chosen_ids)


def test_sharegpt_turns_may_be_context(tmp_path: Path) -> None:
    said = [human("Hi"), gpt("bad", loss=0), human("No."), gpt("good", loss=1)]
    (row,), _ = imported(tmp_path, [{"system": "Be brief.", "conversations": said}], "sharegpt")
    assert text(row.input_ids, row.loss_mask) == "good<|im_end|>"
    assert CODEC.decode(row.input_ids, special=True).startswith("<|im_start|>system\nBe brief.<|im_end|>")


ALPACA = {"instruction": "Add.", "input": "1 + 1", "history": [["Hi", "Hello"]], "system": "Count."}
SAME_PROMPT = [human("Hi"), gpt("Hello"), human("Add.\n1 + 1")]


@pytest.mark.parametrize(
    "entry",
    [
        ALPACA | {"chosen": "2", "rejected": "3"},
        {"system": "Count.", "conversations": SAME_PROMPT, "chosen": gpt("2"), "rejected": gpt("3")},
        {"trajectory": [{"from": "system", "value": "Count."}, *SAME_PROMPT], "chosen": "2", "rejected": "3"},
        {"system": "Count.", "prompt": SAME_PROMPT, "chosen": [*SAME_PROMPT, gpt("2")], "rejected": [gpt("3")]},
        {
            "prompt": [
                {"role": r, "content": c}
                for r, c in (("system", "Count."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Add.\n1 + 1"))
            ],
            "chosen": [{"role": "assistant", "content": "2"}],
            "rejected": [{"role": "assistant", "content": "3"}],
        },
    ],
)
def test_every_form_of_a_pair_gives_the_same_row(tmp_path: Path, entry: dict[str, Any]) -> None:
    (pair,), _ = imported(tmp_path, [entry])
    wanted = [
        Message("system", "Count."),
        Message("user", "Hi"),
        Message("assistant", "Hello"),
        Message("user", "Add.\n1 + 1"),
    ]
    assert list(pair.prompt_ids) == CODEC.prompt(wanted)
    assert text(pair.chosen_ids, pair.chosen_mask) == "2<|im_end|>"
    assert text(pair.rejected_ids, pair.rejected_mask) == "3<|im_end|>"


def test_plain_texts_are_a_prompt_and_two_answers(tmp_path: Path) -> None:
    (pair,), _ = imported(tmp_path, [{"prompt": "1 + 1?", "chosen": "2", "rejected": "3"}])
    assert list(pair.prompt_ids) == CODEC.prompt([Message("user", "1 + 1?")])


def test_alpaca_without_sides_is_a_sequence(tmp_path: Path) -> None:
    (row,), _ = imported(tmp_path, [ALPACA | {"output": "2"}])
    assert text(row.input_ids, row.loss_mask) == "Hello<|im_end|>2<|im_end|>"


def test_the_examples_of_the_documentation_can_be_imported(tmp_path: Path) -> None:
    snippets = re.findall(
        r"```json\n(.*?)```", (Path(__file__).parents[2] / "docs/your_own_trajectories.md").read_text(), re.DOTALL
    )
    examples = [s for s in snippets if "file_name" not in s]
    assert len(examples) == len(snippets) - 1 == 6
    for example in examples:
        (row,), dropped = imported(tmp_path, json.dumps(json.loads(example)))
        assert not dropped
        assert row.targets > 0


# which format, which file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "trained"),
    [
        ([ETO_SFT], "Action: take"),
        ([{"conversations": [human("Hi"), gpt("OK")]}], "OK"),  # too short for an opening and a task
        ([ETO_SFT, {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}], "OK"),
    ],
)
def test_auto_recognises_conversations(tmp_path: Path, entries: list[Any], trained: str) -> None:
    rows, _ = imported(tmp_path, entries)
    assert text(rows[0].input_ids, rows[0].loss_mask).startswith(trained)


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"question": "?"}, "the keys question are those of no form"),
        ({"messages": [human("a")], "conversations": [human("b")]}, "those of no form"),
        ({"prompt": "a", "chosen": "b"}, "those of no form"),
        (3, "an object is wanted, not int"),
        (ETO_DPO, "differs in kind"),
    ],
)
def test_what_is_not_known_is_refused(tmp_path: Path, entry: Any, complaint: str) -> None:
    with pytest.raises(DataError, match=rf"file\.json, entry 2.*{complaint}"):
        imported(tmp_path, [ETO_SFT, entry])


def test_json_lines_keep_unusual_line_separators(tmp_path: Path) -> None:
    strange = "one\u2028two\x0cthree\x85"
    line = json.dumps({"conversations": [human(strange), gpt("yes")]}, ensure_ascii=False)
    rows, _ = imported(tmp_path, f"{line}\n\n{line}\r\n")
    assert len(rows) == 2
    assert strange in CODEC.decode(rows[1].input_ids)
    assert rows[1].provenance.tree == "file.json#2"


# what is left out -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([gpt("I"), gpt("alone")], "only one side speaks"),
        ([human("Anyone?")], "only one side speaks"),
        ([gpt("Hi"), human("Ho"), gpt("!")], "nobody speaks to the agent before its first turn"),
        ([human("Hi"), human("Ho"), gpt("!")], "the turns do not alternate"),
        ([human("Hi"), gpt("Ho"), gpt("!")], "the turns do not alternate"),
        ([human("Hi"), gpt("Ho"), human("Bye")], "the last turn is not the agent's"),
        ([human("Hi"), gpt("Ho", loss=False)], "no turn to train on"),
        ([human("long " * 100), gpt("!")], "longer than 200 tokens"),
    ],
)
def test_conversations_that_cannot_be_trained_on_are_counted(tmp_path: Path, said: list[Any], reason: str) -> None:
    good = {"conversations": [human("Hi"), gpt("Ho")]}
    rows, dropped = imported(tmp_path, [{"conversations": said}, good, {"conversations": said}], "sharegpt", 200)
    assert [r.provenance.tree for r in rows] == ["file.json#2"]
    assert dropped == {reason: 2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rejected": []}, "only one side speaks"),
        ({"rejected": ETO_DPO["chosen"]}, "both sides are the same"),
        ({"rejected": [gpt("a"), human("b")]}, "the last turn is not the agent's"),
        ({"chosen": [human("b"), gpt("a")]}, "the turns do not alternate"),
        ({"prompt": INSTRUCTION}, "nobody speaks to the agent before its first turn"),
        ({"rejected": "long " * 100}, "longer than 200 tokens"),
    ],
)
def test_pairs_that_cannot_be_trained_on_are_counted(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    rows, dropped = imported(tmp_path, [ETO_DPO | change, ETO_DPO], "eto-dpo", 200)
    assert len(rows) == 1
    assert dropped == {reason: 1}


# errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "entry", "message"),
    [
        ("sharegpt", {"conversation": []}, "the keys conversation are those of no form that is known"),
        ("sharegpt", {"conversations": [{"from": "human"}]}, "turn 1: value or content is missing"),
        (
            "sharegpt",
            {"conversations": [{"from": "bard", "value": "x"}]},
            "turn 1: the speaker 'bard' is none of human",
        ),
        (
            "sharegpt",
            {"conversations": [{"from": ["human"], "value": "x"}]},
            "turn 1: from: a text is wanted, not list",
        ),
        ("sharegpt", {"conversations": [human("x") | {"content": "y"}]}, "turn 1: value and content are both there"),
        ("sharegpt", {"conversations": [human("x"), gpt("y", loss="no")]}, "turn 2: loss is true or false, not 'no'"),
        ("sharegpt", {"conversations": [human("\ud83d"), gpt("y")]}, "turn 1: .*surrogates not allowed"),
        ("eto-sft", {"conversations": [gpt(3)]}, "turn 1: value: a text is wanted, not int"),  # type: ignore[arg-type]
        ("eto-sft", ETO_DPO, "it is no entry of eto-sft"),
        ("eto-dpo", ETO_SFT, "it is no entry of eto-dpo"),
        ("eto-dpo", {"prompt": [], "chosen": []}, "the keys prompt, chosen are those of no form"),
        ("eto-dpo", {"prompt": 1, "chosen": [], "rejected": []}, "a list of turns is wanted, not int"),
        ("llamafactory", ALPACA | {"history": [["Hi"]], "output": "x"}, "history: a list of pairs"),
        ("llamafactory", "text", "an object is wanted, not str"),
    ],
)
def test_a_broken_entry_is_named(tmp_path: Path, format: str, entry: Any, message: str) -> None:
    good = {"llamafactory": ALPACA | {"output": "2"}, "eto-dpo": ETO_DPO}.get(format, ETO_SFT)
    with pytest.raises(DataError, match=rf"file\.json, entry 2: {message}"):
        imported(tmp_path, [good, entry], format)


def test_conversations_and_pairs_do_not_mix(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"entry 2 differs in kind from those before it"):
        imported(tmp_path, [ALPACA | {"output": "2"}, ALPACA | {"chosen": "2", "rejected": "3"}], "llamafactory")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no entries"),
        ("[]", "holds no entries"),
        ("{broken", "line 1: not JSON"),
        ('{"a": 1}\n{"a": ', "line 2: not JSON"),
        ('{"a": 1, "a": 2}', "line 1: not JSON: a key is there twice"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_files_that_hold_nothing_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        imported(tmp_path, content)


def test_missing_files_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.json cannot be read"):
        import_file(tmp_path / "nowhere.json", "auto", CODEC, 100)
    with pytest.raises(DataError, match="unknown import format 'csv'"):
        imported(tmp_path, [ETO_SFT], "csv")


# and back again -------------------------------------------------------------------------------------------------------


def again(folder: Path, rows: list[Any], format: str, codec: ChatCodec = CODEC) -> list[Any]:
    path = folder / "exported.json"
    made = export_rows(path, rows, codec, format)
    assert made.entries == len(rows) and not made.left_out
    assert not any(word in what for what in made.changed for word in ("spelled", "no whole turns"))
    back, dropped = import_file(path, "auto", codec, 10_000)
    assert not dropped
    return list(back)


def ids_of(row: Row | Preference) -> tuple[Any, ...]:
    if isinstance(row, Row):
        return row.input_ids, row.loss_mask
    return row.prompt_ids, row.chosen_ids, row.chosen_mask, row.rejected_ids, row.rejected_mask


SEQUENCES = [
    ETO_SFT,
    {
        "conversations": [
            human("Hi"),
            gpt("bad", loss=False),
            human("<|im_end|>\n<|im_start|>assistant\nNo."),
            gpt(" good\n"),
        ]
    },
    {
        "conversations": [
            {"from": "system", "value": "Be brief."},
            human(""),
            gpt("", loss=True),
            human("ü😀\u2028"),
            gpt("OK"),
        ]
    },
]


@pytest.mark.parametrize("format", ["eto-sft", "llamafactory", "messages", "sharegpt"])
def test_sequences_come_back_with_the_same_ids_and_masks(tmp_path: Path, format: str) -> None:
    rows, _ = imported(tmp_path, SEQUENCES, "sharegpt")
    demonstrations, _ = imported(tmp_path, [ETO_SFT], "eto-sft")
    for wanted in (rows, demonstrations):
        assert list(map(ids_of, again(tmp_path, wanted, format))) == list(map(ids_of, wanted))


def test_sequences_become_verls_table(tmp_path: Path) -> None:
    """One of the three has a turn that is not trained on, which verl cannot know.
    More rows than are written at a time."""
    import pyarrow.parquet as pq

    rows, _ = imported(tmp_path, SEQUENCES, "sharegpt")
    made = export_rows(tmp_path / "out.parquet", list(rows) * 401, CODEC, "verl")
    assert made.entries == 3 * 401
    assert made.changed["have turns of the agent that are context, and verl trains on them"] == {"imported": 401}
    table = pq.read_table(tmp_path / "out.parquet", use_threads=False).to_pylist()
    assert len(table) == 3 * 401 and set(table[0]["extra_info"]) == {"id", "kind", "reward"}
    roles = {"human": "user", "gpt": "assistant", "system": "system"}
    for line, entry in zip(table, SEQUENCES * 401, strict=True):
        said = [(roles[turn["from"]], turn["value"]) for turn in entry["conversations"]]
        assert [(message["role"], message["content"]) for message in line["messages"]] == said


def test_pairs_of_trees_come_back_with_the_same_ids_and_masks(tmp_path: Path) -> None:
    tree = explored(("wait sleep", 0.0), ("pull", 0.5))
    pairs = list(contrast_rows(tree, expert(), ContrastConfig(pairs_per_task=0), max_length=1000))
    assert len(pairs) == 2
    for format in ("messages", "eto-dpo"):
        back = again(tmp_path, pairs, format)
        assert list(map(ids_of, back)) == list(map(ids_of, pairs))
    write_rows(tmp_path / "dataset", back)
    assert read_rows(tmp_path / "dataset") == back


def test_single_turn_pairs_come_back_through_llamafactory(tmp_path: Path) -> None:
    rows, _ = imported(tmp_path, [ALPACA | {"chosen": "2", "rejected": "3"}])
    assert list(map(ids_of, again(tmp_path, rows, "llamafactory"))) == list(map(ids_of, rows))
    entry = json.loads((tmp_path / "exported.json").read_text())[0]
    assert entry["system"] == "Count."
    assert entry["conversations"] == SAME_PROMPT
    assert (entry["chosen"], entry["rejected"]) == (gpt("2"), gpt("3"))


def test_exports_have_the_originals_keys(tmp_path: Path) -> None:
    rows, _ = imported(tmp_path, [ETO_DPO])
    export_rows(tmp_path / "out.json", rows, CODEC, "eto-dpo")
    (entry,) = json.loads((tmp_path / "out.json").read_text())
    assert {key: entry[key] for key in ("prompt", "chosen", "rejected")} == {
        k: ETO_DPO[k] for k in ("prompt", "chosen", "rejected")
    }
    rows, _ = imported(tmp_path, [ETO_SFT])
    export_rows(tmp_path / "out.json", rows, CODEC, "eto-sft")
    (entry,) = json.loads((tmp_path / "out.json").read_text())
    assert [{k: t[k] for k in ("from", "value")} for t in entry["conversations"]] == DEMONSTRATION
    assert [t["loss"] for t in entry["conversations"] if t["from"] == "gpt"] == [False, True, True]


def test_what_text_cannot_say_is_counted(tmp_path: Path) -> None:
    prompt, end = CODEC.prompt([Message("user", "Hi")]), CODEC.end_id
    letters = [i for letter in "look" for i in CODEC.encode(letter)]
    assert letters != CODEC.encode("look")
    first, bridge = CODEC.turn("look"), CODEC.bridge("?")
    spelled = Row((*prompt, *letters, end), (*[0] * len(prompt), *[1] * 5), Provenance("t", (), "good"))
    # the first turn has no end of its own: its closing is part of the bridge
    cut_off = [*prompt, *first[:-1], end, *bridge, *first]
    mask = [*[0] * len(prompt), *[1] * (len(first) - 1), 0, *[0] * len(bridge), *[1] * len(first)]
    rows = [spelled, Row(tuple(cut_off), tuple(mask), Provenance("t", (), "good"))]
    said = "are spelled in other tokens by the tokenizer than by the policy"
    # The closing of the turn that was cut off is a token of the tokenizer's turn, and no target: the ids are the same.
    partial = (
        "have targets that are no whole turns of the agent (observations, turns that were cut off), which text does "
        "not show"
    )
    assert export_rows(tmp_path / "out.json", rows, CODEC, "eto-sft").changed == {
        said: {"good": 1},
        partial: {"good": 1},
    }
    assert "look" in (tmp_path / "out.json").read_text()
    asked = CODEC.prompt([Message("user", "look")])
    at = next(i for i in range(len(asked)) if asked[i : i + len(first) - 1] == first[:-1])
    respelled = [*asked[:at], *letters, *asked[at + len(first) - 1 :]]
    yes, no, odd = CODEC.turn("yes"), CODEC.turn("no"), [*letters, end]
    pairs = [
        Preference(tuple(p), tuple(c), (1,) * len(c), tuple(r), (1,) * len(r), Provenance("t", (), "step"))
        for p, c, r in ((asked, yes, no), (respelled, yes, no), (asked, odd, no), (asked, yes, odd))
    ]
    assert export_rows(tmp_path / "out.json", pairs, CODEC, "eto-dpo").changed == {said: {"step": 3}}


def test_rows_are_refused_by_formats_without_a_place_for_them(tmp_path: Path) -> None:
    (sequence,), _ = imported(tmp_path, [ETO_SFT])
    (pair,), _ = imported(tmp_path, [ETO_DPO])
    out = tmp_path / "out.json"
    with pytest.raises(
        DataError,
        match=r"eto-dpo has no place for sequences.*messages, trl, sharegpt, llamafactory, verl, eto-sft, agent_r",
    ):
        export_rows(out, [sequence], CODEC, "eto-dpo")
    with pytest.raises(DataError, match=r"trl has no place for preferences.*messages, llamafactory, eto-dpo"):
        export_rows(out, [pair], None, "trl")
    with pytest.raises(DataError, match=r"each has a side of several turns.*eto-dpo or messages"):
        export_rows(out, [pair], CODEC, "llamafactory")
    with pytest.raises(DataError, match="unknown export format 'csv'"):
        export_rows(out, [pair], CODEC, "csv")
    with pytest.raises(DataError, match=r"eto-sft has no form for one turn.*messages, llamafactory"):
        export_rows(out, [sequence], CODEC, "eto-sft", per_turn=True)
    foreign = Row((1, 2, 3), (0, 1, 1), Provenance("t", (), "good"))
    with pytest.raises(DataError, match="no conversation of"):
        export_rows(out, [foreign], CODEC, "eto-sft")
    assert not out.exists()


contents = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["<|im_end|>", "\n<|im_start|>user\n", " a ", "\r\n"]
)


@settings(max_examples=60, deadline=None)
@given(st.booleans(), st.lists(contents, min_size=1, max_size=6))
def test_reading_ids_is_the_inverse_of_writing_them(system: bool, said: list[str]) -> None:
    messages = [Message("system", "s")] * system + [
        Message(("user", "assistant")[i % 2], text) for i, text in enumerate(said)
    ]
    last = messages[-1].role == "assistant"
    ids = CODEC.prompt(messages[:-1]) + CODEC.turn(messages[-1].content) if last else CODEC.prompt(messages)
    passages = ConversationReader(CODEC).conversation(ids)
    assert [p.message for p in passages] == messages
    assert all(CODEC.decode(ids[p.start : p.end], special=True) == p.message.content for p in passages)


PLAIN = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('none') }}{% elif m['role'] == 'user' %}"
    "{{ 'Q:' + m['content'] + '\nA:' }}{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
)


def test_templates_without_special_tokens_or_a_system_message_are_read_too(tmp_path: Path) -> None:
    tokenizer = copy.deepcopy(tiny_tokenizer())
    tokenizer.chat_template = PLAIN
    codec = ChatCodec(tokenizer)
    path = tmp_path / "file.json"
    # its end looks like that of the question
    entry = {"conversations": [*INSTRUCTION, human("Open the door\n"), gpt("Action: take")]}
    path.write_text(json.dumps([ETO_SFT, entry]))
    rows, _ = import_file(path, "eto-sft", codec, 1000)
    assert list(map(ids_of, again(tmp_path, list(rows), "eto-sft", codec))) == list(map(ids_of, rows))
