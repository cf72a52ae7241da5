"""Writes a dataset: the rows of a method, and every candidate that was dropped, with its reason."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentr.errors import NoRows
from agentr.rows.sequences import CONTEXT, NO_LOGPROBS
from agentr.store.dataset import DroppedWriter, write_rows
from agentr.store.files import make_folder
from agentr.store.rows import Dropped, Preference, Row
from agentr.store.spool import Kept, Spool

AnyRow = Row | Preference
Candidate = Row | Preference | Dropped

#: Puts a row into the spool of the dataset that is being written.
Keep = Callable[[AnyRow], Kept]

#: Mixes own rows with others, which it keeps, and says how many of the others were left out, by reason.
Mix = Callable[[Sequence[Kept], Keep], tuple[Sequence[Kept], Counter[str]]]

#: What to do about a round without rows.
_HINT = (
    "If the policy solves nothing yet, train it first (warm_start.train: more steps, another learning_rate, until its "
    "loss is low). Else give the search more width or iterations, or lower the thresholds of the method (method.*), or "
    "choose easier tasks (collect.tasks)."
)
_TOO_LONG = "longer than build.max_length"
#: What to do where most rows are dropped for this reason.
_HINTS = {
    _TOO_LONG: "Raise build.max_length.",
    NO_LOGPROBS: "Turns that followed a grammar (the program demanded a call or a form), and those of an API, have "
    "none: methods that imitate or prefer train on them; turns.grammar: false draws the former freely.",
}


def write_dataset(
    folder: Path,
    candidates: Iterable[Candidate],
    max_length: int,
    mix: Mix | None = None,
    *,
    source: str = "the trees of this round",
    hint: str = _HINT,
    **about: Any,
) -> dict[str, Any]:
    """Writes a dataset and returns its manifest. Rows wait on disk; in memory is only what their order is decided by.

    Args:
        candidates: Rows of one type that a method made of its trees, and its dropped candidates.
        max_length: Rows with more tokens are dropped.
        mix: Puts other rows beside the method's own and orders them; without it the rows stay as they come.
        source: What the candidates were made from, and what to do if they give no row, for the error.
        about: Further entries of the manifest.

    Raises:
        NoRows: There is no row at all; the error counts the reasons.
    """
    make_folder(folder)
    with Spool(folder) as spool:
        with DroppedWriter(folder) as dropped:
            own: list[Kept] = []
            for candidate in candidates:
                if isinstance(candidate, Dropped):
                    dropped.drop(candidate)
                elif candidate.longest > max_length:
                    dropped.drop(Dropped(candidate.provenance, _TOO_LONG))
                else:
                    own.append(spool.keep(candidate))
            if not own:
                reasons = ", ".join(f"{n} x {why}" for why, n in dropped.reasons.items()) or "no success"
                most = max(dropped.reasons, key=lambda why: dropped.reasons[why], default="")
                raise NoRows(f"{source} gave no row to train on: {reasons}", hint=_HINTS.get(most, hint))
            rows, refused = mix(own, spool.keep) if mix is not None else (own, Counter[str]())
            used = set(rows)
            for kept in own:
                if kept not in used:
                    dropped.drop(Dropped(spool.read(kept).provenance, "left out of the mixture"))
        tasks = len({kept.tree for kept in own if kept in used})
        context: dict[str, int] = {}  # is filled while the rows are written, before the manifest is
        counts = {
            "dropped": dict(dropped.reasons + refused),
            "dropped_footer": dropped.footer,
            "tasks": tasks,
            "context": context,
        }
        return write_rows(folder, _count_context(map(spool.read, rows), context), **counts, **about)


def _count_context(rows: Iterable[AnyRow], counts: dict[str, int]) -> Iterator[AnyRow]:
    """Passes rows on, and counts the turns that were chosen to be context in them, by reason."""
    for row in rows:
        for name, count in row.provenance.detail.items():
            if name.startswith(CONTEXT) and isinstance(count, int):
                reason = name.removeprefix(CONTEXT)
                counts[reason] = counts.get(reason, 0) + count
        yield row


def is_own(row: AnyRow) -> bool:
    """Returns whether a row came from the agent's own trees, not from demonstrations, general data or files."""
    return row.provenance.kind not in ("demonstration", "general", "imported")
