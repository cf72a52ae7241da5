"""Runs as jobs of a Ray cluster elsewhere: submitted, followed, stopped, by their run directory.

The working folder travels along, secrets too, but by a way of their own: what is in a job's environment or its command
line can be read in the dashboard.
"""

import asyncio
import json
import logging
import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr.cluster import ray_private
from agentr.cluster.places import Places
from agentr.cluster.roles import Role
from agentr.config.schema import RunConfig
from agentr.config.secrets import missing_secrets, secrets_of
from agentr.errors import ConfigError, InfraError, RunError, first_line
from agentr.methods import load
from agentr.secrets import Secret, SecretKind, quoted
from agentr.track.tracker import environment

#: Most that a working folder may hold.
LARGEST_BYTES = 100 * 2**20
#: What a folder must have at least one of, to be a project and not a home or the root.
PROJECT = ("pyproject.toml", "setup.py", ".git", "configs", "requirements.txt", ".rayignore", "agentr")
#: The entry points of ``ray_jobs``.
JOBS = ("experiment", "check", "environments", "smoke")
#: Key of a job's metadata that holds the run directory.
RUN = "agentr_run"
_LIVE = ("PENDING", "RUNNING")
#: The Python that Ray runs on is found by a library that the job's parent process has loaded: the job's PATH may lead
#: to another one.
_FIND_PYTHON = (
    "so=$(grep -m1 -o '/[^ ]*/ray/_raylet.so' /proc/$PPID/maps); python=${so%/lib/python*}/bin/python; "
    '[ -x "$python" ] || python=$(command -v python || command -v python3); '
    'lacks=$("$python" -c "import agentr.cli, ray_jobs" 2>&1) || { '
    'echo "error: the Python of this cluster, $python, cannot import agentr: $(echo "$lacks" | tail -1)" >&2; '
    'echo "Install agentr with its packages there, on every node, or start Ray from an environment that has it." >&2; '
    "exit 1; }; "
)


@dataclass(frozen=True)
class Job:
    """A job of agentr on a cluster."""

    id: str
    status: str
    run: str
    started_ms: int

    @property
    def live(self) -> bool:
        return self.status in _LIVE


def _prepare_ray() -> None:
    """Imports Ray so that it takes a token, and says nothing of each file that does not travel."""
    if (
        Secret.read(SecretKind.RAY, "RAY_AUTH_TOKEN")
        or os.environ.get("RAY_AUTH_TOKEN_PATH")
        or Path("~/.ray/auth_token").expanduser().exists()
    ):
        # read when Ray is imported, which takes a token only where it is set so
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    import ray

    for handler in logging.getLogger(ray.__name__).handlers:
        # Another's (a test runner's) shows or keeps other lines, too.
        if type(handler).__module__.startswith("ray."):
            handler.setLevel(logging.ERROR)


class Cluster:
    """The jobs of a Ray cluster.

    Args:
        address: Of its dashboard, such as ``http://head:8265``.

    Raises:
        InfraError: It cannot be reached, or does not take our token; says what to set.
    """

    def __init__(self, address: str) -> None:
        _prepare_ray()
        from ray.exceptions import RayError
        from ray.job_submission import JobSubmissionClient

        self.address = address or os.environ.get("RAY_API_SERVER_ADDRESS", "")
        if not self.address:
            hint = "Say --address http://HEAD:8265, or set RAY_API_SERVER_ADDRESS."
            raise ConfigError("no cluster was named", hint=hint)
        try:
            self._client = JobSubmissionClient(self.address)
        except (ConnectionError, RuntimeError, RayError, OSError) as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> InfraError:
        text = quoted(first_line(error))
        hint = (
            "Is it up, and may this machine reach its dashboard? If it uses token authentication, set RAY_AUTH_TOKEN "
            "or RAY_AUTH_TOKEN_PATH to its token. Nothing was submitted."
        )
        return InfraError(f"the cluster at {self.address} cannot be used: {text}", hint=hint)

    def jobs(self, run: str = "") -> list[Job]:
        """Returns the jobs of agentr, those of one run or of all; the last started one is last."""
        found = [
            Job(entry.submission_id, str(entry.status.value), (entry.metadata or {})[RUN], entry.start_time or 0)
            for entry in self._client.list_jobs()
            if entry.submission_id and RUN in (entry.metadata or {})
        ]
        return sorted((job for job in found if run in ("", job.run, job.id)), key=lambda job: job.started_ms)

    def start(self, name: str, run: str, entrypoint: str, working_dir: Path, labels: Mapping[str, str]) -> str:
        """Submits a job and returns its id."""
        job_id = f"agentr-{name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
        from ray.exceptions import RayError

        try:
            return self._client.submit_job(
                entrypoint=entrypoint,
                submission_id=job_id,
                runtime_env={"working_dir": str(working_dir)},
                metadata={RUN: run},
                entrypoint_num_cpus=0,
                entrypoint_label_selector=dict(labels) or None,
            )
        except (RuntimeError, RayError, OSError) as error:
            raise self._unreachable(error) from None

    def hand_over(self, values: Mapping[str, str]) -> str:
        """Puts secrets where the job takes them from, once, and returns the name under which they are there."""
        import tempfile

        uri = f"gcs://_ray_pkg_{secrets.token_hex(16)}.zip"
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "values"
            file.touch(0o600)
            file.write_text(json.dumps(dict(values)), encoding="utf-8")
            ray_private.hand_over(self._client, uri, file)
        return uri

    def follow(self, job_id: str, write: Callable[[str], None]) -> str:
        """Hands on a job's output until it has ended, and returns its status. A connection that breaks is made again.

        Raises:
            InfraError: The cluster does not answer any more, or knows no such job.
        """
        import aiohttp

        seen = 0

        async def tail() -> None:
            nonlocal seen
            skip = seen
            async for part in self._client.tail_job_logs(job_id):
                new = part[skip:]
                skip = max(0, skip - len(part))
                # how Ray begins: the command that we made
                first = not seen and new.startswith("Running entrypoint for job")
                seen += len(new)
                write(new.partition("\n")[2] if first else new)

        failures = 0
        while True:
            try:
                asyncio.run(tail())
                status = self.status(job_id)
                if status not in _LIVE:
                    return status
                failures = 0
            except (RuntimeError, OSError, aiohttp.ClientError) as error:
                failures += 1
                gone = "does not exist" in str(error)
                if gone or failures > 10:
                    what = (
                        "is another one now, without this job" if gone else f"does not answer any more: {quoted(error)}"
                    )
                    hint = "The job may go on. If the head died, submit the same run again: it continues where it was."
                    raise InfraError(f"the cluster at {self.address} {what}", hint=hint) from error
            time.sleep(min(2.0 * (failures + 1), 10.0))

    def status(self, job_id: str) -> str:
        return str(self._client.get_job_status(job_id).value)

    def message(self, job_id: str) -> str:
        """Returns what Ray says of a job's end."""
        return self._client.get_job_info(job_id).message or ""

    def logs(self, job_id: str) -> str:
        return self._client.get_job_logs(job_id)

    def stop(self, job_id: str, timeout_s: float = 60.0) -> str:
        """Asks a job to end, waits until it has, and returns its status."""
        self._client.stop_job(job_id)
        deadline = time.monotonic() + timeout_s
        while (status := self.status(job_id)) in _LIVE and time.monotonic() < deadline:
            time.sleep(0.5)
        return status


def submit(
    config: Path,
    overrides: Sequence[str],
    address: str,
    *,
    job: str = "experiment",
    working_dir: Path | None = None,
    notify: Callable[[str], None] = print,
    write: Callable[[str], None] = lambda text: print(text, end="", flush=True),
    follow: bool = True,
) -> str:
    """Submits a run to a cluster, or follows the job that works on it already. Returns the job's last known status.

    Args:
        config: Relative to ``working_dir``.
        job: One of ``JOBS``.
        working_dir: Travels to the cluster; by default the current folder.

    Raises:
        ConfigError: The configuration is wrong, or the folder is no project or too large.
        InfraError: The cluster cannot be reached, or refuses our token. Nothing was submitted.
        RunError: The job failed.
    """
    _prepare_ray()
    folder = (working_dir or Path()).resolve()
    checked = load(folder / config, overrides, files=False)
    run = _run_dir(checked.run)
    problems = [str(problem) for problem in missing_secrets(checked)]
    if problems:
        raise ConfigError(problems[0])
    check_folder(folder)
    inside = (folder / config).resolve()
    if not inside.is_relative_to(folder):
        raise ConfigError(
            f"{config} is not in {folder}, which is what travels to the cluster", hint="Say --working-dir, or copy it."
        )
    cluster = Cluster(address)
    live = [found for found in cluster.jobs(run) if found.live and job != "check"]
    if live:
        notify(f"{live[-1].id} works on {run} already: its output follows")
        job_id = live[-1].id
    else:
        values = {
            **{name: value.reveal() for name, value in secrets_of(checked).items()},
            **environment(checked.tracking),
        }
        entry = _entrypoint(job, [inside.relative_to(folder).as_posix(), *overrides], cluster, values)
        job_id = cluster.start(f"{job}-{checked.run.name}", run, entry, folder, Places.of(checked).labels[Role.driver])
        notify(f"submitted {job_id} for {run}")
    notify(f"dashboard: {cluster.address}/#/jobs/{job_id}")
    if not follow:
        return cluster.status(job_id)
    try:
        status = cluster.follow(job_id, write)
    except KeyboardInterrupt:
        notify(f"\nthe job goes on. Follow it with: agentr logs {run} --address {cluster.address}")
        notify(f"Stop it with: agentr stop {run} --address {cluster.address}")
        raise
    if status != "SUCCEEDED":
        hint = (
            f"Mend the cause and submit the same again: it continues. All of its output: agentr logs {run} --address "
            f"{cluster.address}"
        )
        raise RunError(f"{job_id} ended as {status}: {cluster.message(job_id)}", hint=hint)
    return status


def check_folder(folder: Path) -> int:
    """Checks that a folder is a project that can travel, and returns its size in bytes, without what its ignore files
    name.

    Raises:
        ConfigError: It is not.
    """
    if not any((folder / name).exists() for name in PROJECT):
        hint = f"Go to the project's folder, or give --working-dir. A project has one of {', '.join(PROJECT)}."
        raise ConfigError(f"{folder} is no project, and all that is in it would be sent to the cluster", hint=hint)
    size, largest = 0, ("", 0)
    for path, bytes_ in _travelling(folder):
        size += bytes_
        largest = max(largest, (path, bytes_), key=lambda found: found[1])
        if size > LARGEST_BYTES:
            named = f"{largest[0]} ({largest[1] / 2**20:.1f} MiB)"
            hint = f"Name what is not needed in .gitignore or .rayignore. The largest file so far is {named}."
            raise ConfigError(
                f"{folder} holds more than {LARGEST_BYTES / 2**20:.0f} MiB, which would be sent to the cluster",
                hint=hint,
            )
    return size


def _travelling(folder: Path) -> Iterator[tuple[str, int]]:
    """Files that Ray would send, with their sizes."""

    def walk(here: Path, excludes: list[Any]) -> Iterator[tuple[str, int]]:
        excludes = [*excludes, *ray_private.ignored_by_files(here)]
        for path in sorted(here.iterdir()):
            if path.name == ".git" or path.is_symlink() or any(exclude(path) for exclude in excludes):
                continue
            if path.is_dir():
                yield from walk(path, excludes)
            elif path.is_file():
                yield path.relative_to(folder).as_posix(), path.stat().st_size

    try:
        yield from walk(folder, [])
    except PermissionError as error:
        raise ConfigError(f"{folder} cannot be read: {error}") from error


def _run_dir(run: RunConfig) -> str:
    if not Path(run.dir).is_absolute():
        hint = "Give an absolute path that every node can reach: run.dir=/shared/runs/NAME"
        raise ConfigError(
            f"run.dir = {run.dir!r} is relative, and the cluster has other folders than this machine", hint=hint
        )
    return run.dir


def _entrypoint(job: str, arguments: Sequence[str], cluster: Cluster, values: Mapping[str, str]) -> str:
    if job not in JOBS:
        raise ConfigError(f"there is no job {job!r}", hint=f"There are {', '.join(JOBS)}.")
    command = ["-m", f"ray_jobs.{job}", *arguments]
    if values:
        command += ["--secrets", cluster.hand_over(values)]
    return f'{_FIND_PYTHON}exec "$python" {shlex.join(command)}'


def resolve_job(cluster: Cluster, run: str) -> Job:
    """Returns the last job of a run, named by its directory, or of a job's id.

    Raises:
        ConfigError: There is none; names those that there are.
    """
    found = cluster.jobs(run)
    if not found:
        there = sorted({job.run for job in cluster.jobs()})
        raise ConfigError(
            f"no job of {cluster.address} works or worked on {run}", hint=f"Runs there: {', '.join(there) or 'none'}."
        )
    return next((job for job in reversed(found) if job.live), found[-1])


def stop(run: str, address: str, notify: Callable[[str], None] = print) -> None:
    """Ends the job of a run. What is finished is kept."""
    cluster = Cluster(address)
    job = resolve_job(cluster, run)
    if not job.live:
        notify(f"{job.id} has ended already: {job.status}")
        return
    notify(f"{job.id}: {cluster.stop(job.id)}. Submit the same run again to go on.")


def logs(run: str, address: str, follow: bool, write: Callable[[str], None]) -> None:
    """Writes the output of a run's last job."""
    cluster = Cluster(address)
    job = resolve_job(cluster, run)
    if follow and job.live:
        cluster.follow(job.id, write)
    else:
        write(cluster.logs(job.id))
