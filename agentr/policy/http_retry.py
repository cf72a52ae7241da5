"""Transient failures of HTTP calls, and the pauses before the next attempt."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from agentr.backoff import Backoff


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


def _asked_for(retry_after: str) -> float:
    if not retry_after:
        return 0.0
    try:
        return min(max(0.0, float(retry_after)), 3600.0)
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):  # neither a number nor a date: as if it were not there
        return 0.0
