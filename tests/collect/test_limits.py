"""How many trees grow at the same time."""

import pytest

from agentr.collect.units import Limits
from agentr.search import UCT, Sample, UCTConfig


@pytest.mark.parametrize(
    ("room", "each", "trees"),
    [(0, 8, 48), (64, 1, 48), (23, 1, 23), (23, 8, 2), (4, 8, 1)],
    ids=["no limit", "enough", "fewer", "wide", "too wide"],
)
def test_no_more_trees_than_there_is_room_for(room: int, each: int, trees: int) -> None:
    limits = Limits(in_flight=48, max_completions=7).within(room, each)
    assert (limits.in_flight, limits.max_completions) == (trees, 7)


def test_rollouts_of_a_task_go_on_in_turns() -> None:
    assert (Sample(8).at_once, UCT(UCTConfig()).at_once) == (8, 1)
