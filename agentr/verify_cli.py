"""The commands that say what there is, and what of it is the papers': ``methods``, ``rewards`` and ``verify``. Thin, as `cli.py` is."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from agentr.console import Console, echo


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (methods, rewards, verify):
        app.command()(command)


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


def methods() -> None:
    """List the methods: values of method.type, their presets and pages."""
    from rich.table import Table

    from agentr.observe.progress import Reporter
    from agentr.recipes import recipes

    shown = Table("method.type", "method", "what it does", "loss", "presets", "their environments", "page", title="Methods")
    for name, recipe in recipes().items():
        about = (recipe.__doc__ or "").strip().splitlines()[0]
        presets, environments = ", ".join(["default", *recipe.presets]), ", ".join(recipe.environments)
        shown.add_row(name, recipe.title, about, recipe.loss.value, presets, environments, recipe.page)
    Reporter().console.print(shown)


def rewards() -> None:
    """List the rewards of online methods: values of method.rewards[i].name, and their options."""
    import inspect

    from rich.table import Table

    from agentr.observe.progress import Reporter
    from agentr.rewards import known

    shown = Table("name", "what it is", "options", title="Rewards")
    for name, reward in known().items():
        options = ", ".join(f"{p.name}={p.default}" for p in inspect.signature(reward).parameters.values())
        shown.add_row(name, (reward.__doc__ or "").strip().splitlines()[0], options)
    Reporter().console.print(shown)
