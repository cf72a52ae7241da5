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

#: Seconds of each measurement.
_LONG = 0.5


def measure() -> DeviceSpec:
    """Returns what this machine's cores do, all at once, with what torch would use."""
    import torch

    from agentr.cpu import keep_freed_memory, multiplies_bf16

    keep_freed_memory()
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    flops, slow = _products(torch.float32), 0.0
    if multiplies_bf16():
        slow = _products(torch.bfloat16)
    block = torch.rand(32 * 2**20)
    there = torch.empty_like(block)
    copied = 2 * block.nbytes / _seconds(lambda: there.copy_(block))
    one = torch.zeros(1)
    call = _seconds(lambda: [one.add_(1.0) for _ in range(1000)]) / 1000
    return DeviceSpec(
        title=f"{platform.processor() or platform.machine()}, {cores} cores",
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 2),
        bandwidth_gb_s=round(copied / 1e9, 2),
        bfloat16_tflops=round((slow or flops / 50) / 1e12, 5),
        float32_tflops=round(flops / 1e12, 5),
        link_gb_s=round(copied / 4 / 1e9, 2),  # gloo between processes copies four times
        per_node=1,
        call_us=round(call * 1e6, 3),
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


def _products(dtype: torch.dtype) -> float:
    """FLOP/s of products of the size of a small model's layers."""
    import torch

    one, other = torch.rand(2048, 640).to(dtype), torch.rand(640, 640).to(dtype)
    return 2 * 2048 * 640 * 640 / _seconds(lambda: one @ other)


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
