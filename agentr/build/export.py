"""Exports trees and datasets in the formats of other tools.

- ``sharegpt``: a JSON list of ``{"id", "conversations": [{"from", "value", "loss"}]}`` (FastChat, LLaMA-Factory). ``loss`` says which
  turns are trained on; readers that do not know the key train on all assistant turns.
- ``trl``: JSON lines of ``{"input_ids", "labels"}``, masked by token: exactly what agentr's own trainer sees.
- ``agent_r``: the original's JSON lines (``task_num``, ``revise_log``, ``high_log``, ``low_log``, ...) for its ``--data_type`` files.
- ETO's and LLaMA-Factory's formats, which need no trees: `agentr.build.export_text`.
- trees: the original's nested ``search_results_*.json``, for its ``path_collection.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from agentr.build.export_text import TEXT_FORMATS
from agentr.errors import DataError
from agentr.search.tree import Node, Origin, Tree
from agentr.store.files import write_bytes, write_lines, write_list
from agentr.store.rows import Provenance, Row
from agentr.tasks.formats import ActionFormat
from agentr.types import Message

FORMATS = ("sharegpt", "trl", "agent_r")

#: Gives the tree that a row was made from.
FindTree = Callable[[Provenance], Tree | None]

#: agentr's roles as ShareGPT names them.
_FROM = {"user": "human", "assistant": "gpt", "system": "system"}


def export_rows(path: Path, rows: Iterable[Any], find: FindTree | None, action_format: ActionFormat | None, kind: str) -> int:
    """Writes a dataset of sequences in another tool's format, a row at a time, and returns the number of entries.

    Args:
        find: Gives the tree that a row was made from, None for rows from files; needed for all formats but ``trl``.
        action_format: The action format of those trees; needed with them.

    Raises:
        DataError: The format is unknown, or the rows are pairs.
    """
    if kind == "trl":
        return write_lines(path, (_labelled(row) for row in _sequences(rows)))
    if kind not in FORMATS:
        raise DataError(f"unknown export format {kind!r}", hint=f"Formats: {', '.join((*FORMATS, *TEXT_FORMATS))}.")
    if find is None or action_format is None:
        hint = "A method that does not explore has no trees: use --format trl, or a format of texts."
        raise DataError(f"the export format {kind} needs the trees that the rows were made from", hint=hint)
    own = ((row, tree) for row in _sequences(rows) if (tree := find(row.provenance)) is not None)
    if kind == "sharegpt":
        return write_list(path, (_sharegpt(number, row, tree, action_format) for number, (row, tree) in enumerate(own)))
    return write_lines(path, (_agent_r(row, tree, action_format) for row, tree in own))


def _sequences(rows: Iterable[Any]) -> Iterator[Row]:
    for row in rows:
        if not isinstance(row, Row):
            hint = "Formats for pairs: eto-dpo, llamafactory."
            raise DataError("the dataset holds preferences, and this format is for sequences", hint=hint)
        yield row


def _labelled(row: Row) -> dict[str, Any]:
    return {"input_ids": row.input_ids, "labels": [i if m else -100 for i, m in zip(row.input_ids, row.loss_mask, strict=True)]}


def export_demonstrations(path: Path, trees: Iterable[Tree]) -> int:
    """Writes the successful path of each tree of an EXPERT stage and returns their number: JSON lines of ``{"id", "split", "reward",
    "conversations"}``, the conversations as ShareGPT has them. Trees without a success are left out."""
    return write_lines(path, (entry for tree in trees for entry in _demonstrations(tree)))


def _demonstrations(tree: Tree) -> Iterator[dict[str, Any]]:
    for leaf in tree.successes():
        conversation: list[dict[str, Any]] = [
            {"from": _FROM[m.role], "value": m.content, **({"loss": False} if m.role == "assistant" else {})} for m in tree.messages
        ]
        for node in tree.path(leaf.id):
            conversation.append({"from": "gpt", "value": node.text, "loss": True})
            conversation.append({"from": "human", "value": node.observation})
        task = tree.task
        yield {"id": task.id, "split": task.split, "reward": leaf.reward, "conversations": conversation[:-1]}


def export_trees(folder: Path, trees: Iterable[Tree]) -> int:
    """Writes each tree as the original's ``search_results_<task>.json`` and returns their number. Revision branches are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for tree in trees:
        number = tree.task.id.rpartition("/")[2] if tree.task.id.startswith("agentgym/") else tree.task.key
        data = json.dumps(original_node(tree, tree.root), ensure_ascii=False, indent=2)
        write_bytes(folder / f"search_results_{number}.json", data.encode())
        count += 1
    return count


def original_node(tree: Tree, node: Node) -> dict[str, Any]:
    """Returns a node and everything below it with the keys of the original's files (mcts_utils, ``ExtendedNode``)."""
    path = tree.path(node.id)
    root = node.id == 0
    return {
        "visits": node.visits,
        "value": node.value,
        "prior": 1,
        "puct_value": 0,
        "obs": node.observation.replace("\n", " ").replace("\t", " "),
        "llm_response": "ROOT" if root else node.text,
        "depth": node.depth,
        "is_terminal": node.terminal,
        "recent_actions": [[n.action, n.observation] for n in path],
        "action": "ROOT" if root else node.action,
        "env_score": node.reward,
        "disaster": False,
        "state": [{"role": m.role, "content": m.content} for m in tree.conversation(node.id)],
        "children": [original_node(tree, tree.nodes[c]) for c in node.children if tree.nodes[c].origin is Origin.POLICY],
    }


def turns_of(row: Row, tree: Tree, action_format: ActionFormat) -> Iterator[tuple[str, str, bool]]:
    """Returns the row's turns: the agent's text, the observation, and whether the turn is trained on."""
    position = len(tree.prompt_ids)
    for index, number in enumerate(row.provenance.nodes):
        if number >= 0:
            node = tree.nodes[number]
            yield node.text, node.observation, bool(row.loss_mask[position])
            position += len(node.token_ids) + (len(node.bridge_ids) if index < len(row.provenance.nodes) - 1 else 0)
        else:
            text = action_format.compose(str(row.provenance.detail["reflection"]), "wait")
            yield text, "ok.", True
            # Its length is what lies before the next turn's own tokens, which are found by counting back from the end.
            rest = [tree.nodes[n] for n in row.provenance.nodes[index + 1 :]]
            position = (
                len(row.input_ids) - sum(len(n.token_ids) + len(n.bridge_ids) for n in rest) + (len(rest[-1].bridge_ids) if rest else 0)
            )


def _messages(row: Row, tree: Tree, action_format: ActionFormat) -> list[tuple[Message, bool | None]]:
    found: list[tuple[Message, bool | None]] = [(m, None) for m in tree.messages]
    turns = list(turns_of(row, tree, action_format))
    for index, (text, observation, trained) in enumerate(turns):
        found.append((Message("assistant", text), trained))
        if index < len(turns) - 1:
            found.append((Message("user", observation), None))
    return found


def _sharegpt(number: int, row: Row, tree: Tree, action_format: ActionFormat) -> dict[str, Any]:
    conversation = []
    for message, trained in _messages(row, tree, action_format):
        turn: dict[str, Any] = {"from": _FROM[message.role], "value": message.content}
        if trained is not None:
            turn["loss"] = trained
        conversation.append(turn)
    return {"id": f"{row.provenance.kind}_{number}", "task": tree.task.id, "conversations": conversation}


def _agent_r(row: Row, tree: Tree, action_format: ActionFormat) -> dict[str, Any]:
    log = [
        {"role": m.role, "content": m.content, **({} if trained is None else {"loss": trained})}
        for m, trained in _messages(row, tree, action_format)
    ]
    entry: dict[str, Any] = {"task_num": tree.task.id, "revise_log": log, "revise": row.provenance.kind == "revision"}
    if row.provenance.kind != "revision":
        return entry
    for revision in tree.revisions:
        if revision.transition in row.provenance.nodes and revision.reflection == row.provenance.detail["reflection"]:
            entry["high_log"] = _log(tree, revision.good)
            entry["low_log"] = _log(tree, revision.bad)
            break
    entry["task_description"] = tree.messages[-1].content
    entry["revise_feedback"] = [
        {"revision_feedback": n.verdict.reason or "", "action": n.action, "obs": n.observation, "judgement": n.verdict.rating.value}
        for n in (tree.nodes[i] for i in row.provenance.nodes if i >= 0)
        if n.verdict is not None
    ]
    return entry


def _log(tree: Tree, leaf: int) -> list[dict[str, Any]]:
    messages = tree.conversation(leaf)
    return [{"role": m.role, "content": m.content, **({"loss": True} if m.role == "assistant" else {})} for m in messages]
