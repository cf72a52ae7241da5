"""Makes the small run of docs/read_a_run.md, runs the page's Python on it, and writes down what it prints.

``python -m tests.docs.read_a_run`` writes the page and its picture anew; a test runs the page and compares.
"""

import os
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib

from agentr.evaluate.metrics import evaluate
from agentr.search import Tree
from agentr.store.files import write_json
from agentr.store.growing import GrowingForest
from agentr.store.layout import EVAL, EVALUATION, TRAIN, Arm, arm_of
from agentr.store.run import RunStore
from agentr.store.summaries import EvalSummary, TrainSummary
from agentr.types import Outcome, Task
from tests.docs.pages import ROOT, refreshed
from tests.runs import dataset, given, round_of
from tests.trees import door, episode, expert

PAGE = ROOT / "docs" / "read_a_run.md"
PICTURE = ROOT / "docs" / "images" / "read_a_run.svg"
RUN = "runs/door"
CELL = re.compile(r"^```python\n(?P<code>.*?)^```$(?:\n\n<!-- made: (?P<name>.+?) -->)?", re.MULTILINE | re.DOTALL)
HELD_OUT = [f"door {number}" for number in range(8)]


def small(folder: Path, model: Path | None = None) -> Path:
    """Writes a run of Agent-R with one round: doors to open, a policy that is written down, and trainings that trained
    nothing.

    Args:
        model: Folder of its model; by default one that holds nothing.
    """
    searched, window = door(), episode("window", ["open", "wait"], 0.0, Outcome.FAILURE, 1)
    window.task = Task("toy", "window", "train")
    del searched.nodes[7:], searched.nodes[4].children[1:]
    searched.revisions = []
    config = ["method.type=agent_r", "method.revise.alpha=[0.5]", "run.name=door", "run.rounds=1"]
    round_ = round_of(folder, config, experts=[expert("open unlock")], model=model)
    store = round_.experiment.store
    _trained(store, arm_of(0), [2.3, 0.9, 0.4])
    _measured(store, arm_of(0), HELD_OUT[:3])
    given(store, arm_of(1).stage("collect"), [searched, window])
    given(store, arm_of(1).stage("revise"), [door()], includes=arm_of(1).stage("collect"))
    dataset(round_)
    _trained(store, arm_of(1), [0.8, 0.5, 0.3])
    _measured(store, arm_of(1), HELD_OUT[:6])
    store.close()
    return folder


def _trained(store: RunStore, arm: Arm, losses: Sequence[float]) -> None:
    def write(folder: Path) -> TrainSummary:
        (folder / "model").mkdir()
        lines = [f'{{"step": {step}, "loss": {loss}}}\n' for step, loss in enumerate(losses, 1)]
        (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
        checkpoint = f"{arm.stage(TRAIN)}/model"
        return TrainSummary(checkpoint=checkpoint, steps=len(losses), first_loss=losses[0], last_loss=losses[-1])

    store.stages.run(arm.stage(TRAIN), TrainSummary, write)


def _measured(store: RunStore, arm: Arm, solved: Collection[str]) -> None:
    trees = [_held_out(name, name in solved) for name in HELD_OUT]

    def write(folder: Path) -> EvalSummary:
        forest = GrowingForest(folder, epoch=store.lease.next_epoch())
        for tree in trees:
            forest.write(tree)
        forest.seal(stage={"action_format": "react"})
        found = evaluate(trees)
        write_json(folder / EVALUATION, found.as_dict())
        return EvalSummary(success=found.success.mean, tasks=found.success.n)

    store.stages.run(arm.stage(EVAL), EvalSummary, write)


def _held_out(name: str, solved: bool) -> Tree:
    actions = ["open", "take key", "unlock"] if solved else ["open", "wait"]
    return episode(name, actions, float(solved), Outcome.SUCCESS if solved else Outcome.FAILURE, 1)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def printed(folder: Path) -> dict[str, str]:
    """Runs the Python of the page, from top to bottom, and returns what each part prints.

    Args:
        folder: Holds the run, and gets the files that the page writes.
    """
    names: dict[str, Any] = {}
    found = {}
    with _inside(folder), matplotlib.rc_context({"svg.hashsalt": "agentr", "backend": "svg"}):
        for cell in CELL.finditer(PAGE.read_text(encoding="utf-8")):
            said = StringIO()
            with redirect_stdout(said):
                exec(compile(cell["code"], PAGE.name, "exec"), names)
            if cell["name"]:
                found[cell["name"]] = said.getvalue()
    return found


def main() -> None:
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # the picture holds no date
    with tempfile.TemporaryDirectory() as name:
        small(Path(name, RUN))
        found = printed(Path(name))
        PAGE.write_text(refreshed(PAGE, found.__getitem__), encoding="utf-8")
        PICTURE.write_bytes(Path(name, "success.svg").read_bytes())


if __name__ == "__main__":
    main()
