"""What a run was predicted to take before it began, and what is left of that."""

from collections.abc import Callable, Mapping
from typing import Any

from agentr.read.run import Run

#: The event that says it.
PREDICTED = "predicted"

#: Of a stage or more, in seconds: the least, the expected, the most.
Span = tuple[float, float, float]


def note(event: Callable[..., Any], on: str, expected: Mapping[str, Span]) -> None:
    """Notes a prediction among a run's events.

    Args:
        event: The run's (``RunStore.event``).
        on: The hardware.
        expected: By stage.
    """
    event(PREDICTED, on=on, expected={name: [round(each, 1) for each in span] for name, span in expected.items()})


def predicted(run: Run) -> dict[str, Span]:
    """Returns what each stage was to take; nothing if the hardware was not known."""
    return next((event["expected"] for event in run.events() if event["event"] == PREDICTED), {})


def left(run: Run) -> Span | None:
    """Returns how long the rest of a run takes by its prediction, corrected by what the sealed stages took; None if
    nothing was predicted, or nothing is left."""
    expected, records = predicted(run), run.records()
    sealed = [name for name in expected if name in records and records[name].sealed]
    to_come = [expected[name] for name in run.planned() if name in expected and name not in sealed]
    if not to_come:
        return None
    thought = sum(expected[name][1] for name in sealed)
    pace = sum(records[name].seconds for name in sealed) / thought if thought else 1.0
    low, mid, high = (pace * sum(each) for each in zip(*to_come, strict=True))
    return low, mid, high
