"""The commands that work on run directories: report, search on from a turn, trace, doctor, pack, unpack, prune."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import agentr
from agentr.console import echo
from agentr.store.layout import Arm, arm_of, name_of, round_number
from agentr.store.trust import trusting

if TYPE_CHECKING:
    from agentr.read.run import Run, RunRound

#: What is said of a run in which nothing was found wrong.
WHOLE = (
    "every file is what it was when its stage was sealed; reports, events, logs and the cards of models are not sealed"
)

RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, such as runs/demo.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Override keys, such as run.seed=1.")
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Also run the code and programs, ask the addresses and read the variables that it names."
    ),
]


def _round(text: str) -> int:
    found = round_number(str(text))
    if found is None:
        raise typer.BadParameter(f"{text!r} is no round: give a number, such as 1; 0 is the warm start")
    return found


def round_option(about: str) -> Any:
    """Returns an option that names a round, by its number or as tables and folders do."""
    return typer.Option("--round", parser=_round, metavar="N", help=about)


BestRound = Annotated[
    int | None, round_option("Which round: 1, or rounds/01; 0 is the warm start. [default: the best, or the last]")
]


def chosen(run: Run, round_: int | None, holds: Callable[[RunRound], bool]) -> Arm:
    """Returns the round that is named, or else the best or the last of which this holds, and says which."""
    if round_ is not None:
        return arm_of(round_)
    found = run.round_with(holds)
    echo(f"{found.title}, {'the best' if found.arm == run.best else 'the last that is there'} (--round names another)")
    return found.arm


def stage_option(about: str, name: str = "--stage") -> Any:
    """Returns an option that names a stage, by its name or as tables do."""
    return typer.Option(name, parser=lambda text: name_of(str(text)), metavar="STAGE", help=about)


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    for command in (report, search, doctor, pack, unpack, prune):
        app.command()(command)


def report(
    run_dirs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directory, such as runs/demo; or several, to compare.")
    ],
    tree: Annotated[str, typer.Option("--tree", help="The page of this tree instead: its key, or its task's id.")] = "",
    task: Annotated[
        str, typer.Option("--task", help="The page of a held-out task instead: its episodes under every policy.")
    ] = "",
    stage: Annotated[
        str, stage_option("Stage of the tree, such as rounds/01/revise. [default: the last that has it]")
    ] = "",
    node: Annotated[
        int | None,
        typer.Option("--node", "--turn", help="With --tree: print which rows this turn went into, or why into none."),
    ] = None,
    row: Annotated[
        int | None, typer.Option("--row", help="Print what this row of a round's dataset was made from.")
    ] = None,
    round_: BestRound = None,
    step: Annotated[
        int | None, typer.Option("--step", help="With --row, of online training: of which online step.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of a report, or file of a page.")] = None,
) -> None:
    """Write a page that opens in any browser: of a run or comparison, of one tree, or of one task; or print where a row
    is from, or how several runs compare."""
    from agentr import ui_cli
    from agentr.commands.compare import side_by_side
    from agentr.commands.run import report as make_report
    from agentr.errors import ConfigError
    from agentr.observe.comparison import PLAN
    from agentr.observe.progress import Reporter
    from agentr.ui.report import comparison_tables, rewrite_comparison

    run_dir, *others = run_dirs
    if others:
        if any(value not in (None, "") for value in (tree, task, stage, node, row, round_, step, out)):
            raise ConfigError("all options of 'report' are about one run", hint="Name one, or give no options.")
        side_by_side([agentr.open(each) for each in run_dirs], Reporter())
    elif row is not None or node is not None:
        trace(run_dir, round_, step, row, stage, tree, node)
    elif tree or task:
        ui_cli.show(run_dir, tree, task, stage, out)
    elif (run_dir / PLAN).exists():
        Reporter().console.print(comparison_tables(rewrite_comparison(run_dir)))
    else:
        make_report(agentr.open(run_dir), Reporter(), out)


def search(
    run_dir: Annotated[Path, typer.Option("--run", metavar="RUN", help="Run directory, such as runs/demo.")],
    tree: Annotated[str, typer.Option("--tree", help="Key of one of its trees, or its task's id.")] = "",
    stage: Annotated[str, stage_option("The tree's stage. [default: the last that has the tree]")] = "",
    turn: Annotated[
        int, typer.Option("--turn", "--node", min=0, help="The node to search on after; 0 is the beginning.")
    ] = 0,
    policy: Annotated[
        str, typer.Option("--policy", help="Who searches: a round, such as 2 or rounds/02, control, or base.")
    ] = "",
    iterations: Annotated[int | None, typer.Option("--iterations", help="Simulations. [default: the run's]")] = None,
    width: Annotated[
        int | None, typer.Option("--width", help="Turns drawn at each expansion. [default: the run's]")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Of the turns. [default: the run's]")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of the search. [default: the run's]")] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="key=value over the run's configuration; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write. [default: searches/RUN-TREE-TURN-POLICY]")
    ] = None,
    trust: Trust = False,
) -> None:
    """Search on from a turn of a stored tree, with any policy of the run, into a folder of its own.
    The run is only read.

    The actions up to the turn are carried out first, and each must give the recorded observation. The same command goes
    on with a search that was stopped.
    """
    from agentr.commands.place import find_place
    from agentr.commands.search import plan, table
    from agentr.commands.search import search as search_on
    from agentr.observe.progress import Reporter

    place, reporter = find_place(run_dir, stage, tree, turn), Reporter()
    short = {
        "method.search.iterations": iterations,
        "method.search.width": width,
        "collect.sampling.temperature": temperature,
        "run.seed": seed,
    }
    given = [f"{key}={value}" for key, value in short.items() if value is not None]
    with trusting(trust):
        planned = plan(place, policy, [*(override or []), *given], out)
    found = search_on(planned, reporter)
    reporter.console.print(table(planned, found))
    shown = shlex.quote(os.path.relpath(planned.out))
    reporter.message(f"agentr ui {shown}\nagentr report {shown} --tree {shlex.quote(found.task.key)}")


def trace(
    run_dir: Path, round_: int | None, step: int | None, row: int | None, stage: str, tree: str, node: int | None
) -> None:
    """Prints what a row was made from, or which rows a turn went into."""
    from agentr.commands.run import decoder
    from agentr.errors import ConfigError
    from agentr.observe.traces import describe_node, describe_row
    from agentr.read.stage import Trees
    from agentr.store.layout import DATASET, ROLLOUTS

    run = agentr.open(run_dir)
    if row is not None:
        arm = chosen(run, round_, lambda there: (DATASET if step is None else ROLLOUTS) in there.stages())
        dataset = arm.stage(DATASET if step is None else f"{ROLLOUTS}/{step:06d}/{DATASET}")
        lines = describe_row(run.stage(dataset).rows.trace(row), decoder(run))
    elif stage and tree and node is not None:
        name = stage if "/" in stage else chosen(run, round_, lambda there: stage in there.stages()).stage(stage)
        trees = run.stage(name)
        if not isinstance(trees, Trees):
            raise ConfigError(
                f"the stage {name} holds no trees", hint="Name a stage of exploration, such as --stage collect."
            )
        uses = trees.trace(tree, node)
        lines = describe_node(name, trees[tree].nodes[node], uses)
    else:
        raise ConfigError("no row is named", hint="Give --row N, or --stage NAME --tree KEY --node N.")
    for line in lines:
        echo(line)


def doctor(
    run_dir: RunDir,
    repair: Annotated[
        bool, typer.Option("--repair", help="Set aside what is damaged, to be made anew. Nothing is deleted.")
    ] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="With --repair: also set aside stages whose inputs are others now.")
    ] = False,
    stages: Annotated[
        list[str] | None,
        stage_option("With --repair: also set this stage aside, such as rounds/02/train; may be repeated."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="Where the model is now that was given from outside.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Read everything in a run, and list what is damaged, what depends on it, and what can be made anew."""
    from agentr.commands.doctor import chosen as named_stage
    from agentr.commands.doctor import examine, relocate, stale_stages, table_of
    from agentr.commands.doctor import repair as set_aside
    from agentr.observe.progress import Reporter

    if model is not None:
        relocate(run_dir, model)
    damaged, old = list(examine(run_dir)), list(stale_stages(run_dir))
    if as_json:
        echo(json.dumps({"damaged": [asdict(f) for f in damaged], "stale": [asdict(f) for f in old]}, indent=2))
    else:
        reporter = Reporter()
        for finding in [*damaged, *old]:
            reporter.show(table_of(finding))
        if not damaged and not old:
            reporter.message(f"{run_dir}: {WHOLE}")
    if repair:
        wanted = [*damaged, *(old if stale else []), *(named_stage(run_dir, name) for name in stages or [])]
        for done in set_aside(run_dir, wanted):
            echo(done)
        if wanted:
            echo(f"'agentr resume {run_dir}' makes anew what is missing")
    elif damaged:
        echo(
            f"'agentr doctor {run_dir} --repair' sets it aside, and then 'agentr resume {run_dir}' makes it anew",
            err=as_json,
        )
        raise typer.Exit(1)


def pack(
    run_dir: RunDir,
    out: Annotated[
        Path | None, typer.Option("--out", help="The archive; by default NAME.tar.zst in the current folder.")
    ] = None,
    for_sharing: Annotated[
        bool, typer.Option("--for-sharing", help="Leave out names of hosts and users, paths and addresses.")
    ] = False,
) -> None:
    """Pack a run into one archive, without what can be made again: optimiser states and logs."""
    from agentr.commands.pack import archive_name
    from agentr.commands.pack import pack as pack_run
    from agentr.words import counted

    target = out or Path(f"{archive_name(agentr.open(run_dir))}.tar.zst")
    files, size = pack_run(run_dir, target, for_sharing=for_sharing)
    echo(f"{counted(files, 'file')} in {target}, {size / 1e6:.1f} MB")


def unpack(
    archive: Annotated[
        Path, typer.Argument(metavar="ARCHIVE", exists=True, dir_okay=False, help="What 'agentr pack' wrote.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder to put the run into.")] = Path("runs"),
    any_size: Annotated[
        bool, typer.Option("--any-size", help="Also what becomes a hundred times as large as its archive.")
    ] = False,
) -> None:
    """Unpack a run, and check every file of it."""
    from agentr.commands.doctor import examine
    from agentr.commands.pack import unpack as unpack_run

    target = unpack_run(archive, out, any_size=any_size)
    found = [problem for finding in examine(target) for problem in finding.problems]
    echo(f"{target}: " + ("; ".join(found) if found else WHOLE))


def prune(
    run_dir: RunDir,
    keep: Annotated[
        str, typer.Option("--keep", help="Rounds that keep their weights: all, best, or 'last N'.")
    ] = "best",
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
) -> None:
    """Show what a run does not need any more (weights of earlier rounds, optimiser states, logs), and delete it if you
    agree."""
    from agentr.rounds.prune import prunable
    from agentr.rounds.prune import prune as delete

    found = list(prunable(agentr.open(run_dir), keep))
    for entry in found:
        echo(f"{entry.size / 1e6:9.1f} MB  {entry.what:17} {entry.path}")
    total = sum(entry.size for entry in found)
    if not found:
        echo("nothing to delete")
    elif yes or typer.confirm(f"Delete these {total / 1e6:.1f} MB?"):
        delete(run_dir, found)
        echo(f"{total / 1e6:.1f} MB deleted")
