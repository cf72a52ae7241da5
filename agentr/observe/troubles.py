"""Troubles of a run: shown where a person looks, and found again in the run's log.

Each is an event ``stands_still`` with its causes, and lasts until an event ``moves_again`` of the same title, or until
a stage is sealed; the mirror's, which stops nothing, only until the former.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agentr.cluster.causes import Cause
from agentr.errors import AgentrError
from agentr.observe.progress import Reporter
from agentr.store.layout import title_of

STANDS_STILL, MOVES_AGAIN = "stands_still", "moves_again"
#: Title of troubles of the mirror.
MIRROR = "mirror"

Event = Callable[..., None]
"""``event(kind, **about)`` adds to the run's log."""


def announce(reporter: Reporter, event: Event, title: str, causes: Sequence[Cause], since: str = "") -> None:
    """Shows causes in the terminal, in the driver's log and in the run's events; none means that those shown before are
    over.

    Args:
        title: What they are about, the same each time.
        since: For how long, in words.
    """
    for cause in causes:
        reporter.message(f"{title_of(title)}: {since + ': ' if since else ''}{cause}", "yellow")
    note(event, title, causes, since)


def note(event: Event, title: str, causes: Sequence[Cause], since: str = "") -> None:
    """As ``announce``, for causes that were shown already."""
    with suppress(AgentrError, OSError):  # the disk may be full: that was shown
        if causes:
            event(STANDS_STILL, title=title, since=since, causes=[cause.as_dict() for cause in causes])
        else:
            event(MOVES_AGAIN, title=title)


def troubles(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns what is wrong with a run as its events have it, the last first: each with title, time and causes by their
    kinds."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        stage, title, time = event.get("stage", ""), event.get("title", ""), event.get("time")
        match event["event"]:
            case "stage_sealed":
                found = {title: trouble for title, trouble in found.items() if title == MIRROR}
            case "stage_stopped":
                before = found.pop(stage, {"causes": []})
                stopped = {"stopped": event.get("error", ""), "kind": event.get("cause", "")}
                found[stage] = {"title": stage, "time": time, **stopped, "causes": before["causes"]}
            case kind if kind == MOVES_AGAIN:
                found.pop(title, None)
            case kind if kind == STANDS_STILL:
                before = found.pop(title, {"causes": []})
                causes = {cause["what"]: cause for cause in [*before["causes"], *event.get("causes", [])]}
                found[title] = {**before, "title": title, "time": time, "causes": list(causes.values())}
    return list(found.values())[::-1]


def describe(trouble: Mapping[str, Any]) -> Iterator[str]:
    """Yields a trouble in lines."""
    if "stopped" in trouble:
        yield f"{title_of(trouble['title'])} was stopped: {trouble['stopped']}"
    for cause in trouble["causes"]:
        yield f"{title_of(trouble['title'])}: {cause['what']} ({cause['evidence']}). {cause['setting']}".strip()
