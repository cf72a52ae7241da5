"""Golden vectors: agentr follows each rule, each vector says what it is worked out to be, and each fails when the code
changes."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from agentr.config.identity import plain
from agentr.fidelity.rules import Rule, read_rules
from agentr.fidelity.verify import compare, configured, differs, find, ours_of
from tests.fidelity.mutants import MUTANTS, changed
from tests.fidelity.worked import worked

RULES = read_rules()
ASKED = [rule for rule in RULES if not rule.omitted]


def of(rules: Iterable[Rule]) -> Any:
    """Parametrises a test over rules. Those of losses load torch and TRL."""
    marks = {True: [pytest.mark.cluster], False: []}
    return pytest.mark.parametrize(
        "rule", [pytest.param(r, id=r.id, marks=marks[r.check.startswith("losses.")]) for r in rules]
    )


@of(ASKED)
def test_agentr_follows_the_rule_and_says_so_where_it_does_not_by_default(rule: Rule) -> None:
    found = find(rule)
    assert found.result == "equal"
    assert found.default.keys() == rule.switches.keys(), "a rule names keys if and only if their defaults deviate"


def test_each_rule_has_a_change_after_which_it_does_not_hold() -> None:
    assert MUTANTS.keys() == {rule.id for rule in ASKED}, "a vector that cannot fail shows nothing"


@of(ASKED)
def test_a_changed_formula_makes_a_vector_fail(rule: Rule) -> None:
    with changed(MUTANTS[rule.id]):
        assert differs(rule, published=True)
    assert not differs(rule, published=True), "the change was taken back"


def test_expected_numbers_are_what_the_derivation_gives() -> None:
    derived = [(rule, case) for rule in ASKED for case in rule.cases if case.work]
    assert len(derived) > 50
    for rule, case in derived:
        value = worked(rule.check, case.given, case.work)
        assert not compare(value, case.expected, 1e-9), f"{rule.id}: {case.work} is {value}, not {case.expected}"


def test_a_rule_about_a_loss_has_gradients_and_rows_that_another_policy_drew() -> None:
    """On rows whose ratio is 1 a loss can be right and its gradient wrong."""
    for rule in ASKED:
        for case in rule.cases if rule.check in ("losses.sft", "losses.dpo", "losses.grpo") else ():
            assert case.work and case.expected["gradient"], rule.id
            if rule.check == "losses.grpo":
                table = case.given["table"]
                for row in (row for row in case.given["rows"] if row["advantage"]):
                    seen = [*row["prompt"], *row["tokens"]]
                    now = [table[i][j] for i, j in itertools.pairwise(seen)][len(row["prompt"]) - 1 :]
                    assert all(abs(new / old - 1) > 0.01 for new, old in zip(now, row["drawn"], strict=True)), rule.id


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.preset], ids=lambda rule: rule.id)
def test_a_preset_has_the_published_values(rule: Rule) -> None:
    assert ours_of(rule, plain(configured(rule.method, {"method.preset": rule.preset}))) == rule.switches


def test_every_rule_is_complete() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.says and rule.where, rule.id
        assert bool(rule.omitted) != bool(rule.cases and rule.check), (
            f"{rule.id}: either vectors, or why there are none"
        )
        assert not rule.omitted or not rule.switches, rule.id
