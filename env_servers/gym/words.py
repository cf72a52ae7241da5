"""Between Gymnasium's spaces and text: what an agent writes as an action, and an observation as what it reads."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: How an observation is read: the terminal picture that the environment draws, in place of what it returns.
RENDER = "render"
#: ANSI colours by the last digit of their code.
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_COLOURED = re.compile(r"\x1b\[([0-9;]*)m")


@dataclass(frozen=True)
class Words:
    """The words of one environment.

    Attributes:
        actions: Names of the actions of a ``Discrete`` space, by their numbers; empty where an action is any text.
        first: Number of the first of them.
        keys: Which entries of an observation that is a dictionary are read; empty for all of the observation.
        rendered: Whether the picture is read, and not the observation.
        space: The space of actions.
    """

    actions: tuple[str, ...]
    first: int
    keys: tuple[str, ...]
    rendered: bool
    space: Any

    def parse(self, action: str) -> Any | None:
        """Returns what ``step`` is given for an action; None for one that there is not."""
        action = action.strip()
        if self.actions:
            return self.first + self.actions.index(action) if action in self.actions else None
        return action if action and self.space.contains(action) else None

    def refusal(self) -> str:
        """Returns the answer to an action that there is not."""
        return f"There is no such action. {self.described()}"

    def described(self) -> str:
        """Returns what an action may be."""
        if self.actions:
            return f"The actions are: {', '.join(self.actions)}."
        return f"An action is a text of {self.space.min_length} to {self.space.max_length} characters."

    def text(self, env: Any, observation: Any) -> str:
        """Returns an observation as text."""
        if self.rendered:
            return plain(str(env.render())).strip("\n")
        parts = [observation[key] for key in self.keys] if self.keys else [observation]
        return "\n".join(map(_shown, parts))


def words_of(name: str, env: Any, actions: Sequence[Any], observation: str | Sequence[str]) -> Words:
    """Finds the words of an environment.

    Args:
        name: Named in errors.
        actions: Names that the options give; none for none.
        observation: What the options say about observations: nothing, `RENDER`, or keys.

    Raises:
        ValueError: Its spaces cannot be read as text, or the options do not fit them.
    """
    from gymnasium import spaces

    space, seen = env.action_space, env.observation_space
    names: tuple[str, ...] = ()
    first = 0
    if isinstance(space, spaces.Discrete):
        names = tuple(map(str, actions)) or tuple(map(str, range(int(space.n))))
        first = int(space.start)
        if len(names) != space.n or len(set(names)) != len(names) or not all(map(str.strip, names)):
            raise ValueError(
                f"actions: {name} has {space.n} actions, and needs as many different names, by their numbers; not "
                f"{names}"
            )
    elif not isinstance(space, spaces.Text):
        raise ValueError(
            f"an action of {name} is {space}, and only Text and Discrete can be words: register a wrapper that makes "
            "it one"
        )
    elif actions:
        raise ValueError(
            f"actions: an action of {name} is any text; names are for environments whose actions are numbers"
        )
    keys = () if observation in ("", RENDER) else (observation,) if isinstance(observation, str) else tuple(observation)
    rendered = observation == RENDER or (
        not observation and not isinstance(seen, spaces.Text) and env.render_mode == "ansi"
    )
    if rendered and env.render_mode != "ansi":
        raise ValueError(
            f"observation: {name} does not render as text; it renders {env.metadata.get('render_modes') or 'nothing'}"
        )
    known = list(seen.spaces) if isinstance(seen, spaces.Dict) else []
    if unknown := [key for key in keys if key not in known]:
        raise ValueError(
            f"observation: the observations of {name} have no {', '.join(unknown)}; they have "
            f"{', '.join(known) or 'no keys'}"
        )
    if not rendered and not keys and not _readable(seen):
        raise ValueError(
            f"observation: an observation of {name} is {seen}; give keys of it{f' ({known})' if known else ''}, or a "
            "wrapper"
        )
    return Words(names, first, keys, rendered, space)


def plain(picture: str) -> str:
    """Returns a terminal's picture with its colours as marks: ``<red>S</red>FFF``."""
    open_: list[str] = []

    def mark(match: re.Match[str]) -> str:
        codes = [int(code) for code in match[1].split(";") if code]
        colours = [COLOURS[code % 10] for code in codes if code // 10 in (3, 4) and code % 10 < len(COLOURS)]
        if colours:
            open_.extend(colours)
            return "".join(f"<{colour}>" for colour in colours)
        closed = "".join(f"</{colour}>" for colour in reversed(open_)) if 0 in codes or not codes else ""
        if closed:
            open_.clear()
        return closed

    return _COLOURED.sub(mark, picture)


def _readable(space: Any) -> bool:
    from gymnasium import spaces

    if isinstance(space, spaces.Tuple):
        return all(map(_readable, space.spaces))
    return isinstance(space, spaces.Text | spaces.Discrete)


def _shown(value: Any) -> str:
    import numpy

    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_shown(part)}' for key, part in value.items())}}}"
    # All of it: numpy shows three entries of each end once there are over a thousand.
    return numpy.array2string(value, threshold=sys.maxsize) if isinstance(value, numpy.ndarray) else str(value)
