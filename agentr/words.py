"""Numbers in sentences: how many, how long."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Returns a number of things: 1 pair, 2 pairs."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def span(seconds: float) -> str:
    """Returns a duration in words, as exact as an estimate is: 40 s, 12 min, 3 h 20 min, 2 d 4 h."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"
