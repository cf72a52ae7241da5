"""A driver of a run whose stages are made of nothing: trainings log their steps, evaluations have a success.
To be killed.

python -m tests.track.driver RUN PAUSE_S TRACKER...
"""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from agentr.commands.run import opened
from agentr.methods import load, plan_of
from agentr.observe.progress import Reporter
from agentr.rounds.experiment import Experiment
from agentr.rounds.services import Services
from agentr.store.files import append_line, read_lines, write_bytes, write_json
from agentr.store.layout import CEILING, CONTROL, EVAL, TRAIN, Arm, arm_of
from agentr.store.summaries import EvalSummary, TrainSummary
from agentr.store.working import take_over

STEPS, CHECKPOINT_EVERY = 30, 7
ARMS = (arm_of(0), arm_of(1), arm_of(2), CONTROL, CEILING)


def train(experiment: Experiment, arm: Arm, pause_s: float, weights: str) -> None:
    """A training that goes on from its last checkpoint, and repeats the steps since."""

    def work(folder: Path) -> TrainSummary:
        write_json(folder / "job.json", {})
        file = take_over(folder, experiment.store.lease.next_epoch()) / "metrics.jsonl"
        done = [
            line for line in read_lines(file) if line["step"] <= STEPS // 2 and line["step"] % CHECKPOINT_EVERY == 0
        ]
        first = done[-1]["step"] if done else 0
        write_bytes(
            file, "".join(json.dumps(line) + "\n" for line in read_lines(file) if line["step"] <= first).encode()
        )
        for step in range(first + 1, STEPS + 1):
            append_line(
                file,
                {
                    "step": step,
                    "steps": STEPS,
                    "loss": 1 / (step + 100 * arm.number),
                    "learning_rate": 0.125,
                    "margin": None,
                },
            )
            time.sleep(pause_s)
        file.rename(folder / file.name)
        file.parent.rmdir()
        (folder / "model").mkdir(exist_ok=True)
        (folder / "model/weights").write_text(arm.folder + weights)
        return TrainSummary(steps=STEPS, rows=7, last_loss=0.5)

    experiment.store.stages.run(arm.stage(TRAIN), TrainSummary, work)


def run(root: Path, pause_s: float, trackers: list[str], remade: tuple[str, ...] = ()) -> None:
    """Runs it, or what is left of it.

    Args:
        remade: Arms whose trainings come to other weights than they would otherwise.
    """
    config = load(None, [f"run.dir={root}", "run.name=small", "run.rounds=2", f"tracking=[{','.join(trackers)}]"])
    services: Any = cast(Services, SimpleNamespace(take_over=lambda *_: None))
    with opened(plan_of(config), Reporter(), services=services) as experiment:
        for arm in ARMS:
            train(experiment, arm, pause_s, "others" if arm.folder in remade else "")
            success = EvalSummary(trees=4, success=0.25 + arm.number / 8, success_low=0.125, success_high=0.5, tasks=4)
            experiment.store.stages.run(arm.stage(EVAL), EvalSummary, lambda _, success=success: success)


if __name__ == "__main__":
    run(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
