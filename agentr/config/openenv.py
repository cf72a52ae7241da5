"""What ``env.options`` may hold with ``env.protocol: openenv``: how an OpenEnv server's structured actions and
observations are text."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from agentr.errors import ConfigError
from env_servers.seeds import seed_ranges

ActionFormatName = Literal["react", "bare", "codeact", "tags"]


@dataclass(frozen=True, kw_only=True)
class OpenEnvOptions:
    """Options of an OpenEnv server.

    Attributes:
        action_field: Field of an action that holds the agent's text, with dots into what it holds
            (``arguments.message``). Empty: the server's schema is asked for the one text field.
        action: The other fields of every action.
        observation_field: Field of an observation that is read, or several in order, with dots. Empty: as for
            ``action_field``.
        reset: Fields of every reset, beside the task's.
        tasks: ``seeds``: a task is a seed. ``server``: tasks and splits are the server's own (OpenEnv's task API).
        train: Seeds that may be trained on: the first, and the one after the last.
        dev: Held-out seeds.
        test: Held-out seeds.
        returns: Whether an episode's rewards are added up (``sum``), or the last one counts (``last``).
        low: Least that an episode can earn.
        high: Most that an episode can earn.
        success: Share of the way from ``low`` to ``high`` from which an episode counts as solved.
        instruction: First message of every episode; empty makes one of the server's description.
        action_format: How the agent's answer becomes an action.
        step_limit: Actions that an episode may take.
    """

    action_field: str = ""
    action: Mapping[str, Any] = field(default_factory=dict)
    observation_field: str | Sequence[str] = ""
    reset: Mapping[str, Any] = field(default_factory=dict)
    tasks: Literal["seeds", "server"] = "seeds"
    train: Sequence[int] = (0, 800)
    dev: Sequence[int] = (800, 900)
    test: Sequence[int] = (900, 1000)
    returns: Literal["sum", "last"] = "sum"
    low: float = 0.0
    high: float = 1.0
    success: float = 1.0
    instruction: str = ""
    action_format: ActionFormatName = "react"
    step_limit: int = 30

    @property
    def seeds(self) -> dict[str, range]:
        """The seeds of each split."""
        return seed_ranges(self.train, self.dev, self.test)

    @property
    def observation_fields(self) -> tuple[str, ...]:
        """The fields of an observation that are read; none for what the schema says."""
        given = self.observation_field
        return tuple(filter(None, (given,) if isinstance(given, str) else given))


def openenv_options(options: Mapping[str, Any]) -> OpenEnvOptions:
    """Reads ``env.options``.

    Raises:
        ConfigError: An option that there is not, or a value that it cannot have; names the key.
    """
    known = [each.name for each in fields(OpenEnvOptions)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
            raise ConfigError(f"an OpenEnv server has no option {name!r}", hint=hint)
    found = OpenEnvOptions(**options)
    for name, kind, what in (
        ("action_field", str, "a text"),
        ("observation_field", str | Sequence, "a text or a list of them"),
        ("action", Mapping, "fields with values"),
        ("reset", Mapping, "fields with values"),
        ("low", int | float, "a number"),
        ("high", int | float, "a number"),
        ("success", int | float, "a number"),
        ("instruction", str, "a text"),
        ("step_limit", int, "a whole number"),
    ):
        if not isinstance(getattr(found, name), kind):
            raise ConfigError(f"{name} is {getattr(found, name)!r}, and must be {what}")
    for name, choices in (
        ("tasks", ("seeds", "server")),
        ("returns", ("sum", "last")),
        ("action_format", get_args(ActionFormatName)),
    ):
        if getattr(found, name) not in choices:
            raise ConfigError(f"{name} is {getattr(found, name)!r}, and must be one of {', '.join(choices)}")
    if not found.low < found.high or not 0 <= found.success <= 1:
        raise ConfigError(
            f"low = {found.low:g} must be below high = {found.high:g}, and success = {found.success:g} from 0 to 1"
        )
    if found.step_limit < 1:
        raise ConfigError(f"step_limit is {found.step_limit}, and must be at least 1")
    try:
        assert found.seeds
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return found
