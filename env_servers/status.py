"""The protocol's word for how an action came out: by itself, so that whoever reads trees has it without the wire models."""

from __future__ import annotations

from enum import StrEnum


class CallStatus(StrEnum):
    """How an action came out: for people, filters and rewards.

    ``Observed.valid`` is another thing: whether the action was understood and changed or revealed something. Limits of invalid actions,
    counts of failed calls and masks of training go by that one. In the environments here an action is valid if its status is ``ok`` or
    ``empty``, and only then; an environment that says nothing of a status says ``ok`` of everything.
    """

    ok = "ok"
    """It was carried out and answered. A wrong answer to the task is ``ok``, too."""
    empty = "empty"
    """It was carried out, and found or printed nothing."""
    error = "error"
    """It was not understood, could not be done, or failed with an error."""
    timeout = "timeout"
    """It took too long and was stopped."""
    limit = "limit"
    """It was refused because a budget of calls is used up, or stopped because it needed or wrote too much."""

    @property
    def failed(self) -> bool:
        """Whether nothing came of the action."""
        return self in (CallStatus.error, CallStatus.timeout, CallStatus.limit)
