"""Changes that are drawn, not chosen: what is drawn, and that a sample is noticed.
All of it: ``python -m tests.fidelity.mutants``."""

import random

import pytest

from agentr.fidelity import verify
from agentr.fidelity.verify import find, select
from tests.fidelity.drawn import draw
from tests.fidelity.noticed import equivalent, named, noticed, slow

#: Functions whose rules all load no trainer.
QUICK = {function: rules for function, rules in sorted(named().items()) if not any(map(slow, rules))}


def test_every_piece_of_a_formula_is_changed() -> None:
    changes = {drawn.change for drawn in draw("agentr.search.uct:UCT.score")}
    assert changes == {
        "child.visits == 0 -> child.visits != 0",
        "0 -> 1",
        "0 -> -1",
        "child.mean + self.config.c_uct * math.sqrt(math.log(parent.visits) / child.visits) -> "
        "child.mean - self.config.c_uct * math.sqrt(math.log(parent.visits) / child.visits)",
        "self.config.c_uct * math.sqrt(math.log(parent.visits) / child.visits) -> "
        "self.config.c_uct / math.sqrt(math.log(parent.visits) / child.visits)",
        "math.log(parent.visits) / child.visits -> math.log(parent.visits) * child.visits",
        "math.log(parent.visits) / child.visits -> child.visits / math.log(parent.visits)",
    }


def test_a_change_is_taken_back() -> None:
    rules = QUICK["agentr.search.uct:UCT.score"]
    for drawn in draw("agentr.search.uct:UCT.score"):
        assert noticed(drawn, rules)
    assert all(find(rule).result == "equal" for rule in rules)


@pytest.mark.parametrize("function", random.Random(0).sample(sorted(QUICK), 20))
def test_changes_to_functions_that_rules_name_are_noticed(function: str) -> None:
    changes = draw(function)
    listed = equivalent().get(function, {})
    for drawn in random.Random(f"changes/{function}").sample(changes, min(5, len(changes))):
        assert bool(noticed(drawn, QUICK[function])) != (drawn.change in listed), drawn.change


def test_a_default_that_changes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    (rule,) = [rule for rule in select("et_agent") if rule.name == "flawed-turns"]
    as_it_is = verify.configured
    monkeypatch.setattr(
        verify, "configured", lambda method, keys: as_it_is(method, {"method.filter.train_on_flawed": True, **keys})
    )
    assert "method.filter.train_on_flawed" in find(rule).difference
