"""The steps of a stage of online training."""

from typing import Any

from agentr.errors import DataError
from agentr.observe.problems import PageProblem, read_or
from agentr.read.run import Run
from agentr.read.stage import Rollouts


def steps(run: Run, stage: str) -> dict[str, Any]:
    """Returns the summary of each step of online training, rewards by component and validation included.

    Raises:
        DataError: There is no such stage, or it has no steps.
    """
    rollouts = run.stage(stage)
    if not isinstance(rollouts, Rollouts):
        raise DataError(f"{stage} is no stage of online training", hint="Such stages are named rounds/NN/rollouts.")
    problems: list[PageProblem] = []
    measured = read_or({}, rollouts.validations, problems, "success on held-out tasks by step")
    lines = []
    for line in read_or([], lambda: rollouts.curve_lines(measured), problems, "its steps"):
        rewards = {f"reward/{name}": value for name, value in line.get("rewards", {}).items()}
        numbers = {name: value for name, value in line.items() if isinstance(value, int | float)}
        lines.append({**numbers, **rewards, "validation": line["validation"]})
    return {"stage": stage, "lines": lines, "problems": problems}
