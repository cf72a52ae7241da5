"""Transient failures of HTTP calls, and the pauses before the next attempt."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from agentr.backoff import Backoff
from agentr.secrets import quoted


class TransientError(Exception):
    """A failed call that may succeed at the next attempt.

    Args:
        retry_after: The header's value: seconds, or an HTTP date; empty if there was none.
    """

    def __init__(self, problem: str, retry_after: str = "") -> None:
        super().__init__(problem)
        self.retry_after = retry_after


def pause_before_retry(error: TransientError, attempt: int, backoff: Backoff) -> float:
    """Returns the seconds until the next attempt: the back-off's pause, and no less than the server asked for."""
    return max(backoff.pause_s(attempt), _asked_for(error.retry_after))


def json_object(response: httpx.Response) -> dict[str, Any]:
    """Returns the JSON object in the response's body.

    Raises:
        TransientError: The body is no JSON object (a proxy's error page, an answer cut off).
    """
    try:
        answer = response.json()
    except ValueError:
        raise TransientError(f"malformed JSON: {quoted(response.text, 80)!r}") from None
    if not isinstance(answer, dict):
        raise TransientError(f"JSON that is not an object: {quoted(response.text, 80)!r}")
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
