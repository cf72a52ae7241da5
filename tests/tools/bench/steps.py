"""Optimiser steps without engines: predicted beside measured, in seconds and in peak memory. Each case has workers of
its own, so that one leaves nothing behind for the next."""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from agentr.config.training import LoRAConfig, TrainConfig
from agentr.cost import memory, speed
from agentr.cost.hardware import Hardware
from agentr.cost.memory import TrainingSetup
from agentr.cost.shape import Shape


def _shape(hidden: int, inner: int, layers: int, heads: int, kv: int, words: int, **more: Any) -> dict[str, Any]:
    """Returns a ``config.json``."""
    usual = {"model_type": "llama", "tie_word_embeddings": True, "max_position_embeddings": 4096}
    sizes = {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "vocab_size": words}
    return {**usual, **sizes, "num_attention_heads": heads, "num_key_value_heads": kv, **more}


#: Shapes by name.
SHAPES: dict[str, dict[str, Any]] = {
    "nano": _shape(160, 320, 4, 4, 4, 1856, head_dim=64, attention_bias=True),
    "135M": _shape(576, 1536, 30, 9, 3, 49152),
    "0.3B": _shape(1024, 2816, 22, 16, 4, 32000),
    "0.5B": _shape(896, 4864, 24, 14, 2, 151936, model_type="qwen2"),
    "1.1B": _shape(2048, 5632, 22, 32, 4, 32000, tie_word_embeddings=False),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training of a few steps on rows of one length.

    Attributes:
        rows: Of a step; those of a micro-batch are ``micro``.
        length: Tokens of a row; half of them are targets.
    """

    shape: str
    rows: int = 4
    micro: int = 4
    length: int = 256
    workers: int = 1
    rank: int = 0
    checkpointing: bool = False
    steps: int = 3

    def words(self) -> str:
        what = f"LoRA {self.rank}" if self.rank else "whole"
        again = ", checkpointing" if self.checkpointing else ""
        return f"{self.shape}, {what}, {self.rows} x {self.length} by {self.micro}{again}, {self.workers} worker(s)"


#: What is measured by default.
CASES = (
    Case(shape="nano", rows=16, micro=16, length=128, steps=12),
    Case(shape="nano", rows=16, micro=4, length=256, steps=8),
    Case(shape="nano", rows=16, micro=8, length=128, workers=2, steps=8),
    Case(shape="135M", steps=4),
    Case(shape="135M", rank=16, steps=4),
    Case(shape="135M", checkpointing=True, steps=4),
    Case(shape="135M", micro=2, workers=2, steps=3),
    Case(shape="0.3B"),
    Case(shape="0.3B", checkpointing=True),
    Case(shape="0.5B", rows=2, micro=2),
    Case(shape="0.5B", rows=2, micro=2, rank=16),
    Case(shape="1.1B", rows=1, micro=1, rank=16, checkpointing=True),
)


def measure(on: Hardware, cases: tuple[Case, ...], say: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """Yields of each case what was predicted and what was measured.

    Args:
        on: What the predictions are for: this machine, or its GPU.
        say: Called with what is measured now.
    """
    for case in cases:
        say(case.words())
        shape, device = Shape.of(SHAPES[case.shape], case.shape, "tests.tools.bench.steps"), on.device
        job = TrainingSetup(
            workers=case.workers, rows=case.micro, batch=case.rows, longest=case.length, mean=case.length, trained=0.5,
            bf16=device.bf16, checkpointing=case.checkpointing, rank=case.rank,
        )  # fmt: skip
        phase, need = memory.worst(memory.trainer_memory(shape, job, device))
        predicted = {"seconds": speed.optimiser_step(shape, job, device).value, "bytes": need.value, "phase": phase}
        yield {**asdict(case), "case": case.words(), "predicted": predicted, "measured": _run(case, device.gpu)}


def _run(case: Case, gpu: bool) -> dict[str, float]:
    """Runs a case in processes of its own, and returns what the first said."""
    with tempfile.TemporaryDirectory(prefix="agentr-steps-") as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        probe.close()
        # by another process, which leaves no freed memory behind in the one that is measured
        code = f"from {__spec__.name} import Case, _make; from pathlib import Path; _make({case!r}, Path({folder!r}))"
        subprocess.run([sys.executable, "-c", code], check=True)
        made = [sys.executable, "-m", __spec__.name, json.dumps(asdict(case)), folder, "gpu" if gpu else "cpu"]
        workers = [
            subprocess.Popen(
                made,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if rank else None,
                env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(case.workers),
                     "LOCAL_WORLD_SIZE": str(case.workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
                text=True,
            )
            for rank in range(case.workers)
        ]  # fmt: skip
        said = [worker.communicate()[0] for worker in workers]
        if any(worker.returncode for worker in workers):
            raise RuntimeError(f"{case.words()}: a worker failed")
        return json.loads(said[0].strip().splitlines()[-1])


def work(case: Case, folder: Path, gpu: bool) -> dict[str, float]:
    """Trains in this process, which is one of the case's workers, and returns seconds of a step and peak memory above
    what imports take."""
    from agentr.train.worker import prepare_process

    cores = len(os.sched_getaffinity(0))
    prepare_process(use_gpu=gpu, threads=max(1, cores // case.workers))

    from agentr.config.training import TrainerConfig
    from agentr.train.job import TrainJob
    from agentr.train.run import run_job

    train = TrainConfig(
        steps=case.steps, batch_size=case.rows, micro_batch_size=case.micro, max_length=case.length, log_every=1,
        gradient_checkpointing=case.checkpointing, lora=LoRAConfig(rank=case.rank), checkpoint_every=10**6,
    )  # fmt: skip
    job = TrainJob(
        folder / "rows",
        folder / "start",
        folder / "out",
        train,
        TrainerConfig(workers=case.workers, use_gpu=gpu, threads=max(1, cores // case.workers)),
    )
    import agentr.train.run as running
    import agentr.train.sft  # noqa: F401 - its imports are no part of what is measured

    before, peaks, saved = _peak(gpu, reset=True), list[float](), running.save_model

    def watched(*args: Any, **more: Any) -> None:
        peaks.append(_peak(gpu))  # saving a model takes a copy of it, which a step does not
        saved(*args, **more)

    running.save_model = watched
    run_job(job)
    lines = job.read_metrics()
    times = [line["seconds"] for line in lines]
    each = [after - earlier for earlier, after in pairwise(times)]
    return {"seconds": min(each), "median": sorted(each)[len(each) // 2], "bytes": peaks[0] - before}


def _make(case: Case, folder: Path) -> None:
    """Writes a random model and random rows, and the folder of the training."""
    (folder / "out").mkdir()
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from agentr.store.dataset import write_rows
    from agentr.store.rows import Provenance, Row
    from tests.support import tiny_tokenizer

    described = dict(SHAPES[case.shape])
    config = AutoConfig.for_model(described.pop("model_type"), **described)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder / "start")
    tiny_tokenizer().save_pretrained(folder / "start")
    generator = random.Random(0)
    rows = [
        Row(
            tuple(generator.randrange(3, 300) for _ in range(case.length)),
            tuple(place % 2 for place in range(case.length)),
            Provenance(f"tree{number}", (0,), "good"),
        )
        for number in range(2 * case.rows)
    ]
    write_rows(folder / "rows", rows)


def _peak(gpu: bool, reset: bool = False) -> float:
    """Returns the most bytes that this process has held so far; with ``reset`` those of now, from which it counts
    anew."""
    if gpu:
        import torch

        if reset:
            torch.cuda.reset_peak_memory_stats()
        return float(torch.cuda.max_memory_reserved())
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return 1024.0 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


if __name__ == "__main__":
    print(json.dumps(work(Case(**json.loads(sys.argv[1])), Path(sys.argv[2]), sys.argv[3] == "gpu")), flush=True)
