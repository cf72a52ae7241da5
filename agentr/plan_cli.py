"""The command that says before a run what it takes. Thin, as `cli.py` is."""

import json
from pathlib import Path
from typing import Annotated

import typer

from agentr.console import Console, echo
from agentr.errors import ConfigError
from agentr.run_cli import Overrides, Trust
from agentr.store.trust import trusting


def plan(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help="YAML file; see configs/.")] = None,
    overrides: Overrides = None,
    on: Annotated[str, typer.Option("--on", help="Hardware, such as 4xH100; this is the machine here.")] = "this",
    devices: Annotated[Path | None, typer.Option("--devices", help="File of further devices.")] = None,
    price: Annotated[float, typer.Option("--price", help="Of one device for an hour.")] = 0.0,
    within: Annotated[str, typer.Option("--within", help="How long it may take, such as 6h.")] = "",
    pilot_tasks: Annotated[
        int, typer.Option("--pilot", help="First play a round of so many tasks here, to learn what trees take.")
    ] = 0,
    explain: Annotated[
        str, typer.Option("--explain", help="Show the formula of this stage or memory, with all its inputs.")
    ] = "",
    measure_this: Annotated[bool, typer.Option("--measure", help="Measure this machine anew (ten seconds).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    trust: Trust = False,
) -> None:
    """Say what a run takes before it starts: hours, memory, money, and what to set so that it fits and is fastest."""
    from agentr.commands import plan as planning
    from agentr.commands.run import run as run_experiment
    from agentr.config.named import looking
    from agentr.cost.hardware import THIS, hardware, measured_file
    from agentr.methods import plan_of, read
    from agentr.observe.progress import Reporter

    if measure_this:
        planning.measure()
        echo(measured_file().read_text(encoding="utf-8").rstrip())
    if config is None:
        if not measure_this:
            raise ConfigError("a configuration is wanted", hint="Such as: agentr plan configs/demo.yaml --on 4xH100")
        return
    limit = planning.read_within(within) if within else 0.0
    with looking(not (trust or pilot_tasks)), trusting(trust):
        wanted = plan_of(read(config, overrides or []).config)
        planning.require_idle(wanted)
        if on == THIS:
            machine = planning.measured(lambda text: echo(text, err=True))
        else:
            machine = hardware(on, planning.devices_file(devices))
        if pilot_tasks:
            run_experiment(planning.pilot(wanted, pilot_tasks), Reporter())
        found = planning.plan_run(wanted, machine, price=price, within=limit)
    if as_json:
        echo(json.dumps(planning.as_data(found), indent=2))
    elif explain:
        echo(planning.explained(found.forecast, explain))
    else:
        Console().print(planning.renderable(found))
