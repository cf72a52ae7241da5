"""Measures this machine in about ten seconds, as a device of ``agentr.cost.hardware``."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from agentr.config.text import dump_yaml
from agentr.cost.hardware import GIB, THIS, DeviceSpec, measured_file
from agentr.store.files import write_bytes

if TYPE_CHECKING:
    import torch

#: How often everything is measured, and seconds of each measurement: what else runs on a machine comes and goes.
_ROUNDS, _LONG = 3, 0.5
#: FLOP of a product.
_FLOP = 2 * 2048 * 640 * 640


def measure() -> DeviceSpec:
    """Returns what this machine's cores do, all at once, with what torch would use."""
    import torch

    from agentr.cpu import keep_freed_memory

    keep_freed_memory()
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    block, one = torch.rand(32 * 2**20), torch.zeros(1)
    there = torch.empty_like(block)
    works: dict[str, Callable[[], object]] = {
        "float32": _product(torch.float32),
        "bfloat16": _product(torch.bfloat16),
        "copy": lambda: there.copy_(block),
        "calls": lambda: [one.add_(1.0) for _ in range(1000)],
    }
    rounds = [{what: _seconds(work) for what, work in works.items()} for _ in range(_ROUNDS)]
    least = {what: min(seconds[what] for seconds in rounds) for what in works}
    copied = 2 * block.nbytes / least["copy"]
    return DeviceSpec(
        title=f"{platform.processor() or platform.machine()}, {cores} cores",
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 2),
        bandwidth_gb_s=round(copied / 1e9, 2),
        bfloat16_tflops=round(_FLOP / least["bfloat16"] / 1e12, 5),
        float32_tflops=round(_FLOP / least["float32"] / 1e12, 5),
        link_gb_s=round(copied / 4 / 1e9, 2),  # gloo between processes copies four times
        per_node=1,
        call_us=round(least["calls"] / 1000 * 1e6, 3),
        cores=cores,
        disk_gb_s=round(_disk() / 1e9, 3),
        source=f"measured {time.strftime('%Y-%m-%d')} by agentr plan --measure",
    )


def keep(device: DeviceSpec) -> Path:
    """Writes what was measured to where ``--on this`` finds it, and returns the file."""
    path = measured_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, dump_yaml({THIS: asdict(device)}).encode())
    return path


def _product(dtype: torch.dtype) -> Callable[[], object]:
    """A product of the size of a small model's layers."""
    import torch

    one, other = torch.rand(2048, 640).to(dtype), torch.rand(640, 640).to(dtype)
    return lambda: one @ other


def _disk() -> float:
    with tempfile.TemporaryFile(dir=Path.cwd()) as file:
        block = os.urandom(2**24)
        began = time.perf_counter()
        for _ in range(8):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return 8 * len(block) / (time.perf_counter() - began)


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of one call: the least of those that fit."""
    work()
    best, until = float("inf"), time.perf_counter() + _LONG
    while time.perf_counter() < until:
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


if __name__ == "__main__":
    keep(measure())
