"""Exports trees: Agent-R's nested ``search_results_*.json``, for its ``path_collection.py``, and demonstrations as
conversations.

``path_collection.py`` sorts the files of its folder by the number in their names, begins each conversation with the
messages of the root, and takes the fourth message for the description of the task: a system message, the instruction
and its acknowledgement come before it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.rows.export import SPEAKERS
from agentr.rows.exported import Exported
from agentr.search.tree import Node, Origin, Tree
from agentr.store.files import write_bytes, write_lines
from agentr.types import Message

#: Says which tree each file is; its name does not end like those that ``path_collection.py`` reads.
TASKS = "tasks.jsonl"

_FILLED = "have empty messages where the policy had no system message or no instruction, so that the task is the fourth"
_FOLDED = "have their worked examples in one message with the instruction, so that the task is the fourth"
_NO_SEARCH = "the tree holds no turn that a policy searched"


def export_trees(folder: Path, trees: Iterable[Tree]) -> Exported:
    """Writes each tree as the original's ``search_results_<number>.json``; ``tasks.jsonl`` says which task a number is.

    A task of AgentGym keeps its number if it is free. Turns that no policy searched are left out and counted: those of
    revisions and of experts, and what was taken over from other trees.

    Raises:
        DataError: The folder is a file, or holds other ``.json`` files, which ``path_collection.py`` would read, too.
    """
    if folder.is_file():
        raise DataError(f"{folder} is a file, and each tree becomes one", hint="Name a folder.")
    if any(folder.glob("*.json")):
        raise DataError(
            f"{folder} holds .json files already, and path_collection.py reads all that it finds",
            hint="Name another folder.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    made, tasks, used, free = Exported(folder, "tree"), [], set[int](), 0
    for tree in trees:
        for origin, count in _left_out(tree).items():
            made.left_out["turns that no policy searched"][f"{origin} turns"] += count
        if all(node.origin is not Origin.POLICY for node in tree.nodes):
            made.left_out[_NO_SEARCH][tree.stage] += 1
            continue
        wanted = tree.task.id.removeprefix("agentgym/")
        while free in used:
            free += 1
        number = int(wanted) if wanted.isdecimal() and int(wanted) not in used else free
        used.add(number)
        data = json.dumps(original_node(tree, tree.root), ensure_ascii=False, indent=2)
        write_bytes(folder / f"search_results_{number}.json", data.encode())
        tasks.append({"number": number, "task": tree.task.id, "split": tree.task.split, "stage": tree.stage})
        made.written[tree.stage] += 1
        before = [message for message in tree.messages[:-1] if message.role != "system"]
        if not before or tree.messages[0].role != "system":
            made.changed[_FILLED][tree.stage] += 1
        if len(before) > 2:
            made.changed[_FOLDED][tree.stage] += 1
    write_lines(folder / TASKS, tasks)
    return made


def _left_out(tree: Tree) -> Counter[str]:
    """Counts the turns of a tree that `original_node` leaves out, by who took them."""
    kept = {0}
    for node in tree.nodes[1:]:
        if node.origin is Origin.POLICY and node.parent in kept:
            kept.add(node.id)
    return Counter(node.origin.value for node in tree.nodes if node.id not in kept)


def original_node(tree: Tree, node: Node) -> dict[str, Any]:
    """Returns a node and everything below it with the keys of the original's files (mcts_utils, ``ExtendedNode``)."""
    path = tree.path(node.id)
    root = node.id == 0
    state = [*_opening(tree.messages), *tree.conversation(node.id)[len(tree.messages) :]]
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
        "state": [{"role": m.role, "content": m.content} for m in state],
        "children": [
            original_node(tree, tree.nodes[c]) for c in node.children if tree.nodes[c].origin is Origin.POLICY
        ],
    }


def _opening(messages: tuple[Message, ...]) -> list[Message]:
    """Returns an opening as the original has it: system message, instruction, its acknowledgement, task."""
    *before, task = messages
    system = [m for m in before if m.role == "system"] or [Message("system", "")]
    said = [m.content for m in before if m.role != "system"] or ["", ""]
    return [*system, Message("user", "\n\n".join(said[:-1])), Message("assistant", said[-1]), task]


def export_demonstrations(path: Path, trees: Iterable[Tree]) -> int:
    """Writes the successful path of each tree of an EXPERT stage and returns their number: JSON lines of ``{"id",
    "split", "reward", "conversations"}``, the conversations as ShareGPT has them. Trees without a success are left
    out."""
    return write_lines(path, (entry for tree in trees for entry in _demonstrations(tree)))


def _demonstrations(tree: Tree) -> Iterator[dict[str, Any]]:
    for leaf in tree.successes():
        conversation: list[dict[str, Any]] = [
            {"from": SPEAKERS[m.role], "value": m.content, **({"loss": False} if m.role == "assistant" else {})}
            for m in tree.messages
        ]
        for node in tree.path(leaf.id):
            conversation.append({"from": "gpt", "value": node.text, "loss": True})
            conversation.append({"from": "human", "value": node.observation})
        task = tree.task
        yield {"id": task.id, "split": task.split, "reward": leaf.reward, "conversations": conversation[:-1]}
