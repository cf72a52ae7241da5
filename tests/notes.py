"""Services without Ray, engines or servers: they take notes of what the stages of a run ask of them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentr.collect.demonstrate import Demonstrate
from agentr.collect.job import TreeJob
from agentr.collect.units import StageProgress, as_dict
from agentr.config.schema import TaskSelection
from agentr.errors import InfraError
from agentr.rounds.plan import Plan
from agentr.search import Tree
from agentr.search.tree import Origin
from agentr.store.growing import GrowingForest
from agentr.store.layout import Checkpoint
from agentr.store.run import RunStore
from agentr.store.summaries import TrainSummary
from agentr.train.job import TrainJob
from agentr.types import Message, Outcome, Task
from tests.env_servers.support import Counter
from tests.one_part import OnePart
from tests.trees import add, codec, reasoned

TRAIN = [Task("counter", f"train-{i}", "train") for i in range(5)]
HELD_OUT = [Task("counter", f"test-{i}", "test") for i in range(4)]
OPENING = (Message("user", "Open the door."),)

#: Optimiser steps of a training that is told epochs.
STEPS = 7


@dataclass
class Notes(OnePart):
    """Services that take notes. Stages give trees of one turn, trainings a model that holds the name of the job.

    Attributes:
        solved: Successes of a stage of trees, by its name; all trees of other stages succeed.
        breaks_at: Name of a training that does not come to its end.
        stages: Jobs by the stage's name, in the order in which they were asked for, each with the name of the policy
            that answers.
        selected: The splits that tasks were chosen from, and whether they are to be trained on.
    """

    solved: dict[str, int] = field(default_factory=dict)
    breaks_at: str = ""
    stages: dict[str, tuple[TreeJob, str]] = field(default_factory=dict)
    trainings: list[TrainJob] = field(default_factory=list)
    selected: set[tuple[str, bool]] = field(default_factory=set)
    engines_early: bool = False
    model: Path | None = None

    def take_over(self, plan: Plan, store: RunStore) -> None:
        pass

    def close(self, *, keep_logs: bool = False) -> None:
        pass

    def spec(self) -> Any:
        return Counter().spec

    def tasks(self, selection: TaskSelection, *, training: bool) -> list[Task]:
        self.selected.add((selection.split, training))
        return (TRAIN if selection.split == "train" else HELD_OUT)[: selection.limit]

    def collect(self, title: str, job: TreeJob, policy: Checkpoint | None, update: Any = None) -> dict[str, Any]:
        assert title not in self.stages, f"{title} is made twice"
        self.stages[title] = job, policy.name if policy else ""
        forest, progress = GrowingForest(job.folder), StageProgress()
        for number, task in enumerate(job.tasks):
            won = number < self.solved.get(title, len(job.tasks))
            tree = Tree.start(task, OPENING, tuple(codec().prompt(OPENING)), job.seed, job.policy)
            origin = Origin.EXPERT if isinstance(job.work, Demonstrate) else Origin.POLICY
            add(
                tree,
                0,
                reasoned("open" if won else "wait", float(won), Outcome.SUCCESS if won else Outcome.FAILURE),
                origin,
            )
            forest.write(tree)
            progress.add(tree)
        return as_dict(progress) | {"regrown": forest.damaged}

    def train(self, jobs: list[TrainJob], title: str) -> list[TrainSummary]:
        if title == self.breaks_at:
            raise InfraError("the trainer died")
        for job in jobs:
            job.model.mkdir(parents=True)
            (job.model / "name").write_text(job.name)
        self.trainings += jobs
        return [TrainSummary(steps=job.config.steps or STEPS, checkpoint=str(job.model)) for job in jobs]
