"""Each cause is provoked, with real parts where they can be had, and named: with its kind, what was seen, and the
setting to change."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentr.background import Beside
from agentr.backoff import Backoff
from agentr.cluster.causes import Cause, CauseKind
from agentr.cluster.checks import check_disks, check_nodes
from agentr.cluster.node_watch import Lookouts
from agentr.cluster.nodes import ClusterNode
from agentr.cluster.places import Places
from agentr.collect.units import StageProgress, as_dict, merged
from agentr.config.policy import PolicyConfig
from agentr.config.schema import EnvConfig
from agentr.config.training import TrainConfig, TrainerConfig
from agentr.envs.checks import check_servers
from agentr.envs.fleet import EnvServers
from agentr.envs.server import Supervision
from agentr.errors import ConfigError, InfraError, NoRows
from agentr.methods import load
from agentr.policy.base import EngineHealth, GenerateRequest
from agentr.policy.chat import ChatCodec
from agentr.policy.checks import check_engines, check_problems
from agentr.policy.openai_api import OpenAIPolicy
from agentr.rounds import diagnosis
from agentr.rounds.diagnosis import Parts, diagnose
from agentr.rows.dataset import write_dataset
from agentr.search.tree import Tree
from agentr.store.dataset import write_rows
from agentr.store.rows import Dropped, Provenance
from agentr.train.checks import AwaitedTraining, check_training
from agentr.train.job import TrainJob
from agentr.train.launch import Workers
from agentr.types import Message, Outcome, Sampling, Task
from tests.support import own_ray, tiny_model, tiny_tokenizer
from tests.tiny import IMITATE
from tests.train.conftest import random_rows
from tests.trees import add, child

CONFIG = load(None, [IMITATE])
PLACES = Places.of(CONFIG)


def one(causes: Iterable[Cause], kind: CauseKind, wanted: str) -> None:
    """Checks that there is one cause, of a kind and with these words."""
    found = list(causes)
    assert [cause.kind for cause in found] == [kind], found
    assert re.search(wanted, str(found[0])), found[0]


def none(found: Iterable[Any]) -> None:
    assert not list(found)


def eventually(look: Any, timeout_s: float = 90.0) -> None:
    """Waits until something is so: what a machine with much to do does late is no failure."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return look()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


# engines --------------------------------------------------------------------------------------------------------------


class FakeEngine:
    """An engine's actor that says what it is told to."""

    def __init__(self, health: EngineHealth | None = None, starts_s: float = 0.0, folder: str = "") -> None:
        if folder:
            mark = Path(folder) / "started"
            starts_s = 600.0 if mark.exists() else 0.0
            mark.touch()
        time.sleep(starts_s)
        self._health = health

    def health(self) -> EngineHealth:
        if self._health is None:
            raise InfraError("the engine's stepping thread died")
        return self._health

    def pid(self) -> int:
        return os.getpid()


@contextmanager
def engine(*arguments: Any, **options: Any) -> Iterator[dict[str, Any]]:
    import ray

    actor: Any = ray.remote(FakeEngine)
    handle = actor.options(**{"num_cpus": 0, **options}).remote(*arguments)
    try:
        yield {"rollout-0": handle}
    finally:
        ray.kill(handle)


@pytest.mark.cluster
def test_an_engine_that_cannot_be_placed(ray_session: None) -> None:
    fixed = Places.of(load(None, [IMITATE, "policy.device=gpu", "trainer.use_gpu=false"]))
    grows = Places.of(load(None, [IMITATE, "policy.device=gpu", "trainer.use_gpu=false", "cluster.wait_s=60"]))
    with engine(num_gpus=1) as engines:
        eventually(
            lambda: one(
                check_engines(engines, fixed),
                CauseKind.unschedulable,
                r"rollout-0 cannot be placed \(its actor is PENDING_CREA",
            )
        )
        one(check_engines(engines, fixed), CauseKind.unschedulable, r"engine wants .*1 GPUs.*\)\. .*policy\.engines")
        one(
            check_engines(engines, grows),
            CauseKind.resources_awaited,
            r"rollout-0 waits for nodes that are to come .*cluster\.wait_s",
        )


@pytest.mark.cluster
def test_an_engine_that_starts_that_died_and_that_is_ill(ray_session: None, tmp_path: Path) -> None:
    import ray

    with engine(None, 600.0) as engines:
        eventually(
            lambda: one(
                check_engines(engines, PLACES),
                CauseKind.engine_starting,
                r"rollout-0 is being started \(its process \d+ on",
            )
        )
    with engine(EngineHealth(checkpoint="m")) as engines:
        eventually(lambda: none(check_engines(engines, PLACES)))
        ray.kill(engines["rollout-0"])
        eventually(
            lambda: one(check_engines(engines, PLACES), CauseKind.engine_dead, r"rollout-0 is dead and stays so")
        )
    with engine(EngineHealth(checkpoint="m"), 0.0, str(tmp_path), max_restarts=3) as engines:
        pid = ray.get(engines["rollout-0"].pid.remote())
        os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: one(
                check_engines(engines, PLACES),
                CauseKind.engine_dead,
                r"died and is being started again .*cluster\.actor_restarts",
            )
        )
    with engine(None) as engines:
        wanted = r"rollout-0 is not well \(.*the engine's stepping thread died"
        eventually(lambda: one(check_engines(engines, PLACES), CauseKind.engine_dead, wanted))


@pytest.mark.cluster
def test_an_engine_that_is_stuck(ray_session: None) -> None:
    import ray

    with engine(EngineHealth(checkpoint="m", stalled_s=61.0, running=7, queued=3)) as engines:
        ray.get(engines["rollout-0"].pid.remote())
        wanted = r"for 61 s in one decoding step, with 7 sequences and 3 calls behind\)\. .*policy\.timeout_s"
        one(check_engines(engines, PLACES), CauseKind.engine_stuck, wanted)
    with engine(EngineHealth(checkpoint="m")) as engines:
        pid = ray.get(engines["rollout-0"].pid.remote())
        os.kill(pid, signal.SIGSTOP)
        try:
            one(
                check_engines(engines, PLACES),
                CauseKind.engine_stuck,
                r"does not answer how it is within 10 s\)\. policy\.timeout_s",
            )
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.cluster
def test_a_cache_that_is_too_small_is_said_from_an_engines_health(ray_session: None) -> None:
    """The health of a real engine in that state: tests/policy/test_engine.py."""
    import ray

    with engine(EngineHealth(checkpoint="m", running=9, waiting=4, preempted=12, cache_used=0.98)) as engines:
        ray.get(engines["rollout-0"].pid.remote())
        wanted = (
            r"98 % are in use, 4 of 9 sequences wait for room and were thrown out 12 times\)\. .*policy\.kv_cache_gib"
        )
        one(check_engines(engines, PLACES), CauseKind.cache_thrash, wanted)
    with engine(EngineHealth(checkpoint="m", running=9, waiting=4, cache_used=0.5)) as engines:
        ray.get(engines["rollout-0"].pid.remote())
        assert not list(check_engines(engines, PLACES)), "they wait for the batch"


def test_an_engine_that_is_out_of_service() -> None:
    one(
        check_problems({"rollout-1": "no answer"}, CONFIG.policy),
        CauseKind.engine_unavailable,
        r"rollout-1 is out of service \(no answer\)\. policy\.ti",
    )


# an API ---------------------------------------------------------------------------------------------------------------


@contextmanager
def serving(status: int, pause_s: float = 0.0) -> Iterator[str]:
    """A server that answers everything with a status."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            time.sleep(pause_s)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"{}")

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("status, wanted", [(429, "HTTP 429"), (503, "HTTP 503"), (0, "ConnectError")])
def test_an_api_that_refuses(monkeypatch: pytest.MonkeyPatch, status: int, wanted: str) -> None:
    monkeypatch.setenv("TEST_API_KEY", "x")
    with serving(status or 500) as url:
        config = load(
            None,
            [
                IMITATE,
                "policy.backend=openai",
                "policy.openai.model=m",
                "policy.openai.api_key_env=TEST_API_KEY",
                "policy.retries=2",
            ],
        )
        config.policy.openai.base_url = url if status else "http://127.0.0.1:9/v1"
        policy = OpenAIPolicy(config.policy, ChatCodec(tiny_tokenizer()), backoff=Backoff(first_s=0.01))
        assert not list(check_problems(policy.problems(), config.policy))
        with pytest.raises(InfraError):
            asyncio.run(
                policy.generate(GenerateRequest((1,), 1, Sampling(max_tokens=4), messages=(Message("user", "go"),)))
            )
        words = (
            rf"refuses the policy's calls \({wanted}.*, 3 times in a row\)\. Check policy\.openai\.base_url, "
            r".*TEST_API_KEY"
        )
        one(check_problems(policy.problems(), config.policy), CauseKind.api_refusing, words)


def test_an_api_that_refuses_the_key_ends_the_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_API_KEY", "x")
    with serving(401) as url:
        config = PolicyConfig(timeout_s=30.0)
        config.openai.model, config.openai.base_url, config.openai.api_key_env = "m", url, "TEST_API_KEY"
        policy = OpenAIPolicy(config, ChatCodec(tiny_tokenizer()))
        with pytest.raises(ConfigError, match=r"HTTP 401.*Check the key in TEST_API_KEY"):
            asyncio.run(
                policy.generate(GenerateRequest((1,), 1, Sampling(max_tokens=4), messages=(Message("user", "go"),)))
            )


# environment servers --------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_servers_that_hang_and_that_are_dead(ray_session: None, tmp_path: Path) -> None:
    import ray

    patient = Supervision(poll_s=0.5, strikes=10_000, backoff=Backoff(first_s=600.0, longest_s=600.0))
    servers = asyncio.run(EnvServers.start(EnvConfig(name="textcraft"), str(tmp_path), supervision=patient))
    (actor,) = servers.actors
    try:
        assert not list(check_servers(servers))
        pid = ray.get(actor.status.remote()).pid
        os.kill(pid, signal.SIGSTOP)
        one(
            check_servers(servers),
            CauseKind.server_hung,
            r"environment server 0 hangs \(http://.*/health does not answer within 10 s\)",
        )
        os.kill(pid, signal.SIGKILL)
        wanted = r"environment server 0 is being started again \(the process ended with status -9\)"
        eventually(lambda: one(check_servers(servers), CauseKind.server_dead, wanted))
    finally:
        ray.kill(actor)
    eventually(
        lambda: one(
            check_servers(servers),
            CauseKind.server_dead,
            r"the supervisor of environment server 0 does not answer \(ActorDied",
        )
    )


@contextmanager
def textcraft(*arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", "env_servers", "serve", "textcraft", "--host", "127.0.0.1", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


def test_a_server_that_is_full() -> None:
    import httpx

    with textcraft("--max-sessions", "2") as url:
        task = httpx.get(f"{url}/v1/splits/train", timeout=60).json()["tasks"][0]["id"]
        codes = [httpx.post(f"{url}/v1/open", json={"task": task}, timeout=60).status_code for _ in range(2)]
        assert codes == [200, 200] and not list(check_servers(None, url)), "it holds what it may"
        assert httpx.post(f"{url}/v1/open", json={"task": task}, timeout=60).status_code == 429
        wanted = (
            r"is full \(2 of 2 sessions are open, and it refused one \d+ s ago\)\. Raise env\.servers, or lower "
            r"collect\.in_flight"
        )
        one(check_servers(None, url), CauseKind.server_full, wanted)


def test_a_server_that_is_slow_that_has_no_free_thread_and_that_is_gone() -> None:
    with serving(200, pause_s=4.0) as url:
        one(
            check_servers(None, url),
            CauseKind.server_overloaded,
            r"is overloaded \(.*/health took 4\.\d s\)\. Raise env\.servers",
        )
    with serving(503) as url:
        one(check_servers(None, url), CauseKind.server_hung, r"hangs \(503\)")
    one(check_servers(None, url), CauseKind.server_dead, r"is dead \(.*/health: ConnectError")


# nodes and disks ------------------------------------------------------------------------------------------------------


def test_a_node_that_is_lost() -> None:
    head, env = ClusterNode("a", "10.0.0.1", {}, 1, 0), ClusterNode("b", "10.0.0.2", {"agentr-role": "env"}, 1, 0)
    one(
        check_nodes([head, env], [head]),
        CauseKind.node_lost,
        r"lost: the node 10\.0\.0\.2 \(env\) \(1 of 2 nodes are alive\)",
    )
    one(
        check_nodes([head], []),
        CauseKind.node_lost,
        r"lost: the node 10\.0\.0\.1 \(0 of 1 nodes are alive\)\. None is left: end this run",
    )
    assert not list(check_nodes([head], [head, env]))


@pytest.mark.cluster
def test_a_run_directory_on_a_full_disk(ray_session: None, tmp_path: Path) -> None:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", str(tmp_path)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    try:
        assert not list(check_disks(tmp_path, Lookouts()))
        (tmp_path / "fill").write_bytes(bytes(30 << 20))
        one(
            check_disks(tmp_path, Lookouts()),
            CauseKind.disk_full,
            rf"the disk of {tmp_path} on \S+ is full \(30 MiB are free\)\. Free some",
        )
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


# what there is to train on --------------------------------------------------------------------------------------------


def test_a_stage_without_a_row(tmp_path: Path) -> None:
    place = Provenance("t", (), "trajectory")
    with pytest.raises(
        NoRows,
        match=r"gave no row to train on: 2 x the rewards are equal\. .*warm_start\.train.*method\.\*.*collect\.tasks",
    ) as error:
        write_dataset(tmp_path / "a", [Dropped(place, "the rewards are equal")] * 2, 100)
    assert CauseKind(error.value.kind) is CauseKind.no_rows
    with pytest.raises(NoRows, match=r"longer than build\.max_length\. Raise build\.max_length"):
        write_dataset(tmp_path / "b", [Dropped(place, "longer than build.max_length")], 100)


@pytest.mark.parametrize("turns, identical", [(["x"], 0), (["x", "y"], 0), (["x", "x"], 1)])
def test_trees_whose_episodes_are_the_same_are_counted(turns: list[str], identical: int) -> None:
    tree = Tree.start(Task("toy", "t", "train", {}), (Message("user", "go"),), (1,), 0)
    for turn in turns:
        add(tree, 0, child(turn, 0.0, Outcome.FAILURE))
    progress = StageProgress()
    progress.add(tree)
    assert progress.identical == identical
    assert merged([as_dict(progress)] * 2)["identical"] == 2 * identical, "of several coordinators"


# training -------------------------------------------------------------------------------------------------------------


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_a_rank_that_does_not_step_is_named_with_its_stack(ray_session: None, tmp_path: Path) -> None:
    """Of two real workers one is stopped: the other one waits for it, and says where."""
    write_rows(tmp_path / "rows", random_rows(20))
    config = TrainConfig(steps=4000, batch_size=8, micro_batch_size=4, checkpoint_every=4000, log_every=1, bf16=False)
    trainer = TrainerConfig(workers=2, threads=1, max_failures=0)
    job = TrainJob(tmp_path / "rows", tiny_model(tmp_path / "model"), tmp_path / "out", config, trainer, watch_s=2.0)
    training = AwaitedTraining(job, "the last step was 7 of 4000")
    one(
        check_training(training, PLACES),
        CauseKind.rank_stuck,
        r"the trainer does not step .*trainer\.start_timeout_s and train\.log_every",
    )
    running = Beside(lambda: Workers(tmp_path).train([job]))
    pids: list[int] = []

    def stepped() -> None:
        assert running.ended() or len(job.read_metrics()) > 3
        pids[:] = [
            int(re.findall(r"pid (\d+) ready", (job.out / f"worker{n}.log").read_text())[-1]) for n in ("", ".1")
        ]

    eventually(stepped, 300)
    assert not list(job.work.glob("stalled-*"))
    os.kill(pids[1], signal.SIGSTOP)

    def named() -> None:
        causes = {str(cause).partition(" (")[0]: cause for cause in check_training(training, PLACES)}
        assert set(causes) == {"rank 0 does not step", "rank 1 does not step"}, causes
        assert {cause.kind for cause in causes.values()} == {CauseKind.rank_stuck}
        waits, stopped = (causes[f"rank {rank} does not step"] for rank in (0, 1))
        assert re.search(
            rf"the last step was 7 of 4000; process {pids[0]} on \S+, for \d+ s in .*\w+ \(\w+\.py:\d+\) < ",
            waits.evidence,
        )
        assert "it does not even report where it is, while the others do" in stopped.evidence
        assert "trainer.max_failures" in waits.setting and "worker.log" in waits.setting

    try:
        eventually(named)
        assert "Current thread" in (job.out / "worker.log").read_text(), "all stacks are in the log"
        os.kill(pids[1], signal.SIGCONT)
        eventually(lambda: none(job.work.glob("stalled-*")))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        running.wait(120)


@pytest.mark.cluster
def test_workers_without_a_place(ray_session: None, tmp_path: Path) -> None:
    import ray

    group = ray.util.placement_group([{"CPU": 1, "GPU": 1}] * 2)
    try:
        job = TrainJob(tmp_path, tmp_path, tmp_path / "out", trainer=TrainerConfig(workers=2, use_gpu=True))
        config = replace(CONFIG, trainer=TrainerConfig(workers=2, use_gpu=True))
        wanted = (
            r"the trainer's group of workers cannot be placed \(its placement group is PENDING \(\w+\); trainer wants "
            r"1 GPUs on one node"
        )
        eventually(
            lambda: one(
                check_training(AwaitedTraining(job, "no step"), Places.of(config)), CauseKind.unschedulable, wanted
            )
        )
    finally:
        ray.util.remove_placement_group(group)


# Ray itself -----------------------------------------------------------------------------------------------------------


@contextmanager
def frozen(name: str) -> Iterator[None]:
    """Stops a process of this Ray's for a while."""
    (process,) = [process for process in psutil.Process().children(recursive=True) if process.name() == name]
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def said_while_frozen(folder: Path) -> dict[str, tuple[list[Cause], float]]:
    """What is said while each of Ray's own processes is stopped, and in how many seconds; at last, what is said
    then."""
    said = {}
    with own_ray():
        for name in ("gcs_server", "raylet", ""):
            started = time.monotonic()
            with frozen(name) if name else nullcontext():
                said[name] = (diagnose(parts(folder)), time.monotonic() - started)
    return said


@pytest.mark.cluster
@pytest.mark.by_hand
def test_a_part_of_ray_that_is_frozen_is_named(tmp_path: Path) -> None:
    """Of a head that is frozen nobody else is asked: every question that goes by it would wait for it, until Ray ends
    the process. So this one is another, in which nothing else of Ray's is left that would be collected then. By hand,
    since beside another test it took 33 seconds at times and 490 at others."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        said = pool.submit(said_while_frozen, tmp_path).result()
    head, seconds = said["gcs_server"]
    silent = r"answer \(\S+:\d+ takes a connection and says no"
    one(head, CauseKind.head_silent, rf"head of the Ray cluster does not {silent}")
    assert seconds < 20
    one(said["raylet"][0], CauseKind.node_unreachable, rf"alive for Ray, and does not {silent}")
    one(said[""][0], CauseKind.unknown, r"no part of the run is at fault")


# all together ---------------------------------------------------------------------------------------------------------


def parts(tmp_path: Path, **changes: Any) -> Parts:
    progress = {"in_flight": 3, "done": 5, "total": 9, "last_error": "", "waiting": {}, "retried": 0}
    values: dict[str, Any] = {
        "engines": {},
        "servers": None,
        "env_url": "",
        "progress": progress,
        "silent_s": 0.0,
        "training": None,
    }
    return Parts(**{"places": PLACES, "run_dir": tmp_path, "known": [], "lookouts": Lookouts(), **values, **changes})


@pytest.mark.cluster
@pytest.mark.parametrize(
    "changes, kind, wanted",
    [
        (
            {"silent_s": 40.0},
            CauseKind.coordinator_silent,
            r"loop is blocked, or its node is cut off \(it has not answered for 40 s\)\. .*collect\.in_",
        ),
        (
            {"progress": {"waiting": {"rollout-1": "no answer"}}},
            CauseKind.engine_unavailable,
            r"rollout-1 is out of service",
        ),
        (
            {"progress": {"retried": 4, "last_error": "429"}},
            CauseKind.trees_failing,
            r"tried again \(4 times, at last: 429\)\. .*collect\.infra_re",
        ),
        (
            {},
            CauseKind.unknown,
            r"can be seen \(3 trees grow, 5 of 9 are done, last error: none\)\. .*watchdog\.after_s",
        ),
    ],
)
def test_what_the_parts_come_to(
    ray_session: None, tmp_path: Path, changes: dict[str, Any], kind: CauseKind, wanted: str
) -> None:
    one(diagnose(parts(tmp_path, **changes)), kind, wanted)


def test_a_check_that_fails_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[ClusterNode]:
        raise RuntimeError("GCS is gone")

    monkeypatch.setattr(diagnosis, "nodes", broken)
    monkeypatch.setattr(diagnosis, "check_disks", lambda *_: iter(()))
    lost, silent = diagnose(parts(tmp_path, silent_s=40.0))
    assert lost.kind is CauseKind.check_failed and "nodes cannot be looked at (RuntimeError: GCS is gone)" in str(lost)
    assert silent.kind is CauseKind.coordinator_silent
