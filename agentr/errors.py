"""Errors that a person can act on: what was wrong, and what to do.

The error model (docs/architecture.md has it in full):

- An error for people is an ``AgentrError`` with a message and a hint; the command line prints both. Any other exception
  that escapes is a defect.
- ``InfraError`` says that machinery failed. Each layer retries what it can cure, with a deadline and a count, and
  raises ``InfraError`` when that is used up: a request (`ServerPool.retry`, `Router.generate`), then a tree
  (`run_units`). A stage in which too many trees failed is a ``RunError``. All other kinds are raised at once: asking
  again does not help.
- A bad rollout is data, not an error: a turn without an action, an action that the environment does not understand, an
  episode out of steps or context are nodes of a tree.
- A machine's failure is never a reward and never a row: a failed tree is not written, and ``Outcome.INFRA`` is left out
  by ``Tree.ended``.
- Every wait has a deadline, and the error names what was waited for.
"""


class AgentrError(Exception):
    """Base of all errors that agentr raises on purpose.

    Args:
        message: What was wrong and where.
        hint: What to do about it.

    Attributes:
        kind: Of the cause (``agentr.cluster.causes``), for errors that are one by themselves.
        status: With which a command ends that this stops.
    """

    kind = ""
    status = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        stop = "" if not self.hint or self.message.endswith((".", "!", "?", ":")) else "."
        return f"{self.message}{stop} {self.hint}".strip()

    def __reduce__(self):
        return _rebuild, (type(self), self.message, self.hint)


def _rebuild(cls: type[AgentrError], message: str, hint: str) -> AgentrError:
    """Keyword-only arguments do not survive the default pickling of exceptions, and these cross processes."""
    return cls(message, hint=hint)


class ConfigError(AgentrError):
    """The configuration is wrong: an unknown key, a wrong type, values that contradict each other."""


class ModelError(AgentrError):
    """A model cannot be found, loaded or used as an agent."""


class DataError(AgentrError):
    """A file that should hold data does not: missing, corrupt, or of another version."""


class NoRows(DataError):
    """A stage of rows came to none: there is nothing to train on."""

    kind = "no_rows"


class RunError(AgentrError):
    """A run directory cannot be used as asked: another owner, another configuration, a stage that failed."""


class InfraError(AgentrError):
    """A part of the machinery failed: a dead engine, a hung server, a time-out.
    Retried, and never turned into a reward."""


class StaleWeights(InfraError):
    """An engine holds other weights than the caller asked for: it was restarted, or another stage loaded them."""


class EngineLost(InfraError):
    """An engine is gone for good: it died more often than it may be started again."""


class PromptRefused(AgentrError):
    """Whoever is asked does not answer this prompt, and would not if asked again: a filter's decision.
    Others are answered."""


class ContextOverflow(PromptRefused):
    """A prompt leaves no room for the answer within the model's context. Asking again does not help."""


class BudgetExceeded(AgentrError):
    """A limit set by the user was reached: calls, tokens, or money."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's text, or the name of its type if there is none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
