"""The command line. Thin: each command reads a configuration and calls one function."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.models import CommandInfo, TyperInfo

import agentr
from agentr import __version__, cluster_cli, env_cli, plan_cli, run_cli, ui_cli, verify_cli
from agentr.console import Console, echo
from agentr.errors import AgentrError, ConfigError
from agentr.examples import show_examples
from agentr.run_cli import Overrides, RunDir
from agentr.secrets import clean_output
from agentr.signals import ending_cleanly
from agentr.store.files import disk_errors
from agentr.store.trust import trusting

app = typer.Typer(
    name="agentr",
    help="Train language-model agents on their own search trees.",
    epilog="Begin with: agentr run configs/demo.yaml. Go on with what stopped: agentr resume runs/demo. Look at it: "
    "agentr ui runs. "
    "Each command has --help.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(env_cli.envs, name="envs")
run_cli.register(app)
app.command()(plan_cli.plan)
cluster_cli.register(app)
app.command()(ui_cli.ui)
verify_cli.register(app)

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file; see configs/.")]
AllowChange = Annotated[
    bool, typer.Option("--allow-config-change", help="Continue although the configuration changed.")
]


@app.command()
def run(
    config: ConfigPath,
    overrides: Overrides = None,
    only: Annotated[list[str] | None, run_cli.stage_option("Run this stage alone; may be repeated.", "--only")] = None,
    dataset: Annotated[
        Path | None,
        typer.Option("--dataset", help="Train on this folder of 'agentr import' alone, as the first round trains."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the configuration, say what it costs at most, and do nothing."),
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="With --dry-run: print the whole configuration.")] = False,
    check_cluster: Annotated[
        bool,
        typer.Option(
            "--check-cluster",
            help="With --dry-run: also join the cluster, and check whether it has what the run needs.",
        ),
    ] = False,
    origins: Annotated[
        bool, typer.Option("--origins", help="With --dry-run: show which file, preset or option gives each value.")
    ] = False,
    allow_config_change: AllowChange = False,
    trust: run_cli.Trust = False,
) -> None:
    """Run an experiment, or continue it where it stopped."""
    from agentr.config.identity import to_yaml
    from agentr.config.named import looking
    from agentr.methods import plan_of, read
    from agentr.models.load import check_context

    with looking(dry_run and not (trust or check_cluster)), trusting(trust):
        reading = read(config, overrides or [])
    loaded = reading.config
    check_context(loaded.model)
    if dry_run:
        if origins or show:
            echo("\n".join(reading.lines()) if origins else to_yaml(loaded))
        else:
            from agentr.commands.plan import short
            from agentr.cost.forecast import hardware_of

            planned = plan_of(loaded)
            echo(short(planned, hardware_of(planned)))
        if check_cluster:
            from agentr.commands.check import check
            from agentr.observe.progress import Reporter

            check(plan_of(loaded), Reporter())
        return
    from agentr.commands.run import opened
    from agentr.commands.run import run as run_experiment
    from agentr.observe.progress import Reporter
    from agentr.store.layout import TRAIN

    if dataset is None:
        run_experiment(plan_of(loaded), Reporter(), allow_change=allow_config_change, only=only or ())
        return
    with opened(plan_of(loaded), Reporter()) as experiment:
        echo(
            experiment.train(
                f"imported/{TRAIN}", dataset.resolve(), experiment.base_model(), experiment.plan.train(1)
            ).path
        )


@app.command()
def resume(
    run_dir: RunDir,
    overrides: Overrides = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="Where the model is now that was given from outside.")
    ] = None,
    allow_config_change: AllowChange = False,
    trust: run_cli.Trust = False,
) -> None:
    """Continue a run from its directory alone. Keys that only set where and how fast it runs may be overridden."""
    if model is not None:
        from agentr.commands.doctor import relocate

        relocate(run_dir, model)
    from agentr.commands.run import run as run_experiment
    from agentr.methods import load, plan_of
    from agentr.observe.progress import Reporter

    opened = agentr.open(run_dir)
    with trusting(trust):
        config = load(opened.layout.config, [*(overrides or []), f"run.dir={opened.path}"], files=False, whole=True)
    run_experiment(plan_of(config), Reporter(), allow_change=allow_config_change)


@app.command()
def status(
    folders: ui_cli.Folders = None, as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False
) -> None:
    """Show how far a run or comparison is, and who works on it; or list those below folders, and what came of them."""
    from rich.table import Table

    from agentr.observe.comparison import PLAN, progress, read_plan
    from agentr.observe.prediction import left
    from agentr.observe.progress import Reporter, read_now
    from agentr.observe.status import describe_left, describe_now, describe_outcome, describe_plan, describe_stage
    from agentr.observe.troubles import describe, troubles
    from agentr.store.layout import title_of
    from agentr.ui.library import is_run

    run_dir, *others = folders or [Path("runs")]
    if others or not (is_run(run_dir) or (run_dir / PLAN).exists() or (folders and not run_dir.is_dir())):
        ui_cli.list_runs([run_dir, *others], as_json)
        return
    if (run_dir / PLAN).exists():
        runs = progress(read_plan(run_dir))
        if as_json:
            echo(json.dumps(runs, indent=2))
            return
        shown = Table("method", "seed", "state", "stages", "held-out success, %")
        for run in runs:
            success = " ".join(f"{100 * value:.1f}" for value in run["success"])
            stages = f"{run['stages']} of {run['planned']}" if run["planned"] else str(run["stages"])
            shown.add_row(run["method"], str(run["seed"]), run["state"], stages, success)
        Reporter().console.print(shown)
        return
    opened = agentr.open(run_dir)
    name, records, owner, planned = opened.name, opened.records(), opened.owner, opened.planned()
    now = read_now(opened.layout.now) if owner else None
    wrong, to_come = troubles(opened.events()), left(opened)
    if as_json:
        stages = [record.stored() for record in records.values()]
        found = {
            "run": name,
            "owner": owner,
            "now": now and vars(now),
            "troubles": wrong,
            "stages": stages,
            "planned": planned,
            "left": to_come,
        }
        echo(json.dumps(found, indent=2, default=str))
        return
    outcome = [] if owner else describe_outcome(opened)
    who = f"being worked on by {owner}" if owner else "finished" if outcome else "nobody works on it"
    shown = Table(title=f"{name}: {who}; {describe_plan(records, planned)}")
    for column in ("stage", "state", "seconds", "summary"):
        shown.add_column(column, justify="right" if column == "seconds" else "left", overflow="fold")
    for record in records.values():
        shown.add_row(title_of(record.name), record.state, f"{record.seconds:.0f}", describe_stage(record, records))
    console = Reporter().console
    console.print(shown)
    for line in (*([describe_now(now)] if now is not None else outcome), describe_left(to_come)):
        if line:
            console.print(line, markup=False)
    for line in (line for trouble in wrong for line in describe(trouble)):
        console.print(line, style="yellow", markup=False)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON list, JSON lines, or Parquet.")],
    config: Annotated[
        Path,
        typer.Option(
            "--config", help="Configuration whose model the tokens are for, and whose build.max_length holds."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the dataset to write.")],
    kind: Annotated[str, typer.Option("--format", help="A format of 'agentr export', or auto.")] = "auto",
    overrides: Overrides = None,
) -> None:
    """Make a dataset from trajectories or preference pairs of your own; train on it with 'agentr run CONFIG --dataset
    OUT'."""
    import tempfile
    from collections import Counter

    from agentr.methods import load
    from agentr.models.load import load_codec, resolve
    from agentr.rows.imports import import_file
    from agentr.store.dataset import write_rows

    loaded = load(config, overrides or [])
    with tempfile.TemporaryDirectory() as cache:
        codec = load_codec(resolve(loaded.model, Path(cache)), loaded.model)
    notes = Counter[str]()
    rows, dropped = import_file(file, kind, codec, loaded.build.max_length, dialect=loaded.turns.dialect, notes=notes)
    manifest = write_rows(out, rows, source=str(file), dropped=dict(dropped))
    console = Console()
    console.print(f"{manifest['rows']} {manifest['type']} with {manifest['trained_tokens']} trained tokens in {out}")
    for why, count in dropped.items():
        console.print(f"left out: {count} x {why}")
    for what, count in notes.items():
        console.print(f"not read: {count} x {what}")


@app.command()
def compare(
    configs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CONFIG...", help="YAML files, one for each method; differences are to the first."),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder of the comparison.")] = Path("runs/compare"),
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2.")] = "0",
    base: Annotated[
        Path | None, typer.Option(help="YAML file under all of them: model, environment, tasks, budget.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="key=value for all of them; may be repeated.")
    ] = None,
    vary: Annotated[
        str, typer.Option(help="key=value,value,...: one arm for each value, such as method.pairs.tasks=15,30,60.")
    ] = "",
    power: Annotated[
        float | None,
        typer.Option(min=0.1, max=100.0, help="Run nothing: say how many seeds and tasks tell so many points apart."),
    ] = None,
) -> None:
    """Run several methods on the same tasks, model and seeds, and compare their held-out success and their cost.
    Resumable."""
    from agentr.commands.compare import compare as compare_methods
    from agentr.commands.compare import plan
    from agentr.errors import RunError
    from agentr.observe.comparison import compare_runs, read_plan
    from agentr.observe.progress import Reporter
    from agentr.ui.report import comparison_tables, power_table
    from agentr.words import counted

    if power is not None:
        Reporter().console.print(power_table(compare_runs(read_plan(folder), {}), power))
        return
    configs = configs or []
    if mistaken := next((str(config) for config in configs if "=" in str(config) and not config.exists()), None):
        raise ConfigError(f"there is no configuration file {mistaken}", hint=f"For a key use --set {mistaken}.")
    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds {seeds!r} is not a list of numbers", hint="For example --seeds 0,1,2.") from error
    key, equals, values = vary.partition("=")
    if vary and not (key and equals and values):
        raise ConfigError(f"--vary {vary!r} is not of the form key=value,value,...")
    arms = [f"{key}={value}" for value in values.split(",")] if vary else [""]
    reporter = Reporter()
    result = compare_methods(plan(configs, numbers, folder, override or [], arms, base), folder, reporter)
    reporter.console.print(comparison_tables(result))
    reporter.message(f"Comparison: {folder.resolve() / 'comparison.html'}")
    if result.failed:
        hint = "What the others found stands. The same command tries these again."
        raise RunError(
            f"{counted(len(result.failed), 'run')} could not be finished: {'; '.join(result.failed)}", hint=hint
        )


@app.command()
def export(
    run_dir: RunDir,
    out: Annotated[Path, typer.Option("--out", help="File to write; a folder for --format agent_r_trees.")],
    kind: Annotated[
        str,
        typer.Option(
            "--format", help="messages, trl, sharegpt, llamafactory, verl, eto-sft, eto-dpo, agent_r or agent_r_trees."
        ),
    ] = "sharegpt",
    round_: run_cli.BestRound = None,
    per_turn: Annotated[
        bool,
        typer.Option(
            "--per-turn",
            help="An entry for each trained turn, for trainers without loss masks (messages, llamafactory).",
        ),
    ] = False,
) -> None:
    """Write one round's dataset or trees in the format of another tool, and list what the format does not carry."""
    from agentr.commands.export import export as export_round
    from agentr.commands.export import is_source
    from agentr.observe.card import write_run_card

    run = agentr.open(run_dir)
    arm = run_cli.chosen(run, round_, lambda there: is_source(there, kind))
    for line in export_round(run_dir, arm.number, kind, out, per_turn=per_turn).lines():
        echo(line)
    echo(f"The card of the run: {write_run_card(run, out.with_name(f'{out.name}.card.md'))}")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
) -> None:
    from agentr.config.named import looking

    context.with_resource(looking(context.invoked_subcommand in LOOK))
    if version:
        echo(__version__)
        raise typer.Exit


#: The commands that only look: at runs, archives and models of anybody. They run no code that those name.
LOOK = (
    "plan",
    "status",
    "ui",
    "report",
    "logs",
    "export",
    "doctor",
    "pack",
    "unpack",
    "prune",
    "list",
    "init",
    "config",
)

#: The commands as the help shows them, in this order.
GROUPS: dict[str, tuple[str, ...]] = {
    "Run experiments": ("init", "plan", "run", "resume", "compare", "search", "submit", "stop"),
    "Look at runs": ("status", "ui", "report", "logs"),
    "Data in and out": ("import", "export"),
    "Take care of runs": ("doctor", "pack", "unpack", "prune"),
    "What there is": ("list", "envs", "config", "verify"),
    "Measure": ("bench",),
}


def _group(commands: dict[str, CommandInfo | TyperInfo]) -> None:
    """Puts commands under the headings of ``GROUPS``."""
    for title, names in GROUPS.items():
        for name in names:
            commands[name].rich_help_panel = title


show_examples(app)
_COMMANDS = {
    info.name or getattr(info.callback, "__name__", ""): info
    for info in (*app.registered_commands, *app.registered_groups)
}
_group(_COMMANDS)
_ORDER = [name for names in GROUPS.values() for name in names]
app.registered_commands.sort(key=lambda info: _ORDER.index(info.name or getattr(info.callback, "__name__", "")))


def main(app: typer.Typer = app) -> None:
    """Runs the command line. Shows errors that a person can act on without a traceback."""
    clean_output()
    try:
        try:
            with ending_cleanly():  # no command leaves half a file behind
                app()
        except FileNotFoundError:
            raise
        except OSError as error:
            with disk_errors(Path(error.filename or "a file")):
                raise
    except AgentrError as error:
        console = Console(stderr=True, soft_wrap=True)
        console.print("error:", style="bold red", end=" ")
        console.print(error.message)
        if error.hint:
            console.print(error.hint)
        sys.exit(error.status)
    except KeyboardInterrupt:
        echo("interrupted", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
