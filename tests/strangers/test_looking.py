"""Whatever looks at a run, an archive or a configuration of a stranger runs nothing of it, stays in it, ends, and shows
text as text.

The tables below have a row for each command, each answer of the pages and each public name; one without a row fails.
"""

import hashlib
import inspect
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from starlette.testclient import TestClient

import agentr
from agentr.cli import LOOK, app
from agentr.commands.pack import unpack
from agentr.errors import AgentrError
from agentr.read import run as read_run
from agentr.read import stage as read_stage
from agentr.ui.library import Library
from agentr.ui.probe import Prober
from agentr.ui.server import answers
from agentr.ui.server import app as pages
from agentr.words import seen
from tests.runs import small
from tests.strangers.attacks import ARCHIVES, ATTACKS, CANARY, COLLECT, VARIABLE, archive, outside_of
from tests.support import tiny_model
from tests.ui.conftest import ORIGIN

MAKES, CONTINUES, NEITHER = (
    "makes something of what the user names",
    "goes on with a run, and asks first",
    "takes nothing of the kind",
)

#: What each command is; those that look by the ways in which they are called, in the folder that holds the run ``r``.
COMMANDS: dict[str, str | list[str]] = {
    "run": ["run r/config.yaml --dry-run"],  # without: CONTINUES
    "plan": ["plan r/config.yaml --on 4xH100", "plan r/config.yaml --on H100 --json"],
    "resume": CONTINUES,
    "search": CONTINUES,
    "envs play": CONTINUES,
    "compare": MAKES,
    "submit": MAKES,
    "stop": NEITHER,
    "import": MAKES,
    "status": ["status r", "status r --json", "status .", "status . --json"],
    "ui": ["ui . --port 99999"],  # its pages are below
    "report": [
        "report r --out told",
        "report r r",
        "report r --tree door --out door.html",
        "report r --task a --out a.html",
        "report r --row 0",
        f"report r --stage {COLLECT} --tree door --node 1",
    ],
    "logs": ["logs r"],
    "export": [
        "export r --out rows.json",
        "export r --out rows.jsonl --format trl",
        "export r --out trees --format agent_r_trees",
    ],
    "doctor": ["doctor r", "doctor r --json", "doctor r --repair --stale"],
    "pack": ["pack r", "pack r --for-sharing --out shared.tar.zst"],
    "unpack": ["unpack r.tar.zst --out there"],
    "prune": ["prune r --keep 'last 1' --yes"],
    "verify": NEITHER,
    "list": NEITHER,
    "init": NEITHER,
    "config schema": NEITHER,
    **{f"envs {name}": NEITHER for name in ("check", "demos")},
    "bench collect": MAKES,
}

#: Parameters of each answer of the pages.
ANSWERS: dict[str, dict[str, Any]] = {
    "home": {},
    "state": {},
    "run": {},
    "tasks": {},
    "patterns": {},
    "steps": {"stage": COLLECT},
    "forest": {"stage": COLLECT},
    "tree": {"stage": COLLECT, "key": "door"},
    "turns": {"stage": COLLECT, "key": "door", "nodes": "1,2"},
    "probe": {"stage": COLLECT, "key": "nothing", "at": 1},
    "dataset": {"stage": "rounds/01/dataset"},
    "row": {"stage": "rounds/01/dataset", "index": 0},
    "compare": {},
    "log": {"name": "driver.log"},
}

#: Arguments of the public methods that take some.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "section": (dict[str, Any], "model"),
    "stage": (COLLECT,),
    "last_trees": ("door",),
    "policy": ("base",),
    "trace": ("door", 1),
    "Rows.trace": (0,),
    "round_with": (lambda round_: True,),
    "some": ([0],),
}


def commands(group: Any = None, above: str = "") -> Iterator[str]:
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}"


def test_each_command_and_each_answer_has_a_row() -> None:
    assert set(commands()) - set(COMMANDS) == set(), "say of a new command whether it looks, and how it is called"
    assert set(answers(Prober())) == set(ANSWERS), "say how a new answer is asked for"
    looking = {name for name, row in COMMANDS.items() if isinstance(row, list)} - {"run"}
    assert looking <= set(LOOK), "a command that looks may run no code that a run names"


# the jail ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("strangers") / "r", tiny_model(tmp_path_factory.mktemp("model")))


class Jail:
    """A folder with the run of a stranger, beside what is nobody's business."""

    def __init__(self, folder: Path, whole: Path) -> None:
        self.outside = outside_of(folder / "outside")
        self.inside = folder / "inside"
        self.inside.mkdir()
        self.run = Path(shutil.copytree(whole, self.inside / "r"))

    def close(self) -> None:
        """Remembers what lies outside; what comes of the attack itself is there already."""
        self._before = self._hashes()

    def check(self, said: str, what: str) -> None:
        """Compares what lies outside, and looks for what may not be told."""
        assert not (self.outside / "MARK").exists(), f"{what} ran code of the run"
        assert self._hashes() == self._before, f"{what} changed something outside"
        assert CANARY not in said, f"{what} shows what lies outside"
        assert seen(said) == said, f"{what} shows more than text: {said!r}"

    def check_files(self) -> None:
        for path in self.inside.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24:
                assert CANARY.encode() not in path.read_bytes(), f"{path} holds what lies outside"

    def _hashes(self) -> dict[str, str]:
        files = (path for path in self.outside.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def jail(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> Jail:
    made = Jail(tmp_path, whole)
    monkeypatch.setenv(VARIABLE, CANARY)
    monkeypatch.chdir(made.inside)
    monkeypatch.setattr("agentr.policy.limited.CPU_S", 1)
    monkeypatch.syspath_prepend(str(made.inside))
    return made


def call(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Calls a command as the program does, and returns all that it said."""
    from agentr import cli

    before, sys.argv = sys.argv, ["agentr", *shlex.split(words)]
    try:
        cli.main()
    except SystemExit as ended:
        assert ended.code in (None, 0, 1, 2), words
    finally:
        sys.argv = before
    return "".join(capsys.readouterr())


def look(jail: Jail, capsys: pytest.CaptureFixture[str], names: list[str]) -> None:
    for name in names:
        for words in COMMANDS[name]:
            jail.check(call(words, capsys), words)


def ask(jail: Jail) -> None:
    client = TestClient(pages(Library([jail.inside]), "127.0.0.1", 8300), base_url=ORIGIN)
    for name, query in ANSWERS.items():
        response = client.get(f"/api/{name}", params={"run": "r", **query})
        said = response.text
        assert response.status_code in (200, 404), (name, said)
        assert not (jail.outside / "MARK").exists() and CANARY not in said, name


def read(jail: Jail) -> None:
    """Reads all that the public interface has."""
    try:
        waiting: list[Any] = [agentr.open(jail.run)]
    except AgentrError:
        return
    done = 0
    while waiting and done < 200:
        it, done = waiting.pop(), done + 1
        for name in (
            name for name in dir(type(it)) if not name.startswith("_") or name in ("__iter__", "__len__", "__repr__")
        ):
            found = value_of(it, name)
            found = list(found.values()) if isinstance(found, dict) else found
            below = (
                found if isinstance(found, list | tuple | read_run.Sequence) and not isinstance(found, str) else [found]
            )
            waiting += [each for each in below if type(each).__module__ in (read_run.__name__, read_stage.__name__)]


def value_of(it: Any, name: str) -> Any:
    try:
        found = getattr(it, name)
        if not callable(found):
            return found
        wanted = [
            p
            for p in inspect.signature(found).parameters.values()
            if p.default is p.empty and p.kind is not p.VAR_KEYWORD
        ]
        key = f"{type(it).__name__}.{name}"
        if wanted and key not in ARGUMENTS and name not in ARGUMENTS:
            pytest.fail(f"say how {key} is called")
        found = found(*(ARGUMENTS.get(key, ARGUMENTS.get(name, ())) if wanted else ()))
        return [each for each, _ in zip(found, range(1000), strict=False)] if isinstance(found, Iterator) else found
    except AgentrError:
        return None


LOOKING = [name for name, row in COMMANDS.items() if isinstance(row, list)]


@pytest.mark.parametrize("name", ["a method beside the configuration", "variables", "links out", "names with marks"])
def test_the_first_looks_at_a_strangers_run(jail: Jail, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """What most people do first, in seconds; the next test does the rest."""
    ATTACKS[name](jail.run, jail.outside)
    jail.close()
    look(jail, capsys, ["status", "report", "doctor", "run"])
    jail.check_files()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ATTACKS)
def test_looking_at_a_strangers_run_runs_nothing_stays_in_it_ends_and_shows_text(
    jail: Jail, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    ATTACKS[name](jail.run, jail.outside)
    jail.close()
    read(jail)
    ask(jail)
    look(jail, capsys, LOOKING)
    jail.check("", "reading")
    jail.check_files()


@pytest.mark.slow
def test_a_run_with_nothing_wrong_is_looked_at_whole(jail: Jail, capsys: pytest.CaptureFixture[str]) -> None:
    """What the attacks show would be worth nothing if the commands refused every run."""
    jail.close()
    read(jail)
    ask(jail)
    for name in LOOKING:
        for words in COMMANDS[name]:
            said = call(words, capsys)
            assert "error:" not in said or name in ("ui", "run", "plan"), said


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_unpacked_into_its_folder_or_refused(tmp_path: Path, name: str) -> None:
    outside = outside_of(tmp_path / "outside")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(AgentrError):
        unpack(archive(tmp_path / "r.tar.zst", *ARCHIVES[name](outside)), tmp_path / "there")
    assert sorted({*tmp_path.rglob("*")} - {tmp_path / "there", tmp_path / "r.tar.zst"}) == before


def test_an_archive_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AgentrError, match="is no file"):
        unpack(tmp_path / "pipe", tmp_path / "there")
