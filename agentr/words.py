"""Numbers in sentences: how many, how long; and texts of others, so that all of them is seen."""

import re

#: Characters that are not seen, or that turn the order of what stands beside them, as in ``hostile.ts`` of the pages of
#: ``agentr ui``: control characters but tab and newline, soft hyphens, zero-width and direction characters, tags,
#: halves of surrogate pairs.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


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


def seen(text: str) -> str:
    """Returns a text with the names of its characters that are not seen in their places."""
    return _UNSEEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)
