"""ALFWorld: its files and ids without it, and the real engine where ``ALFWORLD_PYTHON`` names an interpreter that has
it.

The official games cannot be had by a test. The real engine plays games that are made here from solved problems in
ALFWorld's PDDL and the rules in the package.
"""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from env_servers.alfworld import Alfworld
from env_servers.alfworld.engines import EngineFailed
from env_servers.alfworld.environment import AlfworldState, _worded
from env_servers.alfworld.games import Games
from env_servers.base import UnknownTask
from env_servers.household import Household
from tests.env_servers.support import running, wait_until

NAME = "pick_cool_then_place_in_recep-Mug-None-Cabinet-1"


def write_game(root: Path, task: str, **content: object) -> None:
    folder = root / task
    folder.mkdir(parents=True)
    (folder / "game.tw-pddl").write_text(json.dumps(content))


# without the package --------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A data folder with games that nobody plays."""
    root = tmp_path / "json_2.1.1"
    for trial in ("trial_b", "trial_a"):
        write_game(root, f"train/{NAME}/{trial}", solvable=True)
    write_game(root, f"train/{NAME}/trial_c", solvable=False)
    write_game(root, f"train/{NAME}/trial_d")
    write_game(root, "train/pick_two_obj_and_place-AppleSliced-None-Cabinet-1/trial_e", solvable=True)
    write_game(root, "train/pick_and_place_with_movable_recep-Pen-Mug-Desk-1/trial_f", solvable=True)
    write_game(root, f"valid_unseen/{NAME}/trial_g", solvable=True)
    write_game(root, f"valid_train/{NAME}/trial_a", solvable=True)
    return tmp_path


def test_splits_are_the_solvable_games_in_sorted_order(files: Path):
    for data in (files, files / "json_2.1.1"):
        games = Games(data)
        assert [task.id for task in games.split("train")] == [f"train/{NAME}/trial_a", f"train/{NAME}/trial_b"]
        assert games.split("dev") == []
        [task] = games.split("test")
        assert task.labels == {
            "type": "pick_cool_then_place_in_recep",
            "object": "mug",
            "scene": "1",
            "game": f"{NAME}/trial_g",
        }


@pytest.mark.parametrize(
    "task",
    ["", "train", f"train/{NAME}", f"train/{NAME}/trial_x", f"train/{NAME}/../trial_a", f"/train/{NAME}/trial_a"],
)
def test_only_games_have_files(files: Path, task: str):
    assert Games(files).file(task) is None
    assert (
        Games(files).file(f"train/{NAME}/trial_a") == files / "json_2.1.1" / "train" / NAME / "trial_a" / "game.tw-pddl"
    )


def test_agentgyms_numbers_name_games_of_the_training_set(files: Path):
    with pytest.raises(ValueError, match=r"mappings_train\.json"):
        Games(files, files)
    rows = {"train": [(0, "trial_b")], "test": [(2420, "trial_a")]}
    for split, games in rows.items():
        mapping = [{"item_id": number, "task_type": NAME, "task_id": trial} for number, trial in games]
        (files / f"mappings_{split}.json").write_text(json.dumps(mapping))
    games = Games(files, files)
    [train], [test] = games.split("agentgym_train"), games.split("agentgym_test")
    assert (train.id, test.id) == ("agentgym/0", "agentgym/2420")
    assert games.file(test.id) == files / "json_2.1.1" / "valid_train" / NAME / "trial_a" / "game.tw-pddl"
    assert test.labels["game"] in {task.labels["game"] for task in games.split("train")}, (
        "the label tells that it is no held-out game"
    )


def test_what_is_missing_is_named_with_the_way_to_get_it(files: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(RuntimeError, match=r"alfworld-download"):
        Alfworld(data=str(files / "nothing"))
    without = [sys.executable, "/nonexistent/python"]
    for python in without:
        with pytest.raises(RuntimeError, match=r"pip install alfworld"):
            Alfworld(data=str(files), python=python)
    monkeypatch.setenv("ALFWORLD_PYTHON", without[1])
    monkeypatch.setenv("ALFWORLD_DATA", str(files))
    package, games = Alfworld.requirements()
    assert (package.present, games.present) == (False, True)
    monkeypatch.setenv("ALFWORLD_DATA", str(files / "nothing"))
    assert not Alfworld.requirements()[1].present


@pytest.mark.parametrize(
    ("action", "meant"),
    [
        ("move mug 1 to desk 1", "move mug 1 to desk 1"),
        ("put mug 1 in/on desk 1", "move mug 1 to desk 1"),
        ("  Look ", "look"),
        ("move mug 1 to shelf 1", "put mug 1 in/on shelf 1"),
        ("put mug 1 in/on moon 1", None),
        ("dance", None),
        ("", None),
    ],
)
def test_both_wordings_of_put_are_understood(action: str, meant: str | None):
    assert _worded(action, ("look", "move mug 1 to desk 1", "put mug 1 in/on shelf 1")) == meant


# with the package -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get("ALFWORLD_PYTHON")
    if not found:
        pytest.skip("ALFWORLD_PYTHON names no interpreter that has the package alfworld")
    return found


@pytest.fixture(scope="module")
def data(python: str, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Games with short walkthroughs, one of each type, made from solved problems."""
    root = tmp_path_factory.mktemp("alfworld")
    where = "import alfworld.info as i; print(i.ALFRED_PDDL_PATH); print(i.ALFRED_TWL2_PATH)"
    environ = {**os.environ, "ALFWORLD_DATA": str(root)}
    printed = subprocess.run([python, "-c", where], env=environ, check=True, capture_output=True, text=True).stdout
    domain, grammar = (Path(line).read_text() for line in printed.splitlines())
    packed = (shared_data / "alfred" / "alfworld_problems_solved.jsonl.gz").read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(packed).decode().splitlines()]
    shortest = {
        row["task_type"]: row
        for row in sorted(rows, key=lambda row: -len(row["walkthrough"]))
        if len(row["walkthrough"]) > 3
    }
    for row in shortest.values():
        task = row["task"].removeprefix("Your task is to: ").rstrip(".")
        content = {
            "pddl_domain": domain,
            "grammar": grammar.replace("UNKNOWN GOAL", task),
            "pddl_problem": row["pddl_problem"],
        }
        write_game(root / "json_2.1.1", row["id"], **content, walkthrough=row["walkthrough"], solvable=True)
    return root


@pytest.fixture(scope="module")
def game(python: str, data: Path) -> Iterator[Alfworld]:
    environment = Alfworld(data=str(data), python=python, engines=4)
    yield environment
    environment.engines.close()


@pytest.fixture(scope="module")
def task(game: Alfworld) -> str:
    """A small game: loading one takes seconds."""
    tasks = [task.id for split in ("dev", "test") for task in game.split(split)]
    return min(tasks, key=lambda task: (game.games.folder / task / "game.tw-pddl").stat().st_size)


def test_the_household_plays_the_same_game(game: Alfworld, data: Path):
    """Texts, rewards and possible actions are those of the real engine, in walkthroughs and in random play."""
    household = Household(problems=str(data / "json_2.1.1"))
    rng = random.Random(0)
    for task in [task.id for split in ("dev", "test") for task in game.split(split)]:
        real, first = game.reset(task)
        ours, expected = household.reset(task)
        assert first == expected
        walkthrough = json.loads((data / "json_2.1.1" / task / "game.tw-pddl").read_text())["walkthrough"]
        strays = [rng.choice(household.actions(ours)) for _ in range(2)] + [
            "go to the moon",
            "put mug 1 in/on fridge 1",
        ]
        for action in [*strays, *walkthrough]:
            assert game.actions(real) == household.actions(ours)
            if action != "help":
                assert game.step(real, action) == household.step(ours, action), f"{task}: {action}"
        assert real.won


def test_the_expert_wins(game: Alfworld, data: Path, task: str):
    plan = game.expert(task)
    assert plan is not None and plan == Household(problems=str(data / "json_2.1.1")).expert(task)
    state, _ = game.reset(task)
    answers = [game.step(state, step.action) for step in plan]
    assert (answers[-1].reward, answers[-1].done) == (1.0, True) and all(answer.valid for answer in answers)


def test_a_fork_equals_a_replay_in_another_server(game: Alfworld, data: Path, python: str, task: str):
    plan = [step.action for step in game.expert(task) or ()]
    state, _ = game.reset(task)
    for action in plan[:3]:
        game.step(state, action)
    snapshot = json.loads(json.dumps(game.snapshot(state), sort_keys=True))
    fork = game.fork(state)
    assert game.step(fork, "inventory").valid and game.snapshot(state) == snapshot, "the fork moved its parent"
    other = Alfworld(data=str(data), python=python, engines=1)  # keeps next to nothing, so it has to replay
    try:
        restored = other.restore(snapshot)
        assert other.actions(restored) == game.actions(state)
        for action in (*plan[3:-1], "dance", plan[-1]):
            assert other.step(restored, action) == game.step(state, action)
        assert restored == state and state.won
        with pytest.raises(EngineFailed, match="differs from before"):
            other.step(other.restore({**snapshot, "digest": "0"}), "look")
    finally:
        other.engines.close()


def test_siblings_are_stepped_in_parallel(game: Alfworld, task: str):
    state, _ = game.reset(task)
    actions = [action for action in game.actions(state) if action.startswith("go to")][:4]
    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda action: game.step(game.fork(state), action).observation, actions))
    assert all(
        text.startswith(f"You arrive at {action.removeprefix('go to ')}.")
        for text, action in zip(texts, actions, strict=True)
    )


def test_killed_engines_are_replaced_and_none_outlives_its_server(data: Path, python: str, task: str):
    own = Alfworld(data=str(data), python=python, engines=8)
    state, first = own.reset(task)
    own.step(state, own.actions(state)[0])
    kept = [engine for engine, _ in own.engines._kept.values()]
    for engine in [own.engines._root, *kept]:
        os.kill(engine._pid, signal.SIGKILL)
    assert own.step(own.fork(state), "look").valid
    assert own.reset(task)[1] == first
    pids = [engine._pid for engine in (own.engines._root, *(engine for engine, _ in own.engines._kept.values()))]
    assert len(pids) >= 3 and all(map(running, pids))
    own.engines.close()
    wait_until(lambda: not any(map(running, pids)), "the engines to end")


@pytest.mark.parametrize(
    "change",
    [
        {"task": "train/x/y"},
        {"actions": "look"},
        {"actions": [1]},
        {"digest": None},
        {"admissible": None},
        {"won": 1},
        {"extra": 1},
    ],
    ids=str,
)
def test_a_damaged_snapshot_is_refused(game: Alfworld, task: str, change: dict):
    sound = {"task": task, "actions": ["look"], "digest": "0", "admissible": ["look"], "won": False}
    assert game.restore(sound) == AlfworldState(task, ("look",), "0", ("look",), False)
    with pytest.raises(ValueError, match="not an ALFWorld snapshot"):
        game.restore({**sound, **change})
    with pytest.raises(UnknownTask):
        game.reset("train/x/y")
