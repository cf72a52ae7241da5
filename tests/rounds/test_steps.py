"""The steps of online training with made-up rollouts and a made-up trainer: what is drawn, with which weights, and when
it ends."""

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import agentr
from agentr.cluster.causes import CauseKind
from agentr.collect.job import TreeJob
from agentr.config.identity import Identity
from agentr.errors import ConfigError, DataError, InfraError, RunError
from agentr.methods import load, method_of, plan_of
from agentr.observe.progress import Reporter
from agentr.observe.summary import summarise
from agentr.observe.tables import tables
from agentr.observe.troubles import troubles
from agentr.rewards.group import Group, Reward
from agentr.rounds.experiment import Experiment
from agentr.rounds.round import Round
from agentr.rounds.services import Services
from agentr.search.stored import stored_counts
from agentr.search.tree import Tree
from agentr.store.files import read_lines
from agentr.store.growing import GrowingForest
from agentr.store.layout import Checkpoint
from agentr.store.records import read_records
from agentr.store.run import RunStore
from agentr.store.summaries import TrainSummary, TreeSummary
from agentr.train.online_job import OnlineJob
from agentr.types import Cost, Message, Task
from tests.one_part import OnePart
from tests.tiny import REINFORCE
from tests.trees import codec, tree_of

#: Success after a step, as the validation finds it; tasks of which no rollout differs from another.
Measure = Callable[[int], float]


class Training:
    """Publishes the weights of each step whose rows are there, and is done once no more come."""

    def __init__(self, job: OnlineJob, entropy: float = 1.0) -> None:
        self.job, self.entropy = job, entropy

    def ended(self) -> bool:
        last = self.job.last or self.job.stopped() or self.job.steps
        for step in range(1, last + 1):
            if not self.job.fed(step):
                return self.job.abandoned.exists()
            if not self.job.published(step).exists():
                self.job.published(step).mkdir(parents=True)
                (self.job.published(step) / "weights").write_text(str(step))
                with self.job.metrics.open("a") as metrics:
                    metrics.write(json.dumps({"step": step, "entropy": self.entropy}) + "\n")
        return True

    def wait(self, _: float) -> bool:
        return True

    def result(self) -> TrainSummary:
        assert self.ended()
        last = self.job.last or self.job.stopped() or self.job.steps
        self.job.model.mkdir(exist_ok=True)
        (self.job.model / "weights").write_text(str(last))
        return TrainSummary(steps=last)


class Made(OnePart):
    """Services whose rollouts are made up: those of a task in ``equal`` all fail, of the others one of two succeeds."""

    def __init__(
        self,
        measure: Measure = lambda _: 0.0,
        equal: frozenset[str] = frozenset(),
        breaks_at: int = 0,
        entropy: float = 1.0,
    ) -> None:
        self.measure, self.equal, self.breaks_at, self.entropy = measure, equal, breaks_at, entropy
        self.drawn: list[tuple[str, str, list[str]]] = []
        # after how many drawings engines were told to sleep, and whether the rows were there
        self.rested: list[tuple[int, bool]] = []

    def machines(self) -> int:
        return 2

    def start(self, _: Path) -> list[Any]:
        return []

    def sleep(self) -> None:
        self.rested.append((len(self.drawn), self.job.fed(len(self.rested) + 1)))

    def awaiting(self, job: OnlineJob, what: str) -> Any:
        return nullcontext()

    def beside(self, job: OnlineJob) -> Training:
        self.job = job
        return Training(job, self.entropy)

    def spec(self) -> Any:
        return SimpleNamespace(action_format="react", answer_prefix="", step_limit=5, strata=())

    def tasks(self, selection: Any, *, training: bool) -> list[Task]:
        return [Task("toy", f"{selection.split}{n}", selection.split, {}) for n in range(selection.limit or 8)]

    def collect(self, title: str, job: TreeJob, policy: Checkpoint, update: Any = None) -> dict[str, Any]:
        assert policy.path.exists() and not (self.breaks_at and title == f"online step {self.breaks_at}"), (
            "the made-up engine died"
        )
        forest = GrowingForest(job.folder)
        there = forest.finished()
        self.drawn.append((title, policy.name, [task.id for task in job.tasks if task.key not in there]))
        for index, task in enumerate(job.tasks):
            if task.key not in there:
                forest.write(self._tree(task, job, index, len(job.tasks)))
        counts = stored_counts(
            Cost(completions=2 * len(job.tasks), completion_tokens=3), {"duplicates": 1, "env_steps_executed": 5}
        )
        skipped = int(bool(job.limits.max_completions) and 2 * len(job.tasks) > job.limits.max_completions)
        return {"failed": 0, "skipped": skipped, "successes": 0, "counts": counts}

    def _tree(self, task: Task, job: TreeJob, index: int, of: int) -> Tree:
        tree = Tree.start(task, (Message("user", "go"),), (1, 2, 3), job.seed, job.policy)
        if job.work.kind == "sample" and "validation" in job.folder.parts:
            return tree_of("x: 1.0" if index < self.measure(int(job.folder.name)) * of else "x: 0.0", into=tree)
        return tree_of("x: 0.0", "y: 0.0" if task.id in self.equal else "y: 1.0", into=tree)


def trained(root: Path, made: Made, *overrides: str) -> TrainSummary:
    config = load(None, [REINFORCE, "method.tasks=2", "method.episodes=2",
                         "train=[{batch_size: 4, micro_batch_size: 4}]",
                         "warm_start.enabled=false", "collect.tasks.limit=5", "run.rounds=1", *overrides])  # fmt: skip
    store = RunStore(root)
    store.open(Identity.of(config))
    try:
        (root / "start").mkdir(exist_ok=True)
        experiment = Experiment(plan_of(config), store, cast(Services, made), Reporter())
        experiment.codec = codec()
        store.stages.use = lambda name: None  # type: ignore[method-assign]
        method_of(config.method).train(
            Round(experiment, 1, Checkpoint("model", root / "start")), Checkpoint("model", root / "start")
        )
        record = store.record("rounds/01/train")
        assert record is not None and record.sealed
        return record.read(TrainSummary)
    finally:
        store.close()


def test_engines_sleep_after_each_drawing_and_before_the_trainer_has_its_rows(tmp_path: Path) -> None:
    made = Made()
    trained(tmp_path, made, "method.steps=3")
    assert made.rested == [(1, False), (2, False), (3, False)]


class DiesOnce:
    """A user's reward whose process is gone with the first task of the split."""

    def __call__(self, group: Group) -> list[float]:
        if group.episodes[0].tree.task.id == "train0":
            os._exit(3)
        return [episode.earned for episode in group.episodes]


@pytest.mark.slow
def test_rollouts_without_an_answer_of_the_reward_are_left_out_and_counted(tmp_path: Path) -> None:
    reward = f"method.rewards=[{{name: '{__name__}:DiesOnce'}}]"
    assert trained(tmp_path, Made(), "method.steps=1", "collect.tasks.limit=2", reward).online_steps == 1
    manifest = json.loads((tmp_path / "rounds/01/rollouts/000001/dataset/manifest.json").read_text())
    assert manifest["dropped"] == {"a reward gave no answer": 1} and manifest["rows"] == 2


def test_every_task_has_its_turn_and_every_step_the_weights_before_it(tmp_path: Path) -> None:
    made = Made()
    assert trained(tmp_path, made, "method.steps=4").online_steps == 4
    assert [name for _, name, _ in made.drawn] == ["model", *(f"rounds/01/train@{n}" for n in (1, 2, 3))]
    tasks = [ids for _, _, ids in made.drawn]
    assert all(len(set(ids)) == 2 for ids in tasks)
    assert len({*tasks[0], *tasks[1]}) == 4, "one after another, until too few are left for a step"
    assert (tmp_path / "rounds/01/train/model/weights").read_text() == "4"
    assert not (tmp_path / "rounds/01/train/published").exists()


def test_what_is_written_down_of_each_step_and_of_all(tmp_path: Path) -> None:
    """Of each of a step's two tasks one of two rollouts of one turn succeeds; the last step is measured whatever its
    number."""
    made = Made({2: 0.25, 3: 0.75}.__getitem__)
    trained(tmp_path, made, *VALIDATED, "method.steps=3")
    assert made.job.name == "rounds-01-train"
    rollouts = agentr.open(tmp_path).rounds[1].rollouts
    assert rollouts.validations() == {2: 0.25, 3: 0.75}
    for number, line in enumerate(rollouts.curve_lines(), 1):
        assert line["version"] == (f"rounds/01/train@{number - 1}" if number > 1 else "model")
        assert {key: line[key] for key in ("step", "episodes", "success", "calls", "turns", "tokens", "malformed",
                                           "completions")} == {
            "step": number, "episodes": 4, "success": 0.5, "calls": 1, "turns": 1, "tokens": 1, "malformed": 0,
            "completions": 4,
        }  # fmt: skip
        assert (line["rows"], line["groups"], line["silent_groups"]) == (4, 2, 0)
        assert (line["completion_tokens"], line["env_steps_executed"]) == (3, 5)
        assert line["waited"] >= 0 and line["collected"] >= 0
    records = read_records(tmp_path)
    assert records["rounds/01/rollouts"].read(TreeSummary) == TreeSummary(
        trees=6,
        cost=Cost(completions=12, completion_tokens=9),
        events={"duplicates": 3, "env_steps_executed": 15},
        more=records["rounds/01/rollouts"].read(TreeSummary).more,
    )
    for stage, values in (("rollouts", {"kind", "work", "sampling", "seed"}), ("train", {"method", "train", "seed"})):
        assert {key.partition(".")[0] for key in records[f"rounds/01/{stage}"].config} == values, (
            "by these it may become stale"
        )


def test_memory_is_for_one_machine(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"policy\.sync = memory is for one machine, and the cluster has 2\. Set policy\.sync=files"
    ):
        trained(tmp_path, Made(), "policy.sync=memory")


def test_a_step_may_be_ahead_of_the_weights_by_a_fixed_number(tmp_path: Path) -> None:
    made = Made()
    trained(tmp_path, made, "method.steps=5", "method.max_staleness=2")
    assert [name for _, name, _ in made.drawn] == ["model", "model", "model", "rounds/01/train@1", "rounds/01/train@2"]


def test_tasks_that_say_nothing_are_replaced_as_far_as_there_are_others(tmp_path: Path) -> None:
    made = Made(equal=frozenset(f"train{n}" for n in range(5) if n != 3))
    trained(tmp_path, made, "method.steps=1", "method.max_tasks=4")
    drawn = [id for _, _, ids in made.drawn for id in ids]
    assert len(drawn) == len(set(drawn)) <= 4
    dataset = agentr.open(tmp_path).rounds[1].rollouts.steps[1].dataset
    groups = {row.group for row in dataset.rows}
    if "train3" in drawn:
        assert groups == {"train3"} and {d.reason for d in dataset.dropped()} == {
            "all rollouts of the task are worth the same"
        }
    else:  # nothing says anything: the step is trained on as it is, and changes nothing
        assert len(groups) == 2


@pytest.mark.parametrize("telling", ["train0", "train1", "train2"])
def test_as_long_as_a_single_task_is_missing_another_is_drawn(tmp_path: Path, telling: str) -> None:
    made = Made(equal=frozenset(f"train{n}" for n in range(5)) - {telling})
    trained(tmp_path, made, "method.steps=1", "method.max_tasks=5")
    drawn = [id for _, _, ids in made.drawn for id in ids]
    assert sorted(drawn) == [f"train{n}" for n in range(5)], "of two that should say something one does"


def test_a_policy_that_has_all_but_one_choice_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Made(entropy=0.001)
    trained(tmp_path, made, "method.steps=3")
    assert capsys.readouterr().out.replace("\n", " ").count("the entropy is below 0.01") == 1, "each alarm once"


def test_steps_whose_rollouts_are_all_worth_the_same_are_a_trouble_until_one_says_something(tmp_path: Path) -> None:
    made = Made(equal=frozenset(f"train{n}" for n in range(5)))
    with pytest.raises(AssertionError, match="engine died"):
        made.breaks_at = 3
        trained(tmp_path, made, "method.steps=4")
    (trouble,) = (found for found in troubles(read_lines(tmp_path / "events.jsonl")) if found["causes"])
    (cause,) = trouble["causes"]
    assert trouble["title"] == "rounds/01/rollouts" and cause["kind"] == CauseKind.trees_identical
    assert "in all 2 tasks of online step 1" in cause["evidence"] and "method.episodes" in cause["setting"]
    made.breaks_at, made.equal = 0, frozenset()
    trained(tmp_path, made, "method.steps=4")
    assert not troubles(read_lines(tmp_path / "events.jsonl"))


def test_tasks_are_chosen_by_what_the_policy_makes_of_them(tmp_path: Path) -> None:
    """ET-Agent, section 3.3: tasks of which all episodes are alike are left out.
    The look at them is a stage of its own, made once."""
    made = Made(equal=frozenset({"train0", "train2", "train4"}))
    trained(tmp_path, made, "method.steps=3", "method.pareto.tasks=5", "method.pareto.episodes=2")
    (title, policy, tasks), *steps = made.drawn
    assert (title, policy, len(tasks)) == ("rounds/01/probe", "model", 5)
    sealed = [event["stage"] for event in agentr.open(tmp_path).events() if event["event"] == "stage_sealed"]
    planned = method_of(load(tmp_path / "config.yaml", files=False, whole=True).method).stages(1)
    assert sealed == [f"rounds/01/{stage}" for stage in planned], "the plan of the run counts them"
    assert len(steps) == 3 and all(sorted(ids) == ["train1", "train3"] for _, _, ids in steps)
    run = agentr.open(tmp_path)
    assert run.rounds[1].stages()["probe"].summary.trees == 5
    differing = {
        one["task"]: (one["earned"], one["calls"], one["chosen"]) for one in run.rounds[1].rollouts.differing()
    }
    assert differing == {f"train{n}": ((0.5, 0.0, True) if n in (1, 3) else (0.0, 0.0, False)) for n in range(5)}
    (table,) = [table for table in tables(summarise(run)) if table.title == "Tasks that were chosen"]
    line = table.lines["round 1"]
    assert (line["chosen"], line["left out"]) == (2, 3) and line["dispersion of returns, chosen"] == 0.5


def test_a_run_that_goes_on_after_the_choice_makes_the_same_one(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="engine died"):
        trained(tmp_path, Made(breaks_at=2), "method.steps=2", "method.pareto.tasks=3", "method.pareto.episodes=2")
    again, whole = Made(), Made()
    trained(tmp_path, again, "method.steps=2", "method.pareto.tasks=3", "method.pareto.episodes=2")
    trained(tmp_path / "whole", whole, "method.steps=2", "method.pareto.tasks=3", "method.pareto.episodes=2")
    assert again.drawn == whole.drawn[2:], "neither the look nor the first step is made again"


def test_no_task_that_says_anything_is_said(tmp_path: Path) -> None:
    made = Made(equal=frozenset(f"train{n}" for n in range(5)))
    with pytest.raises(
        DataError, match="has chosen none of 5 tasks: the policy solves 5 of them always or never"
    ) as failed:
        trained(tmp_path, made, "method.pareto.tasks=5", "method.pareto.episodes=2")
    assert "settled=keep" in failed.value.hint
    trained(
        tmp_path / "kept",
        made,
        "method.steps=1",
        "method.pareto.tasks=5",
        "method.pareto.episodes=2",
        "method.pareto.settled=keep",
    )


def test_a_step_without_a_word_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Made(equal=frozenset(f"train{n}" for n in range(5)))
    assert trained(tmp_path, made, "method.steps=2", "method.max_tasks=3").online_steps == 2
    assert "there is nothing to learn from" in capsys.readouterr().out
    assert [line["silent_groups"] for line in agentr.open(tmp_path).rounds[1].rollouts.curve_lines()] == [2, 2]


class Priced:
    """A user's price: each rollout costs more than the one before."""

    def __call__(self, group: Group) -> list[Reward]:
        return [Reward(-float(place), shaping=-float(place)) for place in range(len(group))]


@pytest.mark.parametrize(("gate", "rows", "groups", "silent"), [("outcome", 2, 2, 2), ("none", 0, 0, 0)])
def test_what_the_gate_silenced_is_counted(gate: str, rows: int, groups: int, silent: int, tmp_path: Path) -> None:
    """Both rollouts of each task fail; only a price would tell them apart."""
    made = Made(equal=frozenset(f"train{n}" for n in range(5)))
    rewards = f"method.rewards=[{{name: outcome}},{{name: '{__name__}:Priced'}}]"
    trained(tmp_path, made, "method.steps=1", rewards, f"method.gate={gate}")
    (line,) = agentr.open(tmp_path).rounds[1].rollouts.curve_lines()
    assert (line["gated_rows"], line["gated_groups"], line["silent_groups"]) == (rows, groups, silent)


def test_the_progress_says_what_the_last_step_came_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agentr.observe.progress.LOG_EVERY_S", 0.0)
    trained(tmp_path, Made(equal=frozenset({"train0"})), "method.steps=2", "collect.tasks.limit=2")
    assert [line for line in capsys.readouterr().out.splitlines() if " of 2 online steps" in line] == [
        "  round 1: rollouts: 1 of 2 online steps; success 25 %, calls 1.00, reward 0.25",
        "  round 1: rollouts: 2 of 2 online steps; success 25 %, calls 1.00, reward 0.25",
    ]


VALIDATED = [
    "method.steps=8",
    "method.validation={every: 2, patience: 2, tasks: {split: dev, limit: 4}}",
    "eval.tasks.split=test",
]


def test_the_best_step_is_kept_and_patience_ends_the_round(tmp_path: Path) -> None:
    success = {2: 0.5, 4: 0.75, 6: 0.75, 8: 0.25}
    result = trained(tmp_path, Made(success.__getitem__), *VALIDATED)
    assert (result.online_steps, result.best_step) == (8, 4)
    assert (tmp_path / "rounds/01/train/model/weights").read_text() == "4"
    assert not (tmp_path / "rounds/01/train/best").exists()
    early = Made({2: 0.75, 4: 0.5, 6: 0.5}.__getitem__)
    result = trained(tmp_path / "early", early, *VALIDATED)
    measured = [(title, policy) for title, policy, _ in early.drawn if title.startswith("validation")]
    assert measured == [(f"validation after online step {n}", f"rounds/01/train@{n}") for n in (2, 4, 6)]
    assert (result.online_steps, result.best_step) == (6, 2)
    assert agentr.open(tmp_path / "early").rounds[1].rollouts.validations() == {2: 0.75, 4: 0.5, 6: 0.5}


def test_a_budget_ends_the_round(tmp_path: Path) -> None:
    made = Made({2: 0.5, 3: 0.75}.__getitem__)
    result = trained(tmp_path, made, *VALIDATED, "collect.max_completions=12")
    assert (result.online_steps, result.best_step) == (3, 3), "the last step is measured, too"


def test_what_broke_goes_on_where_it_was(tmp_path: Path) -> None:
    success = {2: 0.75, 4: 0.5, 6: 0.5}
    with pytest.raises(AssertionError, match="the made-up engine died"):
        trained(tmp_path, Made(success.__getitem__, breaks_at=5), *VALIDATED)
    assert (tmp_path / "rounds/01/rollouts/abandoned.json").exists(), "so that the workers end"
    again = Made(success.__getitem__)
    result = trained(tmp_path, again, *VALIDATED)
    assert [title for title, _, _ in again.drawn] == [
        "online step 5",
        "online step 6",
        "validation after online step 6",
    ]
    assert (result.online_steps, result.best_step) == (6, 2)
    assert (tmp_path / "rounds/01/train/model/weights").read_text() == "2"
    assert [line["step"] for line in agentr.open(tmp_path).rounds[1].rollouts.curve_lines()] == [1, 2, 3, 4, 5, 6]


def test_weights_that_are_lost_are_made_anew_from_the_sealed_steps(tmp_path: Path) -> None:
    made = Made({2: 0.75, 4: 0.5, 6: 0.5}.__getitem__)
    trained(tmp_path, made, *VALIDATED)
    store = RunStore(tmp_path)
    store.take()
    store.stages.set_aside("rounds/01/train")
    store.close()
    drawn = len(made.drawn)
    result = trained(tmp_path, made, *VALIDATED)
    assert len(made.drawn) == drawn and result.best_step == 2
    assert (tmp_path / "rounds/01/train/model/weights").read_text() == "2"


def test_a_training_that_ends_before_its_time_is_an_error_and_not_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "ended", lambda self: True)
    with pytest.raises(InfraError, match="the training ended without the weights of online step 1"):
        trained(tmp_path, Made(), "method.steps=2")

    def fails(self: Training) -> bool:
        raise RunError("the loss is no longer a number")

    monkeypatch.setattr(Training, "ended", fails)
    with pytest.raises(RunError, match="no longer a number"):
        trained(tmp_path, Made(), "method.steps=2")
    assert json.loads((tmp_path / "rounds/01/rollouts/abandoned.json").read_text()) == {}
