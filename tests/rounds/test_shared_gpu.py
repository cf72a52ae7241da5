"""An online run with one GPU, which engine and trainer share.
The GPU is pretended: Ray books it, and both processes compute on the CPU."""

import subprocess
import sys
from pathlib import Path

import pytest

import agentr
from tests.chaos.online import written

pytestmark = pytest.mark.cluster

#: The command line on a machine that Ray takes for one with a GPU; the trainer's workers, who would look for it, are
#: told to use the CPU.
PRETENDED = """
import os, secrets, sys
from dataclasses import replace
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
import ray, ray.train.torch
import agentr.train.group as group
from agentr.cli import main

def serve(config):
    from agentr.train import worker
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"  # Ray Train has named the GPU there
    done = worker._done
    worker._done = lambda job, *of: done(replace(job, trainer=replace(job.trainer, use_gpu=False)), *of)
    worker.serve(config)

init, torch_config = ray.init, ray.train.torch.TorchConfig
ray.init = lambda **how: init(num_gpus=1, **how)
ray.train.torch.TorchConfig = lambda backend: torch_config(backend="gloo")
group.serve = serve
sys.argv[0] = "agentr"
main()
"""


def run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    small = ["method.steps=2", "method.max_staleness=0", "method.validation.every=0", "trainer.start_timeout_s=240"]
    command = ["run", str(written(folder)), f"run.dir={folder / 'run'}", "cluster=gpu_node", *small, *overrides]
    return subprocess.run(
        [sys.executable, "-c", PRETENDED, *command], capture_output=True, text=True, timeout=280, check=False
    )


def test_engine_and_trainer_share_one_gpu(tmp_path: Path) -> None:
    """With whole GPUs booked the trainer would wait for the engine's for ever."""
    ended = run(tmp_path, "trainer.share=together", "policy.gpu_memory_utilization=0.4")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert agentr.open(tmp_path / "run").rounds[1].eval.evaluation.success.n == 4


def test_engines_that_cannot_sleep_do_not_take_turns_with_an_online_training(tmp_path: Path) -> None:
    ended = run(tmp_path)
    told = " ".join((ended.stdout + ended.stderr).split())
    assert ended.returncode == 1 and "vLLM cannot sleep on this platform (cpu)" in told, told
    assert "Set trainer.share=together" in told and "Traceback" not in told
