"""The commands that list what there is and prove it: ``methods``, ``rewards``, ``verify`` and ``bench collect``. Thin, as `cli.py` is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agentr.console import Console, echo


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (methods, rewards, verify):
        app.command()(command)
    bench = typer.Typer(help="Measure on this machine.", no_args_is_help=True)
    app.add_typer(bench, name="bench")
    bench.command("collect")(bench_collect)
    bench.callback()(lambda: None)  # a group even with one command


def verify(
    method: Annotated[str, typer.Option("--method", help="Only the rules of this method.")] = "",
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
        raise RunError(f"{len(differing)} rules differ: {', '.join(differing)}", hint="Each method's folder has its vectors.")


def methods() -> None:
    """List the methods: values of method.type, their presets and pages."""
    from rich.table import Table

    from agentr.methods import methods
    from agentr.observe.progress import Reporter

    shown = Table("method.type", "method", "what it does", "loss", "presets", "their environments", "page", title="Methods")
    for name, method in methods().items():
        about = (method.__doc__ or "").strip().splitlines()[0]
        presets, environments = ", ".join(["default", *method.presets]), ", ".join(method.environments)
        shown.add_row(name, method.title, about, method.loss.value, presets, environments, method.page)
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


def bench_collect(
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Override keys, such as run.seed=1.")] = None,
    config: Annotated[Path, typer.Option(help="Model, environment and tree sizes.")] = Path("configs/bench.yaml"),
    trees: Annotated[int, typer.Option(help="Trees that agentr grows.")] = 16,
    reference_trees: Annotated[int, typer.Option(help="Of these, trees that the reference grows.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure trees per minute and their cost against the original's way: one call at a time, reset and replay, no prefix cache."""
    from rich.table import Table

    from agentr.launch.bench import compare
    from agentr.methods import load
    from agentr.observe.progress import Reporter

    reporter = Reporter(Console(stderr=True, soft_wrap=True))
    result = compare(load(config, overrides or []), reporter, trees=trees, reference_trees=reference_trees)
    if as_json:
        echo(json.dumps(result, indent=2))
        return
    shown = Table(title=f"{result['model']} on {result['environment']}, {result['search']}")
    for column in ("", "agentr", "the original's way"):
        shown.add_column(column, justify="left" if not column else "right")
    for key in result["ours"]:
        shown.add_row(key.replace("_", " "), f"{result['ours'][key]:,.6g}", f"{result['reference'][key]:,.6g}")
    console = Console()
    console.print(shown)
    console.print(f"{result['speedup']:.1f} times the trees per minute")
