"""The stages of a run as objects: trees, datasets, trainings, evaluations.
Tables are Arrow's; ``.to_pandas()`` makes pandas' of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr.errors import DataError
from agentr.outside import typed
from agentr.read.trace import RowTrace, Use, trace_node, trace_row
from agentr.search.tree import Tree
from agentr.store.dataset import (
    iter_dropped,
    iter_origins,
    iter_rows,
    read_manifest,
    read_row,
    read_row_table,
    read_some,
)
from agentr.store.files import read_json, read_lines
from agentr.store.forest import Forest
from agentr.store.layout import DATASET, EVALUATION, PARETO, STEPS
from agentr.store.rows import Dropped, Preference, Provenance, Row
from agentr.store.seal import Damage, StageRecord, verify
from agentr.store.summaries import DatasetSummary, EvalSummary, S, Summary, TrainSummary, TreeSummary

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

    from agentr.evaluate.metrics import Evaluation
    from agentr.evaluate.statistics import Estimate


class Stage:
    """A stage of a run.

    Attributes:
        root: The run directory.
        record: What is known of the stage: state, times, summary, inputs, files.
    """

    kind: type[Summary] = Summary

    def __init__(self, root: Path, record: StageRecord) -> None:
        self.root = root
        self.record = record

    @property
    def name(self) -> str:
        """Path of the stage below the run directory."""
        return self.record.name

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.root / self.record.name

    @property
    def sealed(self) -> bool:
        return self.record.sealed

    @property
    def seconds(self) -> float:
        """Seconds of work on it."""
        return self.record.seconds

    @property
    def summary(self) -> Any:
        """What it came to; empty while it runs."""
        return self.record.read(self.kind)

    def verify(self) -> list[Damage]:
        """Compares all files with their hashes and returns those that are missing or damaged."""
        return list(verify(self.root, self.record))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self.root}, {self.record.state}>"


class Trees(Stage):
    """A stage of trees; it may still be growing.

    ``stage[key]`` is a tree, by its key or its task's id: an ``agentr.search.tree.Tree``, whose nodes have visits,
    values and turns.
    """

    kind = TreeSummary

    @cached_property
    def forest(self) -> Forest:
        """The trees as they are stored."""
        return Forest(self.path, self.name)

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """Returns the summary of each tree, a row each, in the order of keys.

        Args:
            columns: Those to read; all by default. ``agentr.store.tree_table.MEANING`` says what they are.
        """
        return self.forest.summary(columns)

    def keys(self) -> list[str]:
        """Returns the keys of the finished trees."""
        return self.forest.keys()

    def tasks(self) -> dict[str, str]:
        """Returns the key of each finished tree by its task's id."""
        found = self.forest.summary(["key", "task"]).to_pydict()
        return dict(zip(found["task"], found["key"], strict=True))

    def __getitem__(self, key: str) -> Tree:
        tree = self.forest.find(key)
        return tree if tree is not None else self.forest.read(self.tasks().get(key, key))

    def __iter__(self) -> Iterator[Tree]:
        return iter(self.forest)

    def __len__(self) -> int:
        return len(self.forest)

    def trace(self, key: str, node: int) -> list[Use]:
        """Returns the rows of all datasets of the run that a node went into, and the candidates with it that were
        dropped.

        Raises:
            DataError: There is no such tree or node; the error names the nearest.
        """
        return trace_node(self.root, self.name, self[key], node)

    def expansions(self) -> pa.Table:
        """Returns what each expansion took: key of the tree, node, turns drawn, seconds of policy and environment,
        cached tokens, programs begun again."""
        import pyarrow as pa

        return pa.Table.from_pylist(list(self.forest.spent()))


class Rollouts(Trees):
    """The trees of online training, which came step by step: ``stage.steps[17]`` is a step, with ``trees`` and
    ``dataset``.

    As a stage of trees it has them all; a tree's key begins with its step: ``stage["000017/key"]``.
    """

    @property
    def steps(self) -> dict[int, Step]:
        """The steps that are finished, by their numbers."""
        folders = [
            path.parent for path in sorted(self.path.glob("[0-9]*/manifest.json")) if path.parent.name.isdecimal()
        ]
        return {
            int(folder.name): Step(self.root, replace(self.record, name=f"{self.name}/{folder.name}"))
            for folder in folders
        }

    def curve(self) -> pa.Table:
        """Returns the summary of each step: success, calls, lengths, rewards by component, groups without
        signal, seconds."""
        import pyarrow as pa

        lines = [
            {**line, **{f"reward/{name}": value for name, value in line.get("rewards", {}).items()}}
            for line in self.curve_lines()
        ]
        return pa.Table.from_pylist([{key: value for key, value in line.items() if key != "rewards"} for line in lines])

    def curve_lines(self, measured: Mapping[int, float] | None = None) -> list[dict[str, Any]]:
        """Returns the same as plain data; ``validation`` is the success on held-out tasks after a step, None where it
        was not measured.

        Args:
            measured: That success by the step, if it was read already.
        """
        measured = self.validations() if measured is None else measured
        lines = typed(list[dict[str, Any]], read_lines(self.path / STEPS), str(self.path / STEPS))
        return [{**line, "validation": measured.get(line.get("step", 0))} for line in lines]

    def validations(self) -> dict[int, float]:
        """Returns the success on held-out tasks after the steps after which it was measured."""
        paths = [
            path for path in sorted(self.path.glob(f"validation/[0-9]*/{EVALUATION}")) if path.parent.name.isdecimal()
        ]
        from agentr.evaluate.metrics import Evaluation

        return {int(path.parent.name): Evaluation.from_dict(read_json(path)).success.mean for path in paths}

    def differing(self) -> list[dict[str, Any]]:
        """Returns how much the episodes of each task differed before the first step, in what they earn and in their
        calls, and whether the task was chosen; nothing where tasks were not chosen by that."""
        file = self.path / PARETO
        return typed(list[dict[str, Any]], read_json(file), str(file)) if file.exists() else []

    def table(self, columns: list[str] | None = None) -> pa.Table:
        """Returns the summary of each tree, a row each, with the number of its step in the column ``step``."""
        import pyarrow as pa

        found = []
        for number, step in self.steps.items():
            table = step.trees.table(columns)
            found.append(table.append_column("step", pa.array([number] * len(table), pa.int32())))
        return pa.concat_tables(found) if found else pa.table({})

    def keys(self) -> list[str]:
        by_step = {number: step.trees.keys() for number, step in self.steps.items()}
        return [f"{number:06d}/{key}" for number, keys in by_step.items() for key in keys]

    def __getitem__(self, key: str) -> Tree:
        number, _, rest = key.partition("/")
        step = self.steps.get(int(number)) if number.isdigit() else None
        if step is None or not rest:
            hint = f"Its steps: 1 to {len(self.steps)}; a key is like 000001/KEY." if self.steps else "It has none yet."
            raise DataError(f"{self.path} has no tree {key!r}", hint=hint)
        return step.trees[rest]

    def __iter__(self) -> Iterator[Tree]:
        for step in self.steps.values():
            yield from step.trees

    def __len__(self) -> int:
        return sum(len(step.trees) for step in self.steps.values())

    def trace(self, key: str, node: int) -> list[Use]:
        number, _, rest = key.partition("/")
        self[key]
        return self.steps[int(number)].trees.trace(rest, node)

    def expansions(self) -> pa.Table:
        import pyarrow as pa

        found = [step.trees.expansions() for step in self.steps.values()]
        return pa.concat_tables(found) if found else pa.table({})


class Step:
    """A step of online training.

    Attributes:
        trees: Its trees.
        dataset: Its rows.
    """

    def __init__(self, root: Path, record: StageRecord) -> None:
        self.trees = Trees(root, record)
        self.dataset = Dataset(root, replace(record, name=f"{record.name}/{DATASET}"))


class Rows:
    """The rows of a dataset: ``rows[17]``, ``len(rows)``, a loop, or a table."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return read_manifest(self._dataset.path)["rows"]

    def __iter__(self) -> Iterator[Row | Preference]:
        return iter_rows(self._dataset.path)

    def __getitem__(self, index: int) -> Row | Preference:
        return read_row(self._dataset.path, index)

    def some(self, indices: Sequence[int]) -> list[Row | Preference]:
        """Returns rows by their indices, in this order.

        Raises:
            DataError: There is no such row.
        """
        return read_some(self._dataset.path, indices)

    def origins(self) -> Iterator[Provenance]:
        """Yields what each row was made from, without reading its tokens."""
        return iter_origins(self._dataset.path)

    def table(self) -> pa.Table:
        """Returns all rows as they are stored."""
        return read_row_table(self._dataset.path)

    def trace(self, index: int) -> RowTrace:
        """Returns what a row was made from: its sides with their stage, tree, policy and turns.

        Raises:
            DataError: There is no such row.
        """
        return trace_row(self._dataset.root, self._dataset.name, index)


class Dataset(Stage):
    """The dataset of a round: its rows, and the candidates that became none."""

    kind = DatasetSummary

    @property
    def manifest(self) -> dict[str, Any]:
        """What it says of itself: its rows, and how many candidates were dropped for which reason."""
        return read_manifest(self.path)

    @property
    def type(self) -> str:
        """sequences or preferences."""
        return self.manifest["type"]

    @property
    def rows(self) -> Rows:
        return Rows(self)

    def dropped(self) -> Iterator[Dropped]:
        """Yields the candidates that became no row, with their reasons."""
        return iter_dropped(self.path)

    def to_datasets(self) -> datasets.Dataset:
        """Returns the rows as a ``datasets.Dataset`` of Hugging Face."""
        import datasets

        return datasets.Dataset(self.rows.table())


class Training(Stage):
    """A training."""

    kind = TrainSummary

    @property
    def model(self) -> Path:
        """Folder of the trained model, as Hugging Face has it."""
        if not self.sealed:
            raise DataError(
                f"{self.name} of {self.root} is not finished", hint=f"Go on with 'agentr resume {self.root}'."
            )
        return self.root / self.summary.checkpoint

    def curve(self) -> pa.Table:
        """Returns the logged steps: step, loss, and what the loss logs besides."""
        import pyarrow as pa

        return pa.Table.from_pylist(self.curve_lines())

    def curve_lines(self) -> list[dict[str, Any]]:
        """Returns the logged steps as plain data."""
        return typed(list[dict[str, Any]], read_lines(self.path / "metrics.jsonl"), str(self.path / "metrics.jsonl"))


class Episodes(Trees):
    """A stage of held-out episodes with its metrics."""

    kind = EvalSummary

    @property
    def evaluation(self) -> Evaluation:
        """All metrics.

        Raises:
            DataError: They are not there yet, or damaged.
        """
        from agentr.evaluate.metrics import Evaluation

        return Evaluation.from_dict(read_json(self.path / EVALUATION))


class Measured(Trees):
    """A stage of held-out episodes with something that was done to them: turns left out, or a judge asked."""

    @property
    def measures(self) -> dict[str, Estimate]:
        """What was measured, by its name (``conciseness`` and ``judged`` of ``agentr.evaluate.metrics``)."""
        from agentr.evaluate.statistics import Estimate

        return typed(dict[str, Estimate], read_json(self.path / EVALUATION), str(self.path / EVALUATION))


def paid_once(stages: Iterable[Stage]) -> list[Trees]:
    """Returns the sealed stages of exploration among stages, without those that another one has in itself: that one's
    cost has theirs."""
    trees = [stage for stage in stages if isinstance(stage, Trees) and not isinstance(stage, Episodes) and stage.sealed]
    included = {stage.summary.includes for stage in trees}
    return [stage for stage in trees if stage.name not in included]


def summary_of(stage: Stage | None, kind: type[S]) -> S:
    """Returns the summary of a stage; an empty one if the stage was not started."""
    return stage.record.read(kind) if stage is not None else kind()


def numbers_in(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields what is a finite number in a table, with its full name: ``dropped/too long``."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from numbers_in(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield f"{prefix}{key}", float(value)
