"""The commands about environments: ``agentr envs``. Thin, as `cli.py` is."""

from __future__ import annotations

import asyncio
import difflib
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from agentr.console import Console, echo
from agentr.errors import ConfigError
from agentr.run_cli import Trust, stage_option
from agentr.store.trust import trusting

if TYPE_CHECKING:
    from agentr.commands.place import Place
    from agentr.secrets import Secret
    from env_servers.conformance import Check
    from env_servers.registry import Description

envs = typer.Typer(help="Environments: play, check, demonstrate.", no_args_is_help=True)

Target = Annotated[
    str,
    typer.Argument(metavar="NAME|URL", help="An environment, or the address of a server (token in AGENTR_ENV_TOKEN)."),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="An option of the environment; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


def list_environments(as_json: bool = False) -> None:
    """Prints the environments: which can be used here, and what the others lack."""
    from env_servers.registry import describe

    found = describe()
    if as_json:
        echo(json.dumps([{**asdict(d), "available": d.available} for d in found], indent=2))
        return
    table = Table("name", "", "splits", "what it lacks, and how to get it", title="Environments", show_lines=True)
    for d in found:
        state = Text("ready", "green") if d.available else Text("not here", "red")
        table.add_row(d.name, state, ", ".join(d.splits), _lacks(d) or Text("nothing", "dim"))
    Console().print(table)


def list_requirements(name: str) -> None:
    """Prints which files and programs an environment can use that a user has to get.

    Raises:
        ConfigError: There is no such environment.
    """
    from env_servers.registry import describe

    found = {d.name: d for d in describe()}
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "Say methods, rewards, environments, or an environment's name."
        raise ConfigError(f"there is no list {name!r}, and no environment of that name", hint=hint)
    table = Table("what", "", "how to get it", title=f"{name}: from outside", show_lines=True)
    for r in found[name].requirements:
        state = Text("here", "green") if r.present else "optional" if r.optional else Text("missing", "red")
        table.add_row(r.name, state, r.how)
    Console().print(table)


@envs.command()
def play(
    target: Annotated[
        str,
        typer.Argument(metavar="[NAME|URL]", help="An environment, or a server's address (token in AGENTR_ENV_TOKEN)."),
    ] = "",
    option: Options = None,
    task: Annotated[str, typer.Option(help="Task id; a random one of the split if not given.")] = "",
    split: Annotated[str, typer.Option(help="Split to draw the task from; the first one if not given.")] = "",
    run: Annotated[
        Path | None, typer.Option("--run", help="A run: begin at a turn of one of its trees, in its environment.")
    ] = None,
    tree: Annotated[str, typer.Option("--tree", help="With --run: key of the tree, or its task's id.")] = "",
    stage: Annotated[str, stage_option("With --run: the tree's stage. [default: the last that has the tree]")] = "",
    turn: Annotated[
        int, typer.Option("--turn", "--node", min=0, help="With --run: the node to begin after; 0 is the beginning.")
    ] = 0,
    trust: Trust = False,
) -> None:
    """Play a task yourself. :undo takes an action back, :expert shows a demonstration, :quit ends.

    With --run, the recorded actions up to a turn of a tree are carried out first, and each must give the recorded
    observation.
    """
    from agentr.commands.place import find_place
    from agentr.envs.client import EnvClient
    from agentr.envs.connect import connect
    from agentr.envs.local import reachable, serving
    from agentr.envs.play import choose
    from agentr.envs.play import play as play_task

    if bool(target) == bool(run):
        raise ConfigError(
            "nothing to play is named", hint="Give an environment or an address, or --run RUN --tree KEY --turn NODE."
        )
    console = Console()

    async def main(client: EnvClient, place: Place | None = None) -> None:
        path, others = ((), ()) if place is None else (place.recorded, place.tree.others(place.node))
        try:
            chosen = await choose(client, split, task) if place is None else place.tree.task
            await play_task(client, chosen, console, lambda: console.input("[bold]> [/bold]"), path, others)
        finally:
            await client.aclose()

    if run is not None:
        place = find_place(run, stage, tree, turn)
        with trusting(trust):
            config = place.config
        with serving(config.env) as (urls, token):
            asyncio.run(main(connect(config.env, urls, token), place))
        return
    with reachable(target, _parsed(option)) as (urls, token):
        asyncio.run(main(EnvClient(urls, token)))


@envs.command()
def check(
    target: Target,
    option: Options = None,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks tried of each split.")] = 2,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions that play at once.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Check that an environment keeps the contract of env_servers/conformance. Exit status 1 if it does not."""
    from agentr.envs.local import reachable
    from env_servers.conformance import Effort, Outcome, run

    progress = Console(stderr=True)

    def report(done: Check) -> None:
        colour = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.SKIPPED: "yellow"}[done.outcome]
        progress.print(
            f"[{colour}]{done.outcome:7}[/{colour}] {escape(done.name)} [dim]{done.seconds:.1f} s[/dim]", markup=True
        )

    effort = Effort(tasks=tasks, sessions=sessions)
    with reachable(target, _parsed(option), count=2) as (urls, token):
        checks = run(
            urls[0],
            token.reveal(),
            second_url=urls[1] if len(urls) > 1 else "",
            effort=effort,
            report=None if as_json else report,
        )
    if as_json:
        echo(json.dumps([asdict(c) for c in checks], indent=2))
    else:
        table = Table("check", "", "seen", title=target)
        for c in checks:
            table.add_row(c.name, c.outcome, c.detail)
        Console().print(table)
    raise typer.Exit(any(c.outcome is Outcome.FAILED for c in checks))


@envs.command()
def demos(
    target: Target,
    out: Annotated[Path, typer.Option("--out", help="File to write; a new folder for --format trees.")],
    option: Options = None,
    split: Annotated[str, typer.Option(help="Split whose tasks are demonstrated.")] = "train",
    limit: Annotated[int | None, typer.Option(min=1, help="Most tasks; all if not given.")] = None,
    seed: Annotated[int, typer.Option(help="Of the tasks' order.")] = 0,
    kind: Annotated[
        str,
        typer.Option("--format", help="sharegpt (JSON lines), or trees (agentr's own, with the tokens of --model)."),
    ] = "sharegpt",
    model: Annotated[
        str, typer.Option(help="For --format trees: nano, smollm2, or a Hugging Face folder or name.")
    ] = "nano",
) -> None:
    """Write the expert's demonstrations, each carried out in the environment.
    Those that do not succeed are counted and left out."""
    from agentr.collect.demonstrate import demonstrate_all
    from agentr.config.schema import TaskSelection
    from agentr.envs.client import EnvClient
    from agentr.envs.local import reachable
    from agentr.rows.export_trees import export_demonstrations
    from agentr.rows.exported import make_place
    from agentr.store.forest import Forest
    from agentr.words import counted

    if kind not in ("sharegpt", "trees"):
        raise ConfigError(f"unknown format {kind!r}", hint="Use sharegpt or trees.")
    if out.exists() and (kind == "trees" or out.is_dir()):
        raise ConfigError(f"{out} is already there", hint="Name a new one, or remove it.")
    if kind == "sharegpt":
        make_place(out)

    async def main(urls: list[str], token: Secret, folder: Path, codec: Any) -> Any:
        client = EnvClient(urls, token, timeout_s=120.0)
        try:
            return await demonstrate_all(
                client, await client.tasks(TaskSelection(split=split, limit=limit, seed=seed)), folder, codec
            )
        finally:
            await client.aclose()

    with tempfile.TemporaryDirectory(prefix="agentr-demos-") as scratch:
        folder = out if kind == "trees" else Path(scratch) / "trees"
        codec = _codec(model, Path(scratch)) if kind == "trees" else None
        with reachable(target, _parsed(option)) as (urls, token):
            progress = asyncio.run(main(urls, token, folder, codec))
        forest = Forest(folder)
        if kind == "trees":
            forest.seal(environment=target, split=split, model=model)
        written = len(forest) if kind == "trees" else export_demonstrations(out, forest)
    failed = progress.done - progress.successes
    echo(
        f"{counted(written, 'demonstration')} in {out}; {failed} did not succeed, {progress.skipped} without an expert"
    )


def _lacks(found: Description) -> str:
    if found.fault:
        return found.fault
    lines = [f"{r.name}{' (optional)' if r.optional else ''}: {r.how}" for r in found.requirements if not r.present]
    if found.needed:
        lines.append(f"yours to give: the option{'s' * (len(found.needed) > 1)} {' and '.join(found.needed)}")
    return "\n".join(lines)


def _parsed(options: list[str] | None) -> dict[str, Any]:
    import argparse

    from env_servers.registry import option

    try:
        return dict(option(text) for text in options or [])
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"--option {error}", hint="Write --option name=value; the value is YAML.") from error


def _codec(model: str, cache: Path) -> Any:
    from agentr.config.model import ModelConfig, ModelSource
    from agentr.models.load import load_codec, resolve

    known = model in (ModelSource.nano, ModelSource.smollm2)
    config = ModelConfig(source=ModelSource(model)) if known else ModelConfig(source=ModelSource.hf, path=model)
    config.max_model_len = 1  # only the tokenizer is used, whatever the model's context
    return load_codec(resolve(config, cache), config)
