"""The commands about environments, each with a real server."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agentr.cli import app
from agentr.errors import ConfigError, InfraError
from agentr.search import Origin, Tree
from agentr.store.forest import Forest
from agentr.types import Message, Outcome, Task
from env_servers.protocol import TOKEN_ENV
from env_servers.textcraft import TextCraft
from tests.env_servers.support import TOKEN, child_server
from tests.runs import round_of
from tests.trees import child


def agentr(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, arguments, input=typed, env={"COLUMNS": "160"})


def output(*arguments: str, typed: str = "") -> str:
    result = agentr(*arguments, typed=typed)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


@pytest.fixture(scope="module")
def url() -> Any:
    with child_server("textcraft", "--option", "distractors=3") as (url, _):
        yield url


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_ENV, TOKEN)


def test_the_list_says_what_is_here_and_what_is_missing():
    found = {d["name"]: d for d in json.loads(output("list", "environments", "--json"))}
    assert found["textcraft"]["available"] and found["textcraft"]["requirements"] == []
    for d in found.values():
        assert d["available"] != bool(
            d["fault"] or [r for r in d["requirements"] if not (r["present"] or r["optional"])]
        )
        assert all(r["name"] and r["how"] for r in d["requirements"])
    assert "textcraft" in output("list", "environments")


def test_a_person_plays_takes_back_and_wins():
    plan = [step.action for step in TextCraft().expert("stick@0") or ()]
    typed = "\n".join(
        [":undo", "get 1 moon cheese", ":undo", *plan[:-1], "inventory", ":undo", plan[-1], "inventory", ":quit"]
    )
    text = output("envs", "play", "textcraft", "--task", "stick@0", typed=typed + "\n")
    assert "This is the beginning." in text and "Could not find moon cheese" in text
    assert f"action {len(plan)} of 20, reward 1" in text and "solved" in text
    assert "The episode is over" in text


def test_suggestions_and_the_expert_are_shown(url: str, token: None):
    text = output("envs", "play", url, "--split", "dev", typed=":expert\n:actions\n:99\n:1\n")
    assert "Action" in text and "There is no :99" in text
    assert "TextCraft, task" in text


def test_a_play_cannot_begin_on_a_task_that_is_not_there(url: str, token: None):
    error = agentr("envs", "play", url, "--task", "nothing").exception
    assert isinstance(error, ConfigError) and "nothing" in error.message
    error = agentr("envs", "play", url, "--split", "nothing").exception
    assert isinstance(error, ConfigError) and "train" in error.hint


@pytest.mark.slow
def test_check_of_a_running_server(url: str, token: None):
    checks = json.loads(output("envs", "check", url, "--tasks", "1", "--sessions", "8", "--json"))
    assert {c["outcome"] for c in checks} <= {"passed", "skipped"} and len(checks) > 15


def test_a_failed_check_is_exit_status_1(url: str):
    result = agentr("envs", "check", url, "--tasks", "1")  # without the token
    assert result.exit_code == 1
    assert "expected 200, got 401" in result.stdout and "failed" in result.stderr


def test_demonstrations_are_carried_out_and_written(tmp_path: Path):
    out = tmp_path / "new" / "demos.jsonl"
    said = output("envs", "demos", "textcraft", "--out", str(out), "--limit", "5", "--option", "recipes=exact")
    assert said.startswith("5 demonstrations in") and "0 did not succeed, 0 without an expert" in said
    for line in out.read_text(encoding="utf-8").splitlines():
        demo = json.loads(line)
        turns = demo["conversations"]
        assert (demo["split"], demo["reward"]) == ("train", 1.0)
        assert [t["from"] for t in turns] == ["human", "gpt"] * (len(turns) // 2)
        assert "You craft items" in turns[0]["value"] and turns[1]["loss"] is False, (
            "the acknowledgement is not trained on"
        )
        assert all(t["loss"] and "Action: " in t["value"] for t in turns[3::2])
        assert demo["id"].partition("@")[0] in turns[2]["value"]


def test_demonstrations_as_trees_hold_the_tokens_of_a_model(tmp_path: Path, url: str, token: None):
    out = tmp_path / "trees"
    assert output("envs", "demos", url, "--out", str(out), "--limit", "2", "--format", "trees").startswith(
        "2 demonstrations"
    )
    trees = list(Forest(out))
    assert len(trees) == 2 and all(tree.successes() and tree.prompt_ids for tree in trees)
    error = agentr("envs", "demos", url, "--out", str(out), "--format", "trees").exception
    assert isinstance(error, ConfigError) and "already there" in error.message


def test_what_an_environment_needs_is_listed() -> None:
    assert "how to get it" in output("list", "webshop")
    error = agentr("list", "textcarft").exception
    assert isinstance(error, ConfigError) and "textcarft" in error.message and "'textcraft'" in error.hint


def test_a_server_that_cannot_start_says_why():
    error = agentr("envs", "play", "nothing").exception
    assert isinstance(error, ConfigError) and error.message == "no environment is called 'nothing'"
    assert "textcraft, webshop, or module:class" in error.hint
    assert "Did you mean 'textcraft'?" in str(agentr("envs", "play", "textcarft").exception)
    error = agentr("envs", "play", "nowhere.to:Befound").exception
    assert (
        isinstance(error, InfraError)
        and "'nowhere.to:Befound'" in error.message
        and "No module named 'nowhere'" in error.message
    )
    error = agentr("envs", "play", "http://127.0.0.1:9", "--option", "a=1").exception
    assert isinstance(error, ConfigError) and "takes no options" in error.message


@pytest.mark.slow
def test_a_person_plays_on_from_a_turn_of_a_tree(tmp_path: Path):
    """In the run's environment, with its options, after what was recorded up to the turn; a world that answers
    otherwise is said."""
    plan = [step.action for step in TextCraft(recipes="exact").expert("stick@0") or ()]
    run = played(tmp_path / "run", plan)
    text = output(
        "envs",
        "play",
        "--run",
        str(run),
        "--tree",
        "stick@0",
        "--turn",
        "1",
        typed="\n".join([*plan[1:], ":quit"]) + "\n",
    )
    _, opening = TextCraft(recipes="exact").reset("stick@0")
    lines = [line.strip() for line in opening.observation.splitlines() if line.strip()]
    assert text.index(lines[-1]) < text.index(f"> {plan[0]}"), "the recipes and the goal come first"
    assert f"> {plan[0]}" in text and "1 actions as recorded" in text and "reward 1" in text and "solved" in text
    error = agentr("envs", "play", "--run", str(run), "--tree", "stick@0", "--turn", str(len(plan))).exception
    assert isinstance(error, ConfigError) and "the episode ended" in error.message
    error = agentr("envs", "play", "--run", str(run), "--tree", "stick@0", "--turn", "99").exception
    assert isinstance(error, ConfigError) and f"0 to {len(plan)}" in error.hint
    error = agentr("envs", "play", "--run", str(run)).exception
    assert isinstance(error, ConfigError) and "no tree" in error.message
    for arguments in ([], ["textcraft", "--run", str(run)]):
        assert isinstance(agentr("envs", "play", *arguments).exception, ConfigError)
    other = played(tmp_path / "other", plan, observation="You see a dragon.")
    error = agentr("envs", "play", "--run", str(other), "--tree", "stick@0", "--turn", "1").exception
    assert isinstance(error, InfraError) and "dragon" in error.message


def played(folder: Path, plan: list[str], observation: str = "") -> Path:
    """A run with one tree: the plan as TextCraft carries it out."""
    world = TextCraft(recipes="exact")
    state, _ = world.reset("stick@0")
    tree = Tree.start(Task("textcraft", "stick@0", "train"), (Message("user", "x"),), (1,), 0)
    for number, action in enumerate(plan):
        seen = world.step(state, action)
        outcome = Outcome.SUCCESS if seen.done else None
        tree.add(
            number, child(action, seen.reward, outcome, observation=observation or seen.observation), Origin.POLICY
        )
    round_ = round_of(folder, ["method.type=agent_r", "env.options.recipes=exact"], collect=[tree])
    round_.experiment.store.close()
    return folder
