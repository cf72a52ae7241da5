"""Who may continue a run: whoever started it, wherever it lies now; of others only who is told what it names and says
so."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import typer
import yaml

from agentr import cli
from agentr.commands.pack import pack, unpack
from agentr.config.identity import Identity, plain
from agentr.config.schema import Config
from agentr.config.text import dump_yaml
from agentr.errors import AgentrError
from agentr.methods import load
from agentr.store import run
from agentr.store.run import RunStore
from agentr.store.trust import VARIABLE, Untrusted, needs_trust, remember, trusting
from tests.chaos.driver import end, start, wait_for

METHOD = "from pathlib import Path\nfrom agentr.methods.rft import METHOD\nPath(__file__).with_name('RAN').touch()\n"
REWARD = "from pathlib import Path\nfrom agentr.rewards.outcome import *\nPath(__file__).with_name('RAN').touch()\n"

#: What a run may name, each by a part of its configuration.
NAMES: dict[str, dict[str, object]] = {
    "a file of code": {"method": {"type": "{folder}/own.py"}},
    "a module": {"method": {"type": "grpo", "rewards": [{"name": "owner.rewards:Reward"}]}},
    "a program": {"env": {"python": "/opt/python"}},
    "the program": {"env": {"name": "program", "options": {"command": ["my_agent"], "tasks": {"train": "t.json"}}}},
    "a grader's code": {"env": {"options": {"reward": "{folder}/own.py:score"}}},
    "an address": {"env": {"url": "http://somewhere:8000"}},
    "a mirror": {"run": {"mirror": "s3://bucket/r"}},
    "a variable": {"env": {"url": "http://somewhere:8000", "token_env": "AWS_SECRET_ACCESS_KEY"}},
    "code in a later round": {"from_round": {2: {"method": {"type": "{folder}/own.py"}}}},
}


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    package = tmp_path / "code" / "owner"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')")
    (package / "rewards.py").write_text(REWARD)
    (tmp_path / "own.py").write_text(METHOD)


def stored(root: Path, name: str) -> Path:
    """A run directory whose configuration names that, as nothing more than files; returns the configuration's file."""
    RunStore(root).open(Identity.of(Config()))
    text = json.dumps(NAMES[name]).replace("{folder}", str(root.parent))
    config = plain(Config())
    for section, values in json.loads(text).items():
        config[section] = {**config[section], **values} if isinstance(config.get(section), dict) else values
    (root / "config.yaml").write_text(dump_yaml(config))
    return root / "config.yaml"


def started(file: Path) -> None:
    remember(file.parent, yaml.safe_load(file.read_text()))


def test_a_run_that_names_nothing_is_continued_by_anybody(tmp_path: Path) -> None:
    RunStore(tmp_path / "r").open(Identity.of(Config()))
    needs_trust(tmp_path / "r/config.yaml")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_continued_where_it_was_started_and_elsewhere_only_if_the_user_says_so(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stored(tmp_path / "r", name)
    with pytest.raises(Untrusted, match="--trust"):
        needs_trust(file)
    assert (
        name.split()[-1].replace("mirror", "address").replace("round", "code") in capsys.readouterr().err
        or name == "a module"
    )

    started(file)
    needs_trust(file)
    moved = shutil.move(tmp_path / "r", tmp_path / "moved")
    needs_trust(Path(moved) / "config.yaml")
    pack(Path(moved), tmp_path / "r.tar.zst")
    needs_trust(unpack(tmp_path / "r.tar.zst", tmp_path / "out") / "config.yaml")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    again = Path(moved) / "config.yaml"
    with pytest.raises(Untrusted):
        needs_trust(again)
    monkeypatch.setenv(VARIABLE, "1")
    needs_trust(again)
    monkeypatch.delenv(VARIABLE)
    needs_trust(again)  # it was trusted, and is known from then on


@pytest.mark.parametrize("value", ["", "0", "false", "no"])
def test_a_variable_that_does_not_say_yes_says_no(tmp_path: Path, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(Untrusted):
        needs_trust(stored(tmp_path / "r", "an address"))


@pytest.mark.parametrize("name", ["a file of code", "a module", "a grader's code", "code in a later round"])
def test_changed_code_is_other_code(tmp_path: Path, name: str) -> None:
    file = stored(tmp_path / "r", name)
    started(file)
    for code in (tmp_path / "own.py", tmp_path / "code/owner/rewards.py"):
        code.write_text(code.read_text() + "\n")
    with pytest.raises(Untrusted):
        needs_trust(file)
    started(file)
    for code in (tmp_path / "own.py", tmp_path / "code/owner/rewards.py"):
        code.unlink()
    with pytest.raises(Untrusted):
        needs_trust(file)
    assert not (tmp_path / "RAN").exists(), "code was run to find it"


def test_another_configuration_is_another_run(tmp_path: Path) -> None:
    file = stored(tmp_path / "r", "an address")
    started(file)
    config = yaml.safe_load(file.read_text())
    for section, key, value in (("env", "options", {"a": 1}), ("run", "seed", 7), ("env", "url", "http://other:1")):
        file.write_text(dump_yaml({**config, section: {**config[section], key: value}}))
        with pytest.raises(Untrusted):
            needs_trust(file)
    file.write_text(dump_yaml({**config, "model": {**config["model"], "path": "/moved/model"}}))
    needs_trust(file)  # where the model lies, 'doctor --model' says


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"run": 1, "code": {}}', '{"code": []}', "[" * 1000])
def test_a_damaged_record_is_none(tmp_path: Path, damage: str) -> None:
    file = stored(tmp_path / "r", "a file of code")
    started(file)
    [record] = (tmp_path / "state/agentr/runs").iterdir()
    record.write_text(damage)
    with pytest.raises(Untrusted):
        needs_trust(file)


@pytest.mark.parametrize("written", ["write_bytes", "write_index", "append_line"])
def test_a_run_that_is_killed_while_it_is_opened_is_its_owners(
    tmp_path: Path, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after the first write of each kind."""
    write = getattr(run, written)

    def killed(*given: object) -> None:
        write(*given)
        raise KeyboardInterrupt

    config = Config()
    config.env.url, config.train[0].learning_rate = "http://somewhere:8000", 1e-5
    monkeypatch.setattr(run, written, killed)
    with pytest.raises(KeyboardInterrupt):
        RunStore(tmp_path / "r").open(Identity.of(config))
    needs_trust(tmp_path / "r/config.yaml")


def test_where_nothing_can_be_kept_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = stored(tmp_path / "r", "an address")
    (tmp_path / "state").write_text("a file")
    with trusting():
        needs_trust(file)
    assert "will need --trust" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "- a", "method: {", "a: b"])
def test_a_damaged_configuration_is_refused_as_such(tmp_path: Path, text: str) -> None:
    file = stored(tmp_path / "r", "an address")
    file.write_text(text)
    try:
        load(file, whole=True, files=False)
    except Untrusted:
        raise
    except AgentrError:
        pass


COMMANDS: dict[str, list[str]] = {
    "resume": ["resume", "r"],
    "run": ["run", "r/config.yaml"],
    "train": ["run", "r/config.yaml", "--dataset", "x"],
    "check": ["run", "r/config.yaml", "--dry-run", "--check-cluster"],
    "compare": ["compare", "r/config.yaml"],
    "submit": ["submit", "r/config.yaml", "--address", "http://127.0.0.1:1"],
    "bench": ["bench", "collect", "--config", "r/config.yaml"],
    "import": ["import", "x.jsonl", "--config", "r/config.yaml", "--out", "x"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_goes_on_ends_with_status_2(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path / "r", "a file of code")
    (tmp_path / "x.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["agentr", *COMMANDS[name]])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "r").rglob("*")}
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    assert "own.py" in said and "--trust" in said
    assert (
        not (tmp_path / "RAN").exists()
        and {path: path.stat().st_mtime_ns for path in (tmp_path / "r").rglob("*")} == before
    )


@pytest.mark.parametrize("answer", [True, False])
def test_a_terminal_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    file = stored(tmp_path / "r", "an address")
    monkeypatch.setattr(typer, "confirm", lambda *given, **more: answer)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    if answer:
        needs_trust(file)
    else:
        with pytest.raises(Untrusted):
            needs_trust(file)


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_ones_own_run_is_requeued_and_taken_over_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed; then continued by its directory on a host that shares the home, and by its configuration on one that does
    not."""
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "include: [configs/demo.yaml]\nmethod: {type: own.py}\ncluster: {dashboard: false}\n".replace(
            "configs", str(Path("configs").resolve())
        )
    )
    root, log = tmp_path / "r", tmp_path / "log"

    def opened() -> int:
        events = root / "events.jsonl"
        return events.read_text().count('"opened"') if events.exists() else 0

    for number, command in enumerate((["run", str(mine), f"run.dir={root}"], ["resume", str(root)]), 1):
        driver = start(log, *command)
        try:
            wait_for(lambda number=number: opened() == number, driver, "the run to be opened", 120)
            driver.kill()
            driver.wait()
        finally:
            end(driver)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another host"))
    elsewhere = start(log, "resume", str(root))
    assert elsewhere.wait(120) == 2 and opened() == 2 and "own.py" in log.read_text()
    driver = start(log, "run", str(mine), f"run.dir={root}")
    try:
        wait_for(lambda: opened() == 3, driver, "the run to be opened", 120)
    finally:
        end(driver)
