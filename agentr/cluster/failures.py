"""What failures of Ray's actors mean, as errors of ours: one message and a hint, without the tracebacks that Ray
carries along."""

import logging
import time
from pathlib import Path
from typing import Any

import agentr.errors
from agentr.errors import AgentrError, InfraError, RunError, first_line

log = logging.getLogger(__name__)

_MEMORY = (
    "Use a machine with more memory, or lower what is there at a time: collect.in_flight, policy.max_num_seqs, or of a "
    "training train.micro_batch_size (train.gradient_checkpointing=true needs less, too)."
)
#: What to do about an error of somebody else's, by a part of its text.
_HINTS = {
    "out of memory": _MEMORY,
    "OutOfMemory": _MEMORY,
    "Cannot allocate memory": (
        "Use a machine with more memory, or start fewer parts: policy.engines, env.servers, collect.coordinators."
    ),
    "No space left": (
        "Free space where it wrote, on a disk or in /dev/shm (memory), and start the same run again: it goes on where "
        "it was."
    ),
    "died": "Perhaps its machine ran out of memory, or went away. Start the same run again: it goes on where it was.",
    "Failed to connect to GCS": "The Ray cluster is gone. Start the same run again: it goes on where it was.",
}


def hint_of(text: str) -> str:
    """Returns what to do about an error of somebody else's; empty if nothing is known of it."""
    return next((hint for part, hint in _HINTS.items() if part in text), "")


def as_ours(error: Exception, log_file: Path) -> AgentrError:
    """Returns the error that a person sees when a run ends: it has one sentence and a hint.
    Tracebacks go to the run's logs.

    Args:
        log_file: The log that is named where there is more to read than the sentence says.
    """
    ours, foreign = error, error.__cause__ if isinstance(error, AgentrError) else error
    if not isinstance(ours, AgentrError):
        from agentr.cluster.connect import is_rays

        ours = cause_of(ours, "a part of the run") if is_rays(error) else unforeseen(ours, "the run")
    if foreign is None or isinstance(foreign, AgentrError):
        return ours
    log.error("the run ended", exc_info=error)
    return (
        ours
        if ".log" in ours.hint
        else type(ours)(ours.message, hint=f"{ours.hint} The traceback is in {log_file}.".strip())
    )


def unforeseen(error: BaseException, what: str, kind: type[AgentrError] = RunError) -> AgentrError:
    """Returns an error of ours for one that no part of agentr foresaw.

    Args:
        kind: ``InfraError`` where another attempt may go better.
    """
    name, line = type(error).__name__, first_line(error)
    return kind(f"{what} failed: {name}{'' if line == name else ': ' + line}", hint=hint_of(f"{name}: {error}"))


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
    if isinstance(cause, Exception):
        return unforeseen(cause, what, InfraError)
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    if in_constructor(error):
        # Ray keeps the text of what a constructor raised, and not the error.
        kind, found, message = lines[-1].partition(": ")
        ours = getattr(agentr.errors, kind.rpartition(".")[2], None) if kind.startswith("agentr.errors.") else None
        if found and ours is not None:
            return ours(message)
        return InfraError(f"{what} could not start: {lines[-1]}")
    reason = lines[-1] if lines else type(error).__name__
    return InfraError(
        f"{what} failed: {type(error).__name__}: {reason}", hint=hint_of(f"{type(error).__name__}: {error}")
    )


def answer_of(ray: Any, call: Any, what: str, timeout_s: float) -> Any:
    """Returns the result of a remote call.

    Args:
        what: Who was called, for the message.

    Raises:
        AgentrError: What our own code raised there, or in the constructor of the actor.
        RunError: Something that nobody foresaw was raised there.
        InfraError: There is no answer within ``timeout_s``.
        RayError: The actor is gone.
    """
    started = time.monotonic()
    try:
        return ray.get(call, timeout=timeout_s)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, AgentrError):
            raise error.cause from None
        raise unforeseen(error.cause, what) from error
    except ray.exceptions.ActorDiedError as error:
        if in_constructor(error):
            raise cause_of(error, what) from None
        raise
    except ray.exceptions.GetTimeoutError as error:
        raise InfraError(f"{what} did not answer within {time.monotonic() - started:.0f} s") from error
