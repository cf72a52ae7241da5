"""ETO: pairs of a better and a worse run, or turn, and what of them counts."""

from collections.abc import Iterator, Sequence
from typing import Any

from agentr.methods.eto.rows import contrast_rows
from agentr.search import Origin, Tree
from agentr.search.written import Turns, names, spoken, tree_of
from agentr.store.rows import Preference


def _rows(
    method: Any, runs: Sequence[str], expert: Sequence[str], turns: Turns | None, max_length: int = 10_000
) -> Iterator[tuple[Tree, Tree, Preference]]:
    tree = tree_of(runs, turns)
    shown = tree_of(expert, turns, origin=Origin.EXPERT)
    for row in contrast_rows(tree, shown, method.pairs, max_length):
        if isinstance(row, Preference):
            chosen, rejected = (
                shown if row.provenance.detail[f"{side}_by"] == "expert" else tree for side in ("chosen", "rejected")
            )
            yield chosen, rejected, row


def pairs(
    method: Any, runs: Sequence[str], expert: Sequence[str], turns: Turns | None = None, max_length: int = 10_000
) -> list[dict[str, Any]]:
    """The pairs: who is chosen, and the turns of both sides."""
    return [
        {
            "by": row.provenance.detail["chosen_by"],
            "chosen": names(chosen.nodes[node] for node in row.provenance.nodes),
            "rejected": names(rejected.nodes[node] for node in row.provenance.rejected),
        }
        for chosen, rejected, row in _rows(method, runs, expert, turns, max_length)
    ]


def left(method: Any, runs: Sequence[str], expert: Sequence[str]) -> list[Any]:
    """Of each pair how many turns were cut off, and why others are no pair."""
    found = contrast_rows(tree_of(runs), tree_of(expert, origin=Origin.EXPERT), method.pairs, 10_000)
    return [row.provenance.detail["cut"] if isinstance(row, Preference) else row.reason for row in found]


def sides(method: Any, runs: Sequence[str], expert: Sequence[str], turns: Turns | None = None) -> list[Any]:
    """What is read on both sides, and whether it counts."""
    return [
        [spoken(chosen, row.chosen_ids, row.chosen_mask), spoken(rejected, row.rejected_ids, row.rejected_mask)]
        for chosen, rejected, row in _rows(method, runs, expert, turns)
    ]


def steps(method: Any, expert: str, runs: Sequence[str]) -> list[list[str]]:
    """The pairs of turns: those of the expert's path and of the policy's runs from its points."""
    tree = tree_of([expert], origin=Origin.EXPERT)
    tree_of(runs, into=tree)
    found = [row for row in contrast_rows(tree, None, method.pairs, 10_000) if isinstance(row, Preference)]
    return sorted(
        [*names(tree.nodes[n] for n in row.provenance.nodes), *names(tree.nodes[n] for n in row.provenance.rejected)]
        for row in found
    )
