"""The texts that a person reads: examples that can be said, hints that name what there is, one word for one thing."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command

from agentr.cli import app
from agentr.examples import EXAMPLES

ROOT = Path(__file__).parents[1]

#: Options of other programs, each named in the text that says the option.
OTHERS = {
    "pip install": {"--no-deps", "--force-reinstall"},
    "hf download": {"--local-dir"},
    "alfworld-download": {"--data-dir"},
    "start Ray": {"--temp-dir"},
    "head_start_ray_commands": {"--labels", "--num-cpus"},
    "a container": {"--cap-add", "--security-opt"},
    "python -m agentr.models.pretrain": {"--out"},
    "python -m env_servers serve": {"--max-sessions", "--expert-timeout-s"},
    "python -m env_servers.retrieval": {"--timeout-s"},
}


def commands(found: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yields all commands by their names, those of groups as "envs play"."""
    found = found or get_command(app)
    if path:
        yield " ".join(path), found
    for name, below in getattr(found, "commands", {}).items():
        yield from commands(below, (*path, name))


COMMANDS = dict(commands())


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def named(words: list[str]) -> tuple[str, list[str]]:
    """Returns the name of the command that words begin with, and the rest of them."""
    name, rest = words[0], words[1:]
    while rest and f"{name} {rest[0]}" in COMMANDS:
        name, rest = f"{name} {rest[0]}", rest[1:]
    return name, rest


def test_every_command_has_an_example() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()
    for name, command in COMMANDS.items():
        assert all(example in command.epilog for example in EXAMPLES[name]), name


@pytest.mark.parametrize(("name", "example"), [(name, example) for name, examples in EXAMPLES.items() for example in examples])
def test_an_example_can_be_said(name: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is parsed as the command would, and the configurations that it names are there."""
    program, *words = shlex.split(example)
    command, rest = named(words)
    assert program == "agentr" and (command == name or command.startswith(f"{name} ")), "it is an example of this command"
    assert [word for word in rest if word.startswith("configs/") and not (ROOT / word).is_file()] == []
    monkeypatch.chdir(tmp_path)
    Path("demo.tar.zst").touch()
    try:
        COMMANDS[command].make_context(command, rest)
    except click.exceptions.ClickException as error:
        pytest.fail(f"{example}: {error.format_message()}")


def texts(path: Path) -> Iterator[str]:
    """Yields the strings of a module that are sentences, docstrings aside; what is filled in is X."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and isinstance(node.body[0], ast.Expr)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (parts | docstrings):
            text = node.value
        else:
            continue
        if len(text.split()) > 2:
            yield text


def modules() -> list[Path]:
    return sorted(path for folder in ("agentr", "env_servers", "ray_jobs") for path in (ROOT / folder).rglob("*.py"))


def said() -> Iterator[tuple[str, str]]:
    """Yields the module and the text of all sentences in the code that name a command or an option, and the help texts of all commands."""
    for path in modules():
        if path.name == "examples.py":
            continue
        for text in texts(path):
            if "agentr " in text or re.search(r"(?<![\w-])--[a-z]", text):
                yield str(path.relative_to(ROOT)), text
    for name, command in COMMANDS.items():
        yield f"agentr {name}", command.help or ""


MENTION = re.compile(r"(?:['`]|(?<=: )|(?<=\n)|^)agentr ([a-z][^'`;,]*)")


def test_commands_and_options_that_are_advised_exist() -> None:
    """In errors, hints, messages and help texts: a command that is named is there, and has the options that stand with it; an option that
    stands alone is one of some command, or its text names the program that it is of."""
    everywhere = set().union(*map(options, COMMANDS.values()))
    mentions = 0
    for where, text in said():
        for mention in MENTION.findall(text):
            name, rest = named([word.rstrip(".:)") for word in mention.split()])
            assert name in COMMANDS, f"{where} names the command {name!r}: {text}"
            wrong = {word for word in rest if word.startswith("--")} - options(COMMANDS[name])
            assert not wrong, f"{where}: agentr {name} has no {wrong}: {text}"
            mentions += 1
        known = everywhere.union(*(more for program, more in OTHERS.items() if program in text))
        wrong = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)) - known
        assert not wrong, f"{where} names {wrong}: {text}"
        mentions += "--" in text
    assert mentions > 100


@pytest.mark.parametrize("option", ["--allow-config-change", "--model"])
def test_who_is_said_to_take_an_option_does(option: str) -> None:
    """Where several commands come to the same error, the hint names those that have the option."""
    told = [text for _, text in said() if option in text and "take" in text]
    assert told
    for text in told:
        names = re.findall(r"'agentr (\w+)'", text)
        assert names and all(option in options(COMMANDS[name]) for name in names), text
