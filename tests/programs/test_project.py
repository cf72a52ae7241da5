"""The project of ``agentr init --agent``, whose agent is that of `docs/your_agent.md`: a round of it trains, from
Python and from the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

import agentr
from agentr.config.identity import plain
from agentr.envs.local import serving
from agentr.errors import ConfigError
from agentr.methods import load
from agentr.verify_cli import init
from env_servers.conformance import Effort, Outcome, run
from env_servers.sandbox import launch
from tests.chaos.driver import end, start

NAMESPACES = pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init(tmp_path / "mine", agent=True)
    return tmp_path / "mine"


@NAMESPACES
@pytest.mark.slow
def test_it_keeps_the_contract(project: Path) -> None:
    with serving(load(project / "run.yaml").env) as (urls, token):
        checks = run(urls[0], token.reveal(), effort=Effort(tasks=1, steps=2, sessions=2))
    assert [f"{check.name}: {check.detail}" for check in checks if check.outcome is Outcome.FAILED] == []


def test_it_may_be_moved(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a configuration are relative to it, those of a command line to the current folder."""
    moved = project.rename(project.with_name("moved"))
    own = load(moved / "run.yaml").env.options
    assert own["tasks"] == {split: str(moved / f"{split}.jsonl") for split in ("train", "test")}
    assert own["reward"] == f"{moved}/grade.py:score" and own["command"] == ["python3", "agent.py"]
    (moved / "other.yaml").write_text("include: [run.yaml]")
    monkeypatch.chdir(moved / "agent")
    options = load(Path("../other.yaml"), ["env.options.workdir=.", "env.options.tasks.test=~/test.jsonl"]).env.options
    assert options["workdir"] == str(moved / "agent") and options["tasks"]["test"] == "~/test.jsonl"
    assert Path(options["reward"].partition(":")[0]).samefile(moved / "grade.py")
    (moved / "foreign.yaml").write_text("env: {name: 'mine:Mine', options: {tasks: tasks.jsonl}}")
    assert load(moved / "foreign.yaml", files=False).env.options == {"tasks": "tasks.jsonl"}


PYTHON = """
import agentr
run = agentr.train_agent(
    ["python3", "agent.py"],
    {"train": "train.jsonl", "test": "test.jsonl"},
    "grade.py:score",
    workdir="agent",
    config="run.yaml",
    overrides={"cluster.dashboard": False},
)
assert run.rounds[1].dataset.summary.rows >= 1
"""


@NAMESPACES
@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_a_round_trains(project: Path) -> None:
    """Python and the command line run the same: what the one has done is finished for the other."""
    done = subprocess.run([sys.executable, "-c", PYTHON], cwd=project, capture_output=True, text=True, timeout=1700)
    assert done.returncode == 0, done.stderr[-3000:]
    root = project / "runs/guess"
    sealed = [event for event in agentr.open(root).events() if event["event"] == "stage_sealed"]
    driver = start(project / "log", "run", str(project / "run.yaml"), f"run.dir={root}", "cluster.dashboard=false")
    try:
        assert driver.wait(300) == 0, (project / "log").read_text()[-3000:]
    finally:
        end(driver)
    assert [event for event in agentr.open(root).events() if event["event"] == "stage_sealed"] == sealed


def test_what_is_wrong_is_said_before_anything_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["true"], {"train": "train.jsonl", "test": "test.jsonl"}
    with pytest.raises(ConfigError, match=r"env\.options\.workdr: program has no such option"):
        agentr.train_agent(*given, workdr="agent")
    with pytest.raises(ConfigError, match=r"run\.rond"):
        agentr.train_agent(*given, overrides={"run.rond": 1})
    with pytest.raises(ConfigError, match="not of the form key=value"):
        agentr.train_agent(*given, overrides=["run.rounds"])
    with pytest.raises(ConfigError, match="no configuration file"):
        agentr.train_agent(*given, config="none.yaml")
    assert not any(tmp_path.iterdir())


def test_what_is_given_is_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Begun(Exception):
        pass

    def begins(plan, reporter):
        raise Begun(plain(plan.config))

    monkeypatch.setattr("agentr.commands.run.run", begins)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Begun) as told:
        agentr.train_agent(
            ["true", "a: b", "é\n#"],
            {"train": tmp_path / "a.jsonl", "held": "b.jsonl"},
            out="there",
            overrides={"train": [{"learning_rate": 1e-5}], "run.name": "007"},
            live=3,
        )
    (config,) = told.value.args
    assert config["env"]["options"] == {
        "command": ["true", "a: b", "é\n#"],
        "tasks": {"train": f"{tmp_path}/a.jsonl", "held": f"{tmp_path}/b.jsonl"},
        "reward": "",
        "live": 3,
    }
    assert config["env"]["name"] == "program" and config["eval"]["tasks"]["split"] == "held"
    assert config["run"]["dir"] == "there" and config["run"]["name"] == "007"
    assert config["train"][0]["learning_rate"] == 1e-5
