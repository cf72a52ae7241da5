"""Which HTTP failures pass, and how long to wait before the next attempt."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx


class Passing(Exception):
    """A failure that may be gone at the next attempt.

    Args:
        retry_after: The header's value: seconds, or an HTTP date; empty if there was none.
    """

    def __init__(self, problem: str, retry_after: str = "") -> None:
        super().__init__(problem)
        self.retry_after = retry_after


def pause_before_retry(passing: Passing, attempt: int, backoff_s: float) -> float:
    """Seconds until the next attempt: doubled each time, with jitter (so that callers refused together do not come back together),
    and no less than the server asked for."""
    backoff = backoff_s * 2 ** min(attempt, 6) * random.uniform(0.5, 1.0)
    return max(backoff, _asked_for(passing.retry_after))


def read_json(response: httpx.Response) -> dict[str, Any]:
    """The answer's JSON object.

    Raises:
        Passing: It is not one (a proxy's error page, an answer cut off).
    """
    try:
        answer = response.json()
    except ValueError:
        raise Passing(f"malformed JSON: {response.text[:80]!r}") from None
    if not isinstance(answer, dict):
        raise Passing(f"JSON that is not an object: {response.text[:80]!r}")
    return answer


def _asked_for(retry_after: str) -> float:
    if not retry_after:
        return 0.0
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):  # neither a number nor a date: as if it were not there
        return 0.0
