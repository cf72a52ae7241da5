"""Rules of the papers with their golden vectors, read from ``methods/*/vectors.yaml``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agentr import methods

#: Folders of the methods.
FOLDER = Path(methods.__file__).parent


@dataclass(frozen=True)
class Case:
    """Inputs of a rule, and what comes of them.

    Attributes:
        given: Arguments of the check.
        expected: What the formula or rule gives for them.
        work: How ``expected`` comes about: Python's arithmetic where it is a number or a list of numbers; of a loss as
            a function of the model's probabilities, so that its gradient follows. A test works it out.
    """

    given: Mapping[str, Any]
    expected: Any
    work: str = ""


@dataclass(frozen=True)
class Rule:
    """An equation or a rule of a paper or of released code.

    Attributes:
        section: The method in whose folder it stands.
        title: Whose rule it is, such as Agent-R.
        name: Unique in its section.
        says: The rule in a line.
        paper: Number on arXiv; empty for code without a paper.
        where: Equation or section, or "released code".
        method: Value of ``method.type`` whose configuration it is checked with.
        check: The function that asks agentr: ``module.name`` in ``agentr.fidelity.checks``, or ``.module.name`` in the
            method's folder.
        settings: Keys that are set in any case.
        switches: Keys by which agentr follows the rule, where it does not by default, with the published values.
        preset: The preset that has these values; empty if none has them all.
        tolerance: Largest difference of two numbers that are equal, relative to the larger or to 1.
        omitted: Why agentr cannot follow the rule; it has no vectors then.
    """

    section: str
    title: str
    name: str
    says: str
    paper: str
    where: str
    method: str
    check: str = ""
    cases: Sequence[Case] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)
    preset: str = ""
    tolerance: float = 1e-9
    omitted: str = ""

    @property
    def id(self) -> str:
        return f"{self.section}/{self.name}"

    @property
    def source(self) -> str:
        """Where the rule stands, for people."""
        return f"{self.paper} {self.where}".strip()


def read_rules(folder: Path = FOLDER) -> list[Rule]:
    """Returns all rules, by method and in the order of its file."""
    return [rule for file in sorted(folder.glob("*/vectors.yaml")) for rule in _read(file)]


def _read(file: Path) -> list[Rule]:
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    common = {"section": file.parent.name, "title": data["title"], "paper": data["paper"], "method": data["method"]}
    found = []
    for entry in data["rules"]:
        cases = tuple(Case(**case) for case in entry.pop("cases", ()))
        method = entry.get("method", data["method"])
        settings = {**data.get("settings", {}).get(method, {}), **entry.pop("settings", {})}
        found.append(Rule(**{**common, **entry, "cases": cases, "settings": settings}))
    return found
