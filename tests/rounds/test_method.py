"""What a method says of itself before anything runs."""

from pathlib import Path

import pytest

from agentr.config.training import TrainConfig
from agentr.methods import load, method_of
from agentr.rounds.method import by_round, optimiser_steps
from tests.runs import dataset, round_of
from tests.tiny import IMITATE, REINFORCE
from tests.trees import door


def test_the_last_value_of_a_schedule_holds_for_later_rounds() -> None:
    assert [by_round([0.5, 0.7, 1.0], round_) for round_ in (1, 2, 3, 4, 99)] == [0.5, 0.7, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("train", "rows", "steps"),
    [
        (TrainConfig(steps=7, batch_size=4), 100, 7),
        (TrainConfig(steps=7), None, 7),
        (TrainConfig(batch_size=4, epochs=1.0), 8, 2),
        (TrainConfig(batch_size=4, epochs=1.0), 9, 3),
        (TrainConfig(batch_size=4, epochs=2.5), 8, 5),
        (TrainConfig(batch_size=4, epochs=0.5), 1, 1),
        (TrainConfig(batch_size=4, epochs=1.0), 0, 1),
        (TrainConfig(batch_size=4, epochs=1.0), None, None),
    ],
)
def test_optimiser_steps_are_those_of_the_configuration_or_of_the_rows(
    train: TrainConfig, rows: int | None, steps: int | None
) -> None:
    assert optimiser_steps(train, rows) == steps
    assert method_of(load(None, [IMITATE]).method).optimiser_steps(train, rows) == steps


def test_the_size_of_a_round_of_online_training() -> None:
    """Three steps of two tasks, replaced by up to five; with Pareto sampling, one look at every task before."""
    settings = [REINFORCE, "method.steps=3", "method.tasks=2", "method.episodes=2"]
    batches = "train=[{batch_size: 2, micro_batch_size: 2, grpo: {minibatches: 2, iterations: 2}}]"
    config = load(None, [*settings, batches])
    method = method_of(config.method)
    assert [method.trees(tasks) for tasks in (None, 1, 2, 9)] == [6, 3, 6, 6]
    assert method.optimiser_steps(config.train[0], None) == 3 * 2 * 2
    assert method.describe() == "3 online steps of 2 tasks x 2 rollouts, each trained on at once"
    more = method_of(load(None, [*settings, batches, "method.max_tasks=5"]).method)
    assert [more.trees(tasks) for tasks in (None, 4, 9)] == [15, 12, 15]
    looking = method_of(load(None, [*settings, batches, "method.pareto.tasks=4"]).method)
    assert [looking.trees(tasks) for tasks in (None, 9)] == [6, 6 + 9]


def test_a_method_that_explores_says_its_stages_in_order() -> None:
    method = method_of(load(None, [IMITATE, "method.revises=true"]).method)
    assert method.describe() == "collect (search), then revise (revise)"
    assert (method.trees(None), method.trees(7)) == (None, 7)


def test_what_a_dataset_is_made_with_decides_whether_it_is_stale(tmp_path: Path) -> None:
    round_ = round_of(tmp_path, [IMITATE], collect=[door()])
    dataset(round_)
    record = round_.experiment.store.record("rounds/01/dataset")
    assert record is not None and {key.partition(".")[0] for key in record.config} == {"method", "build", "seed"}
