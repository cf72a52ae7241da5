"""``agentr verify``: what it says, and how it ends."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentr.cli import app, main
from agentr.errors import ConfigError, RunError
from agentr.fidelity.table import summary
from agentr.fidelity.verify import compare, find, select
from agentr.methods.agent_r import checks as agent_r
from agentr.methods.et_agent import checks as et_agent
from agentr.train.worker import logged_to
from env_servers.registry import UnknownEnvironment
from tests.fidelity.mutants import Mutant, changed

SCORE = Mutant("agentr.search.uct:UCT.score", "math.log(parent.visits)", "math.log(parent.visits + 1)")


def run(*arguments: str):
    return CliRunner().invoke(app, ["verify", *arguments])


@pytest.mark.slow
def test_the_command_shows_every_rule_of_a_method_and_ends_well() -> None:
    shown = run("--method", "agent_r")
    assert shown.exit_code == 0
    assert "2501.11425 Eq. 5" in shown.output and "method.search.dedupe=normalised" in shown.output
    assert "0 differ" in shown.output.splitlines()[-1]


def test_a_changed_formula_makes_the_command_fail_and_name_the_rule() -> None:
    with changed(SCORE):
        failed = run("--method", "agent_r")
    assert failed.exit_code == 1 and isinstance(failed.exception, RunError)
    assert failed.exception.message == "1 rules differ: agent_r/score"
    assert "differs by" in failed.output and "1 differ" in failed.output


def test_programs_read_the_same() -> None:
    rules = {found["name"]: found for found in json.loads(run("--method", "agent_r", "--json").output)}
    assert (
        rules["score"]["result"] == "equal"
        and rules["score"]["paper"] == "2501.11425"
        and rules["score"]["where"] == "Eq. 5"
    )
    assert rules["siblings-text"]["switches"] == {"method.search.dedupe": "normalised"}
    assert rules["siblings-text"]["default"] == {"method.search.dedupe": "action"}
    assert rules["judge-prompt"]["result"] == "not run" and rules["judge-prompt"]["why"]


def test_a_method_without_rules_is_refused_with_those_that_have_some() -> None:
    with pytest.raises(ConfigError) as refused:
        select("agent_s")
    assert "agent_r" in refused.value.hint


def test_what_is_not_installed_is_not_run_and_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise UnknownEnvironment("searchqa needs bm25s")

    monkeypatch.setattr(et_agent, "load", missing)
    (rule,) = [rule for rule in select("et_agent") if rule.name == "answers"]
    found = find(rule)
    assert found.result == "not run: searchqa needs bm25s" and not found.difference
    assert (
        summary([found]) == "1 rules: 0 equal (0 by default, 0 with the published value of a key), 0 differ, 1 not run."
    )


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_check_that_raises_is_a_rule_that_differs_and_the_others_are_asked(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        with logged_to(tmp_path / "libraries.log"):  # as checks of losses do
            raise LookupError("a library of another version")

    monkeypatch.setattr(agent_r, "score", fails)
    monkeypatch.setattr(sys, "argv", ["agentr", "verify", "--method", "agent_r", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    shown = capfd.readouterr()
    assert "agent_r/score, agent_r/unvisited" in shown.err
    if options:
        rules = {found["name"]: found for found in json.loads(shown.out)}
        assert rules["score"]["why"] == "an error, LookupError: a library of another version"
        assert (
            rules["score"]["result"] == rules["unvisited"]["result"] == "differs"
            and rules["backup"]["result"] == "equal"
        )
    else:
        assert "a library of another version" in " ".join(shown.out.split()) and "2 differ" in shown.out


def test_settings_that_are_refused_are_a_rule_that_differs() -> None:
    (rule,) = [rule for rule in select("agent_r") if rule.name == "score"]
    found = find(replace(rule, settings={"method.search.width": 0}))
    assert "method.search.width" in found.difference


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        (1.0 + 1e-12, 1.0, ""),
        (1.001, 1.0, "0.001"),
        (math.inf, math.inf, ""),
        (True, 1.0, ""),
        (True, False, "true in place of false"),
        ([1.0, 2.5], [1.0, 2.0], "0.5"),
        ([1.0], [1.0, 2.0], "[1.0] in place of [1.0,2.0]"),
        ({"a": 1.0}, {"b": 1.0}, '{"a":1.0} in place of {"b":1.0}'),
        (None, 1.0, "(not set) in place of 1.0"),
        ("a", "b", "a in place of b"),
    ],
)
def test_answers_are_compared_by_number_and_else_by_equality(found: object, expected: object, difference: str) -> None:
    assert compare(found, expected, 1e-9) == difference
