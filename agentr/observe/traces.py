"""Shows where a row came from and where a node went, as text."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from agentr.read.trace import RowTrace, Side, Use
from agentr.search.tree import Node
from agentr.store.layout import title_of
from agentr.store.rows import Preference
from agentr.words import counted


def describe_row(trace: RowTrace, decode: Callable[[Sequence[int]], str] | None) -> Iterator[str]:
    """Yields the lines that show a row: what it is, its sides with their turns, and its text.

    Args:
        decode: Returns the text of token ids; without it the text of the row is left out.
    """
    row = trace.row
    yield (
        f"row {trace.index} of {title_of(trace.dataset)}: {row.provenance.kind}, {row.tokens} tokens, {row.targets} "
        "trained"
    )
    for name, value in row.provenance.detail.items():
        yield f"  {name}: {value}"
    pair = isinstance(row, Preference)
    yield from _side("chosen" if pair else "made from", trace.chosen)
    if trace.rejected is not None:
        yield from _side("rejected", trace.rejected)
    if decode is None:
        return
    if isinstance(row, Preference):
        for name, ids in (("prompt", row.prompt_ids), ("chosen", row.chosen_ids), ("rejected", row.rejected_ids)):
            yield from (f"text of the {name}:", _indented(decode(ids)))
    else:
        for number, ids in enumerate(row.sequences(), 1):
            yield from ("text:" if number == 1 else f"conversation {number}:", _indented(decode(ids)))


def _side(name: str, side: Side) -> Iterator[str]:
    if side.tree is None:
        yield f"{name}: {side.key} ({side.problem})"
        return
    yield f"{name}: tree {side.key} of {title_of(side.stage)}, grown by {title_of(side.policy) or 'nobody'}"
    for node in side.nodes:
        yield _turn(node) if node is not None else "  inserted text, from no node"


def _turn(node: Node) -> str:
    ended = f", {node.outcome}" if node.outcome is not None else ""
    drawn = f", drawn {node.draws} times" if node.draws > 1 else ""
    return f"  node {node.id} ({node.origin}, return {node.reward:g}{ended}{drawn}): {' '.join(node.text.split())}"


def describe_node(stage: str, node: Node, uses: Sequence[Use]) -> Iterator[str]:
    """Yields the lines that show a node, the rows that it went into, and the candidates with it that were dropped."""
    yield f"node {node.id} of {title_of(stage)}:"
    yield _turn(node)
    rows = [use for use in uses if use.index is not None]
    for use in rows:
        yield f"in row {use.index} of {title_of(use.dataset)}: {use.kind}" + (
            f", {use.side} side" if use.side != "row" else ""
        )
    for (dataset, reason), times in Counter((use.dataset, use.reason) for use in uses if use.index is None).items():
        yield f"dropped from {title_of(dataset)}, {counted(times, 'time')}: {reason}"
    if not uses:
        yield "in no row: no method made a candidate of it"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
