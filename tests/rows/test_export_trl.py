"""Exports in TRL's own trainers: what they make of a file is what agentr trains on, but for what the export has
counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentr.models.nano import WEIGHTS
from agentr.policy.chat import ChatCodec
from agentr.rows.conversations import ConversationReader, by_turn, parting
from agentr.rows.export import export_rows
from agentr.rows.imports import import_file
from agentr.store.rows import Preference, Provenance, Row
from agentr.types import Message
from tests.tools.nano.model import CHAT_TEMPLATE

# TRL and torch take seconds to import, as in tests/train.
pytestmark = pytest.mark.cluster


def said(*turns: str, bad: int = 0) -> dict[str, Any]:
    """A conversation whose first turns of the agent are context."""
    return {
        "conversations": [
            {"from": ("human", "gpt")[i % 2], "value": text, **({"loss": False} if i % 2 and i < 2 * bad else {})}
            for i, text in enumerate(turns)
        ]
    }


GOAL = "Crafting commands:\ncraft 1 bread using 3 wheat\n\nGoal: craft bread."
TAKE, BAKE = (
    "Thought: bread needs wheat.\nAction: get 3 wheat",
    "Thought: I have everything for bread.\nAction: craft 1 bread using 3 wheat",
)
LOST = "Action: inventory"
CARRIED = "Inventory: You are not carrying anything."
ROWS = [
    said(GOAL, TAKE, "Got 3 wheat", BAKE),
    said(GOAL, LOST, CARRIED, TAKE, "Got 3 wheat", BAKE, bad=1),
    said(GOAL, BAKE),
]
TURN = {"prompt": said(GOAL)["conversations"], "chosen": TAKE, "rejected": LOST}
WHOLE = {
    "prompt": said(GOAL)["conversations"],
    "chosen": said("", TAKE, "Got 3 wheat", BAKE)["conversations"][1:],
    "rejected": LOST,
}


@pytest.fixture(scope="module")
def nano() -> Any:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(WEIGHTS), AutoTokenizer.from_pretrained(WEIGHTS)


def imported(folder: Path, entries: list[Any], codec: ChatCodec) -> list[Any]:
    (folder / "given.json").write_text(json.dumps(entries))
    return list(import_file(folder / "given.json", "auto", codec, 1000)[0])


def respelled(codec: ChatCodec) -> Row:
    """A row that spells its turn letter by letter, as a policy may."""
    prompt, letters = codec.prompt([Message("user", GOAL)]), [i for letter in "get" for i in codec.encode(letter)]
    assert letters != codec.encode("get")
    ids = (*prompt, *letters, codec.end_id)
    return Row(ids, (*(0 for _ in prompt), *(1 for _ in ids[len(prompt) :])), Provenance("odd", (), "good"))


def trainer(kind: str, nano: Any, folder: Path, template: str | None = None, **config: Any) -> Any:
    from copy import deepcopy

    import datasets
    import trl

    model, tokenizer = deepcopy(nano)
    tokenizer.chat_template = template or tokenizer.chat_template
    data = datasets.load_dataset(
        "json", data_files=str(folder / "rows.jsonl"), split="train", cache_dir=str(folder / "cache")
    )
    arguments = getattr(trl, f"{kind}Config")(
        output_dir=str(folder / "out"), report_to=[], use_cpu=True, bf16=False, max_length=None, **config
    )
    return getattr(trl, f"{kind}Trainer")(model=model, args=arguments, train_dataset=data, processing_class=tokenizer)


def as_trained(rows: list[Row]) -> list[tuple[list[int], list[int]]]:
    return [
        (list(row.input_ids), [i if m else -100 for i, m in zip(row.input_ids, row.loss_mask, strict=True)])
        for row in rows
    ]


def prepared(made: Any, end: list[int] | None = None) -> list[tuple[list[int], list[int]]]:
    """The ids and labels of a trainer's dataset, without the tokens that the template closes a conversation with."""
    cut = -len(end) if end else None
    assert all(entry["input_ids"][cut:] == end for entry in made.train_dataset if end)
    return [(entry["input_ids"][:cut], entry["labels"][:cut]) for entry in made.train_dataset]


def test_fine_tuning_sees_ids_and_masks_as_they_are_by_token_and_by_turn(nano: Any, tmp_path: Path) -> None:
    codec = ChatCodec(nano[1])
    rows, end = [*imported(tmp_path, ROWS, codec), respelled(codec)], codec.encode("\n")
    export_rows(tmp_path / "rows.jsonl", rows, None, "trl")
    assert prepared(trainer("SFT", nano, tmp_path)) == as_trained(rows)

    made = export_rows(tmp_path / "rows.jsonl", rows, codec, "messages", per_turn=True)
    turns = [turn for row in rows for turn in by_turn(row, ConversationReader(codec))]
    assert made.written == {"imported": 5, "good": 1} and list(map(dict, made.changed.values())) == [{"good": 1}]
    seen = prepared(trainer("SFT", nano, tmp_path), end)
    assert seen[:-1] == as_trained(turns)[:-1] and seen[-1] != as_trained(turns)[-1], (
        "the last is spelled in other tokens"
    )


def test_fine_tuning_on_whole_conversations_trains_on_the_context_that_was_counted(nano: Any, tmp_path: Path) -> None:
    codec = ChatCodec(nano[1])
    rows = imported(tmp_path, ROWS, codec)
    made = export_rows(tmp_path / "rows.jsonl", rows, codec, "messages")
    seen = prepared(trainer("SFT", nano, tmp_path, CHAT_TEMPLATE, assistant_only_loss=True), codec.encode("\n"))
    assert [ids for ids, _ in seen] == [list(row.input_ids) for row in rows]
    assert [mine == theirs for mine, theirs in zip(as_trained(rows), seen, strict=True)] == [True, False, True]
    assert [dict(kinds) for what, kinds in made.changed.items() if "context" in what] == [{"imported": 1}]


def test_preferences_are_seen_as_they_are_but_for_the_observations_that_were_counted(nano: Any, tmp_path: Path) -> None:
    codec = ChatCodec(nano[1])
    reader, pairs = ConversationReader(codec), imported(tmp_path, [TURN, WHOLE], codec)
    for per_turn in (False, True):
        made = export_rows(tmp_path / "rows.jsonl", pairs, codec, "messages", per_turn=per_turn)
        dpo = trainer("DPO", nano, tmp_path)
        ids, masks = zip(*(_sides(dpo, entry, len(codec.encode("\n"))) for entry in dpo.train_dataset), strict=True)
        wanted = [_of_pair(parting(pair, reader) if per_turn else pair) for pair in pairs]
        assert list(ids) == [ids for ids, _ in wanted]
        assert [seen == masks for seen, (_, masks) in zip(masks, wanted, strict=True)] == [True, per_turn]
        assert [dict(kinds) for what, kinds in made.changed.items() if "observations" in what] == (
            [] if per_turn else [{"imported": 1}]
        )


def _sides(dpo: Any, entry: dict[str, Any], end: int) -> tuple[list[list[int]], list[list[int]]]:
    """The ids and the masks of both sides of a pair, as the trainer's own collator makes them, without what closes a
    conversation."""
    batch = dpo.data_collator([{key: entry[key] for key in ("prompt_ids", "chosen_ids", "rejected_ids")}])
    lengths = [int(mask.sum()) - end for mask in batch["attention_mask"]]
    return tuple(
        [row[:n].tolist() for row, n in zip(batch[key], lengths, strict=True)]
        for key in ("input_ids", "completion_mask")
    )  # type: ignore[return-value]


def _of_pair(pair: Preference | None) -> tuple[list[list[int]], list[list[int]]]:
    assert pair is not None
    sides = ((pair.chosen_ids, pair.chosen_mask), (pair.rejected_ids, pair.rejected_mask))
    return [[*pair.prompt_ids, *ids] for ids, _ in sides], [[*(0 for _ in pair.prompt_ids), *mask] for _, mask in sides]
