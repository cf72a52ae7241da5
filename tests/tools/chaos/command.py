"""Breaks a run on purpose: ``python -m tests.tools.chaos configs/smoke.yaml --faults 'collect:*'``, or ``--hours
8``."""

from pathlib import Path
from typing import Annotated

import typer

from agentr.config.named import looking
from agentr.console import Console, echo
from agentr.errors import RunError
from agentr.methods import load, plan_of
from agentr.observe.progress import Reporter
from tests.tools.chaos.faults import choose, stages
from tests.tools.chaos.faults import faults as faults_of
from tests.tools.chaos.report import REPORT, table
from tests.tools.chaos.run import Plan, disturb, parent_of
from tests.tools.chaos.soak import soak


def chaos(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="YAML file; see configs/. A short run, such as configs/smoke.yaml.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Override keys; run.dir is the folder that the runs will be in."),
    ] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            "--faults",
            help="Such as collect:engine, train:*, *:driver or eval:environment:freeze; may be repeated. All deaths.",
        ),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Only list the faults that the configuration can have.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which faults come in which stage.")] = False,
    hours: Annotated[
        float, typer.Option("--hours", help="Soak: run it again and again for so long, with random faults.", min=0)
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Of a soak's faults.")] = 0,
    every: Annotated[float, typer.Option("--every", help="Mean seconds between two faults of a soak.", min=1)] = 90.0,
    freeze: Annotated[float, typer.Option("--freeze", help="Seconds for which a process is frozen.", min=0)] = 20.0,
    patience: Annotated[
        float, typer.Option("--patience", help="Longest wait for the run to go on after a fault, in seconds.")
    ] = 600.0,
) -> None:
    """Kill every part of a run in every stage, on one's own cluster, and compare its units with those of an undisturbed
    run.

    Only processes of this run's own parts are hit, never whole nodes. The exit status is 1 if a unit is lost, there
    twice, or another.
    """
    with looking(list_ or dry_run):
        loaded = load(config, overrides or [])
    chosen = choose(loaded, faults or [])
    if list_:
        echo("\n".join(map(str, faults_of(loaded))))
        return
    if dry_run:
        for stage in stages(plan_of(loaded)):
            parts = [str(fault).partition(":")[2] for fault in chosen if fault.stage == stage]
            echo(f"{stage + ':':16}{', '.join(parts) or '-'}")
        return
    reporter = Reporter()
    plan = Plan(loaded, config, overrides or [], parent_of(loaded))
    if hours:
        problems = soak(
            plan, chosen, reporter, hours=hours, seed=seed, every_s=every, freeze_s=freeze, patience_s=patience
        )
        if problems:
            raise RunError("; ".join(problems), hint=f"The runs that differ are kept in {plan.parent}.")
        return
    report = disturb(plan, chosen, reporter, freeze_s=freeze, patience_s=patience)
    Console(wide=200).print(table(report))
    for line in report.words():
        reporter.message(line)
    reporter.message(f"Report: {plan.parent / REPORT}")
    if not report.same:
        raise RunError("the disturbed run is not what the undisturbed one is", hint=f"Both are kept in {plan.parent}.")


app = typer.Typer(pretty_exceptions_enable=False)
app.command()(chaos)
