"""Measures programs as environments: their starts, the gateway's time for a call, what many of them hold, and what a
branch costs.

The program is of the standard library alone, and asks with a prompt of some 2,000 tokens.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentr.config.schema import EnvConfig, TaskSelection
from agentr.envs.client import EnvClient, Session
from agentr.envs.server import EnvServer, new_token
from agentr.types import Task

#: Asks as often as its task says, each time with what was said before.
PROGRAM = """
import json, os, urllib.request

def ask():
    body = json.dumps({"model": "m", "messages": messages}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

messages = [{"role": "user", "content": "Look at the door. " * 400}]
for number in range(json.load(open(os.environ["AGENTR_TASK"]))["calls"]):
    messages += [{"role": "assistant", "content": ask()}, {"role": "user", "content": f"You see {number}."}]
json.dump(1.0, open("reward.json", "w"))
"""
#: Calls of the program, and a turn that answers one.
CALLS, TURN = 32, "Thought: I look again, since the lamp was behind the door.\nAction: look"
#: Depths at which a branch is timed.
DEPTHS = (1, 8, 24)
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Effort:
    """Programs started for the figures of starts and of calls, repetitions of a branch, and programs held."""

    starts: int = 32
    together: int = 8
    repetitions: int = 5
    held: int = 500


QUICK = Effort(starts=4, together=2, repetitions=1, held=4)


@dataclass(frozen=True)
class Figures:
    """The figures of programs on this machine, through HTTP from one client process.

    Attributes:
        start_ms: Milliseconds from an opening to the program's first call, one at a time.
        starts_per_s: Of as many at a time as `Effort.together` says.
        call_ms: CPU time of the server and of what relays, a call.
        client_ms: CPU time of the client, a call.
        calls_per_s: One program at a time.
        branch_ms: Milliseconds of a second turn behind the same calls, by their number: a start, and their replay.
        held: Programs that wait for an answer at the same time.
        held_mib: Memory of the server and of what relays then, shared pages counted once.
        program_mib: The same of all programs.
        idle_cpu: Cores that all take while nobody answers.
    """

    start_ms: float
    starts_per_s: float
    call_ms: float
    client_ms: float
    calls_per_s: float
    branch_ms: dict[int, float]
    held: int
    held_mib: float
    program_mib: float
    idle_cpu: float


async def measure(effort: Effort | None = None) -> Figures:
    """Measures programs.

    Raises:
        InfraError: The server did not start.
    """
    effort, token = effort or Effort(), new_token()
    with tempfile.TemporaryDirectory(prefix="agentr-bench-") as place:
        (folder := Path(place, "agent")).mkdir()
        (folder / "agent.py").write_text(PROGRAM)
        Path(place, "tasks.jsonl").write_text(json.dumps({"id": "look", "calls": CALLS}))
        options = {"command": [sys.executable, "agent.py"], "workdir": str(folder), "live": effort.held + 8}
        options |= {"tasks": {"train": f"{place}/tasks.jsonl"}, "steps": CALLS + 1}
        config = EnvConfig(name="program", options=options)
        server = await asyncio.to_thread(EnvServer, config, token, f"{place}/server.log")
        client = EnvClient([server.url()], token, timeout_s=300.0)
        try:
            (task,) = await client.tasks(TaskSelection(split="train"))
            return await _measure(client, task, _Processes(server.status().pid), effort)
        finally:
            await client.aclose()
            await asyncio.to_thread(server.stop)


async def _measure(client: EnvClient, task: Task, processes: "_Processes", effort: Effort) -> Figures:
    await client.close_all([await client.open(task)])  # the first one starts the gateway
    alone = [await _opened(client, task) for _ in range(effort.repetitions)]
    began = time.perf_counter()
    for _ in range(0, effort.starts, effort.together):
        await client.close_all(await asyncio.gather(*(client.open(task) for _ in range(effort.together))))
    starts_per_s = effort.starts / (time.perf_counter() - began)

    served, own, seconds, calls = 0.0, 0.0, 0.0, 0
    for _ in range(effort.repetitions):
        session = await client.open(task)
        before = processes.cpu_s(programs=False), time.process_time(), time.perf_counter()
        await _stepped(session, CALLS - 1)
        served += processes.cpu_s(programs=False) - before[0]
        own, seconds = own + time.process_time() - before[1], seconds + time.perf_counter() - before[2]
        calls += CALLS - 1
        await client.close_all([session])

    branches = {depth: await _branch_s(client, task, depth, effort.repetitions) for depth in DEPTHS}
    held = []
    for _ in range(0, effort.held, effort.together):
        held += await asyncio.gather(*(client.open(task) for _ in range(effort.together)))
    before, began = processes.cpu_s(programs=True), time.perf_counter()
    await asyncio.sleep(5.0 if effort.held > 50 else 0.5)
    idle = (processes.cpu_s(programs=True) - before) / (time.perf_counter() - began)
    figures = Figures(
        start_ms=1000 * statistics.median(alone),
        starts_per_s=starts_per_s,
        call_ms=1000 * served / calls,
        client_ms=1000 * own / calls,
        calls_per_s=calls / seconds,
        branch_ms={depth: 1000 * branch for depth, branch in branches.items()},
        held=len(held),
        held_mib=processes.mib(programs=False),
        program_mib=processes.mib(programs=True),
        idle_cpu=idle,
    )
    await client.close_all(held)
    return figures


async def _opened(client: EnvClient, task: Task) -> float:
    began = time.perf_counter()
    session = await client.open(task)
    taken = time.perf_counter() - began
    await client.close_all([session])
    return taken


async def _stepped(session: Session, steps: int) -> None:
    for _ in range(steps):
        await session.step(TURN)


async def _branch_s(client: EnvClient, task: Task, depth: int, repetitions: int) -> float:
    """Seconds of a second turn behind ``depth`` calls: the first one takes over the program that runs."""
    taken = []
    for _ in range(repetitions):
        session = await client.open(task)
        await _stepped(session, depth)
        (first,) = await session.expand([TURN])
        began = time.perf_counter()
        (second,) = await session.expand([f"{TURN} up"])
        taken.append(time.perf_counter() - began)
        await client.close_all([session, first, second])
    return statistics.median(taken)


class _Processes:
    """A server's processes: itself and what relays, and the programs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def cpu_s(self, *, programs: bool) -> float:
        """CPU seconds so far of those that live; of all if ``programs``, else without the programs."""
        return sum(
            sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / _TICK
            for pid, is_program in self._all()
            if programs or not is_program
        )

    def mib(self, *, programs: bool) -> float:
        """Memory in which shared pages count once: of the programs, or of the others."""
        found = 0
        for pid, is_program in self._all():
            if is_program is programs:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                found += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return found / 1024

    def _all(self) -> Iterator[tuple[int, bool]]:
        below = [self._pid]
        while below:
            pid = below.pop()
            yield pid, Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"agent.py"]
            for file in Path(f"/proc/{pid}/task").glob("*/children"):
                below += map(int, file.read_text().split())
