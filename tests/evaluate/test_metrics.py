"""Metrics and intervals against numbers computed by hand."""

import json
from dataclasses import replace
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest

from agentr.evaluate.metrics import Evaluation, conciseness, evaluate, judged, passes, repeated, revision_length
from agentr.evaluate.statistics import Estimate, holm, mean_interval, paired_difference, share_of_way
from agentr.search import Child
from agentr.search.evolution import Evolution
from agentr.search.revision import Rating, Verdict
from agentr.search.tree import Origin, Tree
from agentr.types import CallStatus, Cost, Message, Outcome, Task
from tests.trees import add, child, door, episode, new_tree, reasoned, tree_of


def test_metrics_of_known_episodes() -> None:
    result = evaluate(
        [
            episode("a", ["x", "y", "x", "y"], 1.0, Outcome.SUCCESS, 1),
            episode("b", ["x", "x"], 0.5, Outcome.STEP_LIMIT, 2, invalid=(0,)),
            episode("c", ["x"], 0.0, Outcome.INFRA, 2),
        ],
        labels=("depth", "colour"),
    )
    assert result.success.n == 2  # the infrastructure failure is in no number
    assert result.success.mean == 0.5
    assert result.reward.mean == 0.75
    assert result.steps == 3
    assert result.invalid_rate == pytest.approx(1 / 6)
    assert result.repeated_rate == pytest.approx(3 / 6)
    assert result.repeats == {1: 1.5, 2: 0.5, 3: 0.0}
    assert result.outcomes == {"success": 1, "step_limit": 1}
    assert result.by_label == {"depth": {"1": (1.0, 1), "2": (0.0, 1)}}
    assert Evaluation.from_dict(result.as_dict()) == result


def test_what_trees_cost_is_added_up_and_tasks_without_an_episode_are_left_out() -> None:
    ends = {"a": Outcome.SUCCESS, "b": Outcome.INFRA, "c": Outcome.SUCCESS}
    one, failed, other = (episode(key, ["x"], 1.0, outcome, 1) for key, outcome in ends.items())
    for tree, calls in ((one, 2), (failed, 50), (other, 3)):
        tree.spend(Cost(calls=calls))
        tree.count(unparsed=1)
    result = evaluate([one, failed, other])
    assert result.counts == {"calls": 5, "unparsed": 2}
    assert result.outcomes == {"success": 2}
    assert result.per_task == {"a": 1.0, "c": 1.0}
    assert result.problems == {"a": "a", "c": "c"}, "each task is its own problem, unless a label says otherwise"


def test_how_economical_episodes_are() -> None:
    """ET-Agent, section 4.1. Of two tasks, each with the mean of its episodes; each turn is one token."""

    def turn(tree: Tree, text: str, reward: float, outcome: Outcome | None) -> Child:
        return child(text, reward, outcome, valid=text != "misunderstood")

    one, other = new_tree(name="a"), new_tree(name="b")
    tree_of("misunderstood / misunderstood / call / answer: 1: 1.0", "answer: 2: 0.0", into=one, make=turn)
    tree_of("call / answer: 1: 0.5", into=other, make=turn)
    found = {
        name: estimate.mean for name, estimate in evaluate([one, other], answer_prefix="answer:").behaviour.items()
    }
    assert found == pytest.approx(
        {
            "calls": ((3 + 0) / 2 + 1) / 2,
            "efficiency": ((1 / 3 + 0) / 2 + 0.5 / 1) / 2,
            "successful execution": ((1 / 2 + 0) / 2 + 0.5 / 1) / 2,
            "reasoning length": ((1000 / 4 + 0) / 2 + 1000 * 0.5 / 2) / 2,
        }
    )


def test_an_episode_that_could_not_begin_counts_and_none_at_all_is_no_error() -> None:
    full = Tree.start(Task("toy", "full", "test"), (Message("user", "x"),), (1,), 0)
    full.root.outcome, full.root.terminal = Outcome.CONTEXT_LIMIT, True
    result = evaluate([full])
    assert (result.success.n, result.success.mean, result.outcomes) == (1, 0.0, {"context_limit": 1})
    assert {estimate.mean for estimate in result.behaviour.values()} == {0.0}
    nothing = evaluate([])
    assert (nothing.success, nothing.reward) == (Estimate(0.0, 0.0, 0.0, 0),) * 2
    assert (nothing.steps, nothing.invalid_rate, nothing.repeated_rate, nothing.best) == (0.0,) * 4
    assert nothing.repeats == {1: 0.0, 2: 0.0, 3: 0.0} and nothing.behaviour == {}
    assert Evaluation.from_dict(nothing.as_dict()) == nothing


def test_labels_are_broken_down_only_if_asked_for_and_in_the_order_of_their_size() -> None:
    trees = [episode(str(depth), ["x"], 1.0, Outcome.SUCCESS, depth) for depth in (10, 9, 2)]
    assert evaluate(trees).by_label == {}
    assert list(evaluate(trees, labels=("depth",)).by_label["depth"]) == ["2", "9", "10"]
    for tree, colour in zip(trees, ("red", "7", "blue"), strict=True):
        tree.task.labels["colour"] = colour
    assert list(evaluate(trees, labels=("colour",)).by_label["colour"]) == ["7", "blue", "red"], "numbers before words"


def test_answers_until_solved() -> None:
    at_once = episode("a", ["python: 1", "answer: 1"], 1.0, Outcome.SUCCESS, 1)
    at_fifth = episode("b", [f"answer: {i}" for i in range(5)], 1.0, Outcome.SUCCESS, 1)
    never = episode("c", ["answer: 1"] * 9, 0.0, Outcome.STEP_LIMIT, 1)
    result = evaluate([at_once, at_fifth, never], answer_prefix="answer:")
    assert result.within_answers == pytest.approx({1: 1 / 3, 4: 1 / 3, 8: 2 / 3, 10: 2 / 3})
    assert Evaluation.from_dict(result.as_dict()) == result
    assert evaluate([at_once]).within_answers == {}
    misread = episode("d", ["answer: ?", "answer: 1"], 1.0, Outcome.SUCCESS, 1, invalid=(0,))
    assert evaluate([misread], answer_prefix="answer:").within_answers[1] == 1, "what was not understood is no answer"


def test_scores_of_answers_and_how_calls_came_out() -> None:
    right, wrong = (
        episode("a", ["search: x"], 0.0, Outcome.STEP_LIMIT, 1),
        episode("b", ["search: x"], 0.0, Outcome.STEP_LIMIT, 1),
    )
    right.nodes[1].status = CallStatus.empty
    for tree, scores in (
        (right, {"em": 1.0, "f1": 1.0}),
        (right, {"em": 0.0, "f1": 0.5}),
        (wrong, {"em": 0.0, "f1": 0.2}),
    ):
        ended = Outcome.SUCCESS if scores["em"] else Outcome.FAILURE
        add(tree, 0, reasoned("answer: y", scores["em"], ended, status=CallStatus.limit, scores=scores))
    result = evaluate([right, wrong], answer_prefix="answer:")
    # Each task counts once, an episode without an answer with 0.
    assert result.scores["em"].mean == pytest.approx((1 / 3 + 0) / 2) and result.scores["f1"].mean == pytest.approx(
        (1.5 / 3 + 0.1) / 2
    )
    assert result.scores["f1"].n == 2 and result.scores["f1"].low < result.scores["f1"].mean < result.scores["f1"].high
    assert result.statuses == {"ok": 0.5, "empty": 0.5, "error": 0.0, "timeout": 0.0, "limit": 0.0}, (
        "an answer is no call"
    )
    assert Evaluation.from_dict(json.loads(json.dumps(result.as_dict()))) == result
    assert evaluate([episode("c", ["x"], 1.0, Outcome.SUCCESS, 1)]).scores == {}


def test_an_evaluation_of_before_is_read() -> None:
    now = evaluate([episode("a", ["x"], 1.0, Outcome.SUCCESS, 1)])
    before = {key: value for key, value in now.as_dict().items() if key not in ("scores", "statuses")}
    assert Evaluation.from_dict(before) == replace(now, statuses={})


def test_best_of_several_episodes() -> None:
    tree = episode("a", ["x"], 0.0, Outcome.FAILURE, 1)
    add(tree, 0, reasoned("y", 1.0, Outcome.SUCCESS))
    result = evaluate([tree, episode("b", ["x"], 0.0, Outcome.FAILURE, 1)])
    assert (result.success.mean, result.best) == (0.25, 0.5)


def test_success_with_refusals_has_as_many_episodes_as_there_are() -> None:
    def played(name: str, *valid: bool, won: bool) -> Tree:
        tree, node = new_tree(name=name), 0
        for place, turn in enumerate(valid):
            last = place == len(valid) - 1
            ended = (Outcome.SUCCESS if won else Outcome.FAILURE) if last else None
            node = add(tree, node, reasoned(f"x{place}", float(won and last), ended, turn)).id
        return tree

    trees = [
        played("a", True, True, won=True),
        played("b", False, True, won=True),
        played("c", False, True, False, won=False),
        played("d", False, False, False, True, won=True),
    ]
    found = evaluate(trees).after_refusals
    assert [(round(found[k].mean, 3), found[k].n) for k in (1, 2, 3)] == [(0.667, 3), (0.5, 2), (1.0, 1)]
    assert Evaluation.from_dict(json.loads(json.dumps(evaluate(trees).as_dict()))).after_refusals == found


def test_repeated_sequences() -> None:
    nodes = door().path(3)
    assert repeated(nodes, 1) == 0
    tree = episode("a", ["p", "q", "p", "q", "p"], 1.0, Outcome.SUCCESS, 1)
    assert [repeated(tree.path(5), n) for n in (1, 2, 3)] == [3, 2, 1]


def test_revisions_do_not_count_as_episodes() -> None:
    tree = door()
    assert {n.id for n in tree.ended() if n.origin is Origin.POLICY} == {3, 5, 6}
    assert evaluate([tree]).success.mean == pytest.approx(1 / 3)


def test_intervals() -> None:
    assert mean_interval([]).n == 0
    certain = mean_interval([1.0] * 20)
    assert (certain.low, certain.high) == (1.0, 1.0)
    half = mean_interval([0.0, 1.0] * 200)
    # The normal approximation gives 0.5 +- 1.96 * 0.5 / 20. An interval of 90 % would be narrower by 0.008 on each
    # side.
    assert half.low == pytest.approx(0.451, abs=0.003)
    assert half.high == pytest.approx(0.549, abs=0.003)
    assert half == mean_interval([0.0, 1.0] * 200)


def test_paired_differences_cancel_what_tasks_share() -> None:
    before = {str(i): float(i % 2) for i in range(100)}
    after = {key: min(1.0, value + (1.0 if int(key) % 10 == 0 else 0.0)) for key, value in before.items()}
    paired = paired_difference(after, before)
    assert paired.mean == pytest.approx(0.1)
    assert paired.low > 0
    assert paired.high - paired.low < 0.14  # unpaired it would be about 0.27
    assert paired_difference({"a": 1.0}, {"b": 0.0}).n == 0


def test_tasks_of_one_problem_are_resampled_together() -> None:
    values = [1.0] * 40 + [0.0] * 40
    apart = mean_interval(values)
    together = mean_interval(values, problems=[str(i // 8) for i in range(80)])
    assert together.mean == apart.mean
    # Ten problems that are all or nothing say as much as ten tasks.
    assert together.high - together.low > 2 * (apart.high - apart.low)
    assert mean_interval(values, problems=[str(i) for i in range(80)]).high == pytest.approx(apart.high, abs=0.03)


def test_a_problem_weighs_as_much_as_it_has_tasks() -> None:
    """Sixty problems of nine successes and sixty of one failure: 0.9 of the tasks, and half of the problems."""
    values = ([1.0] * 9 + [0.0]) * 60
    found = mean_interval(values, problems=[f"many {i // 10}" if i % 10 < 9 else f"one {i}" for i in range(600)])
    assert found.mean == pytest.approx(0.9)
    assert found.low < 0.9 < found.high
    assert width(found) < 0.1


def goals() -> list[Tree]:
    """Eighty tasks of ten goals; of every other goal all are solved, of the others none."""
    trees = []
    for number in range(80):
        won = number // 8 % 2 == 0
        tree = episode(f"t{number}", ["x", "y"], float(won), Outcome.SUCCESS if won else Outcome.FAILURE, 1)
        tree.task.labels["goal"] = str(number // 8)
        trees.append(tree)
    return trees


def width(estimate: Estimate) -> float:
    return estimate.high - estimate.low


def test_the_intervals_of_an_evaluation_are_over_problems() -> None:
    apart, together = evaluate(goals()), evaluate(goals(), identity="goal")
    assert together.success.mean == apart.success.mean == 0.5
    assert width(together.success) > 2 * width(apart.success)
    assert width(together.reward) > 2 * width(apart.reward)
    assert set(together.problems.values()) == {str(goal) for goal in range(10)}


def test_paired_differences_are_over_problems() -> None:
    after = {f"{number // 8}@{number}": float(number // 8 % 2) for number in range(80)}
    before = dict.fromkeys(after, 0.0)
    apart, together = (
        paired_difference(after, before),
        paired_difference(after, before, problems={key: key[0] for key in after}),
    )
    assert together.mean == apart.mean == 0.5
    assert width(together) > 2 * width(apart)


def test_what_successes_needed_and_what_a_judge_says_are_over_problems_too() -> None:
    """Nine goals, eight tasks each: of five no turn could be left out, and a judge finds them right.
    Of the others it finds one bad."""
    plain, labelled = [], []
    for made, identity in ((plain, ""), (labelled, "goal")):
        trees = goals()[:72]
        for tree in trees:
            good = tree.nodes[2].outcome is Outcome.SUCCESS
            tree.nodes[2].verdict = Verdict(
                Rating.GOOD if good else Rating.BAD if tree.task.labels["goal"] == "1" else Rating.UNCERTAIN
            )
            shorter = -1 if good else add(tree, 0, reasoned("y", 1.0, Outcome.SUCCESS), Origin.REPLAY).id
            tree.evolutions.append(Evolution(operator="shorten", parent=2, end=shorter))
        made += [conciseness(trees, identity=identity), judged(trees, identity=identity)]
    for name, of, share in (("concise", 0, 5 / 9), ("judged right", 1, 5 / 9), ("judge agrees", 1, 6 / 9)):
        assert plain[of][name].mean == labelled[of][name].mean == pytest.approx(share), name
        assert width(labelled[of][name]) > 2 * width(plain[of][name]), name
    assert plain[0]["needed turns"].mean == pytest.approx((5 + 4 / 2) / 9), "one turn in place of two, of four goals"
    assert conciseness([door()]) == judged([door()]) == {}


def test_the_length_of_a_revision_is_that_of_its_bad_beginning() -> None:
    tree = door()
    assert revision_length([tree]) == ((2 + 1) / 2, 2), "nodes 4 and 6"
    tree.revisions.append(tree.revisions[0])
    assert revision_length([tree]) == (1.5, 2), "each path once"
    assert revision_length([]) == (0.0, 0)
    assert Estimate(0.5, 0.251, 0.75, 3).as_percent() == "50.0 [25.1, 75.0]"


def test_runs_that_were_measured_on_different_problems_have_an_interval() -> None:
    found = mean_interval([1.0, 0.0], problems=["a", "b"], runs=["first", "second"])
    assert (found.mean, found.low, found.high) == (0.5, 0.0, 1.0)
    alone = mean_interval([1.0, 0.0, 1.0], problems=["a", "a", "b"])
    assert alone == mean_interval([1.0, 0.0, 1.0], problems=["a", "a", "b"], runs=[7, 7, 7])


def test_a_p_value_says_what_the_interval_says() -> None:
    rng, stand = np.random.default_rng(0), set[bool]()
    for effect in (0.0, 0.1, 0.2, 0.3) * 2:
        after = {f"{run}/{task}": rng.normal(effect, 1) for run in range(3) for task in range(30)}
        found = paired_difference(after, dict.fromkeys(after, 0.0), runs={key: key[0] for key in after})
        assert 1e-4 <= found.p <= 1 and found.stands == (found.low > 0 or found.high < 0)
        turned = paired_difference(dict.fromkeys(after, 0.0), after, runs={key: key[0] for key in after})
        assert turned.p == pytest.approx(found.p, abs=1e-3)
        stand.add(found.stands)
    assert stand == {True, False}
    assert (paired_difference({}, {}).p, paired_difference({"a": 1.0}, {"b": 1.0}).n) == (1.0, 0)
    assert paired_difference({"a": 1.0}, {"a": 1.0}).p == 1.0, "no difference at all"


def test_passes_of_k_episodes_are_those_of_all_ways_to_choose_k() -> None:
    tasks = {"never": [0, 0, 0, 0, 0], "once": [0, 1, 0, 0, 0], "often": [1, 1, 0, 1, 1], "always": [1] * 5}
    found = passes([(len(of), sum(of)) for of in tasks.values()], list(tasks))
    assert list(found) == ["pass@1", "pass@2", "pass^2", "pass@4", "pass^4", "pass@5", "pass^5"]
    for k in (1, 2, 4, 5):
        ways = [list(combinations(of, k)) for of in tasks.values()]
        assert found[f"pass@{k}"].mean == pytest.approx(fmean(fmean(any(way) for way in of) for of in ways))
        if k > 1:
            assert found[f"pass^{k}"].mean == pytest.approx(fmean(fmean(all(way) for way in of) for of in ways))
    assert found["pass@5"].n == 4 and found["pass@5"].low < 0.75 <= found["pass@5"].high
    assert passes([(1, 1), (1, 0)], ["a", "b"]) == passes([], []) == {}, "one episode a task says nothing more"
    short = passes([(4, 2), (3, 0)], ["a", "b"])
    assert (short["pass@1"].n, short["pass@4"].n, short["pass^4"].mean) == (2, 1, 0.0), "too few episodes for k = 4"


def test_the_share_of_a_way_is_drawn_with_both_its_ends() -> None:
    """Tasks at which nothing changes are in it, and so are runs."""
    tasks = {f"{run}/{task}": run for run in range(3) for task in range(20)}
    start = dict.fromkeys(tasks, 0.0)
    end = {key: float(int(key.split("/")[1]) < 15) for key in tasks}
    after = {key: float(int(key.split("/")[1]) < 6 + 3 * run) for key, run in tasks.items()}
    problems = {key: key.split("/")[1] for key in tasks}
    found = share_of_way(after, start, end, problems, tasks)
    assert found is not None and found.mean == pytest.approx((6 + 9 + 12) / 45) and found.n == 60
    assert found.low < 6 / 15 < 12 / 15 < found.high, "wider than the runs alone differ"
    exact = share_of_way(end, start, end, runs=tasks)
    assert exact is not None and (exact.mean, exact.low, exact.high) == (1.0, 1.0, 1.0)
    assert share_of_way(after, start, start) is None and share_of_way({}, {}, {}) is None
    partly = share_of_way({**after, "other": 1.0}, start, {**end, "third": 0.0}, problems, {**tasks, "other": 0})
    assert partly == found, "tasks that one of them lacks do not count"


def test_several_comparisons_are_corrected_for_how_many_there_are() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02]), "worked by hand"
    assert (holm([]), holm([0.04])) == ([], [0.04])
    rng, found = np.random.default_rng(0), 0
    for _ in range(2_000):  # six comparisons without any difference: at least one is found one time in twenty
        found += min(holm(rng.uniform(size=6).tolist())) < 0.05
    assert 0.035 <= found / 2_000 <= 0.065


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_over_seeds_and_problems_cover_the_truth(seeds: int) -> None:
    """Runs that are measured on the same problems: an effect, what a seed and what a problem adds to it, and noise."""
    effect, goals, each, times = 0.15, 36, 8, 400
    problems = [str(place // each) for _ in range(seeds) for place in range(goals * each)]
    runs = [seed for seed in range(seeds) for _ in range(goals * each)]
    covered = {"crossed": 0, "problems alone": 0}
    for number in range(times):
        rng = np.random.default_rng(number)
        parts = ((0.05, (seeds, 1, 1)), (0.25, (1, goals, 1)), (0.1, (seeds, goals, 1)), (0.6, (seeds, goals, each)))
        table = np.full((seeds, goals, each), effect)
        for spread, shape in parts:
            table += rng.normal(0, spread, shape)
        values = table.ravel().tolist()
        for name, drawn in (("crossed", runs), ("problems alone", None)):
            found = mean_interval(values, 500, number, problems, drawn)
            covered[name] += found.low <= effect <= found.high
    assert 0.93 <= covered["crossed"] / times <= 0.97
    assert covered["problems alone"] < covered["crossed"]
