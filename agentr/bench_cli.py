"""The commands that measure: ``agentr bench``. Thin, as `cli.py` is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from agentr.console import Console, echo

Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Override keys, such as run.seed=1.")]


def register(app: typer.Typer) -> typer.Typer:
    """Adds the commands, and returns the group, for those that are about something of their own."""
    bench = typer.Typer(help="Measure on this machine.", no_args_is_help=True)
    app.add_typer(bench, name="bench")
    bench.command("collect")(bench_collect)
    bench.command("store")(bench_store)
    bench.command("scale")(bench_scale)
    bench.command("ui")(bench_ui)
    return bench


def bench_collect(
    overrides: Overrides = None,
    config: Annotated[Path, typer.Option(help="Model, environment and tree sizes.")] = Path("configs/bench.yaml"),
    trees: Annotated[int, typer.Option(help="Trees that agentr grows.")] = 16,
    reference_trees: Annotated[int, typer.Option(help="Of these, trees that the reference grows.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure trees per minute and their cost against the original's way: one call at a time, reset and replay, no prefix cache."""
    from rich.table import Table

    from agentr.bench.collect import compare
    from agentr.observe.progress import Reporter
    from agentr.recipes import load

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


def bench_store(
    trees: Annotated[int, typer.Option(help="Trees to make, seal, list, build rows of and export.", min=10)] = 100_000,
    nodes: Annotated[int, typer.Option(help="Nodes of a tree.", min=20)] = 30,
    seed: Annotated[int, typer.Option(help="Seed of the made-up trees.")] = 0,
    folder: Annotated[Path | None, typer.Option(help="On which disk to work; by default that of the temporary files.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure the run directory, on made-up trees."""
    import tempfile

    from rich.table import Table

    from agentr.bench.store import STEPS, measure
    from agentr.observe.progress import Reporter

    reporter = Reporter(Console(stderr=True, soft_wrap=True))
    with tempfile.TemporaryDirectory(prefix="agentr-bench-", dir=folder) as scratch:
        result = measure(Path(scratch), trees, nodes, seed, reporter.say)
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


def bench_scale(
    engines: Annotated[str, typer.Option(help="Numbers of engines, each measured by itself.")] = "1,8,32,128,256",
    seconds: Annotated[float, typer.Option(help="Length of the measured window, for each number.")] = 20.0,
    latency: Annotated[float, typer.Option(help="Median seconds until an engine answers a call.")] = 2.0,
    sigma: Annotated[float, typer.Option(help="Standard deviation of the latency's logarithm.")] = 0.3,
    slots: Annotated[int, typer.Option(help="Sequences that an engine decodes together.", min=1)] = 128,
    width: Annotated[int, typer.Option(help="Sequences of a call: turns drawn at a node.", min=1)] = 4,
    tokens: Annotated[int, typer.Option(help="Tokens of a turn.", min=2)] = 116,
    trees: Annotated[int, typer.Option(help="Trees in flight; 0: as many as the engines answer at the same time.", min=0)] = 0,
    servers: Annotated[
        int, typer.Option(help="Environment servers; 0: one for 8 engines, at most 4, or as many as hold all trees.", min=0)
    ] = 0,
    coordinators: Annotated[int, typer.Option(help="Coordinators that share the trees.", min=1)] = 1,
    in_process: Annotated[bool, typer.Option("--in-process", help="Engines in the coordinator's process, without Ray calls.")] = False,
    warm_up: Annotated[float, typer.Option(help="Longest wait for all trees to be in flight, in seconds.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Of the tasks, latencies and turns.")] = 0,
    folder: Annotated[Path | None, typer.Option(help="On which disk the journals are; by default that of the temporary files.")] = None,
    profile: Annotated[Path | None, typer.Option(help="Write a profile of the coordinator here, for pstats; it slows it down.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the figures here.")] = None,
) -> None:
    """Measure how many engines coordinators keep busy: simulated engines, everything else real."""

    from agentr.bench.scale import measure
    from agentr.bench.scale_table import as_dict, table
    from agentr.bench.simulated import Load
    from agentr.observe.progress import Reporter
    from agentr.store.files import write_json

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


def bench_ui(
    trees: Annotated[int, typer.Option(help="Trees of the largest forest.", min=100)] = 100_000,
    turns: Annotated[int, typer.Option(help="Turns of the largest tree.", min=300)] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the made-up trees.")] = 0,
    folder: Annotated[Path | None, typer.Option(help="On which disk to work; by default that of the temporary files.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure what the pages of agentr ui take on large runs, and end with an error if it is more than it may be."""
    import tempfile

    from agentr.bench import ui
    from agentr.observe.progress import Reporter

    say = Reporter().say
    with tempfile.TemporaryDirectory(prefix="agentr-bench-", dir=folder) as place:
        found = ui.measure(Path(place) / "run", trees, turns, seed, (lambda _: None) if as_json else say)
    if as_json:
        echo(ui.as_json(found))
    ui.check(found)
