"""What may travel to a cluster, and what is refused before anything is sent."""

import logging
import runpy
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from aiohttp import RequestInfo, WSServerHandshakeError
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from agentr import cli
from agentr.commands import submit as module
from agentr.commands.submit import JOBS, Cluster, check_folder, submit
from agentr.errors import ConfigError, InfraError
from agentr.rounds.plan import Plan

ROOT = Path(__file__).parents[2]


def test_a_projects_size_is_that_of_what_travels(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("x" * 10)
    (tmp_path / ".gitignore").write_text("runs/\n")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/big").write_bytes(b"0" * 5000)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/a.py").write_text("y" * 30)
    (tmp_path / "link").symlink_to("/")
    assert check_folder(tmp_path) == 10 + 6 + 30


def test_what_is_too_large_or_no_project_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="is no project"):
        check_folder(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "weights").write_bytes(b"0" * 3000)
    monkeypatch.setattr(module, "LARGEST_BYTES", 2000)
    with pytest.raises(ConfigError, match=r"holds more than .*Name what is not needed.*weights"):
        check_folder(tmp_path)


@pytest.mark.parametrize(
    "overrides, answer",
    [
        (["run.dir=runs/x"], "run.dir = 'runs/x' is relative"),
        (["run.dir=/x", "run.sed=1"], "unknown key 'run.sed'. Did you mean 'run.seed'?"),
        (["run.dir=/x", "cluster=gpu"], "there is no cluster 'gpu'"),
        (
            ["run.dir=/x", "eval.judge.who=openai", "eval.judge.openai={model: m, api_key_env: NO_SUCH}"],
            "variable NO_SUCH is not set",
        ),
    ],
)
def test_a_wrong_configuration_is_refused_here(
    overrides: list[str], answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError) as error:
        submit(Path("configs/demo.yaml"), overrides, "http://127.0.0.1:9", working_dir=ROOT)
    assert answer in str(error.value)
    assert caplog.handler.level == logging.NOTSET, "Ray's handlers alone are made quiet"


def test_a_configuration_that_does_not_travel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    with pytest.raises(ConfigError, match=r"is not in .*which is what travels"):
        submit(ROOT / "configs/demo.yaml", ["run.dir=/x"], "http://127.0.0.1:9", working_dir=tmp_path)


class Client:
    """What `Cluster` asks: the output and the status of a job, or what goes wrong."""

    def __init__(self, output: list[str | Exception], status: list[str | Exception]) -> None:
        self.output, self.statuses = output, status

    async def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        said = self.output.pop(0)
        if isinstance(said, Exception):
            raise said
        yield said

    def get_job_status(self, job_id: str) -> SimpleNamespace:
        status = self.statuses.pop(0)
        if isinstance(status, Exception):
            raise status
        return SimpleNamespace(value=status)


def followed(client: Client, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    cluster = object.__new__(Cluster)
    cluster.address, cluster._client = "http://head:8265", client  # type: ignore[assignment]
    said: list[str] = []
    return cluster.follow("job-1", said.append), "".join(said)


#: What a dashboard answers that has just come back.
REFUSED = WSServerHandshakeError(
    RequestInfo(URL("http://head"), "GET", CIMultiDictProxy(CIMultiDict())), (), status=403
)


def test_a_connection_that_breaks_is_made_again_and_nothing_is_said_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(["one\n", REFUSED, ConnectionError("no"), "one\ntwo\n"], ["RUNNING", "SUCCEEDED"])
    assert followed(client, monkeypatch) == ("SUCCEEDED", "one\ntwo\n")


def test_a_cluster_without_the_job_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(["one\n"], [RuntimeError("Request failed with status code 404: Job job-1 does not exist.")])
    with pytest.raises(InfraError, match="is another one now, without this job") as error:
        followed(client, monkeypatch)
    assert "submit the same run again" in str(error.value.hint)


def test_a_cluster_that_stays_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InfraError, match="does not answer any more"):
        followed(Client([REFUSED] * 11, []), monkeypatch)


def test_every_job_is_an_entry_point() -> None:
    there = {path.stem for path in (ROOT / "ray_jobs").glob("*.py")} - {"__init__", "entry"}
    assert there == set(JOBS)


@pytest.mark.parametrize("job", JOBS)
def test_what_a_job_asks_of_agentr_is_there(job: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A job is a command line of ``agentr``, whole with its options, or a function of the configuration."""
    asked: list[list[str]] = []
    served: list[Plan] = []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(cli, "main", lambda: asked.append(sys.argv[1:]))
    monkeypatch.setattr("agentr.commands.serve.serve", lambda plan, _: served.append(plan))
    given = [f"run.dir={tmp_path}"] if job == "smoke" else ["configs/demo.yaml", f"run.dir={tmp_path}"]
    monkeypatch.setattr(sys, "argv", [job, *given])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"ray_jobs.{job}", run_name="__main__")
    assert ended.value.code == 0
    if job == "environments":
        assert served[0].config.run.dir == str(tmp_path) and served[0].config.cluster.address == "auto"
        return
    name, *arguments = asked[0]
    command = vars(typer.main.get_command(cli.app))["commands"][name]
    assert command.make_context(name, arguments).params["overrides"] == [f"run.dir={tmp_path}", "cluster.address=auto"]
