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
from contextlib import contextmanager
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
#: TextCraft as an environment of verifiers, with the observations that agentr's agent sees. It plays all tasks once for
#: each line on its standard input, which is a seed, and answers with a line of JSON.
VERIFIERS = """
import json
import os
import sys
import time

sys.path.append(sys.argv[1])

import verifiers as vf
from datasets import Dataset

from agentr.tasks.formats import CUT_OFF, ReAct
from env_servers.textcraft import TextCraft

_, _, URL, MODEL, TASKS, TOKENS = sys.argv
GAME, FORMAT = TextCraft(recipes="exact", distractors=3), ReAct()


class Crafting(vf.MultiTurnEnv):
    async def setup_state(self, state):
        # starts the game
        state["game"], _ = GAME.reset(state["info"]["id"])
        state["won"] = 0.0
        return state

    async def env_response(self, messages, state, **_):
        # carries out a turn, or says what was wrong with it
        parsed = FORMAT.parse(messages[-1].content or "")
        if state["trajectory"][-1]["is_truncated"]:
            said, done = CUT_OFF, False
        elif parsed.action is None:
            said, done = parsed.problem, False
        else:
            seen = GAME.step(state["game"], parsed.action)
            said, done, state["won"] = seen.observation, seen.done, seen.reward
        answer = [vf.UserMessage(content=said)]
        if done:
            state["final_env_response"] = answer
        return answer


async def won(state):
    return state["won"]


def main() -> None:
    ids = json.loads(TASKS)
    rows = [
        {"prompt": [{"role": "user", "content": GAME.reset(task)[1].observation}], "info": {"id": task}} for task in ids
    ]
    env = Crafting(max_turns=GAME.spec.step_limit, eval_dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[won]))
    os.environ["BENCH_KEY"] = "none"
    client = vf.ClientConfig(api_base_url=URL, api_key_var="BENCH_KEY")
    for line in sys.stdin:
        sampling = {"temperature": 1.0, "max_tokens": int(TOKENS), "seed": int(line)}
        began = time.perf_counter()
        found = env.evaluate_sync(client, MODEL, sampling_args=sampling, max_concurrent=64)
        seconds, states = time.perf_counter() - began, found["outputs"]
        turns = int(sum(state["metrics"]["num_turns"] for state in states))
        won_ = sum(state["reward"] for state in states)
        print(json.dumps({"seconds": seconds, "rollouts": len(states), "turns": turns, "won": won_}), flush=True)


main()
"""
#: Rollouts at the same time.
IN_FLIGHT = 64
WAYS = ("agentr", "program", "preloaded", "verifiers")


@dataclass(frozen=True)
class Side:
    """What one way of rollouts came to, in one turn of it.

    Attributes:
        way: Of `WAYS`.
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


def measure(plan: Plan, policy: Path, verifiers: Path, tasks: int, turns: int, reporter: Reporter) -> list[Side]:
    """Lets each way play the tasks in turn.

    Args:
        policy: Folder of the model.
        verifiers: An interpreter that has verifiers, and the package textcraft.
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
        ours = {way: EnvServer(env, token, f"{place}/{way}.log") for way, env in zip(WAYS, environments, strict=False)}
        try:
            with _vllm(policy, config, place) as server, _playing(verifiers, server, policy, found, config) as other:
                sides = []
                for seed in range(
                    turns + 1
                ):  # the first turn is outside of the clock: it compiles, allocates, fills caches
                    for way, env in ours.items():
                        with reporter.task(f"{way}, turn {seed}"):
                            played = _ours(way, env, token, config, policy, engines, engine, found, seed)
                            sides.append(asyncio.run(played))
                    with reporter.task(f"verifiers, turn {seed}"):
                        sides.append(_theirs(server, other, seed))
                return sides[len(WAYS) :]
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


def _theirs(server: "_Server", player: "subprocess.Popen[str]", seed: int) -> Side:
    assert player.stdin is not None and player.stdout is not None
    before, computed = (_tree_s(server.pid), _cpu_s(player.pid)), server.computed()
    engine = server.engine_s()
    player.stdin.write(f"{seed}\n")
    player.stdin.flush()
    said = json.loads(player.stdout.readline())
    engine = server.engine_s() - engine
    taken = {
        "engine": engine,
        "server": _tree_s(server.pid) - before[0] - engine,
        "agent": _cpu_s(player.pid) - before[1],
    }
    per_turn = {name: 1000 * each / said["turns"] for name, each in taken.items()}
    prefilled = server.computed() - computed
    return Side("verifiers", said["rollouts"], said["turns"], said["seconds"], prefilled, int(said["won"]), per_turn)


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
    command += ["--served-model-name", "policy"]
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
    verifiers: Path, server: _Server, policy: Path, tasks: Sequence[Task], config: Config
) -> "Iterator[subprocess.Popen[str]]":
    ids = json.dumps([task.id for task in tasks])
    command = [str(verifiers), "-c", VERIFIERS, str(ROOT), server.url, "policy", ids]
    command.append(str(config.collect.sampling.max_tokens))
    player = subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        yield player
    finally:
        player.terminate()
        player.wait(30)


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
