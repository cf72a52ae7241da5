"""The loop over rounds on services that take notes: what is asked of them, in which order, with which policy, tasks,
seeds and steps."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from agentr.collect.demonstrate import Demonstrate
from agentr.collect.episode_judge import Assess
from agentr.collect.grow import AfterRefusals, BadBeginning, Grow
from agentr.collect.job import TreeJob
from agentr.config.identity import Identity
from agentr.errors import DataError, InfraError, RunError
from agentr.methods import load, methods_of, plan_of
from agentr.observe.progress import Reporter
from agentr.rounds.experiment import Experiment
from agentr.rounds.loop import run_rounds
from agentr.rounds.services import Services
from agentr.search import Sample
from agentr.store.files import read_lines
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.store.layout import MODEL
from agentr.store.run import RunStore
from agentr.store.summaries import ModelSummary, TrainSummary
from tests.notes import HELD_OUT, STEPS, TRAIN, Notes
from tests.tiny import IMITATE, PREFER
from tests.trees import codec


def whole(
    root: Path, *overrides: str, notes: Notes | None = None, only: Sequence[str] = (), **solved: int
) -> tuple[Experiment, Notes]:
    """Runs two rounds of a method that imitates, and the control arm.

    Args:
        solved: Held-out successes of ``r00``, ``r01``, ..., and of ``control``.
    """
    notes = notes or Notes(
        {f"rounds/{arm[1:]}/eval" if arm[0] == "r" else f"{arm}/eval": count for arm, count in solved.items()}
    )
    plain = [IMITATE, "run.rounds=2", "run.control=true", "collect.tasks={split: train, limit: 2}"]
    config = load(None, [*plain, *overrides])
    store = RunStore(root)
    store.open(Identity.of(config))
    try:
        store.stages.run(MODEL, ModelSummary, lambda folder: ModelSummary(path=store.stored_path(folder)))
        experiment = Experiment(plan_of(config), store, cast(Services, notes), Reporter())
        experiment.codec = codec()
        run_rounds(experiment, methods_of(experiment.plan), only)
        return experiment, notes
    finally:
        store.close()


def test_what_stages_are_made_with_and_how_far_they_may_go(tmp_path: Path) -> None:
    most = ["collect.max_completions=900", "eval.max_invalid=3", "eval.max_steps=7"]
    experiment, notes = whole(tmp_path, *most, "eval.judge.who=policy")
    record = experiment.store.record("rounds/01/train")
    assert record is not None and {key.partition(".")[0] for key in record.config} == {"train", "seed", "dataset"}
    jobs = {stage: job for stage, (job, _) in notes.stages.items()}
    assert jobs["rounds/01/collect"].limits.max_completions == 900
    assert jobs["rounds/00/demonstrations"].limits.max_completions == 0, "an expert draws none"
    assert jobs["rounds/01/eval"].work == Grow(Sample(1, 7, 3))
    assert jobs["rounds/01/judged"].work == Assess(experiment.plan.config.eval.judge)


@pytest.mark.parametrize(("temperature", "drawn_at"), [(0.0, 1.0), (0.6, 0.6)])
def test_sampled_episodes_stand_beside_greedy_ones(tmp_path: Path, temperature: float, drawn_at: float) -> None:
    said = ["eval.sampled=3", f"eval.sampling.temperature={temperature}", "eval.max_steps=7", "run.rounds=1"]
    experiment, notes = whole(tmp_path, *said)
    for arm in ("rounds/00", "rounds/01", "control"):
        (greedy, _), (sampled, policy) = (notes.stages[f"{arm}/{stage}"] for stage in ("eval", "sampled"))
        assert (greedy.work, sampled.work) == (Grow(Sample(1, 7)), Grow(Sample(3, 7))) and policy == f"{arm}/train"
        assert (greedy.sampling.temperature, sampled.sampling.temperature) == (temperature, drawn_at)
        assert greedy.tasks == sampled.tasks == tuple(HELD_OUT)
    record = experiment.store.record("control/sampled")
    assert record is not None and "rounds/01/sampled" not in record.inputs


def test_the_stages_of_a_run_in_their_order_and_who_answers_in_each(tmp_path: Path) -> None:
    experiment, notes = whole(tmp_path)
    rounds = [f"rounds/{n:02d}/{stage}" for n in (1, 2) for stage in ("collect", "dataset", "train", "eval")]
    first = [f"rounds/00/{stage}" for stage in ("train", "eval")]
    names = [record.name for record in experiment.store.records()]
    assert [n for n in names if n not in (MODEL, "rounds/00/demonstrations", "rounds/00/dataset")] == [
        *first,
        *rounds,
        "control/train",
        "control/eval",
    ]
    assert {stage: policy for stage, (_, policy) in notes.stages.items()} == {
        "rounds/00/demonstrations": "",
        "rounds/00/eval": "rounds/00/train",
        "rounds/01/collect": "rounds/00/train",
        "rounds/01/eval": "rounds/01/train",
        "rounds/02/collect": "rounds/01/train",
        "rounds/02/eval": "rounds/02/train",
        "control/eval": "control/train",
    }
    assert all(job.policy == policy for job, policy in notes.stages.values()), "each tree says whose it is"


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["run.control=false", "warm_start.enabled=false"],
        ["run.rounds=0"],
        [PREFER, "eval.select=train", "env.allow_leaks=true"],
        ["eval.recovery=true", "eval.conciseness=true", "eval.judge.who=policy"],
        [PREFER, "eval.recovery=true"],
        ["run.ceiling=true", "eval.select=train", "env.allow_leaks=true"],
        ["run.ceiling=true", "run.control=false", "eval.recovery=true"],
        ["eval.sampled=2", "eval.recovery=true", "eval.recovery_from=[refusal, random, two_refusals]"],
    ],
)
def test_the_plan_names_the_stages_that_are_made_in_their_order(tmp_path: Path, overrides: list[str]) -> None:
    """It is what progress counts by."""
    whole(tmp_path, *overrides, r00=2, r01=2)
    events = read_lines(tmp_path / "events.jsonl")
    (planned,) = [event["stages"] for event in events if event["event"] == "planned"]
    sealed = [event["stage"] for event in events if event["event"] == "stage_sealed"]
    assert sealed == planned


def test_what_is_trained_on_is_asked_for_as_such(tmp_path: Path) -> None:
    """The coordinator refuses held-out tasks only where it is told that they are to be trained on."""
    _, notes = whole(tmp_path, "eval.tasks.split=test")
    assert notes.selected == {("train", True), ("test", False)}
    assert {
        task.split for stage, (job, _) in notes.stages.items() for task in job.tasks if not stage.endswith("eval")
    } == {"train"}


@pytest.mark.slow
def test_a_run_that_is_whole_is_not_done_again_and_one_that_broke_goes_on(tmp_path: Path) -> None:
    notes = Notes(breaks_at="rounds/02/train")
    with pytest.raises(InfraError, match="the trainer died"):
        whole(tmp_path, notes=notes)
    done = list(notes.stages)
    assert done[-1] == "rounds/02/collect"
    notes.breaks_at = ""
    whole(tmp_path, notes=notes)
    assert list(notes.stages) == [*done, "rounds/02/eval", "control/eval"]
    trained = [job.name for job in notes.trainings]
    assert trained == ["rounds-00-train", "rounds-01-train", "rounds-02-train", "control-01", "control-02"]
    whole(tmp_path, notes=notes)
    assert [job.name for job in notes.trainings] == trained


# training -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["rounds/01/train", "rounds/01/dataset"])
def test_what_is_damaged_is_named_before_anything_is_started_with_it(tmp_path: Path, stage: str) -> None:
    """Weights before an engine, rows before a trainer; and the error says how they are made anew."""
    rounds, breaks_at = ("run.rounds=1", "") if stage.endswith("train") else ("run.rounds=2", "rounds/01/train")
    with suppress(InfraError):
        whole(tmp_path, rounds, notes=Notes(breaks_at=breaks_at))
    file = max(
        (tmp_path / stage).rglob("*"),
        key=lambda path: path.stat().st_size if path.name != "stage.json" and path.is_file() else 0,
    )
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    fresh, name = Notes(), re.escape(str(file.relative_to(tmp_path)))
    with pytest.raises(
        DataError, match=rf"{stage} of .* is damaged: {name}: has another hash.*--repair.*agentr resume"
    ):
        whole(tmp_path, "run.rounds=2", notes=fresh)
    assert fresh.stages == {} and fresh.trainings == []


def test_trees_that_were_damaged_while_they_grew_are_grown_again_and_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InfraError):
        whole(tmp_path, notes=Notes(breaks_at="rounds/00/train"))
    (tmp_path / "rounds/01/collect").mkdir(parents=True)
    growing, keys = GrowingForest(tmp_path / "rounds/01/collect"), [task.key for task in TRAIN[:2]]
    for key in keys:
        (growing.work / "finished" / f"{key}.json.zst").write_bytes(b"garbage")
    whole(tmp_path)
    assert capsys.readouterr().out.count(f"set aside as damaged, and grown anew: 2 trees: {', '.join(keys)}\n") == 1
    assert Forest(tmp_path / "rounds/01/collect").finished() == set(keys)


def test_the_control_does_as_many_steps_on_the_demonstrations_alone(tmp_path: Path) -> None:
    experiment, notes = whole(tmp_path, "train=[{steps: 3}, {epochs: 2.0, learning_rate: 3.0e-4}]")
    first, second = notes.trainings[-2:]
    assert [job.config.steps for job in (first, second)] == [3, STEPS], "what the rounds did, not what they were told"
    assert [job.config.learning_rate for job in (first, second)] == [
        experiment.plan.config.train[0].learning_rate,
        3e-4,
    ]
    assert first.dataset == second.dataset == tmp_path / "rounds/00/dataset"
    assert (first.start, second.start) == (tmp_path / "rounds/00/train/model", first.model)
    record = experiment.store.record("control/train")
    assert record is not None and record.read(TrainSummary).steps == 3 + STEPS
    assert experiment.store.layout.checkpoint("control/train", "02").path == second.model


def test_the_control_of_a_method_of_pairs_imitates_as_the_warm_start_does(tmp_path: Path) -> None:
    pairs = [
        PREFER,
        "train=[{steps: 3, learning_rate: 1.0e-7}]",
        "warm_start.train={steps: 5, learning_rate: 2.0e-4}",
    ]
    losing = Notes({"rounds/01/collect": 0, "rounds/02/collect": 0})
    _, notes = whole(tmp_path, *pairs, notes=losing)
    assert [(job.config.steps, job.config.learning_rate) for job in notes.trainings] == [
        (5, 2e-4),
        (3, 1e-7),
        (3, 1e-7),
        (3, 2e-4),
        (3, 2e-4),
    ]


@pytest.mark.parametrize("fresh", [True, False])
def test_the_ceiling_imitates_the_expert_on_exactly_the_tasks_that_were_searched(tmp_path: Path, fresh: bool) -> None:
    said = ["run.ceiling=true", f"collect.fresh_tasks={fresh}", "train=[{steps: 3}, {steps: 4}]"]
    experiment, notes = whole(tmp_path, *said, "warm_start.tasks=[{split: train, limit: 1}]")
    job, policy = notes.stages["ceiling/demonstrations"]
    searched = dict.fromkeys(task.id for found in explored(notes) for task in found.tasks)
    assert [task.id for task in job.tasks] == list(searched) and len(searched) == (4 if fresh else 2)
    assert isinstance(job.work, Demonstrate) and policy == ""
    first, second = notes.trainings[-2:]
    assert [job.config.steps for job in (first, second)] == [3, 4], "as many steps as the rounds"
    assert first.dataset == second.dataset == tmp_path / "ceiling/dataset"
    assert (first.start, second.start) == (tmp_path / "rounds/00/train/model", first.model)
    assert notes.stages["ceiling/eval"][1] == "ceiling/train"
    record = experiment.store.record("ceiling/demonstrations")
    assert record is not None and set(record.inputs) == {"rounds/01/collect", "rounds/02/collect"}


def test_a_ceiling_without_a_search_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    notes = Notes()
    with pytest.raises(RunError, match="no round searches any"):
        whole(tmp_path, "method.searches=false", "run.ceiling=true", notes=notes)
    assert notes.stages == {} and notes.trainings == []


def test_one_of_the_two_is_made_without_the_other(tmp_path: Path) -> None:
    with pytest.raises(InfraError):
        whole(tmp_path, "run.ceiling=true", notes=Notes(breaks_at="control/train"))
    notes = Notes()
    made = ["ceiling/demonstrations", "ceiling/dataset", "ceiling/train", "ceiling/eval"]
    whole(tmp_path, "run.ceiling=true", notes=notes, only=made)
    assert list(notes.stages) == ["ceiling/demonstrations", "ceiling/eval"]
    assert [job.name for job in notes.trainings] == ["ceiling-01", "ceiling-02"]


@pytest.mark.parametrize(("continue_from", "start"), [("previous", "rounds/01"), ("warm_start", "rounds/00")])
def test_where_a_round_trains_on_from(tmp_path: Path, continue_from: str, start: str) -> None:
    _, notes = whole(tmp_path, f"trainer.continue_from={continue_from}")
    _, one, two, _, control = notes.trainings
    assert [job.start for job in (one, two)] == [tmp_path / "rounds/00/train/model", tmp_path / start / "train/model"]
    expected = "control/train/01" if continue_from == "previous" else "rounds/00/train"
    assert control.start == tmp_path / expected / "model", "the control goes the same way"


def test_without_a_warm_start_the_model_itself_is_the_first_policy(tmp_path: Path) -> None:
    experiment, notes = whole(
        tmp_path, "warm_start.enabled=false", "run.control=false", "method.mixture.earlier_rounds=5"
    )
    assert notes.trainings[0].start == experiment.base_model().path
    assert notes.stages["rounds/00/eval"][1] == notes.stages["rounds/01/collect"][1] == MODEL
    assert "rounds/00/demonstrations" not in notes.stages and not experiment.store.sealed("rounds/00/dataset")


# tasks and seeds ------------------------------------------------------------------------------------------------------


def explored(notes: Notes) -> Iterator[TreeJob]:
    return (job for stage, (job, _) in notes.stages.items() if stage.endswith("/collect"))


@pytest.mark.parametrize(
    ("fresh", "expected"),
    [
        (True, [["train-0", "train-1"], ["train-2", "train-3"], ["train-4", "train-0"]]),
        (False, [["train-0", "train-1"]] * 3),
    ],
)
def test_each_round_takes_the_next_tasks_or_the_same(tmp_path: Path, fresh: bool, expected: list[list[str]]) -> None:
    _, notes = whole(tmp_path, "run.rounds=3", "run.control=false", f"collect.fresh_tasks={fresh}")
    assert [[task.id for task in job.tasks] for job in explored(notes)] == expected


@pytest.mark.slow
def test_the_seed_of_a_run_and_its_rounds_reach_every_draw(tmp_path: Path) -> None:
    (_, one), (_, two) = (whole(tmp_path / str(seed), f"run.seed={seed}") for seed in (1, 2))
    for stage in one.stages:
        assert one.stages[stage][0].seed != two.stages[stage][0].seed, stage
    assert len({job.seed for job in explored(one)}) == 2, "rounds differ"
    assert all(a.config.seed != b.config.seed for a, b in zip(one.trainings, two.trainings, strict=True))


def test_all_policies_are_measured_on_the_same_tasks_with_the_same_draws(tmp_path: Path) -> None:
    said = ["eval.recovery=true", "eval.recovery_from=[two_refusals, random]", "eval.tasks.split=test"]
    experiment, notes = whole(tmp_path, *said, notes=Notes({"rounds/00/eval": 1}))
    evaluated = [job for stage, (job, _) in notes.stages.items() if stage.endswith("/eval")]
    assert len(evaluated) == 4 and {(job.seed, job.tasks) for job in evaluated} == {
        (evaluated[0].seed, tuple(HELD_OUT))
    }
    kinds = {"recovery": BadBeginning(experiment.plan.seed(0)), "after_two_refusals": AfterRefusals(2)}
    for name, beginnings in kinds.items():
        recovered = [job for stage, (job, _) in notes.stages.items() if stage.endswith(f"/{name}")]
        assert len(recovered) == 4 and {job.source for job in recovered} == {tmp_path / "rounds/00/eval"}
        assert {job.work for job in recovered} == {Grow(Sample(1), beginnings)}
    assert not any(stage.endswith("/after_refusal") for stage in notes.stages), "only what was asked for"


# the end --------------------------------------------------------------------------------------------------------------


def test_the_best_policy_is_a_rounds_and_never_the_controls(tmp_path: Path) -> None:
    whole(tmp_path, r00=1, r01=3, r02=2, control=4)
    found = json.loads((tmp_path / "best.json").read_text())
    assert found == {
        "round": "rounds/01",
        "split": "dev",
        "success": 0.75,
        "all": {"rounds/00": 0.25, "rounds/01": 0.75, "rounds/02": 0.5},
    }
    assert (tmp_path / "best/name").read_text() == "rounds-01-train"
