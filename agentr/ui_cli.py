"""The commands that show runs in a browser: ui and show. Thin, as `cli.py` is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the commands to the command line."""
    app.command()(ui)


def ui(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]...", help="Run directories, comparisons, or folders above them. [default: runs]")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at; beyond this machine only with --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8300,
    token: Annotated[str, typer.Option(envvar="AGENTR_UI_TOKEN", help="What a browser must know to be let in.")] = "",
) -> None:
    """Show runs in a browser: results, trees, what was trained on. It only reads."""
    import uvicorn

    from agentr.ui.library import Library
    from agentr.ui.server import app, listen

    library = Library(folders or [Path("runs")])
    with listen(host, port) as socket:
        bound = socket.getsockname()[1]
        application = app(library, host, bound, token)
        found = f"{len(library.runs())} runs, {len(library.comparisons())} comparisons"
        shown = f"[{host}]" if ":" in host else host
        typer.echo(f"{found} below {', '.join(map(str, library.folders))}")
        typer.echo(f"http://{shown}:{bound}/" + (f"?token={token}" if token else "") + "  (Ctrl-C ends it)")
        config = uvicorn.Config(application, log_level="warning", access_log=False, server_header=False)
        uvicorn.Server(config).run(sockets=[socket])
