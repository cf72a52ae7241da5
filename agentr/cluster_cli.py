"""Commands of a cluster: submit, follow, stop."""

import os
from pathlib import Path
from typing import Annotated

import typer

from agentr.console import echo
from agentr.errors import ConfigError

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file; see configs/.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Override keys, such as cluster=gpu_cluster.")
]
Address = Annotated[
    str,
    typer.Option(
        "--address", help="The cluster's dashboard, such as http://head:8265; by default RAY_API_SERVER_ADDRESS."
    ),
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Its run directory on the cluster, or the id of a job.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (submit, stop, logs):
        app.command()(command)


def submit(
    config: ConfigPath,
    overrides: Overrides = None,
    address: Address = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check whether the cluster has what the run needs.")
    ] = False,
    job: Annotated[
        str, typer.Option("--job", help="experiment, environments or smoke: an entry point of ray_jobs.")
    ] = "experiment",
    working_dir: Annotated[
        Path | None, typer.Option("--working-dir", help="Folder that travels along; by default this one.")
    ] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not follow the job.")] = False,
) -> None:
    """Run an experiment as a job of a Ray cluster, or follow the job that works on it; what was begun is continued."""
    from agentr.commands.submit import submit as submit_job

    submit_job(
        config,
        overrides or [],
        address,
        job="check" if dry_run else job,
        working_dir=working_dir,
        notify=echo,
        write=lambda text: echo(text, nl=False),
        follow=not no_wait,
    )


def stop(run: Run, address: Address = "") -> None:
    """End the job that works on a run. What is finished is kept; submit it again to go on."""
    from agentr.commands.submit import stop as stop_job

    stop_job(run, address, echo)


def logs(
    run: Run,
    address: Address = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the job has ended.")] = False,
    stage: Annotated[str, typer.Option("--stage", help="Of the run directory's logs: lines about these stages.")] = "",
    task: Annotated[str, typer.Option("--task", help="... about these tasks.")] = "",
    level: Annotated[str, typer.Option("--level", help="... from this level on, such as warning.")] = "",
) -> None:
    """Show the output of a run's last job; or, of a run directory here, the logs of all its processes."""
    elsewhere = address or os.environ.get("RAY_API_SERVER_ADDRESS")
    here = not (follow or elsewhere) and Path(run).is_dir()
    if here or stage or task or level:
        from agentr.observe.logs import read_logs, shown

        for line in read_logs(Path(run), stage=stage, task=task, level=level):
            echo(shown(line))
        return
    if not (elsewhere or Path(run).exists()):
        hint = (
            "Name a run directory of this machine, or its cluster: --address http://HEAD:8265 or "
            "RAY_API_SERVER_ADDRESS."
        )
        raise ConfigError(f"there is no run directory {run} here, and no cluster was named", hint=hint)
    from agentr.commands.submit import logs as job_logs

    job_logs(run, address, follow, lambda text: echo(text, nl=False))
