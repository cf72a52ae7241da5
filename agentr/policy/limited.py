"""Calls that may never end, or fill the memory, such as the templates of strangers: each in a process of its own."""

import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Seconds of a core and by the clock that a call may take, and bytes of memory that it may take besides those of its
#: parent.
CPU_S, WALL_S, MEMORY = 5, 60.0, 1 << 30


class Limit(Exception):
    """A call was ended, or failed."""


def limited(call: Callable[..., str], *arguments: Any, **named: Any) -> str:
    """Returns what a call returns, from a copy of this process that ends with it.

    Raises:
        Limit: It took too long or too much memory, or raised something; the error says what.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
            try:
                answer = (True, call(*arguments, **named))
            except Exception as error:  # noqa: BLE001 - the parent says it
                answer = (False, f"{type(error).__name__}: {error}"[:1000])
            with os.fdopen(writing, "w", encoding="utf-8") as pipe:
                json.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    data, deadline = bytearray(), time.monotonic() + WALL_S
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0] and (piece := pipe.read(1 << 16)):
            data += piece
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not data:
        raise Limit(f"it did not end within {CPU_S} s")
    whole, answer = json.loads(data)
    if not whole:
        raise Limit(answer)
    return answer
