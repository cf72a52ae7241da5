"""Exports datasets in the formats of other trainers, and counts what a format does not carry.

- ``messages``: JSON lines with turns as ``{"role", "content"}``, as TRL, Unsloth, Axolotl and others read them:
  ``messages`` for sequences, ``prompt``, ``chosen`` and ``rejected`` for pairs, ``prompt`` and ``completion`` for
  sequences turn by turn.
- ``trl``: JSON lines of ``{"input_ids", "labels"}``, masked by token: exactly what agentr's own trainer sees.
- ``sharegpt``: a JSON list of ``{"id", "conversations": [{"from", "value", "loss"}]}`` (FastChat).
- ``llamafactory``: LLaMA-Factory's sharegpt form, for sequences and for pairs of one turn.
- ``verl``: a table (Parquet) for verl's fine-tuning on conversations: ``messages``, and ``extra_info``.
- ``eto-sft``, ``eto-dpo``: ETO's JSON lists of demonstrations and of pairs.
- ``agent_r``: the original's JSON lines (``task_num``, ``revise_log``, ``high_log``, ``low_log``, ...) for its
  ``--data_type`` files.

All but ``trl`` are texts, decoded from the token ids, so they have every row, whatever it was made from. ``loss`` says
which turns of the agent are trained on, where there is a place for it. `agentr.rows.imports` reads them back, to the
same ids and masks if the tokenizer spells the text as the policy did. Trees are exported by
`agentr.rows.export_trees`.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.rows.conversations import (
    ConversationReader,
    SpokenPair,
    SpokenRow,
    by_turn,
    parting,
    spoken_pair,
    spoken_row,
)
from agentr.rows.exported import Exported
from agentr.search.tree import Tree
from agentr.store.files import write_lines, write_list, writing
from agentr.store.rows import Preference, Provenance, Rollout, Row
from agentr.types import Message, task_id

#: Formats, and the rows that each has a place for.
FORMATS: dict[str, tuple[type, ...]] = {
    "messages": (Row, Preference),
    "trl": (Row,),
    "sharegpt": (Row,),
    "llamafactory": (Row, Preference),
    "verl": (Row,),
    "eto-sft": (Row,),
    "eto-dpo": (Preference,),
    "agent_r": (Row,),
}

#: Formats that have a form for one trained turn.
PER_TURN = ("messages", "llamafactory")

#: Gives the tree that a row was made from; None if the row does not name it.
FindTree = Callable[[Provenance], Tree | None]

#: agentr's roles as ShareGPT names them.
SPEAKERS = {"user": "human", "assistant": "gpt", "system": "system", "tool": "observation"}

_RESPELLED = "are spelled in other tokens by the tokenizer than by the policy"
_PARTIAL = (
    "have targets that are no whole turns of the agent (observations, turns that were cut off), which text does not "
    "show"
)
_REASONED = (
    "have targets that begin with reasoning that is context (build.train_on_reasoning=false), which text does not show"
)
#: What a format does not carry of rows in which a turn of the agent is context.
_CONTEXT = {
    "messages": 'have turns of the agent that are context ("loss": false): Axolotl looks '
    "at that (message_field_training: "
    "loss), "
    "TRL and others train on them; --per-turn writes an entry for each trained turn",
    "llamafactory": "have turns of the agent that are context, and LLaMA-Factory trains on "
    "them; --per-turn writes an entry for "
    "each "
    "trained turn",
    "verl": "have turns of the agent that are context, and verl trains on them",
}
_CONTEXT_BY_KEY = 'have turns of the agent that are context ("loss": false): who does not look at that trains on them'
_MASK_HISTORY = "have earlier turns of the agent: set mask_history: true, or LLaMA-Factory trains on them, too"
_OBSERVATIONS = (
    "have sides of several turns: TRL counts the observations between them as the agent's, Axolotl reads the last turn "
    "alone; --per-turn writes the turns in which the sides part"
)
_ONE_ANSWER = (
    "a side of several turns, and LLaMA-Factory's ranking sets have one answer on each side; --per-turn writes the "
    "turns in which the sides part, --format eto-dpo or messages whole sides"
)
_PARTED = "are the turns in which the sides part: what comes after them is not there"
_NOT_PARTING = "no turn in which the sides part is a target on both"
#: What becomes of the tools that an agent was offered; readers of ``messages`` look at them.
_TOOLS = {
    "llamafactory": (
        'offer tools: dataset_info.json needs "tools": "tools", and LLaMA-Factory writes them in its template\'s way'
    ),
    "verl": "offer tools, which are not there: a table would fill up their schemas with nulls",
    "agent_r": "offer tools, for which the format has no place",
    **dict.fromkeys(
        ("sharegpt", "eto-sft", "eto-dpo"), "offer tools: who does not look at that key trains without them"
    ),
}
_FACTS = "have log-probabilities, returns or other facts of how they were made, for which the format has no place"
_EMPTY = "have empty turns of the agent, which 'agentr import' leaves out where nothing says that they are learnt"
_NO_TREE = "do not name the tree they were made from: high_log, low_log and revise_feedback are not there"


def export_rows(
    path: Path,
    rows: Iterable[Any],
    codec: ChatCodec | None,
    kind: str,
    *,
    per_turn: bool = False,
    find: FindTree | None = None,
) -> Exported:
    """Writes a dataset, of trees or imported, in another tool's format, a row at a time.

    Args:
        codec: Of the dataset's tokenizer; ``trl`` does without.
        per_turn: Write an entry for each trained turn: the conversation up to it, and the turn; of pairs, the turns in
            which the sides part. What was a loss mask is a prompt and an answer then.
        find: Gives the tree that a row was made from, for what ``agent_r`` says of a revision besides its texts.

    Raises:
        DataError: The format is unknown, has no place for these rows, or the rows are of another tokenizer.
    """
    if kind not in FORMATS:
        raise DataError(f"unknown export format {kind!r}", hint=f"Formats: {', '.join(FORMATS)}.")
    if per_turn and kind not in PER_TURN:
        raise DataError(
            f"the format {kind} has no form for one turn", hint=f"Formats that have: {', '.join(PER_TURN)}."
        )
    coming = iter(rows)
    first = next(coming, None)
    rows = itertools.chain(() if first is None else (first,), coming)
    _check_place(first, kind)
    pairs = isinstance(first, Preference)
    made = Exported(path, "pair" if pairs else "turn" if per_turn else "row")
    if kind == "trl":
        write_lines(path, (_labelled(row, made) for row in rows))
        return made
    assert codec is not None, "only the format trl does without a tokenizer"
    writer = _Writer(kind, per_turn, ConversationReader(codec), find or (lambda made: None), made)
    _WRITE.get(kind, write_list)(path, writer.pairs(rows) if pairs else writer.rows(rows))
    return made


def _check_place(row: Any, kind: str) -> None:
    if row is None or (isinstance(row, FORMATS[kind]) and not isinstance(row, Rollout)):
        return
    if isinstance(row, Rollout):
        raise DataError(
            "the dataset holds rollouts with advantages, which no format has a place for",
            hint="Read it with agentr.open.",
        )
    fitting = [name for name, types in FORMATS.items() if isinstance(row, types)]
    what = "preferences" if isinstance(row, Preference) else "sequences"
    raise DataError(f"the format {kind} has no place for {what}.", hint=f"Formats that have: {', '.join(fitting)}.")


def _labelled(row: Row, made: Exported) -> dict[str, Any]:
    made.written[row.provenance.kind] += 1
    _count_facts(row, "trl", made)
    return {
        "input_ids": row.input_ids,
        "labels": [i if m else -100 for i, m in zip(row.input_ids, row.loss_mask, strict=True)],
    }


def _count_facts(row: Row | Preference, kind: str, made: Exported) -> None:
    drawn = row.logprobs if isinstance(row, Row) else (*row.chosen_logprobs, *row.rejected_logprobs)
    held = {"id"} if kind in ("trl", "agent_r") else {"id", "reward"}
    if drawn or row.provenance.detail.keys() - held:
        made.changed[_FACTS][row.provenance.kind] += 1


@dataclass
class _Writer:
    """Makes the entries of a file of texts, and counts what comes of them."""

    kind: str
    per_turn: bool
    reader: ConversationReader
    find: FindTree
    made: Exported

    @cached_property
    def tools(self) -> dict[str, Any]:
        """What an entry says of the tools that the agent was offered: schemas; as one text where LLaMA-Factory's form
        has a text."""
        calls = self.reader.codec.calls
        if calls is None or self.kind in ("verl", "agent_r"):
            return {}
        schemas = [*calls.schemas]
        return {"tools": schemas if self.kind == "messages" else json.dumps(schemas, ensure_ascii=False)}

    def rows(self, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
        number = 0
        for whole in rows:
            for row in by_turn(whole, self.reader) if self.per_turn else (whole,):
                yield self._sequence(number, row) | self.tools
                number += 1

    def pairs(self, pairs: Iterable[Preference]) -> Iterator[dict[str, Any]]:
        for number, pair in enumerate(pairs):
            entry = self._pair(number, pair)
            if entry is not None:
                yield entry | self.tools
        if self.made.left_out and not self.made.written:
            (reason, *_) = self.made.left_out
            raise DataError(f"no pair has a place in the format {self.kind}: each has {reason}")

    def _sequence(self, number: int, row: Row) -> dict[str, Any]:
        kind, said = row.provenance.kind, spoken_row(row, self.reader)
        self._count(row, said)
        unmarked = self.kind == "verl" or (self.kind == "messages" and self.per_turn)
        if unmarked and any(
            target and not m.content.strip() for target, m in zip(said.trained, said.messages, strict=True)
        ):
            self.made.changed[_EMPTY][kind] += 1
        if self.per_turn:
            if self.kind == "llamafactory" and said.has_context:
                self.made.changed[_MASK_HISTORY][kind] += 1
        elif said.has_context:
            self.made.changed[_CONTEXT.get(self.kind, _CONTEXT_BY_KEY)][kind] += 1
        if self.kind == "agent_r":
            return self._agent_r(row, said)
        about = _about(number, row)
        if self.kind == "verl":
            return {"messages": _turns(said.messages), "extra_info": about}
        if self.kind == "messages":
            if self.per_turn:
                return {**about, "prompt": _turns(said.messages[:-1]), "completion": _turns(said.messages[-1:])}
            return {**about, "messages": _turns(said.messages, said.trained)}
        conversation = _turns(said.messages, said.trained, sharegpt=True)
        if self.kind == "sharegpt":
            return {
                **about,
                "id": f"{kind}_{number}",
                "task": task_id(row.provenance.tree),
                "conversations": conversation,
            }
        return {**about, **({"conversations": conversation} if self.kind == "eto-sft" else _with_system(conversation))}

    def _pair(self, number: int, pair: Preference) -> dict[str, Any] | None:
        kind, said, about = pair.provenance.kind, spoken_pair(pair, self.reader), _about(number, pair)
        if self.per_turn and said.has_observations:
            parted = parting(pair, self.reader)
            if parted is None:
                self.made.left_out[_NOT_PARTING][kind] += 1
                return None
            self.made.changed[_PARTED][kind] += 1
            said = spoken_pair(parted, self.reader)
        if self.kind == "llamafactory" and said.has_observations:
            self.made.left_out[_ONE_ANSWER][kind] += 1
            return None
        self._count(pair, said)
        if self.kind == "messages" and said.has_observations:
            self.made.changed[_OBSERVATIONS][kind] += 1
        turns = {
            key: _turns(getattr(said, key), sharegpt=self.kind != "messages")
            for key in ("prompt", "chosen", "rejected")
        }
        if self.kind != "llamafactory":
            return {**about, **turns}
        return {
            **about,
            **_with_system(turns["prompt"]),
            "chosen": turns["chosen"][0],
            "rejected": turns["rejected"][0],
        }

    def _count(self, row: Row | Preference, said: SpokenRow | SpokenPair) -> None:
        kind = row.provenance.kind
        self.made.written[kind] += 1
        _count_facts(row, self.kind, self.made)
        if self.reader.codec.calls is not None and self.kind in _TOOLS:
            self.made.changed[_TOOLS[self.kind]][kind] += 1
        if said.respelled:
            self.made.changed[_RESPELLED][kind] += 1
        elif said.partial and not said.reasoned:
            self.made.changed[_PARTIAL][kind] += 1
        if said.reasoned:
            self.made.changed[_REASONED][kind] += 1

    def _agent_r(self, row: Row, said: SpokenRow) -> dict[str, Any]:
        made, revised = row.provenance, row.provenance.kind == "revision"
        entry: dict[str, Any] = {
            "task_num": task_id(made.tree),
            "revise_log": _turns(said.messages, said.trained),
            "revise": revised,
        }
        tree = self.find(made) if revised else None
        if tree is None:
            if revised:
                self.made.changed[_NO_TREE][made.kind] += 1
            return entry
        for revision in tree.revisions:
            if revision.transition in made.nodes and revision.reflection == made.detail["reflection"]:
                entry["high_log"] = _log(tree, revision.good)
                entry["low_log"] = _log(tree, revision.bad)
                break
        entry["task_description"] = tree.messages[-1].content
        entry["revise_feedback"] = [
            {
                "revision_feedback": n.verdict.reason or "",
                "action": n.action,
                "obs": n.observation,
                "judgement": n.verdict.rating.value,
            }
            for n in (tree.nodes[i] for i in made.nodes if i >= 0)
            if n.verdict is not None
        ]
        return entry


def _about(number: int, row: Row | Preference) -> dict[str, Any]:
    reward = row.provenance.detail.get("reward")
    about = {"id": f"{row.provenance.tree}_{number}", "kind": row.provenance.kind}
    return about | ({"reward": float(reward)} if isinstance(reward, int | float) else {})


def _turns(
    messages: Sequence[Message], trained: Sequence[bool] | None = None, *, sharegpt: bool = False
) -> list[dict[str, Any]]:
    """Returns messages as entries have them; if ``trained`` says which are targets, with that of the agent's turns."""
    who, what = ("from", "value") if sharegpt else ("role", "content")
    said = [{who: SPEAKERS[m.role] if sharegpt else m.role, what: m.content} for m in messages]
    marks = ({} if trained is None or m.role != "assistant" else {"loss": trained[n]} for n, m in enumerate(messages))
    return [turn | mark for turn, mark in zip(said, marks, strict=True)]


def _with_system(said: list[dict[str, Any]]) -> dict[str, Any]:
    """Moves the system message to a column of its own, as LLaMA-Factory has it."""
    system = said[0]["value"] if said and said[0]["from"] == "system" else ""
    return {"system": system, "conversations": said[1:] if system else said}


def _log(tree: Tree, leaf: int) -> list[dict[str, Any]]:
    messages = tree.conversation(leaf)
    return _turns(messages, [True] * len(messages))


#: Rows of a table that are held at a time.
_BATCH = 1000


def _write_table(path: Path, entries: Iterable[dict[str, Any]]) -> int:
    """Writes verl's entries as a Parquet table, and returns their number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    said = pa.struct([("role", pa.string()), ("content", pa.string())])
    about = pa.struct([("id", pa.string()), ("kind", pa.string()), ("reward", pa.float64())])
    schema = pa.schema([("messages", pa.list_(said)), ("extra_info", about)])
    count, left = 0, iter(entries)
    with writing(path) as file, pq.ParquetWriter(file, schema) as table:
        while batch := list(itertools.islice(left, _BATCH)):
            table.write_table(pa.Table.from_pylist(batch, schema))
            count += len(batch)
    return count


_WRITE: dict[str, Callable[[Path, Iterable[dict[str, Any]]], int]] = {
    "messages": write_lines,
    "agent_r": write_lines,
    "verl": _write_table,
}
