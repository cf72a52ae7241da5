"""Online GRPO steps of agentr and of TRL, in turn: the same model, tasks, rollouts and batch."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import agentr
from agentr.read.stage import Rollouts

ROOT = Path(__file__).parents[3]
#: Of TRL: as it comes, by transformers' generation; and with vLLM in its process.
WAYS = ("generate", "colocate")
#: Tasks of a step, and rollouts of each.
TASKS, EPISODES = 8, 4


@dataclass(frozen=True)
class Taken:
    """What the steps of a way came to, each figure the median of a step but for the first two, which start things.

    Attributes:
        way: agentr, or one of `WAYS`.
        seconds: Of a step, and in it of ``rollouts`` and of handing ``weights`` over (of agentr's, training is in it).
        tokens: Drawn.
        success: Mean over all steps.
        whole: Seconds of the whole process.
    """

    way: str
    seconds: float
    rollouts: float
    weights: float
    tokens: float
    success: float
    whole: float


def measure(policy: Path, steps: int, turns: int, say: Callable[[str], object]) -> list[Taken]:
    """Lets each way take the steps in turn.

    Args:
        policy: Folder of the model.
        turns: How often each of them takes them.
    """
    found = []
    for turn in range(turns):
        with tempfile.TemporaryDirectory(prefix="agentr-beside-") as folder:
            place = Path(folder)
            say(f"agentr, turn {turn + 1}")
            found.append(_ours(policy, steps, place))
            for way in WAYS:
                say(f"TRL {way}, turn {turn + 1}")
                found.append(_theirs(way, policy, place))
    return found


def _ours(policy: Path, steps: int, place: Path) -> Taken:
    """Runs agentr, and leaves each step's tasks in ``tasks.json``."""
    run = place / "run"
    rows = TASKS * EPISODES
    said = [
        f"run.dir={run}", "run.control=false", "model.source=hf", f"model.path={policy}", "warm_start.enabled=false",
        "eval.tasks.limit=1", "method.max_steps=10", f"method.steps={steps}", f"method.tasks={TASKS}",
        f"method.episodes={EPISODES}", "method.validation.every=0", "train.0.schedule=constant_with_warmup",
        "train.0.grpo.minibatches=1", f"train.0.batch_size={rows}", f"train.0.micro_batch_size={rows}",
    ]  # fmt: skip
    _, whole = _timed([sys.executable, "-m", "agentr.cli", "run", str(ROOT / "configs/grpo_textcraft.yaml"), *said])
    trees = agentr.open(run).rounds[1].rollouts
    assert isinstance(trees, Rollouts)
    tasks = [list(step.trees.tasks()) for _, step in sorted(trees.steps.items())]
    (place / "tasks.json").write_text(json.dumps(tasks))
    lines = trees.curve().to_pylist()
    ended = [(trees.path / f"{line['step']:06d}" / "manifest.json").stat().st_mtime for line in lines]
    return Taken(
        "agentr",
        median(after - before for before, after in pairwise(ended[1:])),
        median(line["collected"] for line in lines[2:]),
        median(line["waited"] for line in lines[2:]),
        median(line["completion_tokens"] for line in lines[2:]),
        sum(line["success"] for line in lines) / len(lines),
        whole,
    )


def _theirs(way: str, policy: Path, place: Path) -> Taken:
    said, whole = _timed(
        [
            sys.executable,
            "-m",
            "tests.tools.bench.trl_steps",
            way,
            str(policy),
            str(place / "tasks.json"),
            str(place / way),
        ]
    )
    lines = json.loads(said.strip().splitlines()[-1])
    seconds, rollouts, weights, tokens = (
        median(line[name] for line in lines[2:]) for name in ("seconds", "rollouts", "weights", "tokens")
    )
    won = sum(line["won"] for line in lines) / len(lines)
    return Taken(f"TRL {way}", seconds, rollouts, weights, tokens, won, whole)


def _timed(command: list[str]) -> tuple[str, float]:
    """Runs a command; returns what it printed, and its seconds."""
    began = time.perf_counter()
    ended = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed:\n{ended.stderr[-2000:] or ended.stdout[-2000:]}")
    return ended.stdout, time.perf_counter() - began
