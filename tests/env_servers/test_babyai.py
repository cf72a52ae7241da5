"""Levels, rules and text, without HTTP; minigrid itself is what the rules are compared with."""

import hashlib
import itertools
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_servers.babyai import BabyAI, levels
from env_servers.babyai.environment import BabyAIState
from env_servers.babyai.levels import LEVELS
from env_servers.babyai.moves import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE
from env_servers.babyai.redraw import another
from env_servers.babyai.scene import Scene, look
from env_servers.babyai.world import World
from env_servers.base import UnknownTask
from env_servers.registry import UnknownEnvironment, load

pytest.importorskip("gymnasium")
pytest.importorskip("minigrid")


@pytest.fixture(scope="module")
def game() -> BabyAI:
    return BabyAI()


def wander(game: BabyAI, state: BabyAIState, seed: int, steps: int = 12) -> list[str]:
    """Plays at random, now and then something impossible; what was played."""
    rng, played = random.Random(seed), []
    while len(played) < steps and not state.world.done:
        played.append(rng.choice([*game.actions(state), "go to red ball 9"]))
        game.step(state, played[-1])
    return played


# the rules ------------------------------------------------------------------------------------------------------------


def in_sight(theirs, world: World) -> set[int]:
    """The cells that minigrid's environment shows."""
    _, mask = theirs.gen_obs_grid()
    (y, x), (dx, dy) = divmod(world.position, theirs.width), theirs.dir_vec
    seen = {
        (x + (6 - j) * dx - (i - 3) * dy, y + (6 - j) * dy + (i - 3) * dx)
        for i in range(7)
        for j in range(7)
        if mask[i, j]
    }
    return {y * theirs.width + x for x, y in seen if 0 <= x < theirs.width and 0 <= y < theirs.height}


@pytest.mark.parametrize("spec", LEVELS, ids=lambda spec: spec.name)
def test_what_is_in_sight_is_what_minigrid_shows(game: BabyAI, spec: levels.LevelSpec):
    theirs = levels.make(spec.name, 7)
    world, rng = World.start(levels.level(spec.name, 7)), random.Random(spec.name)
    assert (theirs.num_rows * theirs.num_cols, theirs.mission) == (spec.rooms, world.env.mission)
    for count in range(120):
        move = rng.choices(range(6), weights=[3, 3, 6, 4, 2, 4])[0]
        _, reward, terminated, truncated, _ = theirs.step(move)
        assert (world.move(move), world.done) == (reward, terminated or truncated)
        if count % 10 == 0:
            world = world.copy()
            assert set(look(world).values()) == in_sight(theirs, world)
        if world.done:
            break


@pytest.mark.parametrize("spec", LEVELS, ids=lambda spec: spec.name)
def test_the_expert_accomplishes_the_mission_and_minigrid_agrees(game: BabyAI, spec: levels.LevelSpec):
    steps = game.expert(f"{spec.name}@1004")
    assert steps, "the expert knows what to do in every level"
    state, _ = game.reset(f"{spec.name}@1004")
    answers = [game.step(state, step.action) for step in steps]
    assert all(a.valid for a in answers) and not any(a.done or a.reward for a in answers[:-1])
    assert answers[-1].done and game.spec.reward.success < answers[-1].reward < 1
    assert all(step.thought.startswith(("I ", "The ", "A ")) and step.thought.endswith(".") for step in steps)
    theirs = levels.make(spec.name, 1004)
    results = [theirs.step(int(move)) for move in state.world.moves]
    if spec.name != "OpenDoorsOrderN4Debug":  # which minigrid fails (see `mission`)
        assert (results[-1][1], results[-1][2]) == (answers[-1].reward, True)


def test_one_door_after_the_other_can_be_won_even_where_a_wrong_door_fails(game: BabyAI):
    task = "OpenDoorsOrderN4Debug@1000"
    state, observed = game.reset(task)
    assert "open the purple door, then open the yellow door" in observed.observation
    while not (
        others := [a for a in game.actions(state) if a.startswith("toggle and go through") and "purple" not in a]
    ):
        game.step(state, "turn left")
    answer = game.step(state, others[0])
    assert (answer.done, answer.reward) == (True, 0.0) and "failed" in answer.observation
    assert game.expert(task) is not None


def test_an_episode_ends_with_the_moves_of_its_level(game: BabyAI):
    state, _ = game.reset("GoToRedBall@1000")
    answers = [game.step(state, "turn left") for _ in range(state.world.env.max_steps)]
    assert [a.done for a in answers] == [False] * 63 + [True]
    assert answers[-1].reward == 0.0 and "out of moves" in answers[-1].observation
    assert game.actions(state) == [] and not game.step(state, "turn left").valid


# the text -------------------------------------------------------------------------------------------------------------


def thing(kind: str, color: str, state: str = "closed") -> Any:
    from minigrid.core.world_object import Ball, Box, Door, Key

    if kind == "door":
        return Door(color, is_open=state == "open", is_locked=state == "locked")
    return {"ball": Ball, "box": Box, "key": Key}[kind](color)


def room(*things: tuple[int, Any], carrying: Any = None) -> World:
    """A room of 5 by 5 cells in walls; the agent in its middle, at cell 24, faces right."""
    from minigrid.core.grid import Grid

    env = levels.make("GoToRedBall", 0)
    env.width = env.height = 7
    env.grid = Grid(7, 7)
    env.grid.wall_rect(0, 0, 7, 7)
    for cell, there in things:
        env.put_obj(there, cell % 7, cell // 7)
    env.agent_pos, env.agent_dir, env.carrying = (3, 3), 0, carrying
    return World(env)


def test_an_observation_names_what_is_in_sight_nearest_first():
    world = room(
        (26, thing("ball", "red")), (11, thing("ball", "red")), (41, thing("door", "red")), (25, thing("box", "blue"))
    )
    assert Scene.of(world).describe(world) == (
        "In front of you in this room, you can see several objects: There is a blue box 1 right in front of you 1 "
        "steps away. There is a red ball 1 right in front of you 2 steps away. There is a red ball 2 1 steps in front "
        "of you and 2 steps to your left. There is a red closed door 1 3 steps in front of you and 2 steps to your "
        "right. The room has walls around you. You are facing a box 1 steps away. You are not carrying anything."
    )


def test_an_action_stands_for_the_shortest_way():
    world = room((26, thing("ball", "red")), (10, thing("ball", "red")), (25, thing("box", "blue")))
    assert Scene.of(world).actions == {
        "turn left": (LEFT,),
        "turn right": (RIGHT,),
        "toggle": (TOGGLE,),
        "pickup blue box 1": (PICKUP,),
        "pickup red ball 1": (LEFT, FORWARD, RIGHT, FORWARD, FORWARD, RIGHT, PICKUP),
        "go to red ball 1": (LEFT, FORWARD, RIGHT, FORWARD, FORWARD, RIGHT),
        "pickup red ball 2": (LEFT, FORWARD, PICKUP),
        "go to red ball 2": (LEFT, FORWARD),
    }


@pytest.mark.parametrize(
    ("key", "state", "expected"),
    [
        ("key", "closed", {"toggle and go through red closed door 1": (FORWARD, TOGGLE, FORWARD)}),
        ("key", "locked", {"toggle and go through red locked door 1": (FORWARD, TOGGLE, FORWARD)}),
        ("ball", "locked", {}),
        ("key", "open", {"go through red open door 1": (FORWARD, FORWARD)}),
    ],
)
def test_a_door_is_passed_open_or_with_its_key(key: str, state: str, expected: dict):
    world = room((27, thing("door", "red", state)), carrying=thing(key, "red"))
    actions = Scene.of(world).actions
    assert {a: moves for a, moves in actions.items() if "through" in a} == {
        a: (FORWARD, *moves) for a, moves in expected.items()
    }
    assert actions["drop"] == (DROP,) and not any(a.startswith("pickup") for a in actions)


def test_every_listed_action_changes_the_world_and_every_other_says_why_not(game: BabyAI):
    for seed, spec in enumerate(LEVELS):
        state, _ = game.reset(f"{spec.name}@1003")
        wander(game, state, seed, steps=seed % 5)
        for action in game.actions(state):
            after = game.fork(state)
            answer = game.step(after, action)
            assert answer.valid, f"{spec.name}: {action}"
            assert answer.done or f'"{game.actions(after)[-1]}"]' in answer.observation
            changed = after.world.fingerprint()[:-1] != state.world.fingerprint()[:-1]
            assert changed or after.world.done, f"{spec.name}: {action} does nothing"


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("go to green key 1", "no green key 1 in sight"),
        ("pick up  RED ball 1", "already carrying"),
        ("go through red closed door 1", "toggle it first"),
        ("toggle and go through red ball 1", "not a door"),
        ("pickup red closed door 1", "cannot be picked up"),
        ("toggle", "nothing in front of you"),
        ("dance", "No such action"),
    ],
)
def test_a_refusal_gives_its_reason(game: BabyAI, action: str, reason: str):
    world = room((26, thing("ball", "red")), (20, thing("door", "red")), carrying=thing("key", "red"))
    state = BabyAIState("", world, Scene.of(world))
    answer = game.step(state, action)
    assert reason in answer.observation and "Available actions: [" in answer.observation
    assert (answer.valid, answer.done, state.world.moves) == (False, False, "")


def test_pick_up_is_another_word_for_pickup(game: BabyAI):
    world = room((26, thing("ball", "red")))
    state = BabyAIState("", world, Scene.of(world))
    assert game.step(state, "Pick up red ball 1").valid and state.world.env.carrying.type == "ball"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=30), st.sampled_from(["turn left", "move forward", "pickup", "go to ", "drop", "toggle"])
        ),
        max_size=6,
    )
)
def test_any_text_is_an_action(actions: list[str]):
    game = BabyAI()
    state, _ = game.reset("UnlockPickupDist@1000")
    for action in actions:
        assert game.step(state, action).observation


# tasks ----------------------------------------------------------------------------------------------------------------


def test_splits_pose_each_problem_once(game: BabyAI):
    sizes = {name: len(game.split(name)) for name in game.spec.splits}
    assert sizes == {"train": 1584, "dev": 199, "test": 200, "agentgym_train": 810, "agentgym_test": 90}
    for names in (("train", "dev", "test"), ("agentgym_train", "agentgym_test"), ("train", "agentgym_test")):
        problems = [task.labels["problem"] for name in names for task in game.split(name)]
        assert len(set(problems)) == len(problems)


def test_small_levels_are_told_apart_by_what_they_are(game: BabyAI):
    spec = levels.BY_NAME["OpenRedDoor"]
    assert levels.problem(spec, 1002) == levels.problem(spec, 1036) != levels.problem(spec, 1003)
    ids = {task.id for task in game.split("train")}
    assert "OpenRedDoor@1002" in ids and "OpenRedDoor@1036" not in ids


def test_agentgym_numbers_are_level_and_seed(game: BabyAI):
    for index, task in (
        (0, "GoToRedBallGrey@0"),
        (1804, "GoToLocalS8N7@45"),
        (43, "GoToObjS6@1"),
        (79, "BossLevelNoUnlock@1"),
    ):
        assert game.reset(f"agentgym/{index}")[1] == game.reset(task)[1]


def test_ids_mean_the_same_tasks_as_ever(game: BabyAI):
    """Whatever the process, its hash seed and the versions installed.
    If this fails, published task ids have changed their meaning."""
    digest = hashlib.sha256()
    for spec in LEVELS:
        digest.update(game.reset(f"{spec.name}@3000")[1].observation.encode())
    for name in game.spec.splits:
        digest.update(repr(game.split(name)).encode())
    for task in ("GoToObjDoor@1000", "UnlockPickupDist@1001", "PutNextS7N4Carrying@1002"):
        digest.update(repr(game.expert(task)).encode())
    assert digest.hexdigest()[:16] == "544e9291b68f9abb"


@pytest.mark.parametrize(
    "task", ["", "GoToRedBall", "GoToRedBall@", "GoToRedBall@-1", "Nowhere@0", "agentgym/", "agentgym/x", "GoTo@0\n"]
)
def test_an_unknown_task_is_named(game: BabyAI, task: str):
    with pytest.raises(UnknownTask, match="BabyAI has no task"):
        game.reset(task)
    with pytest.raises(UnknownTask, match="BabyAI has no split"):
        game.split(task)


# copies ---------------------------------------------------------------------------------------------------------------


def test_a_fork_is_a_replay_and_independent(game: BabyAI):
    for seed, spec in enumerate(LEVELS):
        state, _ = game.reset(f"{spec.name}@2000")
        prefix = wander(game, state, seed, steps=6)
        before = game.snapshot(state), game.actions(state)
        fork, follow = game.fork(state), game.fork(state)
        rest = wander(game, follow, seed + 100, steps=6)
        replayed, _ = game.reset(f"{spec.name}@2000")
        for action in prefix:
            game.step(replayed, action)
        assert [game.step(fork, action) for action in rest] == [game.step(replayed, action) for action in rest]
        assert game.snapshot(fork) == game.snapshot(replayed) == game.snapshot(follow)
        assert (game.snapshot(state), game.actions(state)) == before, "a fork moved its parent"


def test_a_snapshot_restores_to_the_same_play(game: BabyAI):
    for seed, spec in enumerate(LEVELS):
        state, _ = game.reset(f"{spec.name}@1003")
        wander(game, state, seed)
        copy = game.restore(json.loads(json.dumps(game.snapshot(state))))
        assert game.actions(copy) == game.actions(state)
        rest = wander(game, game.fork(state), seed + 100, steps=6)
        assert [game.step(copy, action) for action in rest] == [game.step(state, action) for action in rest]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"task": "GoToRedBall@0"},
        {"task": "Nowhere@0", "actions": [], "drawn": []},
        {"task": None, "actions": [], "drawn": []},
        {"task": "GoToRedBall@0", "actions": ["fly"], "drawn": []},
        {"task": "GoToRedBall@0", "actions": [0], "drawn": []},
        {"task": "GoToRedBall@0", "actions": [["turn left"]], "drawn": []},
        {"task": "GoToRedBall@0", "actions": 3, "drawn": []},
        {"task": "GoToRedBall@0", "actions": ["turn left"] * 65, "drawn": []},
        {"task": "GoToRedBall@0", "actions": [], "drawn": None},
        {"task": "GoToRedBall@0", "actions": [], "drawn": [0]},
        {"task": "GoToRedBall@0", "actions": [], "drawn": [0] * 4000},
        {"task": "GoToRedBall@0", "actions": [], "drawn": [10**400]},
        {"task": "GoToRedBall@0", "actions": [], "drawn": [0.5]},
        {"task": "GoToRedBall@0", "actions": [], "drawn": ["0"]},
        {"task": "GoToRedBall@0", "actions": [], "drawn": [[0]]},
    ],
)
def test_a_damaged_snapshot_is_refused(game: BabyAI, data: dict):
    with pytest.raises(ValueError, match="not a BabyAI snapshot"):
        game.restore(data)


def test_numbers_of_a_level_make_that_level_and_no_others_do(game: BabyAI, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("env_servers.babyai.redraw.PROPOSALS", 0)
    for spec in LEVELS:
        state, seen = game.reset(f"{spec.name}@1000")
        drawn = list(another(spec.name, 1000, lambda _: False, random.Random(0)))
        again = game.restore({"task": state.task, "actions": [], "drawn": drawn})
        assert again.world.fingerprint() == state.world.fingerprint() and again.world.env.mission in seen.observation
        for wrong in (drawn[:-1], [*drawn, 0], [-1, *drawn[1:]], [*drawn[:-1], float("nan")], ["0", *drawn[1:]]):
            with pytest.raises(ValueError, match=r"make no level|more than a level takes"):
                game.restore({"task": state.task, "actions": [], "drawn": wrong})


def in_other_worlds(game: BabyAI, specs: Sequence[levels.LevelSpec], seeds: int) -> int:
    """Compares what is seen on the way; returns how many worlds were others."""
    others = 0
    for number, spec in enumerate(specs):
        state, _ = game.reset(f"{spec.name}@{1000 + number}")
        actions = wander(game, state, number, steps=3)
        world, _ = game.reset(state.task)
        texts = [game.step(world, action) for action in actions]
        for seed in range(seeds):
            before = game.snapshot(state)
            other = game.redraw(state, seed)
            assert game.snapshot(state) == before and game.snapshot(game.redraw(state, seed)) == game.snapshot(other)
            begun = game.restore({**game.snapshot(other), "actions": []})
            assert [game.step(begun, action) for action in actions] == texts, (spec.name, seed)
            assert game.actions(other) == game.actions(state) and game.snapshot(begun) == game.snapshot(other)
            rest = wander(game, game.fork(other), seed, steps=4)
            copy = game.restore(json.loads(json.dumps(game.snapshot(other))))
            assert [game.step(copy, action) for action in rest] == [game.step(other, action) for action in rest]
            others += begun.world.fingerprint() != world.world.fingerprint()
    return others


def test_in_another_world_the_same_is_seen(game: BabyAI):
    assert in_other_worlds(game, [levels.BY_NAME["GoToSeqS5R2"]], 1) == 1


def test_the_expert_knows_the_other_world(game: BabyAI):
    state, _ = game.reset("GoToLocalS8N7@1001")
    other = game.redraw(state, 1)
    assert other.world.fingerprint() != state.world.fingerprint()
    steps = game.expert_from(other)
    assert steps
    assert [game.step(other, step.action) for step in steps][-1].reward > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_in_another_world_of_any_level_the_same_is_seen(game: BabyAI):
    assert in_other_worlds(game, LEVELS, 1) > 25


@pytest.mark.slow
def test_worlds_come_as_often_as_the_generator_makes_them(game: BabyAI):
    """Against all levels that there are: where the agent stands in a room, which it cannot see from within, and where a
    ball is that it has not found."""
    inside = range(1, 7)
    worlds: dict[str, Counter[tuple[int, ...]]] = {}
    states: dict[str, BabyAIState] = {}
    for x, y, direction, ball_x, ball_y in itertools.product(inside, inside, range(4), inside, inside):
        if abs(x - ball_x) + abs(y - ball_y) < 2:
            continue  # the generator draws another place then: each that is free is as likely
        drawn = [0, 0, x, y, direction, ball_x, ball_y]
        state = game.restore({"task": "GoToRedBallNoDists@0", "actions": [], "drawn": drawn})
        opening = state.scene.describe(state.world)
        if "ball" not in opening:
            worlds.setdefault(opening, Counter())[place_of(state)] += 1
            states.setdefault(opening, state)
    opening, expected = max(worlds.items(), key=lambda found: len(found[1]))
    assert len(expected) > 50
    found = Counter(place_of(game.redraw(states[opening], seed)) for seed in range(250))
    assert found.keys() <= expected.keys()
    for axis in range(4):
        one, other = Counter(), Counter()
        for shares, counts in ((one, expected), (other, found)):
            for key, count in counts.items():
                shares[key[axis]] += count / counts.total()
        assert sum(abs(one[key] - other[key]) for key in one | other) / 2 < 0.12


def place_of(state: BabyAIState) -> tuple[int, ...]:
    """Row and column of the agent, and of the ball."""
    (ball,) = [cell for cell, thing in enumerate(state.world.env.grid.grid) if thing and thing.type == "ball"]
    return *divmod(state.world.position, 8), *divmod(ball, 8)


def test_sixty_four_sessions_in_threads_play_as_one_after_the_other(game: BabyAI, capfd: pytest.CaptureFixture[str]):
    def play(number: int) -> tuple[list[str], str]:
        state, _ = game.reset(f"{LEVELS[number % 40].name}@{4000 + number}")
        return wander(game, state, number, steps=8), state.world.moves

    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(play, range(64)))
    levels.level.cache_clear()
    assert together == [play(number) for number in range(64)]
    assert capfd.readouterr().out == "", "the generator is kept quiet"


def test_without_minigrid_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(UnknownEnvironment, match=r"pip install minigrid==3\.2\.0"):
        load("babyai")
