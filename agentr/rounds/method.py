"""What a method is: one class. How a round explores, which rows it makes of that, and which loss they are trained with.

A method brings along its configuration, its presets and its estimate; ``agentr.methods`` finds it. The loop over rounds
(``agentr.rounds.loop``) is the same for all of them.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from agentr.collect.job import Work
from agentr.config.checks import Problem
from agentr.config.schema import Config, MethodConfig, TaskSelection
from agentr.config.text import read_yaml
from agentr.config.training import TrainConfig
from agentr.errors import RunError
from agentr.rounds.experiment import Experiment
from agentr.rounds.round import Round
from agentr.rows.dataset import Candidate, Keep, is_own, write_dataset
from agentr.rows.mixture import ExtraPairs, MixtureConfig, mix_pairs_from_files, mix_rows
from agentr.store.dataset import dataset_loss
from agentr.store.layout import DATASET, TRAIN, Checkpoint
from agentr.store.rows import Row
from agentr.store.spool import Kept
from agentr.store.summaries import DatasetSummary
from agentr.types import Loss

C = TypeVar("C", bound=MethodConfig)


class Method(ABC, Generic[C]):
    """A method: what both kinds have, those that learn from a round's rows (`Offline`) and those that learn while they
    collect (`Online`).

    A subclass says ``name``, ``title`` and ``Config``. Its docstring is its entry in ``agentr list methods``.

    Args:
        config: The section ``method`` of the configuration.
    """

    #: Value of ``method.type``.
    name: ClassVar[str]
    #: Name and source in tables and documents, such as "ETO (arXiv 2403.02502)".
    title: ClassVar[str]
    #: Class of the section ``method``.
    config_class: ClassVar[type[MethodConfig]]
    #: What its rows are trained with.
    loss: ClassVar[Loss]
    #: Whether it trains while it collects, beside the engines.
    online: ClassVar[bool] = False
    #: Whether it is the method of a configuration that names none.
    default: ClassVar[bool] = False
    #: Fragments of a whole configuration, by the preset's name; ``default`` is empty for all.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    #: Environments here that stand for those of the presets' source.
    environments: ClassVar[Sequence[str]] = ()
    #: Its page, below the repository.
    page: ClassVar[str] = ""

    def __init__(self, config: C) -> None:
        self.config = config

    # what a method does -----------------------------------------------------------------------------------------------

    @abstractmethod
    def exploration(self, round_: int) -> Mapping[str, Work]:
        """Returns a round's stages of trees in order: the stage's name, and what is done in it with each task."""

    def before(self, experiment: Experiment, round_: int) -> None:
        """Does what is to be done before the run's stages, for a method from this round on: such as trying a judge."""

    @abstractmethod
    def stages(self, round_: int) -> list[str]:
        """Returns the names of a round's stages up to its training, in the order in which ``improve`` seals them."""

    @abstractmethod
    def improve(self, round_: Round, start: Checkpoint) -> Checkpoint:
        """Runs a round up to its policy.

        Args:
            start: Checkpoint that the training starts from.
        """

    @abstractmethod
    def train(self, round_: Round, start: Checkpoint) -> Checkpoint:
        """Trains a round's policy, unless that is done."""

    # what a method says of itself -------------------------------------------------------------------------------------

    @classmethod
    def check(cls, config: Config) -> Iterator[Problem]:
        """Yields what is wrong in a configuration of this method, besides what its own section says."""
        return iter(())

    @abstractmethod
    def describe(self) -> str:
        """Returns what a round does with one task, in a few words."""

    def trees(self, tasks: int | None) -> int | None:
        """Returns the trees that a stage of exploration grows in a round of so many tasks; None if that is not
        known."""
        return tasks

    def optimiser_steps(self, train: TrainConfig, rows: int | None) -> int | None:
        """Returns the optimiser steps of a round.

        Args:
            rows: Rows of its dataset; None if they are not known.
        """
        return optimiser_steps(train, rows)

    def validations(self) -> tuple[int, TaskSelection | None]:
        """Returns how often a round's training is measured on held-out tasks while it runs, and on which."""
        return 0, None


class Offline(Method[C]):
    """A method that learns from the rows of a whole round: it explores, builds a dataset, and trains on it.

    A subclass says its ``loss``, and implements ``exploration`` and ``rows``. The exploration is all that decides what
    a round's trees are, besides the sections that every method has: two runs whose explorations are equal share their
    trees (``agentr compare``).
    """

    @abstractmethod
    def rows(self, round_: Round) -> Iterator[Candidate]:
        """Yields the rows of a round, made of its trees, and what was dropped on the way."""

    def explore(self, round_: Round) -> None:
        """Runs the stages of ``exploration``; a stage may start from the trees of an earlier one."""
        for stage, work in self.exploration(round_.number).items():
            round_.run(stage, work)

    def stages(self, round_: int) -> list[str]:
        return [*self.exploration(round_), DATASET, TRAIN]

    def improve(self, round_: Round, start: Checkpoint) -> Checkpoint:
        self.explore(round_)
        self.build(round_)
        return self.train(round_, start)

    def train(self, round_: Round, start: Checkpoint) -> Checkpoint:
        experiment = round_.experiment
        dataset = experiment.store.layout.stage(round_.arm.stage(DATASET))
        return experiment.train(round_.arm.stage(TRAIN), dataset, start, experiment.plan.train(round_.number))

    def build(self, round_: Round) -> Path:
        """Writes a round's dataset of ``rows``, unless it is sealed, and returns its folder.

        Raises:
            DataError: There is no row at all.
            RunError: The rows are for another loss than the method says.
        """
        experiment, stage = round_.experiment, round_.arm.stage(DATASET)

        def write(folder: Path) -> DatasetSummary:
            with experiment.reporter.task(stage):
                limit, facts = round_.config.build.max_length, self.facts(round_)
                manifest = write_dataset(
                    folder, self.rows(round_), limit, lambda own, keep: self.mix(own, round_, keep), **facts
                )
            if (loss := dataset_loss(folder)) is not self.loss:
                raise RunError(f"{self.name} says that its rows are for the loss {self.loss}, and they are for {loss}")
            return DatasetSummary.read(manifest)

        made_with = {"method": round_.config.method, "build": round_.config.build, "seed": round_.seed}
        experiment.store.stages.run(stage, DatasetSummary, write, made_with)
        return experiment.store.layout.stage(stage)

    def mix(self, own: Sequence[Kept], round_: Round, keep: Keep) -> tuple[Sequence[Kept], Counter[str]]:
        """Chooses among a round's own rows and puts others beside them, in the order in which they are written.

        Args:
            own: The rows that ``rows`` yielded; they wait on disk.
            keep: Puts another row beside them.

        Returns:
            The rows, and how many of the others were left out, by reason. Own rows that are not among them are recorded
            as dropped.
        """
        return own, Counter()

    def facts(self, round_: Round) -> dict[str, Any]:
        """Returns further entries of a dataset's manifest."""
        return {}

    def describe(self) -> str:
        return (
            ", then ".join(f"{stage} ({work.kind})" for stage, work in self.exploration(1).items()) or "no exploration"
        )


@dataclass
class ImitationConfig(MethodConfig):
    """A method that imitates."""

    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    """What a round trains on beside its own rows."""


@dataclass
class PreferenceConfig(MethodConfig):
    """A method that prefers one side of pairs."""

    extra_pairs: list[ExtraPairs] = field(default_factory=list)
    """Preference pairs from files, trained on beside the method's own."""


class Imitation(Offline[C]):
    """A method whose rows are imitated. Its configuration extends ``ImitationConfig``."""

    loss = Loss.IMITATE

    @classmethod
    def check(cls, config: Config) -> Iterator[Problem]:
        share = config.method.mixture.demonstrations  # type: ignore[attr-defined]
        if share and not config.warm_start.enabled:
            message = f"{share:g} of the rows would be the warm start's demonstrations, and there is no warm start"
            yield Problem("method.mixture.demonstrations", message, "Set it to 0, or warm_start.enabled=true.")

    def mix(self, own: Sequence[Kept], round_: Round, keep: Keep) -> tuple[Sequence[Kept], Counter[str]]:
        mixture = self.config.mixture  # type: ignore[attr-defined]
        earlier = [
            keep(row) for row in round_.earlier_rows(mixture.earlier_rounds) if isinstance(row, Row) and is_own(row)
        ]
        return mix_rows(
            own,
            mixture,
            demonstrations=[keep(row) for row in round_.demonstration_rows()] if mixture.demonstrations else (),
            earlier=earlier,
            keep=keep,
            codec=round_.codec,
            max_length=round_.config.build.max_length,
            seed=round_.seed,
        )


class Preferring(Offline[C]):
    """A method whose rows are pairs. Its configuration extends ``PreferenceConfig``."""

    loss = Loss.PREFER

    def mix(self, own: Sequence[Kept], round_: Round, keep: Keep) -> tuple[Sequence[Kept], Counter[str]]:
        extra, limit = self.config.extra_pairs, round_.config.build.max_length  # type: ignore[attr-defined]
        return mix_pairs_from_files(own, extra, keep=keep, codec=round_.codec, max_length=limit, seed=round_.seed)


def optimiser_steps(train: TrainConfig, rows: int | None) -> int | None:
    """Returns the optimiser steps of a training on a dataset of so many rows; None if they are needed and not known."""
    if train.steps:
        return train.steps
    return None if rows is None else math.ceil(rows * train.epochs / train.batch_size) or 1


def read_presets(module: str) -> dict[str, Any]:
    """Returns the presets beside a method's module, in ``presets.yaml``.

    Args:
        module: Its ``__file__``.
    """
    return read_yaml(Path(module).with_name("presets.yaml"))


def sampling_problems(config: Config) -> Iterator[Problem]:
    """Yields a problem if several runs of a task would all be the same."""
    episodes = getattr(config.method, "episodes", 1)
    if episodes > 1 and config.collect.sampling.temperature == 0:
        message = f"{episodes} episodes with temperature 0 would repeat the same run"
        yield Problem("method.episodes", message, "Set collect.sampling.temperature, or method.episodes=1.")


def by_round(values: Sequence[float], round_: int) -> float:
    """Returns the value of a round in a schedule whose last entry holds for later rounds."""
    return values[min(round_, len(values)) - 1]
