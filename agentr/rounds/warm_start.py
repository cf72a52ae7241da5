"""The warm start: an expert's episodes, those of a user's files or of a stronger model, the dataset of those that
succeed, and the first policy. The ceiling has the same of the tasks that were searched."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from agentr.collect.demonstrate import Demonstrate, Taught
from agentr.config.policy import Who
from agentr.errors import ConfigError
from agentr.read.run import Run
from agentr.rounds.experiment import Experiment, some
from agentr.rows.dataset import write_dataset
from agentr.rows.imports import demonstrated_turns
from agentr.rows.revision import demonstrated_rows
from agentr.rows.targets import Targets
from agentr.store.forest import TASK_COLUMNS, Forest, tasks_in
from agentr.store.layout import CEILING, DATASET, DEMONSTRATIONS, TRAIN, WARM_START, Arm, Checkpoint
from agentr.store.summaries import DatasetSummary, TreeSummary
from agentr.types import Task


def demonstrations(experiment: Experiment, arm: Arm = WARM_START) -> Forest:
    """Plays the expert's episodes of an arm's tasks, or those of the user's files, or lets the teacher play."""
    settings, collecting, store = experiment.plan.config.warm_start, experiment.services.collecting, experiment.store
    expert = Demonstrate(demonstrated_turns([Path(file) for file in settings.files]) if settings.files else None)
    taught = settings.teacher.who is Who.openai
    work = Taught(settings.teacher, settings.episodes) if taught else expert

    def tasks() -> list[Task]:
        selected = (task for selection in settings.tasks for task in collecting.tasks(selection, training=True))
        found = list(dict.fromkeys(searched(experiment) if arm == CEILING else selected))
        if expert.scripted_turns is not None:
            experiment.reporter.message(scripted_words(expert, found, settings.files))
        return found

    name = arm.stage(DEMONSTRATIONS)
    new = not store.sealed(name)
    forest = experiment.trees(name, work, None, experiment.plan.seed(0), tasks)
    record = store.record(name)
    if new and (taught or expert.scripted_turns is not None) and record is not None:
        played = record.read(TreeSummary)
        how = f"by {settings.teacher.openai.model}" if taught else "when they were played"
        experiment.reporter.message(f"        {played.solved} of {played.trees} succeeded {how}")
    return forest


def scripted_words(work: Demonstrate, tasks: Sequence[Task], files: Sequence[str]) -> str:
    """Returns in words how many trajectories of the user's files are used.

    Raises:
        ConfigError: None is.
    """
    scripted, found = work.scripted_turns or {}, work.tasks(tasks, None)
    if not found:
        raise ConfigError(
            f"no trajectory in {', '.join(files)} has the id of a task that is selected",
            hint=f"Ids there: {some(scripted)}. Ids of the tasks: {some(task.id for task in tasks)}.",
        )
    return f"        {len(found)} of {len(scripted)} trajectories are of tasks that are selected"


def searched(experiment: Experiment) -> Iterator[Task]:
    """Yields the tasks that all rounds searched, in order, some of them several times."""
    run = Run(experiment.root)
    for number in range(1, experiment.plan.config.run.rounds + 1):
        for stage in run.rounds[number].exploration().values():
            experiment.store.stages.use(stage.name)
            yield from tasks_in(stage.table(TASK_COLUMNS))


def demonstration_dataset(experiment: Experiment, arm: Arm = WARM_START) -> Path:
    """Writes the dataset of demonstrations: those episodes that earned a success, trained on every turn."""
    name, build, store = arm.stage(DATASET), experiment.plan.config.build, experiment.store

    def work(folder: Path) -> DatasetSummary:
        forest = demonstrations(experiment, arm)
        rows = (row for tree in forest for row in demonstrated_rows(tree, Targets.of(build)))
        hint = "Set warm_start.enabled=false, widen its tasks, or raise build.max_length."
        if arm == CEILING:
            hint = "Set run.ceiling=false: nobody demonstrates the tasks that were searched."
        teacher = experiment.plan.config.warm_start.teacher
        source = teacher.openai.model if teacher.who is Who.openai else "the environment's expert"
        return DatasetSummary.read(write_dataset(folder, rows, build.max_length, source=source, hint=hint))

    store.stages.run(name, DatasetSummary, work, {"build": build})
    store.stages.use(name)
    return store.layout.stage(name)


def warm_start(experiment: Experiment) -> tuple[Checkpoint, Path | None]:
    """Returns the first policy and the demonstrations it was made from, or the base model if there is no warm start."""
    model, settings = experiment.base_model(), experiment.plan.config.warm_start
    if not settings.enabled:
        return model, None
    demonstrations(experiment)
    dataset = demonstration_dataset(experiment)
    return experiment.train(WARM_START.stage(TRAIN), dataset, model, settings.train), dataset
