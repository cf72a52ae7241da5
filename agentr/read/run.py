"""A run directory as objects: rounds, stages, trees, rows, policies, metrics."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentr.errors import DataError
from agentr.outside import typed
from agentr.read.stage import Dataset, Episodes, Measured, Rollouts, Stage, Training, Trees, numbers_in
from agentr.store.files import read_json, read_lines
from agentr.store.inside import check_folder
from agentr.store.layout import (
    CEILING,
    CONTROL,
    DATASET,
    EVAL,
    JUDGED,
    MODEL,
    RECOVERIES,
    RECOVERY,
    ROLLOUTS,
    SAMPLED,
    SELECTION,
    SHORTENED,
    TRAIN,
    Arm,
    Layout,
    arm_of,
    arms_in,
    name_of,
    place_of,
    stage_of,
    step_of,
)
from agentr.store.lease import Lease
from agentr.store.records import read_config, read_records
from agentr.store.seal import StageRecord

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

#: What commands call the base model as a policy.
BASE = "base"

#: Stages that are no exploration; those of a method's exploration are all others.
COMMON_STAGES = (DATASET, TRAIN, EVAL, SELECTION, SAMPLED, *RECOVERIES, SHORTENED, JUDGED)

_KINDS: dict[str, type[Stage]] = {
    ROLLOUTS: Rollouts,
    DATASET: Dataset,
    TRAIN: Training,
    EVAL: Episodes,
    SELECTION: Episodes,
    SAMPLED: Episodes,
    **dict.fromkeys(RECOVERIES, Episodes),
    SHORTENED: Measured,
    JUDGED: Measured,
}


@dataclass
class _Cause:
    what: str
    evidence: str
    setting: str


@dataclass
class _Event:
    """What an event must have, and what it may have that is read."""

    time: float
    event: str
    stage: str = ""
    title: str = ""
    error: str = ""
    cause: str = ""
    command: str = ""
    stages: list[str] = field(default_factory=list)
    on: str = ""
    expected: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    causes: list[_Cause] = field(default_factory=list)


@dataclass(frozen=True)
class StoredPolicy:
    """A policy that a run trained, or its base model.

    Attributes:
        name: Stage that trained it, by which trees name it.
        path: Its folder, as Hugging Face has it.
        success: Its held-out success; None if it was not measured.
    """

    name: str
    path: Path
    success: float | None

    @property
    def arm(self) -> str:
        """What commands call it: ``rounds/02``, ``control``, ``ceiling``, or ``base``."""
        return BASE if self.name == MODEL else self.name.removesuffix(f"/{TRAIN}")

    @property
    def title(self) -> str:
        """Its name in tables."""
        place = stage_of(self.name)
        return place[0].title if place else "base model"


class RunRound:
    """A round (0 is the warm start), the control or the ceiling: ``round.dataset``, ``round.train``, ``round.eval``,
    ``round.sampled``, ``round.recovery``, ``round.shortened``, ``round.judged``, and the method's stages of trees by
    their names, such as ``round.collect``."""

    def __init__(self, run: Run, arm: Arm) -> None:
        self.run = run
        self.arm = arm

    @property
    def number(self) -> int:
        return self.arm.number

    @property
    def title(self) -> str:
        return self.arm.title

    @property
    def measured(self) -> Episodes | None:
        """Its held-out episodes, once they are measured."""
        stage = self.stages().get(EVAL)
        return stage if isinstance(stage, Episodes) and stage.sealed else None

    @property
    def policy(self) -> StoredPolicy | None:
        """The policy that it trained, once it has."""
        trained, measured = self.stages().get(TRAIN), self.measured
        if not (isinstance(trained, Training) and trained.sealed):
            return None
        return StoredPolicy(trained.name, trained.model, measured.summary.success if measured is not None else None)

    @property
    def dataset(self) -> Dataset:
        return self[DATASET]

    @property
    def train(self) -> Training:
        return self[TRAIN]

    @property
    def eval(self) -> Episodes:
        return self[EVAL]

    @property
    def sampled(self) -> Episodes:
        return self[SAMPLED]

    @property
    def recovery(self) -> Episodes:
        return self[RECOVERY]

    @property
    def shortened(self) -> Measured:
        return self[SHORTENED]

    @property
    def judged(self) -> Measured:
        return self[JUDGED]

    def stages(self) -> dict[str, Stage]:
        """Returns its stages by their names in the round, in the order in which they ran."""
        return {
            place[1]: stage
            for name, stage in self.run.stages().items()
            if (place := stage_of(name)) and place[0] == self.arm
        }

    def exploration(self) -> dict[str, Trees]:
        """Returns its stages of trees without those of held-out episodes: of the warm start the demonstrations."""
        return {
            name: stage
            for name, stage in self.stages().items()
            if name not in COMMON_STAGES and isinstance(stage, Trees)
        }

    def __getitem__(self, name: str) -> Any:
        """Returns a stage by its name.

        Raises:
            DataError: There is no such stage; the error names those that there are.
        """
        return self.run.stage(self.arm.stage(name))

    def __getattr__(self, name: str) -> Trees:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except DataError as error:
            raise AttributeError(str(error)) from error

    def __repr__(self) -> str:
        return f"<Round {self.title} of {self.run.path}: {', '.join(self.stages())}>"


class Run:
    """A run, read from its directory alone. What a driver writes meanwhile is seen at the next access.

    Attributes:
        path: The run directory.
        config: The configuration, as plain data.

    Raises:
        DataError: The folder holds no run, or one of another format.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self.layout = Layout(self.path)
        if os.path.lexists(self.layout.config) or os.path.lexists(self.layout.manifest):
            check_folder(self.path)
        self.config = read_config(self.path)
        self._kept: dict[str, StageRecord] | None = None

    def section(self, kind: type[T], name: str) -> T:
        """Returns a section of the configuration as its type, such as ``"model"``; keys that came later have defaults.

        Raises:
            DataError: It is damaged; the error names the key.
        """
        return typed(kind, self.config.get(name) or {}, f"{self.layout.config}: {name}")

    @property
    def name(self) -> str:
        return self.config["run"]["name"]

    @property
    def search(self) -> dict[str, Any]:
        """Of a search from a turn of another run's tree (``agentr search``): which turn and policy it was, and how it
        searched. Empty for all other runs."""
        file = self.layout.search
        return typed(dict[str, Any], read_json(file), str(file)) if file.exists() else {}

    @property
    def owner(self) -> str:
        """Name of the process that works on the run; empty if none does."""
        return Lease(self.layout.lease).look()

    def records(self) -> dict[str, StageRecord]:
        """Returns what is known of each stage, in the order of their first start."""
        if self._kept is None:
            return read_records(self.path)
        self._kept = self._kept or read_records(self.path)
        return self._kept

    def at_once(self) -> Run:
        """Returns the same run, whose stages are looked up once: for a page, which shows one moment of it and asks for
        them often."""
        run = copy(self)
        run._kept = {}
        return run

    def stages(self) -> dict[str, Stage]:
        """Returns all stages by their names, in the order of their first start."""
        return {name: _stage(self, record) for name, record in self.records().items()}

    def stage(self, name: str) -> Any:
        """Returns a stage by its name, such as ``rounds/01/collect``.

        Raises:
            DataError: There is no such stage; the error names the nearest.
        """
        records, name = self.records(), name_of(name)
        if (place := step_of(name.removesuffix(f"/{DATASET}"))) and place[0] in records:
            steps = self.stage(place[0]).steps
            if place[1] in steps:
                return steps[place[1]].dataset if name.endswith(f"/{DATASET}") else steps[place[1]].trees
        if name not in records:
            near = difflib.get_close_matches(name, records, 3, 0.0)
            raise DataError(
                f"{self.path} has no stage {name!r}",
                hint=f"The nearest: {', '.join(near)}." if near else "It has none yet.",
            )
        return _stage(self, records[name])

    def last_trees(self, key: str) -> Trees:
        """Returns the last stage that has a tree of this key or task.

        Raises:
            DataError: None has.
        """
        return _last_with(key, [stage for stage in self.stages().values() if isinstance(stage, Trees)], self.path)

    @property
    def model(self) -> Path:
        """Folder of the base model.

        Raises:
            DataError: The run has none yet, or what is known of it is damaged.
        """
        where = self.stage(MODEL).record.summary.get("path")
        if where is None:
            raise DataError(
                f"{self.path} does not name the place of its model",
                hint=f"'agentr doctor {self.path}' says what is damaged.",
            )
        return self.path / where

    @property
    def arms(self) -> list[RunRound]:
        """The warm start, the rounds, the control and the ceiling, as far as they were begun."""
        return [RunRound(self, arm) for arm in arms_in(self.records())]

    @property
    def rounds(self) -> Sequence[RunRound]:
        """The rounds by their numbers: ``rounds[0]`` is the warm start."""
        last = max((arm.number for arm in arms_in(self.records()) if not arm.reference), default=-1)
        return _Rounds(self, [RunRound(self, arm_of(number)) for number in range(last + 1)])

    @property
    def best(self) -> Arm | None:
        """The arm that the finished run chose as its best; None before that."""
        file = self.layout.chosen
        found = typed(dict[str, Any], read_json(file), str(file)) if file.exists() else {}
        place = place_of(str(found.get("round", "")))
        return place[0] if place else None

    @property
    def imported(self) -> bool:
        """Whether it is no experiment, but a training on rows from files."""
        return not self.arms and any(stage_of(name) is None and name != MODEL for name in self.records())

    @property
    def complete(self) -> bool:
        """Whether all that it consists of is there: each policy is measured, or each stage is sealed of a run that is
        no experiment."""
        if self.search or self.imported:
            sealed = [record.sealed for record in self.records().values()]
            return len(sealed) > 1 and all(sealed)
        run = self.config["run"]
        references = run["control"] + run.get("ceiling", False) if run["rounds"] else 0
        return len([arm for arm in self.arms if arm.measured is not None]) >= run["rounds"] + 1 + references

    def round_with(self, holds: Callable[[RunRound], bool]) -> RunRound:
        """Returns the best round of which this holds, or the last one before the run has chosen its best.

        Raises:
            DataError: It holds of none.
        """
        there = [round_ for round_ in self.rounds if holds(round_)]
        if not there:
            raise DataError(
                f"{self.path} has no round with what is asked for yet",
                hint=f"'agentr status {self.path}' says how far it is.",
            )
        return next((round_ for round_ in there if round_.arm == self.best), there[-1])

    @property
    def control(self) -> RunRound:
        """The control arm."""
        return RunRound(self, CONTROL)

    @property
    def ceiling(self) -> RunRound:
        """The arm that imitates the expert on the tasks that were searched."""
        return RunRound(self, CEILING)

    def policies(self, *, base: bool = False) -> list[StoredPolicy]:
        """Returns the policies that were trained, in order, with their held-out success.

        Args:
            base: The base model is one of them, too, if the run has one yet.
        """
        model = self.records().get(MODEL) if base else None
        found = [StoredPolicy(MODEL, self.model, None)] if model is not None and model.sealed else []
        return [*found, *(policy for arm in self.arms if (policy := arm.policy) is not None)]

    def policy(self, name: str) -> StoredPolicy:
        """Returns a policy by what commands call it (`Policy.arm`), by its round in any spelling, or by the stage that
        trained it.

        Raises:
            DataError: There is none of this name; the error names those that there are.
        """
        return _policy_named(name, self.policies(base=True), self.path)

    def metrics(self) -> pa.Table:
        """Returns a row for each sealed stage: its name, its seconds, and the numbers of its summary, as trackers
        get them."""
        return _numbers([record for record in self.records().values() if record.sealed])

    def events(self) -> list[dict[str, Any]]:
        """Returns the log of the run: who opened it with which versions, and when stages started, stopped and were
        sealed."""
        found = read_lines(self.layout.events)
        typed(list[_Event], found, str(self.layout.events))
        return found

    def planned(self) -> list[str]:
        """Returns the names of the stages that the run consists of, in order, sealed or not; none if only single stages
        of it were run."""
        return next((event.get("stages", []) for event in reversed(self.events()) if event["event"] == "planned"), [])

    def __repr__(self) -> str:
        return f"<Run {self.name} in {self.path}>"


class _Rounds(Sequence[RunRound]):
    """Rounds by number, with an error that says which there are."""

    def __init__(self, run: Run, rounds: list[RunRound]) -> None:
        self._run = run
        self._rounds = rounds

    def __len__(self) -> int:
        return len(self._rounds)

    def __iter__(self) -> Iterator[RunRound]:
        return iter(self._rounds)

    def __getitem__(self, index: Any) -> Any:
        try:
            return self._rounds[index]
        except IndexError:
            there = f"0 to {len(self) - 1}" if self._rounds else "none yet"
            raise IndexError(f"{self._run.path} has no round {index}; it has {there}") from None


def _stage(run: Run, record: StageRecord) -> Stage:
    place = stage_of(record.name)
    if place is None:
        return (Training if record.name.endswith(f"/{TRAIN}") else Stage)(run.path, record)
    return _KINDS.get(place[1], Trees)(run.path, record)


def _last_with(key: str, stages: Sequence[Trees], path: Path) -> Trees:
    for stage in reversed(stages):
        try:
            stage[key]
        except DataError:
            continue
        return stage
    near = difflib.get_close_matches(key, {task for stage in stages for task in stage.tasks()}, 3, 0.5)
    there = f"There are trees in {', '.join(stage.name for stage in stages) or 'no stage yet'}."
    raise DataError(
        f"no stage of {path} has a tree {key!r}", hint=f"The nearest: {', '.join(near)}." if near else there
    )


def _policy_named(name: str, there: Sequence[StoredPolicy], path: Path) -> StoredPolicy:
    place = place_of(name)
    wanted = place[0].folder if place and place[1] in ("", TRAIN) else name
    for policy in there:
        if wanted in (policy.arm, policy.name):
            return policy
    what = f"{path} has no policy {name!r}" if name else "no policy is named"
    raise DataError(
        what, hint=f"There are {', '.join(policy.arm for policy in there)}." if there else "The run has none yet."
    )


def _numbers(records: Sequence[StageRecord]) -> pa.Table:
    import pyarrow as pa

    rows = [{"stage": each.name, "seconds_of_work": each.seconds, **dict(numbers_in(each.summary))} for each in records]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return pa.table({key: [row.get(key) for row in rows] for key in columns})
