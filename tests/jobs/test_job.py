"""`ray job submit` on a cluster with token authentication: runs to the end, is killed, and continues when it is
submitted again."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from agentr.store.files import read_lines
from agentr.store.run import RunStore
from tests.chaos.driver import DEMO, SMALL, STAGES

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

BIN = Path(sys.executable).parent
REPOSITORY = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """A head node with its own home, so that its token is its own. Yields the environment that clients need."""
    home = Path(tempfile.mkdtemp(prefix="h", dir="/tmp"))  # a Unix socket's path has 107 characters
    # Another Ray on this machine may have the agent's default port, and without its agent a node takes no jobs.
    port, dashboard, agent = free_port(), free_port(), free_port()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environment |= {
        "HOME": str(home),
        "RAY_AUTH_MODE": "token",
        "RAY_TMPDIR": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "180",
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}",
    }
    subprocess.run(
        [BIN / "ray", "get-auth-token", "--generate"], env=environment, check=True, capture_output=True, timeout=120
    )
    command = [BIN / "ray", "start", "--head", "--block", f"--port={port}", f"--dashboard-port={dashboard}"]
    command += [f"--dashboard-agent-listen-port={agent}", "--num-cpus=4", "--object-store-memory=200000000"]
    with (home / "ray.log").open("wb") as log:
        head = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 360
        # The dashboard answers before its agents can take a job, so a job is what is waited for.
        up = [BIN / "ray", "job", "submit", "--", "true"]
        while subprocess.run(up, env=environment, capture_output=True, timeout=180, check=False).returncode:
            assert head.poll() is None, (home / "ray.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the cluster did not come up"
            time.sleep(1)
        yield environment
    finally:
        for process in [*psutil.Process(head.pid).children(recursive=True), psutil.Process(head.pid)]:
            if process.is_running():
                process.kill()
        head.wait(30)
        shutil.rmtree(home, ignore_errors=True)


def sealed_by_events(root: Path) -> Counter[str]:
    """How often each stage was sealed."""
    return Counter(e["stage"] for e in read_lines(root / "events.jsonl") if e["event"] == "stage_sealed")


def submit(environment: dict[str, str], root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    job = [
        sys.executable,
        "-m",
        "ray_jobs.experiment",
        "--config",
        DEMO,
        f"run.dir={root}",
        *SMALL,
    ]
    command = [str(BIN / "ray"), "job", "submit", *more, "--working-dir", ".", "--", *job]
    return subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=1500, check=False
    )


def agentr(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agentr.cli", *arguments]
    return subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=1500, check=False
    )


def test_a_job_is_killed_and_continues_when_submitted_again(cluster: dict[str, str], tmp_path: Path) -> None:
    root = tmp_path / "run"
    secret = {"OPENAI_API_KEY": "sesame"}
    first = agentr({**cluster, **secret}, "submit", DEMO, f"run.dir={root}", *SMALL, "--no-wait")
    assert first.returncode == 0 and "submitted agentr-experiment-demo-" in first.stdout, first.stderr + first.stdout
    # Ray tells of each file that does not travel
    assert "INFO" not in first.stderr and "WARNING" not in first.stderr, first.stderr

    deadline, look = time.monotonic() + 600, time.monotonic()
    while "rounds/00/train" not in sealed_by_events(root):
        if time.monotonic() > look:  # a job that has failed is not waited for
            look = time.monotonic() + 20
            listed = subprocess.run(
                [BIN / "ray", "job", "list"], env=cluster, capture_output=True, text=True, timeout=120, check=False
            )
            assert "FAILED" not in listed.stdout, agentr(cluster, "logs", str(root)).stdout[-3000:]
        assert time.monotonic() < deadline, (
            "the first training did not end\n" + agentr(cluster, "logs", str(root)).stdout[-3000:]
        )
        time.sleep(0.2)
    owner = re.search(r"pid (\d+)", RunStore(root).owner())
    assert owner, "nobody owns the run"
    os.kill(int(owner[1]), signal.SIGKILL)

    second = submit(
        cluster,
        root,
        "--no-wait",
        "--submission-id",
        "second",
        "--metadata-json",
        json.dumps({"agentr_run": str(root)}),
    )
    assert second.returncode == 0, second.stderr + second.stdout
    second = agentr(cluster, "submit", DEMO, f"run.dir={root}", *SMALL)
    assert second.returncode == 0, second.stdout[-3000:] + second.stderr[-1000:]
    assert f"second works on {root} already: its output follows" in second.stdout and "#/jobs/second" in second.stdout
    assert "round 1: collect (stage " in second.stdout, "the job's log shows no progress"
    assert "warm start: train (stage " not in second.stdout, "a sealed stage was done again"
    assert sealed_by_events(root) == dict.fromkeys(STAGES, 1)
    assert json.loads((root / "report.json").read_text())["complete"]
    listed = agentr(cluster, "logs", str(root))
    assert listed.returncode == 0 and "round 1: collect (stage " in listed.stdout
    stopped = agentr(cluster, "stop", str(root))
    assert stopped.returncode == 0 and "second has ended already: SUCCEEDED" in stopped.stdout
    told = subprocess.run(
        [BIN / "ray", "job", "list"], env=cluster, capture_output=True, text=True, timeout=120, check=True
    )
    assert "agentr-experiment-demo" in told.stdout and "sesame" not in told.stdout + first.stdout
    assert not [path for path in root.rglob("*") if path.is_file() and b"sesame" in path.read_bytes()]


def test_a_job_is_stopped_and_its_run_can_go_on(cluster: dict[str, str], tmp_path: Path) -> None:
    root = tmp_path / "run"
    assert agentr(cluster, "submit", DEMO, f"run.dir={root}", *SMALL, "--no-wait").returncode == 0
    deadline = time.monotonic() + 300
    while not (root / "rounds").exists():
        assert time.monotonic() < deadline, "the job did not begin"
        time.sleep(0.2)
    stopped = agentr(cluster, "stop", str(root))
    assert stopped.returncode == 0 and "STOPPED. Submit the same run again to go on." in stopped.stdout, (
        stopped.stdout + stopped.stderr
    )
    deadline = time.monotonic() + 60
    while RunStore(root).owner():
        assert time.monotonic() < deadline, "the driver did not end"
        time.sleep(0.2)


def test_a_check_starts_nothing_and_says_what_may_run_where(cluster: dict[str, str], tmp_path: Path) -> None:
    fine = agentr(cluster, "submit", DEMO, f"run.dir={tmp_path}/run", "--dry-run")
    assert fine.returncode == 0 and "the cluster has what the run needs" in fine.stdout and "2 engine" in fine.stdout, (
        fine.stdout
    )
    assert not (tmp_path / "run/rounds").exists()
    wrong = agentr(cluster, "submit", DEMO, "cluster=gpu_cluster", f"run.dir={tmp_path}/run", "--dry-run")
    assert wrong.returncode == 1 and "engine wants 1 GPUs on one node" in wrong.stdout, wrong.stdout + wrong.stderr


def test_environment_servers_are_a_job_until_it_is_stopped(cluster: dict[str, str], tmp_path: Path) -> None:
    given = ("submit", DEMO, f"run.dir={tmp_path}/run", "env.name=textcraft", "--job", "environments", "--no-wait")
    assert agentr(cluster, *given).returncode == 0
    deadline = time.monotonic() + 180
    while not (found := re.search(r"textcraft: (http://\S+)", agentr(cluster, "logs", f"{tmp_path}/run").stdout)):
        assert time.monotonic() < deadline, "no server said where it is"
        time.sleep(1)
    token = (tmp_path / "run/token").read_text()
    asked = httpx.get(f"{found[1]}/v1/spec", headers={"Authorization": f"Bearer {token}"})
    assert asked.json()["name"] == "textcraft", asked.text
    assert agentr(cluster, "stop", f"{tmp_path}/run").returncode == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{found[1]}/v1/spec")
    assert not (tmp_path / "run/token").exists()


@pytest.mark.parametrize(
    "changes, answer",
    [
        ({"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9"}, "the cluster at http://127.0.0.1:9 cannot be used"),
        ({"RAY_API_SERVER_ADDRESS": ""}, "no cluster was named\nSay --address http://HEAD:8265"),
        ({"RAY_AUTH_TOKEN": "0" * 64}, "Nothing was submitted"),
    ],
    ids=["nobody there", "no address", "wrong token"],
)
def test_a_cluster_that_cannot_be_used(
    cluster: dict[str, str], changes: dict[str, str], answer: str, tmp_path: Path
) -> None:
    done = agentr({**cluster, **changes}, "submit", DEMO, f"run.dir={tmp_path}/run")
    assert done.returncode == 1 and answer in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_run_that_nobody_knows(cluster: dict[str, str]) -> None:
    done = agentr(cluster, "stop", "/no/such/run")
    assert done.returncode == 1 and "works or worked on /no/such/run" in done.stderr


def test_a_relative_run_directory_is_refused(cluster: dict[str, str]) -> None:
    done = submit(cluster, Path("runs/x"))
    assert done.returncode != 0
    assert "is relative, and a job's working directory is a temporary copy" in done.stdout


def test_a_wrong_token_is_refused(cluster: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0" * 64)
    done = submit({**cluster, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}, tmp_path / "run")
    assert done.returncode != 0
    assert not (tmp_path / "run").exists()
