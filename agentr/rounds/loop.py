"""The loop of self-training, the same for every method: warm start, then round after round; the arms that they are
compared with; the best checkpoint."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentr.config.schema import EvalConfig
from agentr.config.training import ContinueFrom, TrainConfig
from agentr.errors import ConfigError, RunError
from agentr.observe.card import write_card
from agentr.read.run import Run
from agentr.rounds.experiment import Experiment
from agentr.rounds.held_out import HeldOut, check, evaluations
from agentr.rounds.method import Method
from agentr.rounds.plan import Plan
from agentr.rounds.prune import delete, prunable
from agentr.rounds.round import Round
from agentr.rounds.warm_start import demonstration_dataset, warm_start
from agentr.store.files import write_json, write_link
from agentr.store.layout import (
    CEILING,
    CONTROL,
    DATASET,
    DEMONSTRATIONS,
    EVAL,
    MODEL,
    SELECTION,
    TRAIN,
    WARM_START,
    Arm,
    Checkpoint,
    arm_of,
)
from agentr.store.stages import NotWanted
from agentr.store.summaries import EvalSummary, TrainSummary
from agentr.train.job import TrainJob
from agentr.types import Loss


def run_rounds(experiment: Experiment, methods: Sequence[Method], only: Collection[str] = ()) -> None:
    """Runs an experiment: for each round explore, build, train, evaluate.
    Ends with the control, the ceiling and the best checkpoint.

    Args:
        methods: Of each round, from the warm start's, 0, on.
        only: Stages that alone are run, each with what is evaluated or trained before it already there.

    Raises:
        ConfigError: A stage of ``only`` is none of the run.
        AgentrError: A stage failed; what was sealed before is kept.
    """
    stages, store = planned(experiment, methods), experiment.store
    if unknown := next((name for name in only if name not in stages), ""):
        raise ConfigError(f"the run has no stage {unknown}", hint=f"Its stages: {', '.join(stages)}.")
    store.event("planned", stages=stages)
    store.stages.only = frozenset(only)
    with experiment.reporter.planned(stages):
        try:
            _run_rounds(experiment, methods)
        except NotWanted as stopped:
            if missing := next((name for name in only if not store.sealed(name)), ""):
                hint = f"Run it first: --only {stopped.stage}; or run them all, without --only."
                raise RunError(f"{missing} needs {stopped.stage}, which is not there yet", hint=hint) from None


def made(arm: Arm, eval_: EvalConfig) -> list[str]:
    """Returns the stages of an arm that the rounds are compared with."""
    trained = (DEMONSTRATIONS, DATASET, TRAIN) if arm == CEILING else (TRAIN,)
    return [*map(arm.stage, trained), *evaluations(eval_, arm)]


def planned(experiment: Experiment, methods: Sequence[Method]) -> list[str]:
    """Returns the names of the stages that ``run_rounds`` seals, in this order.

    Raises:
        RunError: The ceiling is asked for, and no round searches tasks.
    """
    config = experiment.plan.config
    run, eval_, warm = config.run, config.eval, config.warm_start.enabled
    searches = any(methods[number].exploration(number) for number in range(1, run.rounds + 1))
    if CEILING in experiment.plan.references and not searches:
        raise RunError("the ceiling has no tasks: no round searches any", hint="Set run.ceiling=false.")
    stages = [
        MODEL,
        *map(WARM_START.stage, (DEMONSTRATIONS, DATASET, TRAIN) if warm else ()),
        *evaluations(eval_, WARM_START),
    ]
    for arm in map(arm_of, range(1, run.rounds + 1)):
        stages += [*map(arm.stage, methods[arm.number].stages(arm.number)), *evaluations(eval_, arm)]
    return stages + [stage for arm in experiment.plan.references for stage in made(arm, eval_)]


def _run_rounds(experiment: Experiment, methods: Sequence[Method]) -> None:
    run, continue_from = experiment.plan.config.run, experiment.plan.config.trainer.continue_from
    experiment.services.engines_early = not experiment.store.stages.only
    if not experiment.store.stages.only and not experiment.store.sealed(WARM_START.stage(EVAL)):
        check(experiment)
    for number in sorted({1, *experiment.plan.config.from_round} & set(range(1, run.rounds + 1))):
        if not experiment.store.stages.only:
            methods[number].before(experiment, number)
    policy, demonstrations = warm_start(experiment)
    HeldOut(experiment, WARM_START, policy).measure()
    write_card(Run(experiment.root), WARM_START)

    first = policy
    for number in range(1, run.rounds + 1):
        round_ = Round(experiment, number, policy)
        policy = methods[number].improve(round_, policy if continue_from is ContinueFrom.previous else first)
        HeldOut(experiment, round_.arm, policy).measure()
        write_card(Run(experiment.root), round_.arm)
        delete(
            experiment.store, [entry for entry in prunable(Run(experiment.root), run.keep) if entry.what == "weights"]
        )

    for arm in experiment.plan.references:
        if any(map(experiment.store.stages.wants, made(arm, experiment.plan.config.eval))):
            assert demonstrations is not None, "refused by the configuration"
            dataset = demonstration_dataset(experiment, arm) if arm == CEILING else demonstrations
            imitate(experiment, methods, arm, first, dataset)
    promote(experiment)


def imitate(
    experiment: Experiment, methods: Sequence[Method], arm: Arm, warm_start: Checkpoint, demonstrations: Path
) -> None:
    """Trains the warm start on demonstrations alone, for as many steps and with the same schedules as the rounds, and
    evaluates it: on its own again, or on the expert's of the tasks that were searched.

    Without such a control, more training looks like self-training. The ceiling is what a policy that explores would
    come to if it found what the expert knows.
    """
    config, name = experiment.plan.config, arm.stage(TRAIN)
    previous = config.trainer.continue_from is ContinueFrom.previous

    def work(folder: Path) -> TrainSummary:
        experiment.store.stages.use(warm_start.name)
        experiment.store.stages.use(experiment.store.stored_path(demonstrations))
        jobs: list[TrainJob] = []
        for number in range(1, config.run.rounds + 1):
            done = experiment.store.record(arm_of(number).stage(TRAIN))
            assert done is not None, "it comes after the rounds"
            start = Checkpoint(name, jobs[-1].model) if jobs and previous else warm_start
            train = replace(_imitation(experiment.plan, methods[number], number), steps=done.read(TrainSummary).steps)
            job = f"{arm.folder}-{number:02d}"
            jobs.append(experiment.train_job(job, demonstrations, start, folder / f"{number:02d}", train))
        results = experiment.train_many(jobs, name)
        return replace(results[-1], steps=sum(result.steps for result in results))

    trained = experiment.store.stages.run(
        name, TrainSummary, work, {"rounds": config.run.rounds, "seed": config.run.seed}
    )
    HeldOut(experiment, arm, experiment.checkpoint(name, trained)).measure()


def _imitation(plan: Plan, method: Method, round_: int) -> TrainConfig:
    """How demonstrations train in place of a round: like the round if that imitates, too; else like the warm start."""
    return plan.train(round_) if method.loss is Loss.IMITATE else plan.config.warm_start.train


def decides_control(plan: Plan, methods: Sequence[Method]) -> list[Any] | None:
    """Returns all that decides the control besides the warm start and the keys that runs of a comparison share; None
    if there is none, or that is not known before the rounds."""
    if CONTROL not in plan.references:
        return None
    config, found = plan.config, list[Any]([plan.config.trainer.continue_from])
    for number in range(1, config.run.rounds + 1):
        steps = plan.train(number).steps
        if methods[number].online or not steps:
            return None
        found.append(replace(_imitation(plan, methods[number], number), steps=steps))
    return found


def promote(experiment: Experiment) -> None:
    """Points ``best`` at the round with the highest success on ``eval.select``, or on ``eval.tasks``; among equals the
    earliest.

    Raises:
        RunError: Something else is called ``best`` in the run directory.
    """
    store, eval_ = experiment.store, experiment.plan.config.eval
    results = {}
    for number in range(experiment.plan.config.run.rounds + 1):
        record = store.record(arm_of(number).stage(SELECTION if eval_.select else EVAL))
        if record is not None and record.sealed:
            results[arm_of(number)] = record.read(EvalSummary).success
    if not results:
        return
    best = max(results, key=lambda arm: results[arm])
    model = store.layout.checkpoint(best.stage(TRAIN)).path
    link = store.layout.best
    if model.exists():
        if link.exists() and not link.is_symlink():
            raise RunError(
                f"{link} is in the way of the link to the best checkpoint",
                hint="Move it, and start the same run again.",
            )
        write_link(link, model.relative_to(store.root))
    everything = {arm.folder: success for arm, success in results.items()}
    write_json(
        store.layout.chosen,
        {"round": best.folder, "success": results[best], "all": everything, "split": eval_.select or eval_.tasks.split},
    )
