"""Datasets: their rows and pairs, with what is learnt of them."""

from collections import Counter
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

from agentr.errors import DataError
from agentr.read.run import Run
from agentr.read.stage import Dataset
from agentr.read.trace import Side
from agentr.store.layout import DATASET, step_of
from agentr.store.rows import Preference, Rollout
from agentr.ui.texts import Texts


def dataset_view(run: Run, stage: str, *, kind: str = "", offset: int = 0, limit: int = 100) -> dict[str, Any]:
    """Returns a page of the rows of a dataset, and what there is of each kind.

    Raises:
        DataError: There is no such dataset, or it is damaged.
    """
    dataset = dataset_of(run, stage)
    kinds = _kinds(run.path, stage, (dataset.path / "manifest.json").stat().st_mtime_ns)
    wanted = [index for index, known in enumerate(kinds) if not kind or known == kind]
    here = wanted[offset : offset + limit]
    return {
        "stage": stage,
        "type": dataset.type,
        "total": len(kinds),
        "matched": len(wanted),
        "kinds": dict(Counter(kinds).most_common()),
        "dropped": dict(Counter(candidate.reason for candidate in dataset.dropped()).most_common()),
        "offset": offset,
        "rows": [
            {
                "index": index,
                "kind": row.provenance.kind,
                "tree": row.provenance.tree,
                "stage": row.provenance.stage,
                "tokens": row.tokens,
                "targets": row.targets,
                "detail": dict(row.provenance.detail),
            }
            for index, row in zip(here, dataset.rows.some(here), strict=True)
        ],
    }


def row_view(run: Run, stage: str, index: int, texts: Texts | None = None) -> dict[str, Any]:
    """Returns a row with its tokens, masks and log-probabilities, and what it was made from.

    Args:
        texts: Of tokens; by default those of the run's tokenizer.

    Raises:
        DataError: There is no such dataset or row.
    """
    dataset, texts = dataset_of(run, stage), texts or Texts.of(run)
    trace = dataset.rows.trace(index)
    row = trace.row
    if isinstance(row, Preference):
        empty = (0,) * len(row.prompt_ids)
        sides = [
            _side("prompt", None, row.prompt_ids, empty, (), texts),
            _side("chosen", trace.chosen, row.chosen_ids, row.chosen_mask, row.chosen_logprobs, texts),
            _side("rejected", trace.rejected, row.rejected_ids, row.rejected_mask, row.rejected_logprobs, texts),
        ]
        means = [_mean(row.chosen_mask, row.chosen_logprobs), _mean(row.rejected_mask, row.rejected_logprobs)]
        difference = means[0] - means[1] if means[0] is not None and means[1] is not None else None
        margin = {"chosen": means[0], "rejected": means[1], "difference": difference}
    else:
        sides, margin = [], None
        for begin, end in row.spans:
            here = slice(begin, end)
            side = _side("row", trace.chosen, row.input_ids[here], row.loss_mask[here], row.logprobs[here], texts)
            sides.append(side | {"advantages": list(row.advantages[here]) if isinstance(row, Rollout) else []})
    return {
        "stage": stage,
        "index": index,
        "total": len(dataset.rows),
        "type": dataset.type,
        "kind": row.provenance.kind,
        "detail": dict(row.provenance.detail),
        "sides": sides,
        "margin": margin,
        "rewards": dict(row.rewards) if isinstance(row, Rollout) else {},
        "problem": texts.problem,
    }


def dataset_of(run: Run, stage: str) -> Dataset:
    """Returns a dataset of a run, or of a step of its online training.

    Raises:
        DataError: There is none of this name.
    """
    found = run.stage(stage)
    if not isinstance(found, Dataset):
        names = [name for name, other in run.stages().items() if isinstance(other, Dataset)]
        raise DataError(f"{stage} is no dataset", hint=f"Those of this run: {', '.join(names) or 'none'}.")
    if not found.sealed and not step_of(stage.removesuffix(f"/{DATASET}")):
        raise DataError(f"the dataset {stage} is not finished", hint="It can be read once it is sealed.")
    return found


@lru_cache(maxsize=16)
def _kinds(root: Path, stage: str, _: int) -> tuple[str, ...]:
    return tuple(made.kind for made in dataset_of(Run(root), stage).rows.origins())


def _side(name: str, made: Side | None, ids: Any, mask: Any, logprobs: Any, texts: Texts) -> dict[str, Any]:
    return {
        "name": name,
        "stage": made.stage if made else "",
        "key": made.key if made else "",
        "policy": made.policy if made else "",
        "nodes": [node.id if node else -1 for node in made.nodes] if made else [],
        "tokens": texts.pieces(ids),
        "count": len(ids),
        "mask": list(mask),
        "logprobs": [None if value is None else round(value, 4) for value in logprobs] or [None] * len(ids),
        "advantages": [],
        "spans": _spans(made, ids) if made else [],
        "problem": made.problem if made else "",
    }


def _spans(made: Side, ids: Any) -> list[tuple[int, int, int]]:
    """Returns where turns stand among the tokens, as node, begin and end: a conversation ends with its last turn, so
    they are found from there. Turns of others are passed by."""
    found: list[tuple[int, int, int]] = []
    before = len(ids)
    for node in reversed(made.nodes):
        if node is None:  # inserted text, whose length nobody noted
            break
        end = before - (len(node.bridge_ids) if found else 0)
        begin = end - len(node.token_ids)
        if begin >= 0 and tuple(ids[begin:end]) == node.token_ids:
            found.append((node.id, begin, end))
            before = begin
    return found[::-1]


def _mean(mask: Any, logprobs: Any) -> float | None:
    """Mean log-probability of the tokens that count; None if one of them has none."""
    known = [value for value, counts in zip(logprobs, mask, strict=False) if counts]
    return fmean(known) if known and None not in known else None
