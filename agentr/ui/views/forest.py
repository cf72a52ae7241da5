"""The trees of a stage as a list: sorted, filtered and paged from the table beside them, without decoding a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentr.errors import DataError
from agentr.observe.problems import PageProblem, read_or
from agentr.read.run import Run
from agentr.read.stage import Rollouts, Trees
from agentr.store.tables import schema
from agentr.store.tree_table import COLUMNS, summary_row

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = (
    "key",
    "task",
    "turns",
    "depth",
    "ends",
    "successes",
    "best",
    "mean",
    "revisions",
    "stopped",
    "completions",
    "completion_tokens",
)
_SECONDS = ("policy_s", "env_s")
_SORTS = {"tokens": "completion_tokens"}


def forest(
    run: Run,
    stage: str,
    *,
    sort: str = "key",
    down: bool = False,
    search: str = "",
    only: str = "",
    step: int | None = None,
    offset: int = 0,
    limit: int = 100,
) -> dict[str, Any]:
    """Returns a page of the trees of a stage.

    Args:
        sort: Column; trees without a value in it come last.
        search: Part of the key or of the task's id, in any case.
        only: solved, failed, mixed (some of several ends succeed), revised; empty for all.
        step: Of online training, one step's trees alone.

    Raises:
        DataError: There is no such stage, column or filter, or it is damaged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    trees = trees_of(run, stage)
    problems: list[PageProblem] = []
    table = _table(trees, problems)
    seconds = pc.call_function("add", [table["policy_s"], table["env_s"]]) if len(table) else pa.array([], pa.float32())
    table = table.drop_columns(list(_SECONDS)).append_column("seconds", seconds) if len(table) else table
    total = len(table)
    if step is not None and "step" in table.column_names:
        table = table.filter(pc.field("step") == step)
    table = _searched(_filtered(table, only), search)
    matched, column = len(table), _SORTS.get(sort, sort)
    if matched and column not in table.column_names:
        raise DataError(f"trees cannot be sorted by {sort!r}", hint=f"Columns: {', '.join(table.column_names)}.")
    if matched:
        order = [(column, "descending" if down else "ascending"), *([("key", "ascending")] if column != "key" else [])]
        table = table.sort_by(order).slice(offset, limit)
    lines = [
        {"tokens": row.pop("completion_tokens"), "step": row.pop("step", None), **row} for row in table.to_pylist()
    ]
    failed = (
        read_or({}, trees.forest.failures, problems, "the units that were given up")
        if not isinstance(trees, Rollouts)
        else {}
    )
    return {
        "stage": stage,
        "state": "sealed" if trees.sealed else "growing",
        "total": total,
        "matched": matched,
        "failed": [{"key": key, "reason": reason} for key, reason in failed.items()],
        "offset": offset,
        "rows": [_keyed(line) for line in lines],
        "problems": problems,
    }


def trees_of(run: Run, stage: str) -> Trees:
    """Returns a stage of trees.

    Raises:
        DataError: There is no such stage, or it has no trees.
    """
    found = run.stage(stage)
    if not isinstance(found, Trees):
        names = [name for name, other in run.stages().items() if isinstance(other, Trees)]
        raise DataError(f"{stage} is no stage of trees", hint=f"Those of this run: {', '.join(names) or 'none'}.")
    return found


def _table(trees: Trees, problems: list[PageProblem]) -> pa.Table:
    """Returns the table of a stage; of one that is growing it is made of the trees, and those that are damaged are left
    out."""
    import pyarrow as pa

    columns = [*_SHOWN, *_SECONDS]
    if trees.sealed or isinstance(trees, Rollouts) or trees.forest.sealed:
        return trees.table(columns)
    keys = trees.keys()
    found = [read_or(None, lambda key=key: summary_row(trees[key]), problems, f"the tree {key}") for key in keys]
    return pa.Table.from_pylist([row for row in found if row], schema({name: COLUMNS[name] for name in columns}))


def _filtered(table: pa.Table, only: str) -> pa.Table:
    import pyarrow.compute as pc

    if not len(table):
        return table
    won, ends = pc.field("successes"), pc.field("ends")
    match only:
        case "":
            return table
        case "solved":
            return table.filter(won > 0)
        case "failed":
            return table.filter(won == 0)
        case "mixed":
            return table.filter((won > 0) & (won < ends))
        case "revised":
            return table.filter(pc.field("revisions") > 0)
    raise DataError(f"there is no filter {only!r}", hint="Filters: solved, failed, mixed, revised.")


def _searched(table: pa.Table, search: str) -> pa.Table:
    import pyarrow.compute as pc

    if not search or not len(table):
        return table
    options = pc.MatchSubstringOptions(search, ignore_case=True)
    hits = [pc.call_function("match_substring", [table[name]], options) for name in ("key", "task")]
    return table.filter(pc.call_function("or", hits))


def _keyed(line: dict[str, Any]) -> dict[str, Any]:
    """Gives a tree of online training the key by which its stage knows it."""
    return line if line["step"] is None else {**line, "key": f"{line['step']:06d}/{line['key']}"}
