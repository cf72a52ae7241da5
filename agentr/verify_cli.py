"""The commands that list what there is, describe it and prove it: ``list``, ``config``, ``verify`` and ``bench``.
Thin, as `cli.py` is."""

import json
from pathlib import Path
from typing import Annotated

import typer

from agentr.console import Console, echo

#: The projects that ``init`` copies; docs/add_an_environment.md and docs/your_agent.md explain them.
PROJECTS = Path(__file__).parent / "commands" / "projects"
#: What they are, and how one goes on.
_ABOUT = {
    "environment": "lamps/ is an environment, run.yaml a run on it, test_lamps.py its test. Go on in that folder:\n"
    "  python -m pytest\n  PYTHONPATH=. agentr envs play lamps:Lamps\n  PYTHONPATH=. agentr run run.yaml",
    "agent": "agent/ is a program that asks a model, train.jsonl and test.jsonl are its tasks, grade.py is its reward, "
    "run.yaml a run of it, test_agent.py its test. Go on in that folder:\n  python -m pytest\n  agentr run run.yaml",
}


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(init)
    app.command("list")(list_)
    app.command()(verify)
    config = typer.Typer(help="Configurations.", no_args_is_help=True)
    app.add_typer(config, name="config")
    config.command("schema")(config_schema)
    config.callback()(lambda: None)  # a group even with one command
    bench = typer.Typer(help="Measure on this machine.", no_args_is_help=True)
    app.add_typer(bench, name="bench")
    bench.command("collect")(bench_collect)
    bench.callback()(lambda: None)


def verify(
    method: Annotated[str, typer.Option("--method", help="Only the rules of this method.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show which equations and rules of the papers agentr follows to the digit, and by which key where it does not by
    default.

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
        raise RunError(
            f"{len(differing)} rules differ: {', '.join(differing)}", hint="Each method's folder has its vectors."
        )


def list_(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[WHAT]", help="methods, rewards, environments; or an environment: what it needs. [default: all]"
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The environments, for programs.")] = False,
) -> None:
    """List what there is: methods (values of method.type), rewards (method.rewards[i].name), environments
    (env.name)."""
    from agentr.env_cli import list_environments, list_requirements

    shown = {"methods": _methods, "rewards": _rewards, "environments": lambda: list_environments(as_json)}
    if what and what not in shown:
        list_requirements(what)
        return
    for name in [what] if what else ["environments"] if as_json else shown:
        shown[name]()


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    agent: Annotated[
        bool, typer.Option("--agent", help="Of an agent, a program that asks a model, in place of an environment.")
    ] = False,
) -> None:
    """Write a project of your own: an environment or an agent, a configuration that runs a round on it, and a test."""
    import shutil

    from agentr.config.json_schema import config_schema as schema
    from agentr.errors import ConfigError
    from agentr.methods import methods

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is already there", hint="Name a new folder.")
    kind = "agent" if agent else "environment"
    shutil.copytree(PROJECTS / kind, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "schema.json").write_text(json.dumps(schema(methods()), indent=1), encoding="utf-8")
    echo(f"{folder}: {_ABOUT[kind]}")


def config_schema() -> None:
    """Print the JSON schema of configurations, by which editors complete and check them.

    A file names it in its first line: # yaml-language-server: $schema=schema.json
    """
    from agentr.config.json_schema import config_schema as schema
    from agentr.methods import methods

    echo(json.dumps(schema(methods()), indent=1))


def _methods() -> None:
    from rich.table import Table

    from agentr.methods import methods
    from agentr.observe.progress import Reporter

    shown = Table(
        "method.type", "method", "what it does", "loss", "presets", "their environments", "page", title="Methods"
    )
    for name, method in methods().items():
        presets, environments = ", ".join(["default", *method.presets]), ", ".join(method.environments)
        shown.add_row(name, method.title, _about(method), method.loss.value, presets, environments, method.page)
    Reporter().console.print(shown)


def _about(thing: object) -> str:
    """The first paragraph of its docstring, on one line."""
    return " ".join((thing.__doc__ or "").strip().split("\n\n")[0].split())


def _rewards() -> None:
    import inspect

    from rich.table import Table

    from agentr.observe.progress import Reporter
    from agentr.rewards import known

    shown = Table("name", "what it is", "options", title="Rewards")
    for name, reward in known().items():
        options = ", ".join(f"{p.name}={p.default}" for p in inspect.signature(reward).parameters.values())
        shown.add_row(name, _about(reward), options)
    Reporter().console.print(shown)


def bench_collect(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Override keys, such as run.seed=1.")
    ] = None,
    config: Annotated[Path, typer.Option(help="Model, environment and tree sizes.")] = Path("configs/bench.yaml"),
    trees: Annotated[int, typer.Option(help="Trees that agentr grows.")] = 16,
    reference_trees: Annotated[int, typer.Option(help="Of these, trees that the reference grows.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Measure trees per minute and their cost against the original's way: one call at a time, reset and replay, no
    prefix cache."""
    from rich.table import Table

    from agentr.commands.bench import compare
    from agentr.methods import load, plan_of
    from agentr.observe.progress import Reporter

    reporter = Reporter(Console(stderr=True, soft_wrap=True))
    result = compare(plan_of(load(config, overrides or [])), reporter, trees=trees, reference_trees=reference_trees)
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
