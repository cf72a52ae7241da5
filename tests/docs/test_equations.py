"""The tables of equations on the pages of the methods: keys and golden vectors that there are, and no equation left
out."""

import re

import pytest

from agentr.config.identity import flatten, plain
from agentr.config.schema import Config
from agentr.fidelity.rules import read_rules
from agentr.methods import methods
from tests.docs.pages import ROOT

RULES = {rule.id: rule for rule in read_rules()}
KEYS = {key for method in methods().values() for key, _ in flatten(plain(Config(method=method.config_class())))}


def lines(section: str) -> list[tuple[str, str]]:
    """Returns keys and golden vectors of each line of a method's table."""
    text = (ROOT / "docs" / f"{section}.md").read_text(encoding="utf-8")
    table = text.split("## Equations\n")[1].split("\n## ")[0]
    return re.findall(r"^\| (?!-).*\| (.*?) ?\| (`.*`) \|$", table, re.MULTILINE)


@pytest.mark.parametrize("section", ["agent_r", "eto", "dense_policy", "et_agent", "r3l", "rl"])
def test_the_table_names_keys_and_vectors_that_there_are(section: str) -> None:
    named = lines(section)
    assert len(named) > 5
    vectors = {vector for _, cell in named for vector in re.findall(r"`(.+?)`", cell)}
    assert {vector for vector in vectors if vector not in RULES or RULES[vector].omitted} == set()
    for key in (key for cell, _ in named for key in re.findall(r"`(.+?)`", cell)):
        found = key.replace("[i]", "[0]")
        assert any(known == found or known.startswith((f"{found}.", f"{found}[")) for known in KEYS), key
    sections = {vector.split("/")[0] for vector in vectors}
    equations = {
        rule.id for rule in RULES.values() if rule.section in sections and "Eq." in rule.where and not rule.omitted
    }
    assert equations - vectors == set(), "an equation is missing in the table"
