"""The simulator, its copies and its tasks, without HTTP."""

import json
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_servers.app import create_app
from env_servers.base import UnknownTask
from env_servers.sciworld import ScienceWorld, tasks
from env_servers.sciworld.expert import demonstrate
from env_servers.sciworld.machine import CLASSES, OPTIONS
from env_servers.sciworld.nearest import nearest
from env_servers.sciworld.tasks import Problem
from tests.env_servers.support import TOKEN, http_client, serving, wait_until

MISSING = [requirement.how for requirement in ScienceWorld.requirements() if not requirement.present]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # virtual machines are started
needs_java = pytest.mark.skipif(bool(MISSING), reason=f"needs {'; '.join(MISSING)}")
#: Short solutions: animals that fly about, a circuit, a thermometer with its errors.
PLAYED = ("find-animal/7", "power-component/3", "use-thermometer/5")


@pytest.fixture(scope="module", autouse=True)
def quick_starts() -> Iterator[None]:
    """Virtual machines that compile less: most of the time in here is their start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
        yield


@pytest.fixture(scope="module")
def game() -> ScienceWorld:
    """One virtual machine for games and solver: nobody waits here for either."""
    made = ScienceWorld(heap="512m")
    made._solvers = made._machines
    return made


@pytest.fixture(scope="module")
def replaying() -> Iterator[ScienceWorld]:
    """Another virtual machine, and copies by replay."""
    yield ScienceWorld(copies="replay", heap="256m")


def walk(game: ScienceWorld, task: str, seed: int, length: int = 8) -> list[str]:
    """Actions that are valid at the start and do not end the game, with junk between them."""
    rng = random.Random(f"{task}/{seed}")
    state, _ = game.reset(task)
    valid = [
        a
        for a in game.actions(state)
        if a.split()[0] in ("open", "go", "pick", "move", "pour", "activate", "wait", "use")
    ]
    game.close(state)
    return [rng.choice([*rng.choices(valid, k=4), "look around", "xyzzy", "task"]) for _ in range(length)]


# tasks ----------------------------------------------------------------------------------------------------------------


def test_the_numberings_have_the_sizes_of_the_originals():
    assert sum(tasks.COUNTS.values()) == 7207
    assert (len(tasks.numbered("agentgym")), len(tasks.numbered("agentr")), len(tasks.EVALUATION)) == (4639, 4339, 200)
    meant = Counter(tasks.numbered("agentr")[n].part for n in tasks.EVALUATION)
    served = Counter(tasks.numbered("agentgym")[n].part for n in tasks.EVALUATION)
    assert meant == {"test": 200} and served == {"test": 107, "train": 66, "dev": 27}
    assert tasks.parse("agentgym/1095") == tasks.parse("agentr/1095") and tasks.parse("agentgym/1396") == tasks.parse(
        "agentr/1096"
    )


def test_published_lists_are_what_the_rules_give(shared_data: Path):
    folder = shared_data / "splits"
    published = json.loads((folder / "agentr_sciworld_test.json").read_text(encoding="utf-8"))
    assert sorted(int(item["item_id"].removeprefix("sciworld_")) for item in published) == list(tasks.EVALUATION)
    eto = {name: tasks.from_eto(folder / f"eto_sciworld_{name}_indices.json") for name in ("train", "dev", "test")}
    assert {name: len(found) for name, found in eto.items()} == {"train": 1483, "dev": 194, "test": 211}
    assert set(eto["test"]) == set(tasks.eto_test()) and all(problem.part == "test" for problem in eto["test"])


def test_etos_files_become_splits(tmp_path: Path):
    (tmp_path / "train_indices.json").write_text(
        '[["task-6-lifespan-(longest-lived)", 4], ["task-2a-test-conductivity", 412]]'
    )
    found = [Problem("lifespan-longest-lived", 4), Problem("test-conductivity", 412)]
    assert tasks.from_eto(tmp_path / "train_indices.json") == found
    (tmp_path / "dev_indices.json").write_text('[["task-1-boil", 30]]')
    with pytest.raises(ValueError, match="boil/30"):
        tasks.from_eto(tmp_path / "dev_indices.json")
    with pytest.raises(RuntimeError, match="is missing"):
        tasks.from_eto(tmp_path / "no.json")


@needs_java
def test_no_problem_of_a_held_out_split_is_in_the_training_split_beside_it(game: ScienceWorld):
    problems = {name: {task.labels["problem"] for task in game.split(name)} for name in game.spec.splits}
    assert all(problems.values())
    assert not problems["train"] & (problems["dev"] | problems["test"] | problems["agentr_test"] | problems["eto_test"])
    assert not problems["dev"] & problems["test"] and not problems["agentgym_train"] & problems["agentgym_test"]
    assert len(problems["train"] | problems["dev"] | problems["test"]) == 7207
    with pytest.raises(UnknownTask, match="option eto"):
        game.split("eto_train")


@needs_java
@pytest.mark.parametrize(
    "task",
    ["", "boil", "boil/", "boil/30", "boil/-1", "agentgym/4639", "agentr/4339", "../boil/1", "boil/1\n", "fly/0"],
)
def test_an_unknown_task_is_named(game: ScienceWorld, task: str):
    with pytest.raises(UnknownTask):
        game.reset(task)


@needs_java
def test_our_tables_are_the_simulators(game: ScienceWorld):
    interface = game._machines.get()._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
    assert {name: interface.getTaskMaxVariations(name) for name in interface.getTaskNames()} == tasks.COUNTS
    for name in ("boil", "identify-life-stages-2", "find-plant", "inclined-plane-determine-angle"):
        interface.load(name, 0, "", False)
        listed = (interface.getVariationsTrain(), interface.getVariationsDev(), interface.getVariationsTest())
        assert [list(found) for found in listed] == [
            list(tasks.variations(name, part)) for part in ("train", "dev", "test")
        ]


# the state machine ----------------------------------------------------------------------------------------------------


@needs_java
def test_every_answer_is_the_packages_own(game: ScienceWorld, monkeypatch: pytest.MonkeyPatch):
    from scienceworld import ScienceWorldEnv

    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(("-Xmx256m -XX:TieredStopAtLevel=1", *OPTIONS)))
    package = ScienceWorldEnv()
    server: Any = package.server
    for task in PLAYED[:2]:
        name, variation = task.split("/")
        package.load(name, int(variation))
        look = server.step("look around")
        state, opening = game.reset(task)
        assert opening.observation == f"{package.get_task_description()}\n{look}"
        plan = game.expert(task) or []
        assert 0 < len(plan) <= game.spec.step_limit and plan[0].thought.startswith("I have to ")
        for step in plan:
            text, answer = server.step(step.action), game.step(state, step.action)
            assert (answer.observation, answer.reward, answer.done) == (
                text,
                round(100 * server.getScore()),
                server.getCompleted(),
            )
        assert (state.reward, state.done) == (100.0, True)
    package.close()


@needs_java
def test_a_task_that_takes_too_many_steps_has_no_expert(game: ScienceWorld):
    assert game.expert("mendelian-genetics-known-plant/0") is None


@needs_java
def test_a_fork_is_a_replay_and_independent_while_others_play(game: ScienceWorld):
    for task in (PLAYED[0], PLAYED[2]):
        prefix, rest, other = walk(game, task, 0), walk(game, task, 1), walk(game, "melt/1", 2)
        state, _ = game.reset(task)
        for action in prefix:
            game.step(state, action)
        fork, disturbing, replayed = game.fork(state), game.reset("melt/1")[0], game.reset(task)[0]
        first = []
        for mine, others in zip(rest, other, strict=True):
            first.append(game.step(fork, mine))
            game.step(disturbing, others)
        for action in prefix:
            game.step(replayed, action)
        assert [game.step(replayed, action) for action in rest] == first
        assert [game.step(state, action) for action in rest] == first, "the fork moved its parent"
        assert game.snapshot(state) == game.snapshot(fork) == game.snapshot(replayed)


@needs_java
def test_listing_actions_changes_nothing(game: ScienceWorld):
    actions = [step.action for step in game.expert(PLAYED[0]) or ()]
    (asked, _), (quiet, _) = game.reset(PLAYED[0]), game.reset(PLAYED[0])
    for action in actions:
        listed = game.actions(asked)
        assert listed == sorted(set(listed)) and game.step(asked, action) == game.step(quiet, action)


@needs_java
def test_a_session_lists_the_actions_of_its_own_task_and_options_whatever_others_open(game: ScienceWorld):
    """What is made easier is one switch for all games of a virtual machine, and "easy" leaves circuits as they are
    where a task has one."""
    easy = ScienceWorld(simplifications="easy")
    easy._machines = game._machines
    boiling, circuit, plain = (
        env.reset(task)[0] for env, task in ((easy, "boil/0"), (easy, "power-component/0"), (game, "boil/0"))
    )
    for _ in range(2):  # also after another one was asked
        kinds = [
            {action.split()[0] for action in env.actions(state)}
            for env, state in ((easy, boiling), (easy, circuit), (game, plain))
        ]
        assert [("connect" in found, "teleport" in found) for found in kinds] == [
            (False, True),
            (True, True),
            (True, False),
        ]


@needs_java
def test_a_snapshot_goes_on_in_another_virtual_machine(game: ScienceWorld, replaying: ScienceWorld):
    task = PLAYED[0]
    state, _ = game.reset(task)
    for action in walk(game, task, 0):
        game.step(state, action)
    copy = replaying.restore(json.loads(json.dumps(game.snapshot(state))))
    fork = replaying.fork(copy)
    rest = walk(game, task, 100)
    expected = [game.step(state, action) for action in rest]
    assert (
        [replaying.step(copy, action) for action in rest]
        == expected
        == [replaying.step(fork, action) for action in rest]
    )


@needs_java
def test_a_snapshot_that_says_something_else_is_refused(game: ScienceWorld):
    state, _ = game.reset("boil/0")
    for action in ("look around", "open door to kitchen"):
        game.step(state, action)
    data = game.snapshot(state)
    with pytest.raises(ValueError, match="action 1, 'open door to kitchen', did not lead to"):
        game.restore({**data, "digests": [data["digests"][0], "0"]})
    for damage in (
        {"task": "boil"},
        {"task": None},
        {"actions": 1},
        {"actions": ["look"]},
        {"digests": [1, 2]},
        {"digests": None},
    ):
        with pytest.raises(ValueError, match="not a ScienceWorld snapshot"):
            game.restore({**data, **damage})
    with pytest.raises(ValueError, match="not a ScienceWorld snapshot"):
        game.restore({})


@needs_java
def test_a_wrong_focus_fails_the_task(game: ScienceWorld):
    state, _ = game.reset("boil/0")
    answer = game.step(state, "focus on agent")
    assert (answer.reward, answer.done, answer.valid, answer.status) == (0.0, True, True, "ok")


words = st.sampled_from(
    [
        "open",
        "focus on",
        "use",
        "thermometer",
        "to",
        "agent",
        "0",
        "door",
        "kitchen",
        "connect",
        "look around",
        "\n",
        "task",
    ]
)


@needs_java
@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=30), st.lists(words, max_size=5).map(" ".join)), max_size=4))
def test_any_text_is_an_action(game: ScienceWorld, actions: list[str]):
    state, _ = game.reset("boil/0")
    for action in actions:
        answer = game.step(state, action)
        assert answer.observation and 0 <= answer.reward <= 100
    assert state.actions == [action.encode("utf-8", "replace").decode() for action in actions]
    game.close(state)


@needs_java
def test_a_rewritten_action_is_told_and_recorded(game: ScienceWorld):
    rewriting = ScienceWorld(rewrite=True)
    rewriting._machines = game._machines
    state, _ = rewriting.reset("boil/0")
    answer = rewriting.step(state, "open the kitchen door")
    assert (answer.observation, answer.valid, answer.executed) == (
        "The door is now open.",
        True,
        "open door to kitchen",
    )
    assert state.actions == ["open door to kitchen"]
    again = rewriting.step(rewriting.reset("boil/0")[0], answer.executed)
    assert (again.observation, again.executed) == (answer.observation, ""), "what was carried out stands as it is"
    assert rewriting.step(state, "go to kitchen").observation == "You move to the kitchen."


@needs_java
def test_where_actions_are_rewritten_the_expert_wins_or_there_is_none(game: ScienceWorld):
    """In boil/14 an action that is carried out in place of one of the solver's ends the game."""
    rewriting = ScienceWorld(rewrite=True)
    rewriting._machines = rewriting._solvers = game._machines
    assert game.expert("boil/14") and rewriting.expert("boil/14") is None
    state, _ = rewriting.reset("find-animal/7")
    answers = [rewriting.step(state, step.action) for step in rewriting.expert("find-animal/7") or ()]
    assert answers and answers[-1].reward == 100 and all(answer.valid for answer in answers)


def test_the_nearest_action():
    valid = [
        "close door to hall",
        "focus on cup",
        "go to hall",
        "look at door to hall",
        "open door to hall",
        "pick up cup",
        "reset task",
    ]
    assert nearest("go to hall", valid) == "go to hall"
    assert nearest("take the cup", valid) == "pick up cup"
    assert nearest("focus on the cup", valid) == "focus on cup"
    assert nearest("open hall door", valid) == nearest("use door to hall", valid) == "open door to hall"
    assert nearest("xyzzy", valid) == "xyzzy" and nearest("take the cup", []) == "take the cup"


def test_every_kind_of_action_has_a_thought():
    actions = (
        "open door to hall;go to hall;pick up cup;move cup in inventory to blue box;wait1;0;use thermometer in "
        "inventory on tin"
    )
    steps = demonstrate("Your task is to find a cup. First, focus on it.", actions.split(";"))
    assert steps[0].thought == "I have to find a cup. The door to the hall is in my way. I open it."
    assert steps[3].thought == "The cup belongs in the blue box now."
    assert not any("{" in step.thought or step.thought.startswith("The next thing") for step in steps)


# the virtual machine --------------------------------------------------------------------------------------------------


@needs_java
def test_closed_games_free_their_memory(game: ScienceWorld):
    runtime = game._machines.get()._gateway.jvm.java.lang.Runtime.getRuntime()

    def used() -> float:
        runtime.gc()
        return (runtime.totalMemory() - runtime.freeMemory()) / 2**20

    state, _ = game.reset("boil/0")
    before = used()
    forks = [game.fork(state) for _ in range(100)]
    held = used() - before
    for fork in forks:
        game.close(fork)
    assert 5 < held < 100
    assert used() - before < held / 4


@needs_java
def test_a_full_machine_refuses_further_games_and_keeps_those_it_has():
    small = ScienceWorld(heap="64m")
    with serving(create_app(small, token=TOKEN)) as url, http_client(url) as client:
        client.timeout = 120
        root = client.post("/v1/open", json={"task": "boil/0"}).json()["session"]
        forks, body = [], {"session": root}
        while (answer := client.post("/v1/fork", json=body)).status_code == 200:
            forks.append(answer.json()["session"])
            assert len(forks) < 1000
        assert answer.status_code == 503 and "takes no more games: less than 10 %" in answer.json()["error"]
        before = client.get("/health").json()["sessions"]
        refused = client.post("/v1/expand", json={"session": root, "actions": ["look around"] * 100})
        assert refused.status_code == 503 and client.get("/health").json()["sessions"] == before
        looked = client.post("/v1/step", json={"session": forks[0], "action": "look around"})
        assert looked.status_code == 200 and looked.json()["valid"]
        assert client.post("/v1/actions", json={"session": forks[0]}).json()["actions"]
        client.post("/v1/close", json={"sessions": forks[1:]})
        wait_until(lambda: client.post("/v1/fork", json=body).status_code == 200, "room for another game")


@needs_java
def test_a_virtual_machine_that_dies_is_replaced(replaying: ScienceWorld):
    state, opening = replaying.reset("boil/0")
    machine = replaying._machines.get()
    machine._process.kill()
    machine._process.wait()
    with pytest.raises(RuntimeError, match="virtual machine ended"):
        replaying.step(state, "look around")
    replaying.close(state)
    assert replaying.reset("boil/0")[1] == opening


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="no simplification is called fun"):
        ScienceWorld(simplifications="easy,fun")
    with pytest.raises(ValueError, match="heap"):
        ScienceWorld(heap="lots")
    with pytest.raises(ValueError, match="copies"):
        ScienceWorld(copies="some")  # type: ignore[arg-type]


@needs_java
def test_the_classes_are_what_the_sources_compile_to(tmp_path: Path):
    if (
        shutil.which("javac") is None
        or " 17." not in subprocess.run(["javac", "-version"], capture_output=True, text=True).stdout
    ):
        pytest.skip("needs javac 17; other versions write other bytes")
    from scienceworld.constants import JAR_PATH

    sources = sorted(CLASSES.rglob("*.java"))
    subprocess.run(
        ["javac", "--release", "11", "-cp", JAR_PATH, "-d", str(tmp_path), *map(str, sources)],
        check=True,
        capture_output=True,
    )
    compiled = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.class")}
    shipped = {path.relative_to(CLASSES): path.read_bytes() for path in CLASSES.rglob("*.class")}
    assert compiled == shipped, (
        "compile them again: javac --release 11 -cp scienceworld.jar env_servers/sciworld/java/agentr/sciworld/*.java"
    )
