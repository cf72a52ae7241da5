"""The command that compares agentr with the papers: ``agentr verify``. Thin, as `cli.py` is."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from agentr.console import Console, echo


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(verify)


def verify(
    method: Annotated[str, typer.Option("--method", help="Only this one's rules: agent_r, eto, dense_policy, et_agent, rl or arpo.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show which equations and rules of the papers agentr follows to the digit, and by which key where it does not by default.

    The exit status is 1 if anything differs (docs/fidelity.md).
    """

    from agentr.errors import RunError
    from agentr.fidelity.table import summary, table
    from agentr.fidelity.verify import select
    from agentr.fidelity.verify import verify as ask

    findings = ask(select(method))
    if as_json:
        echo(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        Console(wide=200).print(table(findings))
        echo(summary(findings))
    if differing := [finding.rule.id for finding in findings if finding.difference]:
        raise RunError(f"{len(differing)} rules differ: {', '.join(differing)}", hint="Their vectors are in agentr/fidelity/vectors.")
