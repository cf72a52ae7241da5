"""Makes the tables of docs/fidelity.md: what ``agentr verify`` prints for each method if agentr follows every rule.

That it does is the tests' of ``tests/fidelity``. ``python -m tests.docs.fidelity`` writes the page anew.
"""

from io import StringIO

from rich.console import Console

from agentr.config.identity import plain
from agentr.fidelity.rules import Rule
from agentr.fidelity.table import summary, table
from agentr.fidelity.verify import Finding, configured, ours_of, select
from tests.docs.pages import ROOT, refreshed

PAGE = ROOT / "docs" / "fidelity.md"
#: Columns of a table on the page.
COLUMNS = 200


def make(name: str) -> str:
    """Makes a part: the table of a method, or ``summary`` for the line below that of all."""
    findings = [followed(rule) for rule in select("" if name == "summary" else name)]
    return summary(findings) if name == "summary" else printed(findings)


def printed(findings: list[Finding]) -> str:
    """Returns the table as it is printed where the output is no terminal."""
    text = StringIO()
    Console(file=text, width=COLUMNS).print(table(findings))
    return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").splitlines())


def followed(rule: Rule) -> Finding:
    """Returns what comes of a rule that agentr follows."""
    return Finding(rule, default=ours_of(rule, plain(configured(rule.method, rule.settings))))


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE, make), encoding="utf-8")
