"""The texts that a person reads: examples that can be said, hints that name what there is, one word for one thing."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from agentr.cli import app
from agentr.errors import RunError
from agentr.examples import EXAMPLES
from agentr.store.summaries import TrainSummary
from tests.runs import written

ROOT = Path(__file__).parents[1]

#: Options of other programs, each named in the text that says the option.
OTHERS = {
    "pip install": {"--no-deps", "--force-reinstall"},
    "hf download": {"--local-dir"},
    "alfworld-download": {"--data-dir"},
    "start Ray": {"--temp-dir"},
    "head_start_ray_commands": {"--labels", "--num-cpus"},
    "a container": {"--cap-add", "--security-opt"},
    "python -m tests.tools.nano.pretrain": {"--out"},
    "python -m env_servers serve": {"--max-sessions", "--expert-timeout-s"},
    "AgentGym": {"--agentgym"},
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
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }


def named(words: list[str]) -> tuple[str, list[str]]:
    """Returns the name of the command that words begin with, and the rest of them."""
    name, rest = words[0], words[1:]
    while rest and f"{name} {rest[0]}" in COMMANDS:
        name, rest = f"{name} {rest[0]}", rest[1:]
    return name, rest


def test_there_are_25_commands() -> None:
    assert len([name for name, command in COMMANDS.items() if not getattr(command, "commands", ())]) == 25


def test_every_command_has_an_example() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()
    for name, command in COMMANDS.items():
        assert all(example in command.epilog for example in EXAMPLES[name]), name


@pytest.mark.parametrize(
    ("name", "example"), [(name, example) for name, examples in EXAMPLES.items() for example in examples]
)
def test_an_example_can_be_said(name: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is parsed as the command would, and the configurations that it names are there."""
    program, *words = shlex.split(example)
    command, rest = named(words)
    assert program == "agentr" and (command == name or command.startswith(f"{name} ")), (
        "it is an example of this command"
    )
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
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(node.body[0], ast.Expr)
    }
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
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
    """Yields the module and the text of all sentences in the code that name a command or an option, and the help texts
    of all commands."""
    for path in modules():
        if path.name == "examples.py":
            continue
        for text in texts(path):
            if "agentr " in text or re.search(r"(?<![\w-])--[a-z]", text):
                yield str(path.relative_to(ROOT)), text
    for name, command in COMMANDS.items():
        yield f"agentr {name}", command.help or ""


MENTION = re.compile(r"(?:['`]|(?<=: )|(?<=\n)|^)agentr (?!knows|offers)([a-z](?:(?!\nagentr)[^'`;,])*)")


def test_commands_and_options_that_are_advised_exist() -> None:
    """In errors, hints, messages and help texts: a command that is named is there, and has the options that stand with
    it; an option that stands alone is one of some command, or its text names the program that it is of."""
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


def literal(node: ast.AST) -> Iterator[str]:
    """Yields the strings of an expression, without what is looked up for it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif not isinstance(node, ast.FormattedValue | ast.Subscript | ast.Call):
        for part in ast.iter_child_nodes(node):
            yield from literal(part)


def shown_in(path: Path) -> Iterator[str]:
    """Yields what a module says to a person: the headers of its tables and its messages."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("Table", "add_column", "message", "_notify", "notify", "echo"):
                yield " ".join(text for argument in [*node.args, *node.keywords] for text in literal(argument))


def helped() -> Iterator[tuple[str, str]]:
    for name, command in COMMANDS.items():
        yield f"agentr {name}", command.help or ""
        for parameter in command.params:
            yield f"agentr {name} {parameter.opts[0]}", getattr(parameter, "help", None) or ""


def test_one_word_for_one_thing() -> None:
    """docs/glossary.md: a turn and an action are no steps; a round is "round 1", and ``rounds/01`` where a folder is
    meant."""
    told = [
        (str(path.relative_to(ROOT)), text)
        for path in modules()
        for text in shown_in(path)
        if path.parts[-2] != "models"
    ]
    assert len(told) > 80
    for where, text in [*told, *helped()]:
        assert not re.search(r"(?<!optimiser )(?<!online )(?<!last )\bsteps?\b", text), (
            f"{where} has a bare step: {text}"
        )
    for where, text in told:
        assert "rounds/" not in text, f"{where}: {text}"
    for where, text in helped():
        assert "rounds/" not in text or where.endswith(("--round", "--stage", "--policy")), f"{where}: {text}"


def test_tables_name_rounds_alike(tmp_path: Path) -> None:
    """The report's table, a comparison's, that of a run's stages and the troubles of one."""
    store = written(tmp_path, "one", "seed-0", [{"a"}, {"a", "b"}], 5)
    (tmp_path / "plan.json").write_text(json.dumps({"runs": [["one", 0]]}))
    store.stages.run("rounds/01/train", TrainSummary, lambda _: TrainSummary(steps=3))
    with pytest.raises(RunError):
        store.stages.run(
            "rounds/02/collect", TrainSummary, lambda _: (_ for _ in ()).throw(RunError("the well is dry"))
        )
    for words in (
        ["status", store.root],
        ["report", store.root],
        ["status", tmp_path],
        ["report", tmp_path],
        ["logs", store.root],
    ):
        shown = CliRunner().invoke(app, [str(word) for word in words])
        assert shown.exit_code == 0, shown.exception
        text = shown.output.replace(str(tmp_path), "")
        assert not re.search(r"rounds/\d|rounds-\d", text), text
        assert "round 1" in text or words[0] == "logs" or words == ["status", tmp_path], text
    status = CliRunner().invoke(app, ["status", str(store.root)]).output
    assert "round 2: collect was stopped: RunError: the well is dry" in status and "warm start: eval" in status
