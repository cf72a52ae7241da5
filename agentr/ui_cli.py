"""The commands that list runs and show them in a browser. Thin, as `cli.py` is."""

from pathlib import Path
from typing import Annotated

import typer

import agentr
from agentr.console import echo
from agentr.secrets import Secret, SecretKind

Folders = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[DIR]...", help="Run directories, comparisons, or folders above them. [default: runs]"),
]


def list_runs(folders: list[Path], as_json: bool) -> None:
    """Lists the runs and comparisons below folders: what they are, how far, and what came of them."""
    import json

    from rich.table import Table

    from agentr.evaluate.statistics import Estimate
    from agentr.observe.progress import Reporter
    from agentr.ui.library import Library
    from agentr.ui.views.home import home

    found = home(Library(folders))
    if as_json:
        echo(json.dumps({"runs": found["runs"], "comparisons": found["comparisons"]}, indent=2))
        return
    shown = Table(
        "run", "method", "environment", "seed", "rounds", "state", "held-out success, % [95 %]", "LLM tokens", "minutes"
    )
    for run in found["runs"]:
        measured = [Estimate(**run[when]).as_percent() for when in ("before", "after") if run[when]]
        rounds, seconds = run["rounds"], run["seconds"]
        cells = [
            run["method"],
            run["environment"],
            str(run["seed"]),
            f"{rounds['done']} of {rounds['planned']}",
            run["state"],
        ]
        shown.add_row(run["id"], *cells, " to ".join(measured) or "-", str(run["tokens"]), f"{seconds / 60:.0f}")
    reporter = Reporter()
    if found["runs"]:
        reporter.console.print(shown)
    else:
        reporter.message(f"no runs below {', '.join(found['folders'])}; start one with 'agentr run CONFIG'")
    for comparison in found["comparisons"]:
        methods = ", ".join(comparison["methods"])
        reporter.message(
            f"comparison {comparison['id']}: {methods}; {comparison['done']} of {comparison['runs']} runs done "
            f"{comparison['problem']}"
        )
    for run in found["runs"]:
        if run["problem"]:
            reporter.message(f"{run['id']}: {run['problem']}", "yellow")
    for problem in found["problems"]:
        reporter.message(problem["message"], "yellow")


def ui(
    folders: Folders = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; beyond this machine only with --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8300,
    token: Annotated[str, typer.Option(envvar="AGENTR_UI_TOKEN", help="What a browser must know to be let in.")] = "",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:PORT]", help="Another name of this server in a browser's address; repeatable."),
    ] = None,
) -> None:
    """Show runs in a browser: results, trees, what was trained on. It only reads."""
    from socket import gethostname

    import uvicorn

    from agentr.ui.library import Library
    from agentr.ui.server import app, is_any, listen, written
    from agentr.words import counted
    from env_servers.connections import limited

    library, word = Library(folders or [Path("runs")]), Secret(SecretKind.PAGES, "AGENTR_UI_TOKEN", token)
    with listen(host, port) as socket:
        bound = socket.getsockname()[1]
        application = app(library, host, bound, word, allow_host or [])
        found = f"{counted(len(library.runs()), 'run')}, {counted(len(library.comparisons()), 'comparison')}"
        shown = gethostname() if is_any(host) else written(host)
        echo(f"{found} below {', '.join(map(str, library.folders))}")
        for problem in library.problems:
            echo(f"{problem['message']}. {problem['hint']}")
        echo(f"http://{shown}:{bound}/" + (f"?token={word}" if word else "") + "  (Ctrl-C ends it)")
        uvicorn.Server(limited(application, connections=256, server_header=False)).run(sockets=[socket])


def show(run_dir: Path, tree: str, task: str, stage: str, out: Path | None) -> None:
    """Writes one tree, or one task under every policy, into one HTML file that needs nothing else."""
    from agentr.errors import ConfigError
    from agentr.store.files import write_bytes
    from agentr.ui.show import show_task, show_tree

    if bool(tree) == bool(task):
        raise ConfigError("one page at a time", hint="Give --tree KEY or --task KEY.")
    run = agentr.open(run_dir)
    text = show_task(run, task) if task else show_tree(run, stage or run.last_trees(tree).name, tree)
    target = out or Path(f"{tree or task}.html".replace("/", "-"))
    write_bytes(target, text.encode("utf-8", "replace"))
    echo(f"{target}, {len(text) / 1e6:.2f} MB")
