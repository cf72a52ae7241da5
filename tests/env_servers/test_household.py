"""The household: its rules against ALFWorld's, its tasks and its expert, without HTTP."""

import dataclasses
import gzip
import json
import os
import random
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_servers.alfred.expert import Turn, demonstrate, parse_task
from env_servers.alfred.problem import Goal, Problem, Receptacle, TaskType, Thing
from env_servers.base import UnknownTask
from env_servers.household import Household, rules
from env_servers.household.generate import STATEMENTS, generate
from env_servers.household.pddl import parse_problem
from env_servers.household.rules import HouseholdState
from tests.env_servers.support import ROOT

GAME = Household()
DIGEST = """
import hashlib
from env_servers.household import Household
game, digest = Household(), hashlib.sha256()
for name in ("dev", "test"):
    tasks = game.split(name)
    digest.update(repr(tasks).encode())
    for task in tasks[::7]:
        state, first = game.reset(task.id)
        digest.update(repr((first, game.actions(state), game.expert(task.id), game.snapshot(state))).encode())
print(digest.hexdigest())
"""


def sample(split: str, count: int) -> list[str]:
    return [task.id for task in random.Random(split).sample(GAME.split(split), count)]


def random_play(state: HouseholdState, rng: random.Random, steps: int) -> list[str]:
    """Actions that can be done, those that change things preferred; carried out on ``state``."""
    played = []
    for _ in range(steps):
        admissible = GAME.actions(state)
        doing = [a for a in admissible if a.split()[0] not in ("go", "look", "inventory", "help", "examine", "close")]
        action = rng.choice(doing if doing and rng.random() < 0.6 else admissible)
        played.append(action)
        if GAME.step(state, action).done:
            break
    return played


# tasks ----------------------------------------------------------------------------------------------------------------


def test_the_same_tasks_whatever_the_hash_seed():
    def digest(seed: str) -> str:
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-c", DIGEST], env=environ, check=True, capture_output=True, text=True
        ).stdout

    first, second = digest("1"), digest("2")
    assert first == second and len(first.strip()) == 64


def test_splits_share_no_goal_and_test_shares_no_room():
    tasks = {name: GAME.split(name) for name in GAME.spec.splits}
    goals = {name: {task.labels["goal"] for task in found} for name, found in tasks.items()}
    assert not any(goals[a] & goals[b] for a, b in (("train", "dev"), ("train", "test"), ("dev", "test")))
    layouts = {name: {str(goal).split("/")[0] for goal in found} for name, found in goals.items()}
    assert layouts["dev"] <= layouts["train"] and not layouts["test"] & layouts["train"]
    for name, found in tasks.items():
        assert {task.labels["type"] for task in found} == set(TaskType), name
        assert {task.labels["room"] for task in found} == {"kitchen", "bedroom", "livingroom", "bathroom"}, name
    lengths = {task.labels["plan_length"] for task in tasks["train"]}
    assert min(lengths) <= 4 and max(lengths) >= 20, "tasks of very different difficulty"


def test_no_task_is_solved_before_it_begins():
    for name in GAME.spec.splits:
        for task in sample(name, 150):
            state, _ = GAME.reset(task)
            assert len(state.problem.candidates) >= 1 + (state.problem.goal.type is TaskType.TWO)
            assert not rules.reached(state), task


@pytest.mark.parametrize("type_", TaskType)
def test_every_wording_of_a_task_is_understood(type_: TaskType):
    for statement in STATEMENTS[type_]:
        text = "You see a mug 1.\n\nYour task is to: " + statement.format(kind="mug", target="desklamp")
        assert parse_task(text) == Goal(type_, "mug", "desklamp")


# the expert -----------------------------------------------------------------------------------------------------------


def test_the_expert_earns_the_full_reward_in_as_many_steps_as_the_label_says():
    for split in GAME.spec.splits:
        for task in random.Random(split).sample(GAME.split(split), 60):
            plan = GAME.expert(task.id)
            assert plan is not None and len(plan) == task.labels["plan_length"] <= GAME.spec.step_limit
            state, _ = GAME.reset(task.id)
            answers = [GAME.step(state, step.action) for step in plan]
            assert (answers[-1].reward, answers[-1].done) == (1.0, True)
            assert not any(answer.done for answer in answers[:-1]) and all(answer.valid for answer in answers)
            assert all(step.thought and len(step.thought) < 250 for step in plan)


def test_the_example_is_what_the_expert_does():
    [turns] = GAME.spec.examples
    state, first = GAME.reset("train/clean-0033")
    texts = [first.observation]
    for step in GAME.expert(state.task) or ():
        texts += [f"Thought: {step.thought}\nAction: {step.action}", GAME.step(state, step.action).observation]
    assert [turn.content for turn in turns] == texts[:-1]


def test_the_expert_knows_only_what_it_has_read():
    """Where two worlds have looked the same so far, it does the same, whatever they hide."""
    compared = 0
    for task in sample("train", 80):
        problem = generate(task).problem
        rng = random.Random(task)
        other = dataclasses.replace(
            problem,
            where={
                name: rng.choice(list(problem.receptacles)) if name in problem.candidates else home
                for name, home in problem.where.items()
            },
        )
        first, second = _episode(problem), _episode(other)
        for (action, answer), (other_action, other_answer) in zip(first, second, strict=False):
            assert action == other_action
            compared += 1
            if answer != other_answer:
                break
    assert compared > 300


def _episode(problem: Problem) -> list[tuple[str, str]]:
    state = HouseholdState("", problem, problem.start, dict(problem.where), set(problem.marks))
    log = []

    def carry_out(action: str) -> Turn:
        answer = rules.act(state, action) or rules.NOTHING_HAPPENS
        log.append((action, answer))
        return Turn(answer, lambda: rules.admissible(state), rules.reached(state))

    demonstrate(Turn(rules.introduction(problem), lambda: rules.admissible(state)), carry_out, 60)
    return log


def test_the_expert_gives_up_where_there_is_nothing_to_find():
    problem = generate("train/clean-0000").problem
    where = {name: home for name, home in problem.where.items() if name not in problem.candidates}
    log = _episode(dataclasses.replace(problem, where=where, things={name: problem.things[name] for name in where}))
    visited = {action.removeprefix("go to ") for action, _ in log if action.startswith("go to")}
    assert visited == set(problem.receptacles), "it has looked everywhere"


# rules ----------------------------------------------------------------------------------------------------------------


def test_what_is_listed_can_be_done_and_nothing_else():
    rng = random.Random(0)
    for task in sample("train", 5):
        state, _ = GAME.reset(task)
        random_play(state, rng, rng.randrange(12))
        names = [*state.problem.receptacles, *state.problem.things, "unicorn 1"]
        one = [f"{verb} {name}" for verb in ("go to", "open", "close", "use", "examine") for name in names]
        forms = (
            "take {} from {}",
            "move {} to {}",
            "clean {} with {}",
            "heat {} with {}",
            "cool {} with {}",
            "slice {} with {}",
        )
        two = [form.format(a, b) for form in forms for a, b in product(names, repeat=2)]
        before = GAME.snapshot(state)
        possible = set()
        for action in [*one, *two, "look", "inventory", "help"]:
            fork = GAME.fork(state)
            if GAME.step(fork, action).valid:
                possible.add(action)
            else:
                assert {**GAME.snapshot(fork), "done": False} == {**before, "done": False}, (
                    f"{action} was refused and changed something"
                )
        assert possible == set(GAME.actions(state))


def kitchen() -> HouseholdState:
    """A kitchen in which everything can be tried; drawer 1 and shelf 1 share a place."""
    every = frozenset({"take", "clean", "heat", "cool", "slice"})
    problem = Problem(
        statement="put a hot apple in fridge.",
        goal=Goal(TaskType.HEAT, "apple", "fridge"),
        receptacles={
            "drawer 1": Receptacle("drawer", 0, openable=True),
            "shelf 1": Receptacle("shelf", 0),
            "fridge 1": Receptacle("fridge", 1, openable=True),
            "microwave 1": Receptacle("microwave", 2, openable=True),
            "sinkbasin 1": Receptacle("sinkbasin", 3),
        },
        things={
            "apple 1": Thing("apple", every),
            "knife 1": Thing("knife", frozenset({"take"})),
            "lamp 1": Thing("lamp", frozenset({"use"})),
        },
        where={"apple 1": "shelf 1", "knife 1": "drawer 1", "lamp 1": "sinkbasin 1"},
        marks=frozenset(),
        fits={kind: frozenset({"apple", "knife"}) for kind in ("drawer", "shelf", "fridge", "sinkbasin")},
    )
    return HouseholdState("", problem, None, dict(problem.where), set())


@pytest.mark.parametrize(
    "play",
    [
        [
            ("look", "You are in the middle of a room. Looking quickly around you, you see nothing."),
            ("open fridge 1", None),
        ],
        [
            ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed."),
            ("go to shelf 1", None),  # it is within reach
            ("examine shelf 1", "On the shelf 1, you see a apple 1."),
            ("take knife 1 from drawer 1", None),
            ("open drawer 1", "You open the drawer 1. The drawer 1 is open. In it, you see a knife 1."),
            ("open drawer 1", None),
            ("take apple 1 from drawer 1", None),
            ("take knife 1 from drawer 1", "You pick up the knife 1 from the drawer 1."),
            ("slice apple 1 with knife 1", None),  # nobody has put it down yet
            ("take apple 1 from shelf 1", None),
            ("inventory", "You are carrying: a knife 1."),
            ("put knife 1 in/on shelf 1", "You move the knife 1 to the shelf 1."),
            ("look", "You are facing the drawer 1, and shelf 1. Next to it, you see a knife 1."),
            ("examine shelf 1", "On the shelf 1, you see a apple 1, and a knife 1."),
            ("close drawer 1", "You close the drawer 1."),
            ("examine drawer 1", "The drawer 1 is closed."),
            ("inventory", "You are not carrying anything."),
        ],
        [
            ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see a apple 1."),
            ("examine apple 1", None),  # only in the hand
            ("take apple 1 from shelf 1", "You pick up the apple 1 from the shelf 1."),
            ("examine apple 1", "There's nothing special about apple 1."),
            ("heat apple 1 with microwave 1", None),
            ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
            ("cool apple 1 with fridge 1", "You cool the apple 1 using the fridge 1."),
            ("examine apple 1", "This is a cold apple 1."),
            ("move apple 1 to fridge 1", None),
            ("go to sinkbasin 1", "You arrive at sinkbasin 1. On the sinkbasin 1, you see a lamp 1."),
            ("heat apple 1 with sinkbasin 1", None),
            ("clean apple 1 with sinkbasin 1", "You clean the apple 1 using the sinkbasin 1."),
            ("examine apple 1", "This is a cool and clean apple 1."),
            ("toggle lamp 1", "You turn on the lamp 1."),
            ("use lamp 1", "You turn on the lamp 1."),
            ("take lamp 1 from sinkbasin 1", None),
            ("go to microwave 1", "You arrive at microwave 1. The microwave 1 is closed."),
            ("heat apple 1 with microwave 1", "You heat the apple 1 using the microwave 1."),
            ("examine apple 1", "This is a hot and clean apple 1."),
            ("open microwave 1", "You open the microwave 1. The microwave 1 is open. In it, you see nothing."),
            ("move apple 1 to microwave 1", None),  # it does not fit there
        ],
    ],
    ids=["middle", "places", "treatments"],
)
def test_texts_and_refusals(play: list[tuple[str, str | None]]):
    state = kitchen()
    for action, expected in play:
        assert rules.act(state, action) == expected, action
    assert not rules.reached(state)


def test_a_heated_apple_must_stay_hot():
    state = kitchen()
    for action in (
        "go to shelf 1",
        "take apple 1 from shelf 1",
        "go to microwave 1",
        "heat apple 1 with microwave 1",
        "go to fridge 1",
    ):
        assert rules.act(state, action)
    cold = GAME.fork(state)
    assert rules.act(cold, "cool apple 1 with fridge 1")
    for fridge, reached in ((cold, False), (state, True)):
        assert rules.act(fridge, "open fridge 1") and rules.act(fridge, "move apple 1 to fridge 1")
        assert rules.reached(fridge) is reached


def test_the_actions_may_be_shown():
    game = Household(show_actions=True)
    state, first = game.reset("train/heat-0001")
    assert first.observation.endswith("\nAVAILABLE ACTIONS: " + ", ".join(game.actions(state)))
    answer = game.step(state, game.actions(state)[0])
    assert answer.observation.endswith("\nAVAILABLE ACTIONS: " + ", ".join(game.actions(state)))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.lists(st.sampled_from("take from go to put in/on open fridge 1 apple".split()), max_size=8).map(
                " ".join
            ),
        ),
        max_size=6,
    )
)
def test_any_text_is_an_action(actions: list[str]):
    state, _ = GAME.reset("train/cool-0003")
    for action in actions:
        answer = GAME.step(state, action)
        assert answer.observation and answer.reward == 0.0


# copies ---------------------------------------------------------------------------------------------------------------


def test_a_fork_is_a_replay_and_independent():
    rng = random.Random(1)
    for task in sample("train", 30):
        state, _ = GAME.reset(task)
        prefix = random_play(state, rng, 15)
        before = GAME.snapshot(state)
        fork = GAME.fork(state)
        replayed, _ = GAME.reset(task)
        for action in prefix:
            GAME.step(replayed, action)
        assert GAME.snapshot(fork) == GAME.snapshot(replayed) == before
        rest = random_play(fork, rng, 15)
        other = GAME.restore(json.loads(json.dumps(before, sort_keys=True)))
        assert [GAME.step(other, action) for action in rest] == [GAME.step(replayed, action) for action in rest]
        assert GAME.snapshot(fork) == GAME.snapshot(other)
        assert GAME.snapshot(state) == before, "the fork moved its parent"


SOUND = GAME.snapshot(GAME.reset("dev/two-0001")[0])
THINGS = list(SOUND["where"])


@pytest.mark.parametrize(
    "data",
    [
        {},
        {**SOUND, "extra": 1},
        {**SOUND, "task": "dev/none-0001"},
        {**SOUND, "task": ["dev/two-0001"]},
        {**SOUND, "place": 99},
        {**SOUND, "place": True},
        {**SOUND, "done": "no"},
        {**SOUND, "where": {}},
        {**SOUND, "where": list(THINGS)},
        {**SOUND, "where": {**SOUND["where"], THINGS[0]: "moon 1"}},
        {**SOUND, "where": {**SOUND["where"], THINGS[0]: ["moon 1"]}},
        {**SOUND, "where": {**SOUND["where"], THINGS[0]: "", THINGS[1]: ""}},
        {**SOUND, "marks": ["opened moon 1"]},
        {**SOUND, "marks": [3]},
        {**SOUND, "marks": None},
    ],
    ids=range(15),
)
def test_a_damaged_snapshot_is_refused(data: dict):
    assert GAME.snapshot(GAME.restore(SOUND)) == SOUND
    with pytest.raises(ValueError, match="not a household snapshot"):
        GAME.restore(data)


@pytest.mark.parametrize(
    "task",
    [
        "",
        "clean-0001",
        "train/clean-1",
        "train/clean-9999",
        "train/wash-0001",
        "../train/clean-0001",
        "train/clean-0001\n",
    ],
)
def test_an_unknown_task_is_named(task: str):
    with pytest.raises(UnknownTask):
        GAME.reset(task)


# ALFWorld's problems --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problems(shared_data: Path) -> Path:
    return shared_data / "alfred" / "alfworld_problems_solved.jsonl.gz"


def test_walkthroughs_of_the_real_engine_are_valid_and_win_at_their_last_action(problems: Path):
    game = Household(problems=str(problems))
    rows = [json.loads(line) for line in gzip.decompress(problems.read_bytes()).decode().splitlines()]
    for row in rows:
        state, first = game.reset(row["id"])
        assert first.observation.endswith(row["task"])
        assert state.problem.goal.type == row["task_type"]
        answers = [game.step(state, action) for action in row["walkthrough"]]
        assert all(answer.valid for answer in answers), row["id"]
        assert [answer.done for answer in answers] == [False] * (len(answers) - 1) + [True], row["id"]
    listed = {task.id for split in game.spec.splits for task in game.split(split)}
    assert listed == {row["id"] for row in rows if len(row["walkthrough"]) > 1}, "three are solved before they begin"


def test_the_expert_solves_alfworlds_problems(problems: Path):
    game = Household(problems=str(problems))
    for task in [*game.split("dev"), *game.split("test")]:
        plan = game.expert(task.id)
        assert plan is not None and len(plan) == task.labels["plan_length"], task.id
        state, _ = game.reset(task.id)
        assert all(game.step(state, step.action).valid for step in plan) and rules.reached(state)


PDDL = """(define (problem p) (:domain alfred) (:objects)
(:init
(receptacleType Cabinet_bar_1 CabinetType) (receptacleType Cabinet_bar_2 CabinetType) (receptacleType Fridge_bar_1 \
FridgeType)
(objectType Mug_bar_1 MugType) (objectType Mug_bar_2 MugType) (openable Cabinet_bar_1) (openable Fridge_bar_1) (opened \
Fridge_bar_1)
(pickupable Mug_bar_1) (coolable Mug_bar_1) (canContain CabinetType MugType)
(inReceptacle Mug_bar_1 Cabinet_bar_2) (inReceptacle Mug_bar_2 Fridge_bar_1) (objectAtLocation Mug_bar_1 loc_2)
(receptacleAtLocation Cabinet_bar_1 loc_1) (receptacleAtLocation Cabinet_bar_2 loc_2) (receptacleAtLocation \
Fridge_bar_1 loc_1)
(atLocation agent1 loc_9))
(:goal (and (exists (?r - receptacle) (exists (?o - object) (and (coolable ?o) (objectType ?o MugType) (receptacleType \
?r CabinetType)
(isCool ?o) (inReceptacle ?o ?r)))))))"""


def test_problems_in_pddl_are_read_with_alfworlds_numbers(tmp_path: Path):
    problem = parse_problem(PDDL, "Your task is to: put a cool mug in cabinet.")
    assert list(problem.receptacles) == ["cabinet 2", "cabinet 1", "fridge 1"], "sorted ids are numbered downwards"
    assert problem.where == {"mug 2": "cabinet 1", "mug 1": "fridge 1"}
    assert problem.goal == Goal(TaskType.COOL, "mug", "cabinet") and problem.candidates == ("mug 2",)
    assert problem.marks == {"opened fridge 1", "down mug 2"} and problem.start is None
    assert (
        problem.receptacles["cabinet 2"].place
        == problem.receptacles["fridge 1"].place
        != problem.receptacles["cabinet 1"].place
    )

    name = "pick_cool_then_place_in_recep-Mug-None-Cabinet-1"
    for trial, solvable in (("trial_a", True), ("trial_b", False)):
        folder = tmp_path / "valid_seen" / name / trial
        folder.mkdir(parents=True)
        grammar = '{"rhs": "Your task is to: put a cool mug in cabinet."}'
        (folder / "game.tw-pddl").write_text(
            json.dumps({"pddl_problem": PDDL, "grammar": grammar, "solvable": solvable})
        )
    game = Household(problems=str(tmp_path))
    [task] = game.split("dev")
    assert task.id == f"valid_seen/{name}/trial_a" and (task.labels["type"], task.labels["object"]) == (
        TaskType.COOL,
        "mug",
    )
    assert game.reset(task.id)[1].observation.endswith("Your task is to: put a cool mug in cabinet.")
    with pytest.raises(UnknownTask):
        game.reset(f"valid_seen/{name}/trial_b")
    with pytest.raises(UnknownTask):
        game.reset("train/clean-0001")


def test_a_path_without_problems_is_refused(tmp_path: Path):
    (tmp_path / "broken.jsonl").write_text("{}\n")
    (tmp_path / "empty").mkdir()
    for path in ("missing.jsonl", "broken.jsonl", "empty"):
        with pytest.raises(ValueError, match=path):
            Household(problems=str(tmp_path / path))


def test_thoughts_speak_of_what_is_done():
    """Each thought names what its action is about."""
    for task in sample("train", 40):
        for step in GAME.expert(task) or ():
            names = [f"{a} {b}" for a, b in pairwise(step.action.split()) if b.isdigit()]
            assert any(name in step.thought for name in names), step
