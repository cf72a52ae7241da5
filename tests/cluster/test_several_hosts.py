"""Runs on several hosts: what is refused before it begins, a run from its start to its report, and one whose head dies
under it."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any

import pytest

from agentr.search import Tree
from agentr.search.stored import to_json
from agentr.store.dataset import read_rows
from agentr.store.files import read_lines
from agentr.store.forest import Forest
from tests.chaos.driver import DEMO, ROUND_STAGES, SMALL
from tests.hosts import Host, Hosts, RayHosts, needs_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(1500), needs_hosts]

AGENTR = ("python", "-m", "agentr.cli")


def job(root: Path) -> list[str]:
    return [*AGENTR, "run", DEMO, "cluster=cpu_cluster", *SMALL, f"run.dir={root}", "cluster.lease_s=5"]


def units(root: Path) -> dict[str, Any]:
    """What a run made: the trees of each stage, token for token, and the rows.
    The seventh digit of a token's log-probability depends on what the engine computed beside it, and so on what was
    asked again."""

    def bare(tree: Tree) -> dict[str, Any]:
        data = json.loads(to_json(tree))
        for node in data["nodes"]:
            assert len(node.pop("logprobs")) in (0, len(node["token_ids"]))
        return data

    trees = {
        stage: [bare(tree) for tree in Forest(root / stage)]
        for stage in ROUND_STAGES
        if (root / stage / "summary.parquet").exists()
    }
    return {**trees, "rows": [replace(row, logprobs=()) for row in read_rows(root / "rounds/01/dataset")]}


def written(work: Path) -> int:
    """How much a coordinator has written: bytes of finished trees and journals."""
    return sum(path.stat().st_size for path in work.rglob("*") if path.is_file())


def joined(ray: RayHosts, host: Host) -> None:
    """Lets a host join a head, on which those of the dead one still call: now and then Ray's start does not come to an
    end then, and the host is started anew."""
    for _ in range(3):
        ray.worker(host)
        with suppress(TimeoutError):
            ray.wait(2, 90)
            return
        host.kill()
        host.boot()
    ray.worker(host)
    ray.wait(2, 90)


def wait_for(condition: Any, process: Popen[bytes], log: Path, timeout_s: float = 600.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)


class Cluster:
    """Three hosts with a role each, and one that is not used yet."""

    def __init__(self, hosts: Hosts, root: Path) -> None:
        self.hosts, self.root = hosts, root
        self.ray = RayHosts(hosts, root / "ray")
        self.ray.head(hosts[0], labels={"agentr-role": "head"}, dashboard=False)
        self.ray.worker(hosts[1], labels={"agentr-role": "env"})
        self.ray.worker(hosts[2], labels={"agentr-role": "rollout"})
        self.ray.wait(3)

    def agentr(self, *arguments: str, host: Host | None = None) -> CompletedProcess[str]:
        return (host or self.hosts[0]).run(*AGENTR, *arguments, env=self.ray.environment(), timeout=600, check=False)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("several")
    with Hosts(4, shared=root, hide=[root / "hidden"]) as hosts:
        yield Cluster(hosts, root)


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> Path:
    root = cluster.root / "undisturbed"
    done = cluster.hosts[0].run(*job(root), env=cluster.ray.environment(), timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return root


@pytest.mark.parametrize(
    "changes, answer",
    [
        (
            ["run.dir={root}/hidden/run"],
            "is not the same folder on 127.9.0.12 (env), 127.9.0.13 (rollout). It must be on storage that all",
        ),
        (
            ["cluster=gpu_cluster"],
            "policy.engines: engine wants 1 GPUs on one node on nodes with agentr-role=!in(head,env,train)",
        ),
        (["cluster.nodes.engine={agentr-role: rolout}"], "'rolout' is no value of agentr-role. Did you mean rollout?"),
        (["collect.in_flight=2000"], "Set env.servers=4, or lower collect.in_flight."),
        (["env.python=/nowhere/python"], "127.9.0.12 (env) lacks the interpreter /nowhere/python"),
        (
            ["policy.backend=openai", "policy.openai.model=m", "policy.openai.api_key_env=NO_SUCH_KEY"],
            "the environment variable NO_SUCH_KEY",
        ),
    ],
    ids=["run directory", "GPUs", "label", "sessions", "interpreter", "secret"],
)
def test_what_cannot_run_is_refused_within_seconds(cluster: Cluster, changes: list[str], answer: str) -> None:
    root = cluster.root / "refused"  # the same for all: what was refused can be mended
    started = time.monotonic()
    done = cluster.agentr(
        "run",
        DEMO,
        "cluster=cpu_cluster",
        f"run.dir={root}",
        *(change.replace("{root}", str(cluster.root)) for change in changes),
    )
    assert done.returncode == 1 and answer in done.stderr, done.stderr + done.stdout
    assert time.monotonic() - started < 60
    assert not (root / "rounds").exists(), "nothing was begun"


def test_a_cluster_that_grows_is_waited_for_and_the_wait_is_shown(cluster: Cluster) -> None:
    done = cluster.agentr("run", DEMO, "cluster=gpu_cluster", "cluster.wait_s=5", f"run.dir={cluster.root}/waits")
    assert (
        done.returncode == 1
        and "waiting up to 5 s for nodes: " in done.stdout
        and "the nodes did not come" in done.stdout
    )


def test_without_the_token_nothing_is_started(cluster: Cluster) -> None:
    environment = {**cluster.ray.environment(), "RAY_AUTH_TOKEN_PATH": "/nowhere"}
    done = cluster.hosts[0].run(*job(cluster.root / "x"), env=environment, timeout=120, check=False)
    assert done.returncode == 1 and "RAY_AUTH_TOKEN" in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_each_part_runs_where_its_label_says(cluster: Cluster, undisturbed: Path) -> None:
    for part, host in (("env-textcraft-0", "host2"), ("rollout-0", "host3")):
        (starts,) = (undisturbed / "logs").glob(f"starts-{part}-*.jsonl")
        assert {line["host"] for line in read_lines(starts)} == {host}, part
    assert json.loads((undisturbed / "report.json").read_text())["complete"]
    for folder in ("rounds/00/train", "rounds/01/train"):
        assert not list((undisturbed / folder).glob("work-*"))


@pytest.mark.by_hand
def test_a_dead_heads_run_goes_on_while_its_old_coordinator_lives(cluster: Cluster, undisturbed: Path) -> None:
    """The run is started anew at once, on a new cluster; the old coordinator, engine and server do not know yet that
    their head is dead."""
    hosts, root = cluster.hosts, cluster.root / "beheaded"
    first = hosts[0].start(*job(root), env=cluster.ray.environment(), log=cluster.root / "first.log")
    collected = Forest(root / "rounds/01/collect")
    wait_for(lambda: len(collected.finished()) >= 4, first, cluster.root / "first.log")
    old = collected.work
    hosts[0].kill()
    before = written(old)
    hosts[0].boot()
    ray = RayHosts(hosts, cluster.root / "ray again", settings={"RAY_raylet_start_wait_time_s": "60"})
    ray.head(hosts[0], labels={"agentr-role": "head"}, dashboard=False)
    joined(ray, hosts[3])
    alive = written(old) > before
    second = hosts[0].start(*job(root), env=ray.environment(), log=cluster.root / "second.log")
    wait_for(lambda: not old.exists(), second, cluster.root / "second.log")
    assert second.wait(900) == 0, (cluster.root / "second.log").read_text()[-3000:]
    assert alive, "the old coordinator was dead: nothing was tried"
    assert units(root) == units(undisturbed)
    sealed = [event["stage"] for event in read_lines(root / "events.jsonl") if event["event"] == "stage_sealed"]
    assert len(sealed) == len(set(sealed)), "a stage was sealed twice"
