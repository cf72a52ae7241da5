"""Runs that are made without Ray: rounds whose trees are there already, and run directories written by hand."""

import shutil
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from agentr.config.identity import Identity
from agentr.config.schema import Config
from agentr.evaluate.metrics import evaluate
from agentr.methods import load, method_of, plan_of
from agentr.observe.progress import Reporter
from agentr.rounds.experiment import Experiment
from agentr.rounds.round import Round
from agentr.rounds.services import Services
from agentr.search import Tree
from agentr.store.dataset import read_manifest
from agentr.store.files import write_json
from agentr.store.growing import GrowingForest
from agentr.store.layout import CEILING, CONTROL, EVAL, EVALUATION, MODEL, Checkpoint, arm_of
from agentr.store.run import RunStore
from agentr.store.seal import hash_folder
from agentr.store.summaries import EvalSummary, ModelSummary, TrainSummary, TreeSummary
from agentr.types import Cost, Outcome
from tests.tiny import IMITATE
from tests.trees import codec, door, episode

_SERVICES = cast(
    Services, SimpleNamespace(collecting=SimpleNamespace(spec=lambda: SimpleNamespace(action_format="react")))
)


def given(store: RunStore, stage: str, trees: Sequence[Tree], includes: str | None = None) -> None:
    """Seals a stage with these trees, which may be those of another stage with more in them."""

    def write(folder: Path) -> TreeSummary:
        forest = GrowingForest(folder, epoch=store.lease.next_epoch())
        for tree in trees:
            forest.write(tree)
        manifest = forest.seal(stage={"action_format": "react"})
        return TreeSummary(trees=len(trees), trees_hash=manifest["trees_hash"], includes=includes)

    store.stages.run(stage, TreeSummary, write)


#: A tiny method with two stages of trees in a round: ``collect``, and ``revise``, which starts from the first one's.
TINY = [IMITATE, "method.revises=true"]


def round_of(
    root: Path,
    overrides: Sequence[str],
    *,
    number: int = 1,
    experts: Sequence[Tree] = (),
    model: Path | None = None,
    config: Config | None = None,
    services: Services = _SERVICES,
    **stages: Sequence[Tree],
) -> Round:
    """A round of a run.

    Args:
        model: Folder of its model; by default one that holds nothing.
        config: In place of that of the overrides.
        services: What its stages run on; by default nothing that could run one.
        experts: Trees of the warm start's demonstrations.
        stages: Trees of the round's stages, by their names.
    """
    config = config or deepcopy(_loaded(tuple(overrides)))
    store = RunStore(root)
    store.open(Identity.of(config))
    try:
        experiment = Experiment(plan_of(config), store, services, Reporter())
        experiment.codec = codec()
        outside = hash_folder(model) if model is not None and not model.is_relative_to(root) else None
        store.stages.run(
            MODEL,
            ModelSummary,
            lambda folder: ModelSummary(path=store.stored_path(model or folder), folder_hash=outside),
        )
        if services is _SERVICES:
            given(store, arm_of(0).stage("demonstrations"), experts)
        for name, trees in stages.items():
            given(store, arm_of(number).stage(name), trees)
    except BaseException:  # also when a test is interrupted: the next one takes the run again
        store.close()
        raise
    return Round(experiment, number, Checkpoint(MODEL, store.layout.stage(MODEL)))


@cache
def _loaded(overrides: tuple[str, ...]) -> Config:
    return load(None, overrides)


def dataset(round_: Round) -> tuple[Path, dict[str, Any]]:
    """Makes the dataset of a round by its method, and returns its folder and its manifest."""
    folder = method_of(round_.config.method).build(round_)
    return folder, read_manifest(folder)


def written(
    folder: Path,
    name: str,
    seed: int | str,
    solved: Sequence[Collection[str]],
    calls: int,
    *,
    control: Collection[str] | None = None,
    ceiling: Collection[str] | None = None,
    planned: Collection[str] = (),
    tasks: Mapping[str, str] | None = None,
) -> RunStore:
    """A run that is explored and measured, and that trained nothing.

    Args:
        solved: The held-out tasks that the warm start and each round solved.
        calls: LLM calls of each round's exploration.
        control: The tasks that the control solved, if there is one.
        ceiling: The same of the ceiling.
        planned: Those of the two that the run is to have, beside those that are there.
        tasks: The problem of each held-out task; by default a, b and c are their own.
    """
    problems = tasks or {task: task for task in "abc"}
    store = RunStore(folder / name / str(seed))
    there = {CONTROL: control, CEILING: ceiling}
    wanted = [f"run.{arm.folder}={good is not None or arm.folder in planned}" for arm, good in there.items()]
    store.open(Identity.of(load(None, [IMITATE, f"run.name={name}", f"run.rounds={max(1, len(solved) - 1)}", *wanted])))
    arms = [(arm_of(number), good) for number, good in enumerate(solved)]
    arms += [(arm, good) for arm, good in there.items() if good is not None]
    for arm, good in arms:
        trees = [
            episode(t, ["x"], float(t in good), Outcome.SUCCESS if t in good else Outcome.FAILURE, 1) for t in problems
        ]
        for tree in trees:
            tree.task.labels["problem"] = problems[tree.task.id]

        def evaluated(folder: Path, trees: Sequence[Tree] = trees) -> EvalSummary:
            found = evaluate(trees, identity="problem")
            write_json(folder / EVALUATION, found.as_dict())
            return EvalSummary(success=found.success.mean, tasks=found.success.n)

        if arm.number:
            explored = TreeSummary(trees=3, cost=Cost(calls=calls, completion_tokens=10 * calls))
            store.stages.run(arm.stage("collect"), TreeSummary, lambda _, explored=explored: explored)
        store.stages.run(arm.stage(EVAL), EvalSummary, evaluated)
    store.close()
    return store


def small(root: Path, model: Path) -> Path:
    """A run with a warm start and a round that are measured: of three held-out tasks one is won (a) and one lost (c).

    Args:
        model: Folder of a model that can be loaded: the base model, and both policies.
    """
    trees = [door(), episode("t1", ["open", "wait"], 0.0, Outcome.FAILURE, 1)]
    round_ = round_of(root, TINY, model=model, collect=trees)
    store = round_.experiment.store
    given(store, "rounds/01/revise", [door()], includes="rounds/01/collect")
    dataset(round_)
    trained(store, "rounds/00/train", model, MODEL)
    measured(store, arm_of(0).stage(EVAL), {"a": ("wait", 0.0), "b": ("wait", 0.0), "c": ("open", 1.0)})
    trained(store, "rounds/01/train", model, "rounds/00/train", "rounds/01/dataset")
    measured(store, arm_of(1).stage(EVAL), {"a": ("open", 1.0), "b": ("wait", 0.0), "c": ("wait", 0.0)})
    store.close()
    return root


def trained(store: RunStore, stage: str, model: Path, *inputs: str) -> None:
    """A training that leaves the model as it is."""

    def train(folder: Path) -> TrainSummary:
        for name in inputs:
            store.stages.use(name)
        shutil.copytree(model, folder / "model")
        (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 0.5}\n')
        return TrainSummary(checkpoint=f"{stage}/model", steps=2, first_loss=2.5, last_loss=0.5)

    store.stages.run(stage, TrainSummary, train)


def measured(store: RunStore, stage: str, tasks: Mapping[str, tuple[str, float]]) -> None:
    """Held-out episodes: three times the same action each, the last of which earns the return."""
    outcomes = {True: Outcome.SUCCESS, False: Outcome.FAILURE}
    measured_trees(
        store, stage, [episode(key, [action] * 3, won, outcomes[bool(won)], 1) for key, (action, won) in tasks.items()]
    )


def measured_trees(store: RunStore, stage: str, trees: Sequence[Tree]) -> None:
    """A stage of held-out episodes."""

    def measure(folder: Path) -> EvalSummary:
        forest = GrowingForest(folder, epoch=store.lease.next_epoch())
        for tree in trees:
            forest.write(tree)
        found = evaluate(trees)
        write_json(folder / EVALUATION, found.as_dict())
        sealed = forest.seal(stage={"action_format": "react"})
        low, high = found.success.low, found.success.high
        return EvalSummary(
            trees=len(trees),
            trees_hash=sealed["trees_hash"],
            success=found.success.mean,
            success_low=low,
            success_high=high,
            tasks=len(trees),
        )

    store.stages.run(stage, EvalSummary, measure)
