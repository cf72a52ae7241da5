"""What came of the rules as a table, and in a line."""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from agentr.fidelity.verify import Finding

#: Columns and their widths.
_COLUMNS = (("paper", 24), ("rule", 46), ("result", 18), ("ours by default", 32), ("to follow it", 54))


def table(findings: Sequence[Finding]) -> Table:
    """Returns the table, in the order of the findings, with a section for each method."""
    shown = Table(title="Equations and rules", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column, width in _COLUMNS:
        shown.add_column(column, max_width=width, overflow="fold")
    for place, finding in enumerate(findings):
        rule = finding.rule
        if not place or rule.section != findings[place - 1].rule.section:
            shown.add_section()
            shown.add_row(Text(rule.title, "bold"))
        style = "red" if finding.difference else "dim" if finding.state == "not run" else ""
        cells = (rule.source, rule.says, finding.result, finding.ours, finding.switch)
        shown.add_row(*(cell.replace("[", r"\[") for cell in cells), style=style)
    return shown


def summary(findings: Sequence[Finding]) -> str:
    """Returns how many rules are equal, by default or by a switch, differ, and were not run."""
    states = Counter(finding.state for finding in findings)
    by_switch = sum(bool(finding.default) and finding.state == "equal" for finding in findings)
    equal = (
        f"{states['equal']} equal ({states['equal'] - by_switch} by default, {by_switch} with the published value of a "
        "key)"
    )
    return f"{len(findings)} rules: {equal}, {states['differs']} differ, {states['not run']} not run."
