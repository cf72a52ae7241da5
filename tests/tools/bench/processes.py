"""What a measurement asks of processes: a Ray of its own, calls with a deadline, CPU time and memory."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentr.cluster.connect import connect, joined
from agentr.cluster.failures import cause_of
from agentr.config.schema import Config
from agentr.errors import ConfigError, InfraError
from agentr.observe.progress import Reporter

#: Seconds between two looks at the running stage, as in ``agentr.rounds.coordinators``.
POLL_S = 0.5


class Caller:
    """Calls methods of actors, with a deadline."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def __call__(self, method: Any, *arguments: Any, timeout_s: float = 60.0) -> Any:
        return self._get(method.remote(*arguments), timeout_s)

    def each(self, actors: Sequence[Any], method: str, timeout_s: float = 60.0) -> list[Any]:
        """Calls a method of several actors at the same time."""
        calls = [getattr(actor, method).remote() for actor in actors]
        return [self._get(call, timeout_s) for call in calls]

    def watch(self, running: Sequence[Any]) -> None:
        """Waits for a moment.

        Raises:
            AgentrError: The stage has ended meanwhile, with what was wrong.
        """
        for call in self._ray.wait(list(running), timeout=POLL_S)[0]:
            self._get(call, 60.0)
            raise InfraError("the stage ended before the window did", hint="Give less --seconds or a longer --latency.")

    def _get(self, reference: Any, timeout_s: float) -> Any:
        from ray.exceptions import GetTimeoutError, RayError

        try:
            return self._ray.get(reference, timeout=timeout_s)
        except GetTimeoutError as error:
            raise InfraError(f"an actor did not answer within {timeout_s:g} s") from error
        except RayError as error:
            raise cause_of(error, "an actor") from error


@contextmanager
def ray_of_ones_own(reporter: Reporter) -> Iterator[Any]:
    """Starts Ray on this machine, with its files in a folder that is removed at the end."""
    config = Config()
    if joined(config.cluster):
        raise ConfigError(
            "RAY_ADDRESS is set", hint="Unset it: the measurement starts a Ray of its own on this machine."
        )
    before = os.environ.get("RAY_TMPDIR")
    folder = tempfile.mkdtemp(prefix="agentr-", dir="/tmp")  # the names of Unix sockets are short
    os.environ["RAY_TMPDIR"] = folder
    try:
        with reporter.task("Ray"):
            ray = connect(config.cluster)
        try:
            yield ray
        finally:
            ray.shutdown()
    finally:
        os.environ.pop("RAY_TMPDIR") if before is None else os.environ.update(RAY_TMPDIR=before)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ended(ray: Any, actor: Any) -> Iterator[Callable[[], None]]:
    """Gives what ends an actor and waits until its process is gone, which is done at the end at the latest."""
    done = False

    def end() -> None:
        nonlocal done
        if done:
            return
        done = True
        ray.kill(actor)
        ray.wait([actor.pid.remote()], timeout=10.0)  # fails once it is gone

    try:
        yield end
    finally:
        end()


def cpus_of(pids: dict[str, list[int]]) -> dict[str, list[float]]:
    """Returns the CPU seconds of processes so far."""
    tick = os.sysconf("SC_CLK_TCK")

    def seconds(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / tick

    return {kind: [seconds(pid) for pid in some] for kind, some in pids.items()}


def machine_ticks() -> tuple[float, float]:
    """Returns the CPU time of this machine that was busy, and all of it, in ticks."""
    times = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
