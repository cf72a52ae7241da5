"""The world and its tasks, without HTTP."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_servers.base import UnknownTask
from env_servers.registry import BadOptions, load
from env_servers.textcraft import TextCraft
from env_servers.textcraft.world import item_id
from tests.env_servers.support import ROOT

DIGEST = """
import hashlib
from env_servers.textcraft import TextCraft
digest = hashlib.sha256()
for options in ({}, {"recipes": "exact", "distractors": 3}):
    game = TextCraft(**options)
    for name in game.spec.splits:
        tasks = game.split(name)
        digest.update(repr(tasks).encode())
        for task in tasks[::17]:
            digest.update(game.reset(task.id)[1].observation.encode())
            digest.update(repr(game.expert(task.id)).encode())
    digest.update(repr(game.world.by_item).encode())
print(digest.hexdigest())
"""


@pytest.fixture(scope="module", params=["original", "exact"])
def game(request: pytest.FixtureRequest) -> TextCraft:
    return TextCraft(recipes=request.param, distractors=3)


def sample(game: TextCraft, split: str, count: int) -> list[str]:
    return [task.id for task in random.Random(split).sample(game.split(split), count)]


@pytest.mark.slow
def test_the_same_world_whatever_the_hash_seed():
    def digest(seed: str) -> str:
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-c", DIGEST], env=environ, check=True, capture_output=True, text=True
        ).stdout

    first, second = digest("1"), digest("2")
    assert first == second and len(first.strip()) == 64


def test_the_expert_earns_the_full_reward(game: TextCraft):
    for split in game.spec.splits:
        for task in sample(game, split, 60):
            plan = game.expert(task)
            assert plan or split.startswith("agentgym"), f"no expert for {task}"
            state, _ = game.reset(task)
            answers = [game.step(state, step.action) for step in plan or ()]
            if plan:
                assert (answers[-1].reward, answers[-1].done) == (1.0, True), f"{task}: {answers[-1]}"
                assert not any(answer.done for answer in answers[:-1]) and all(answer.valid for answer in answers)


def test_splits_share_no_goal(game: TextCraft):
    goals = {name: {task.labels["goal"] for task in game.split(name)} for name in ("train", "dev", "test")}
    assert goals["train"] and goals["dev"] and goals["test"]
    assert not goals["train"] & goals["dev"] and not goals["train"] & goals["test"] and not goals["dev"] & goals["test"]
    ids = {name: {task.id for task in game.split(name)} for name in game.spec.splits}
    assert (len(ids["agentgym_train"]), len(ids["agentgym_test"])) == (374, 100)
    assert not ids["agentgym_train"] & ids["agentgym_test"]


def test_goals_come_from_files(tmp_path: Path):
    (tmp_path / "train.jsonl").write_text('{"goal": "stick"}\n{"goal": "minecraft:oak_sign", "seed": 3}\n')
    (tmp_path / "test.json").write_text('["ender eye"]')
    files = {"train": str(tmp_path / "train.jsonl"), "test": str(tmp_path / "test.json")}
    game = TextCraft(recipes="exact", distractors=3, goals=files)
    assert {name: split.train for name, split in game.spec.splits.items()} == {
        "train": True,
        "test": False,
        "agentgym_train": True,
        "agentgym_test": False,
    }
    assert [task.id for task in game.split("train")] == ["stick@0", "oak sign@3"]
    assert game.split("train")[1].labels == {
        "depth": 2,
        "plan_length": len(game.expert("oak sign@3") or ()),
        "goal": "oak sign",
    }
    plain = TextCraft(recipes="exact", distractors=3)
    assert game.reset("oak sign@3")[1] == plain.reset("oak sign@3")[1], "the same task as without the file"
    assert [task.id for task in TextCraft(goals=files["test"]).split("test")] == ["ender eye@0"]
    with pytest.raises(UnknownTask, match="no split 'dev'; it has train, test, agentgym_train"):
        game.split("dev")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('["stick", "diamond hat"]', "entry 1: 'diamond hat' is no item that can be crafted"),
        ('["oak logs"]', "entry 0: 'oak logs' is fetched, not crafted"),
        ('["stick", {"goal": "stick", "seed": 0}]', "entry 1: stick with seed 0 is record 0, too"),
        ('[{"goal": "stick", "seed": -1}]', "entry 0: a seed is a whole number from 0"),
        ('[{"item": "stick"}]', "entry 0: a goal is a text, or"),
        ("[]", "holds no goals"),
        ("no json", "goals.json"),
    ],
)
def test_goals_that_cannot_be_used_are_named(tmp_path: Path, content: str, complaint: str):
    (tmp_path / "goals.json").write_text(content)
    with pytest.raises(BadOptions, match=complaint):
        load("textcraft", {"goals": str(tmp_path / "goals.json")})


def test_files_of_goals_that_do_not_fit_are_named(tmp_path: Path):
    (tmp_path / "a.json").write_text('["stick", "oak sign"]')
    (tmp_path / "b.json").write_text('[{"goal": "oak sign", "seed": 5}]')
    a, b = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    for goals, complaint in (
        ({"train": a, "test": b}, "goals to train on and held-out goals must differ; both have oak sign"),
        ({"valid": a}, "name a file for train, dev, test, not for valid"),
        ({}, "name a file for train, dev, test"),
        (str(tmp_path / "c.json"), "there is no file of goals"),
        (str(tmp_path), "there is no file of goals"),
    ):
        with pytest.raises(BadOptions, match=complaint):
            load("textcraft", {"goals": goals})


def play(game: TextCraft, task: str, seed: int) -> list[str]:
    """Expert actions with junk and repetitions between them."""
    rng = random.Random(seed)
    actions = []
    for step in game.expert(task) or ():
        actions += rng.choices(
            [step.action, "inventory", "get 1 stone", "get 3 oak logs", "craft 1 stick", "look"], k=rng.randrange(3)
        )
        actions.append(step.action)
    return actions[: rng.randrange(len(actions)) + 1]


def test_an_ingredient_that_is_named_twice_is_needed_twice(game: TextCraft):
    """Four planks are a crafting table; two planks named twice are not made of the two that are there."""
    state, _ = game.reset("crafting table@0")
    state.inventory["minecraft:oak_planks"] = 2
    refused = game.step(state, "craft 1 crafting table using 2 oak planks, 2 oak planks")
    assert not refused.valid and "Could not find enough items" in refused.observation
    state.inventory["minecraft:oak_planks"] = 4
    made = game.step(state, "craft 1 crafting table using 2 oak planks, 2 oak planks")
    assert made.done and made.reward == 1.0 and "minecraft:oak_planks" not in state.inventory


def test_a_fork_is_a_replay_and_independent(game: TextCraft):
    for seed, task in enumerate(sample(game, "train", 40)):
        prefix, rest = play(game, task, seed), play(game, task, seed + 1000)
        state, _ = game.reset(task)
        for action in prefix:
            game.step(state, action)
        before = game.snapshot(state)
        fork = game.fork(state)
        replayed, _ = game.reset(task)
        for action in prefix:
            game.step(replayed, action)
        assert game.snapshot(fork) == game.snapshot(replayed) == before
        assert [game.step(fork, action) for action in rest] == [game.step(replayed, action) for action in rest]
        assert game.snapshot(state) == before, "the fork moved its parent"


def test_a_snapshot_restores_to_the_same_play(game: TextCraft):
    for seed, task in enumerate(sample(game, "dev", 20)):
        state, _ = game.reset(task)
        for action in play(game, task, seed):
            game.step(state, action)
        copy = game.restore(game.snapshot(state))
        rest = play(game, task, seed + 1000)
        assert [game.step(copy, action) for action in rest] == [game.step(state, action) for action in rest]


def test_a_stored_inventory_keeps_its_order(game: TextCraft):
    state, _ = game.reset("stick@0")
    for action in ("get 1 stone", "get 3 oak logs", "get 1 apple"):
        game.step(state, action)
    stored = game.snapshot(state)
    sorted_keys = game.restore(json.loads(json.dumps(stored, sort_keys=True)))
    earlier = game.restore({**stored, "inventory": dict(stored["inventory"])})
    told = game.step(state, "inventory").observation
    assert told == "Inventory: [stone] (1) [oak logs] (3) [apple] (1) "
    assert [game.step(copy, "inventory").observation for copy in (sorted_keys, earlier)] == [told, told]


@pytest.mark.parametrize(
    "data", [{}, {"task": "stick@0"}, {"task": "stick@0", "goal": "x", "inventory": {}, "done": False}]
)
def test_a_damaged_snapshot_is_refused(game: TextCraft, data: dict):
    with pytest.raises(ValueError, match="not a TextCraft snapshot"):
        game.restore(data)


@pytest.mark.parametrize(
    "task", ["", "stick", "stick@", "stick@-1", "nothing@0", "agentgym/", "agentgym/x", "../etc@0", "stick@0\n"]
)
def test_an_unknown_task_is_named(game: TextCraft, task: str):
    with pytest.raises(UnknownTask):
        game.reset(task)


words = st.sampled_from(
    ["craft", "get", "inventory", "using", "1", "2", "999999", ",", "stick", "oak logs", "planks", "Thought:"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=30), st.lists(words, max_size=8).map(" ".join)), max_size=6))
def test_any_text_is_an_action(actions: list[str]):
    game = TextCraft()
    state, _ = game.reset("stick@0")
    for action in actions:
        answer = game.step(state, action)
        assert answer.observation and answer.reward in (0.0, 1.0)
    assert all(count > 0 for count in state.inventory.values())
    assert item_id("oak logs") == "minecraft:oak_logs"


# other names ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def renamed() -> TextCraft:
    return TextCraft(recipes="exact", distractors=3, renamed=2)


def test_copies_of_tasks_come_after_the_tasks_and_only_to_train_on(renamed: TextCraft):
    plain = TextCraft(recipes="exact", distractors=3)
    for name in ("train", "dev", "test"):
        tasks, whole = plain.split(name), renamed.split(name)
        assert [task.id for task in whole[: len(tasks)]] == [task.id for task in tasks]
        assert len(whole) == len(tasks) * (3 if name == "train" else 1)
        assert {task.labels["renamed"] for task in whole} == ({0, 1, 2} if name == "train" else {0})
        for task in random.Random(1).sample(tasks, 20):
            assert plain.reset(task.id)[1] == renamed.reset(task.id)[1]
    with pytest.raises(UnknownTask):
        plain.reset(f"{plain.split('train')[0].id}~1")
    with pytest.raises(UnknownTask):
        renamed.reset(f"{plain.split('train')[0].id}~3")


def test_a_copy_is_the_same_task_in_other_words(renamed: TextCraft):
    """Played by the expert it goes the same way, item by item; its names are items', and no held-out goal's."""
    held_out = {task.labels["goal"] for name in ("dev", "test") for task in renamed.split(name)}
    copies = [task for task in renamed.split("train") if task.labels["renamed"]]
    others = 0
    for task in random.Random(7).sample(copies, 60):
        plain, copy = (renamed.reset(id_) for id_ in (task.id.partition("~")[0], task.id))
        assert task.labels["goal"] not in held_out
        others += task.labels["goal"] not in plain[1].observation
        steps = [renamed.expert(state.task) or [] for state, _ in (plain, copy)]
        assert len(steps[0]) == len(steps[1]) == task.labels["plan_length"]
        assert renamed.expert_from(copy[0]) == steps[1]
        for one, other in zip(*steps, strict=True):
            answers = [renamed.step(state, step.action) for (state, _), step in ((plain, one), (copy, other))]
            assert answers[1].valid and answers[0].reward == answers[1].reward
            assert plain[0].inventory == copy[0].inventory, "what is carried is the same"
            for word in re.findall(r"\d ([a-z ]+?)(?:,|$| using)", other.action):
                assert item_id(word) in renamed.world.items
        assert copy[0].done
        again = renamed.restore(json.loads(json.dumps(renamed.snapshot(renamed.fork(copy[0])))))
        assert again == copy[0] and again.names.of(again.goal) == copy[0].names.of(copy[0].goal)
    assert others > 50


def test_an_item_is_not_found_under_the_name_that_is_anothers(renamed: TextCraft):
    for task in (task for task in renamed.split("train") if task.labels["renamed"]):
        state, seen = renamed.reset(task.id)
        fetched = [step.action for step in renamed.expert(task.id) or [] if step.action.startswith("get")]
        own = [step.action for step in renamed.expert(task.id.partition("~")[0]) or [] if step.action.startswith("get")]
        if fetched and not {word.split(" ", 2)[2] for word in own} & {word.split(" ", 2)[2] for word in fetched}:
            name = own[0].split(" ", 2)[2]
            if name not in seen.observation:
                assert not renamed.step(state, own[0]).valid
                assert renamed.step(state, fetched[0]).observation == f"Got {fetched[0].removeprefix('get ')}"
                assert fetched[0].split(" ", 2)[2] in renamed.step(state, "inventory").observation
                break
    else:
        raise AssertionError("no such task")


@pytest.mark.parametrize("options", [{"renamed": -1, "recipes": "exact"}, {"renamed": 1}, {"renamed": 1000}])
def test_other_names_that_make_no_sense_are_refused(options: dict):
    with pytest.raises(BadOptions, match="renamed"):
        load("textcraft", options)
