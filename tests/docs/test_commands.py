"""Commands on the pages: all of them are commands of agentr, and those of the pages that a new user reads are run."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from agentr.cli import app
from agentr.errors import AgentrError
from tests.docs import read_a_run
from tests.docs.pages import ROOT
from tests.notes import Notes
from tests.runs import dataset, round_of
from tests.support import tiny_tokenizer
from tests.trees import expert, explored

ALL = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = [ROOT / "docs" / f"{name}.md" for name in ("start", "your_model_and_gpu", "coming_from", "faq")]
#: What is not run here, by how a command begins, and why.
NOT_RUN = {
    "agentr run configs/demo.yaml --dry-run --check-cluster": "starts Ray; tests/cluster does",
    "agentr verify": "half a minute; tests/fidelity does",
    "agentr run configs/eto_textcraft.yaml --dataset": "trains a model; tests/train does",
}


def commands(page: Path) -> Iterator[str]:
    """Yields the command lines of a page's code, without comments, each brace expression written out."""
    fence = ""  # the language of the block that the line is in
    for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fence = "" if fence else line.removeprefix("```") or "text"
        code = fence in ("sh", "bash", "console") or (not fence and line.startswith("    "))
        found = re.match(r"(?:\w+=\S+ )*((?:agentr|make) .*)", line.strip()) if code else None
        if found:
            options = [_expanded(word) for word in shlex.split(found[1], comments=True)]
            yield shlex.join(word for choices in options for word in choices)


def _expanded(word: str) -> list[str]:
    parts = re.split(r"\{([\w.,]+,[\w.,]+)\}", word)
    return [
        "".join(chosen)
        for chosen in product(*(part.split(",") if number % 2 else [part] for number, part in enumerate(parts)))
    ]


@cache
def _program() -> Any:
    return typer.main.get_command(app)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """Returns the command that the words name, and the words after its name."""
    found = _program()
    rest = words[1:]
    while rest and rest[0] in getattr(found, "commands", ()):
        found, rest = found.commands[rest[0]], rest[1:]
    return found, rest


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.stem)
def test_commands_have_these_names_and_options(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for line in commands(page):
        words = shlex.split(line)
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, line
            continue
        command, rest = command_of(words)
        assert rest == ["--help"] or command.name == "envs" or not hasattr(command, "commands"), (
            f"{page.name}: there is no {line!r}"
        )
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
            "--help"
        }
        assert {word.split("=")[0] for word in rest if word.startswith("--")} <= known, f"{page.name}: {line}"
        missing = [word for word in rest if word.startswith("configs/") and not (ROOT / word).exists()]
        assert missing == [], f"{page.name}: {line}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the commands of the pages can be run: configurations, a run, a run with pairs, a file of
    pairs."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "configs").symlink_to(ROOT / "configs")
    model = folder / "model"
    tiny_tokenizer().save_pretrained(model)
    (model / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    read_a_run.small(folder / "runs/demo", model)
    round_ = round_of(
        folder / "runs/pairs",
        ["method.type=eto"],
        experts=[expert("unlock")],
        collect=[explored(("wait", 0.0))],
        model=model,
    )
    dataset(round_)
    round_.experiment.store.close()
    snippets = re.findall(
        r"```json\n(.*?)```", (ROOT / "docs/your_own_trajectories.md").read_text(encoding="utf-8"), re.DOTALL
    )
    (pairs,) = [snippet for snippet in snippets if '"chosen": [' in snippet]
    (folder / "pairs.json").write_text(pairs, encoding="utf-8")
    (folder / "data").mkdir()
    return folder


def lines_to_run() -> list[str]:
    found = [line for page in RUN for line in commands(page) if line.startswith("agentr ")]
    return [line for line in dict.fromkeys(found) if not line.startswith(tuple(NOT_RUN)) and "CONFIG" not in line]


@pytest.mark.parametrize("line", lines_to_run())
def test_the_command_does_what_the_page_is_about(
    line: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(line)[1:]
    if alone := "--only" in words:
        (tmp_path / "configs").symlink_to(ROOT / "configs")
        folder = tmp_path
    monkeypatch.chdir(folder)
    monkeypatch.setattr("agentr.commands.run.Services", lambda *_: Notes())
    if words[0] == "run" and not alone and "--dry-run" not in words:
        words.append("--dry-run")
    result = CliRunner().invoke(app, words)
    if alone:  # on a new run
        assert isinstance(result.exception, AgentrError) and "needs model, which is not there yet" in str(
            result.exception
        )
        return
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"


def test_what_is_not_run_is_on_a_page() -> None:
    found = [line for page in RUN for line in commands(page)]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in found)] == []
