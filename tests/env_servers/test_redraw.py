"""Other worlds: they fit all that was observed, and come as often as the environment's own distribution has them."""

import random
from collections import Counter

import pytest

from env_servers.household import Household, rules
from env_servers.household.generate import Generated, _furnish, generate, ids
from env_servers.household.redraw import furnished, redrawn
from env_servers.household.rules import HouseholdState


def begun(made: Generated, task: str, where: dict[str, str]) -> HouseholdState:
    """A household before anything is done."""
    problem = furnished(made.problem, where)
    return HouseholdState(task, problem, problem.start, dict(problem.where), set(problem.marks))


def test_the_same_actions_are_answered_in_the_same_words():
    env, rng = Household(), random.Random(3)
    tasks = [task for name in ("train", "dev", "test") for task in ids(name)]
    others = 0
    for task in rng.sample(tasks, 60):
        made = generate(task)
        assert made is not None
        state, first = env.reset(task)
        history = [("", first.observation)]
        for _ in range(rng.randint(0, 12)):
            action = rng.choice(env.actions(state))
            history.append((action, env.step(state, action).observation))
        if state.done:
            continue
        for seed in range(3):
            before = env.snapshot(state)
            other = env.redraw(state, seed)
            assert env.snapshot(state) == before and env.redraw(state, seed) == other
            assert env.restore(env.snapshot(other)) == other and env.fork(other) == other
            others += other.where != state.where
            # from the beginning in that household: what was touched lay where it lay, what was not lies there still
            touched = {name: home for name, home in made.problem.where.items() if name in other.where}
            moved = {name for name in touched if any(name in action for action, _ in history)}
            start = begun(made, task, {**other.where, **{name: touched[name] for name in moved}})
            seen = [rules.introduction(start.problem)]
            seen += [rules.act(start, action) or rules.NOTHING_HAPPENS for action, _ in history[1:]]
            assert seen == [text for _, text in history], (task, seed)
    assert others > 90, "next to no household was another one"


@pytest.mark.slow
def test_worlds_come_as_often_as_the_environment_draws_them():
    """Against plain rejection: households are drawn from nothing but the layout and the goal, and kept if what was
    looked into is as it was."""
    compared = 0
    for task in ("train/two-0003", "train/clean-0001", "train/look-0002", "dev/heat-0004"):
        made = generate(task)
        assert made is not None
        state = begun(made, task, made.problem.where)
        # the two fullest of the emptiest: rejection has to keep something
        sizes = Counter(made.problem.where.values())
        for name in sorted(made.layout.receptacles, key=lambda name: (sizes[name], name))[:2]:
            rules.act(state, f"go to {name}")
            rules.act(state, f"open {name}")
        looked = rules.seen(state)
        rng = random.Random(task)
        kept: list[dict[str, str]] = []
        for _ in range(12_000):
            where = _furnish(made.layout, made.problem.goal, rng).where
            if all([n for n, at in where.items() if at == place] == inside for place, inside in looked.items()):
                kept.append(where)
        drawn = [redrawn(state, made, random.Random(f"{task}/{seed}")).where for seed in range(1_500)]
        if len(kept) < 400:
            continue
        compared += 1
        kind = made.problem.goal.kind
        for both in (
            [[where[f"{kind} 1"] for where in some] for some in (kept, drawn)],
            [[len(where) // 3 for where in some] for some in (kept, drawn)],
            [[sum(name.startswith(f"{kind} ") for name in where) for where in some] for some in (kept, drawn)],
            [[sum(name.endswith(" 3") for name in where) for where in some] for some in (kept, drawn)],
        ):
            one, other = map(Counter, both)
            assert distance(one, other) < 0.12, (task, one, other)
    assert compared >= 2


def distance(one: Counter, other: Counter) -> float:
    """Total variation between two empirical distributions."""
    return sum(abs(one[key] / one.total() - other[key] / other.total()) for key in one | other) / 2


def test_numbers_tell_of_things_that_nobody_saw():
    """Who sees a third mug and no other knows of two more."""
    for task in ids("train"):
        made = generate(task)
        assert made is not None
        alone = [
            name
            for name, at in made.problem.where.items()
            if name.endswith(" 3") and Counter(made.problem.where.values())[at] <= 3
        ]
        if alone and made.problem.where[alone[0]] in made.layout.receptacles:
            break
    else:
        raise AssertionError("no household has three of a kind")
    kind, at = alone[0].rpartition(" ")[0], made.problem.where[alone[0]]
    state = begun(made, task, made.problem.where)
    rules.act(state, f"go to {at}")
    rules.act(state, f"open {at}")
    for seed in range(20):
        other = redrawn(state, made, random.Random(seed))
        assert {f"{kind} 1", f"{kind} 2", f"{kind} 3"} <= other.where.keys()
        assert other.where[alone[0]] == at
