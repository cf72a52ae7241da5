"""When policies reflect, counted by hand."""

from agentr.evaluate.metrics import Evaluation, evaluate
from agentr.evaluate.reflections import FALSE, PASSED_OVER, Reflections
from agentr.evaluate.statistics import Estimate, mean_interval, share_interval
from agentr.search.tree import Origin
from tests.rows.test_targets import SENTENCE, walked

SAID = f"{SENTENCE} look"


def test_reflections_and_refused_moves_are_counted_over_all_episodes() -> None:
    one = walked(
        (SAID, "ok", True),  # the first turn follows no move
        ("hm", "What?", False),
        (SAID, "a room", True),  # after a refused move: as it should be
        ("hm", "What?", False),
        ("go", "ok", True),  # a refused move is passed over
        (f"{SENTENCE} end", "Done", True),  # after a move that worked: false
        name="a",
    )
    other = walked(("go", "ok", True), ("end", "Done", True), name="b")
    found = evaluate([one, other], reflections=[SENTENCE])
    assert {name: (share.mean, share.n) for name, share in found.reflections.items()} == {
        FALSE: (1 / 2, 2),
        PASSED_OVER: (1 / 2, 2),
    }
    assert Evaluation.from_dict(found.as_dict()) == found
    assert evaluate([one, other]).reflections == {}, "a method that does not reflect has none"
    assert evaluate([other], reflections=[SENTENCE]).reflections[FALSE] == Estimate(0.0, 0.0, 0.0, 0)


def test_turns_that_a_policy_took_over_are_not_its_own() -> None:
    tree = walked(("hm", "What?", False), (SAID, "What?", False), ("end", "Done", True))
    path = tree.path(3)
    for node in path[:2]:
        node.origin = Origin.PREFIX
    counted = Reflections([SENTENCE])
    counted.add("a", [path])
    shares = counted.shares()
    assert (shares[FALSE].n, shares[PASSED_OVER].mean, shares[PASSED_OVER].n) == (0, 1.0, 1)


def test_a_share_is_of_all_tasks_together_and_problems_are_drawn_together() -> None:
    assert share_interval([1, 0, 5], [1, 9, 0]).mean == 1 / 10, "not the mean of the tasks' shares"
    assert share_interval([1, 0], [1, 9]).n == 10
    assert share_interval([3, 3], [4, 4], problems=["a", "a"]) == Estimate(0.75, 0.75, 0.75, 8)
    assert share_interval([], []) == share_interval([0], [0]) == Estimate(0.0, 0.0, 0.0, 0)
    assert share_interval([1.0, 0.0, 0.5], [1, 1, 1], problems=["a", "b", "a"]) == mean_interval(
        [1.0, 0.0, 0.5], problems=["a", "b", "a"]
    )
