"""What cannot be read, as a page says it: a sentence and what to do.
The only place that catches what goes wrong with an answer.

Runs may be damaged, half written, of another version, or gone since the page was opened. Readers name most of it by an
``AgentrError``; what the file system refuses is an ``OSError``; all else is damage that no reader foresaw or a defect
of agentr, whose place is logged.
"""

import logging
from collections.abc import Callable
from typing import TypedDict, TypeVar

from agentr.errors import AgentrError, first_line


class PageProblem(TypedDict):
    """What cannot be read, and what to do."""

    message: str
    hint: str


T = TypeVar("T")

_DOCTOR = "'agentr doctor RUN' says what of a run is damaged."

_log = logging.getLogger(__name__)


def problem_of(error: Exception, what: str = "") -> PageProblem:
    """Returns an error as the message and the hint that a page shows.

    Args:
        what: What cannot be read, where the rest is shown without it.
    """
    if isinstance(error, AgentrError):
        message, hint = error.message, error.hint or (_DOCTOR if what else "")
    elif isinstance(error, PermissionError):
        message, hint = (
            f"{error.filename} may not be read: {error.strerror}",
            "Ask for permission to read it; nothing else is needed.",
        )
    elif isinstance(error, FileNotFoundError | NotADirectoryError):
        message, hint = f"{error.filename} is gone", "Was it moved or deleted since the page was opened?"
    elif isinstance(error, OSError):
        message, hint = f"{error.filename or 'a file'} cannot be read: {error.strerror or error}", _DOCTOR
    else:
        _log.error("%s cannot be read", what or "an answer", exc_info=error)
        message, hint = (
            f"{type(error).__name__}: {first_line(error)[:300]}",
            f"{_DOCTOR} If nothing is, this is a defect of agentr.",
        )
        what = what or "this"
    return {"message": f"{what} cannot be read: {message}" if what else message, "hint": hint}


def read_or(instead: T, read: Callable[[], T], problems: list[PageProblem], what: str) -> T:
    """Returns what can be read, or something instead of it and a problem more.

    Args:
        what: What is read, for the problem.
    """
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the rest is shown
        problems.append(problem_of(error, what))
        return instead
