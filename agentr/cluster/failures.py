"""What failures of Ray's actors mean, as errors of ours."""

from __future__ import annotations

import time
from typing import Any

import agentr.errors
from agentr.errors import AgentrError, InfraError


def in_constructor(error: BaseException) -> bool:
    """Returns whether an actor died because its constructor raised: another attempt would raise, too."""
    return "creation task" in str(error)


def cause_of(error: BaseException, what: str) -> AgentrError:
    """Returns the error of ours for one of Ray's: the one that our own code raised elsewhere, or an ``InfraError``.

    Args:
        error: A RayError.
        what: What was called, for the message.
    """
    cause: Any = getattr(error, "cause", None)
    if isinstance(cause, AgentrError):
        return cause
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    if in_constructor(error):
        # Ray keeps the text of what a constructor raised, and not the error.
        kind, found, message = lines[-1].partition(": ")
        ours = getattr(agentr.errors, kind.rpartition(".")[2], None) if kind.startswith("agentr.errors.") else None
        if found and ours is not None:
            return ours(message)
        return InfraError(f"{what} could not start: {lines[-1]}")
    reason = lines[-1] if lines else type(error).__name__
    return InfraError(f"{what} failed: {type(error).__name__}: {reason}")


def answer_of(ray: Any, call: Any, what: str, timeout_s: float) -> Any:
    """Returns the result of a remote call.

    Args:
        what: Who was called, for the message.

    Raises:
        AgentrError: What our own code raised there, or in the constructor of the actor.
        InfraError: There is no answer within ``timeout_s``.
        RayError: The actor is gone.
    """
    started = time.monotonic()
    try:
        return ray.get(call, timeout=timeout_s)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, AgentrError) else error from None
    except ray.exceptions.ActorDiedError as error:
        if in_constructor(error):
            raise cause_of(error, what) from None
        raise
    except ray.exceptions.GetTimeoutError as error:
        raise InfraError(f"{what} did not answer within {time.monotonic() - started:.0f} s") from error
