"""How often an agent may call its tools in an episode: each tool, and all of them together."""

from collections.abc import Mapping, Sequence

from env_servers.base import Observation
from env_servers.observation import CallStatus

#: The name that limits all tools together.
ALL = "all"


class CallLimits:
    """The most calls of an episode.

    Args:
        most: Calls by tool, and by ``all`` for those of all tools together; what is not named is not limited.
        tools: Names of the tools there are.

    Raises:
        ValueError: A name is no tool, or a number is none of at least 0.
    """

    def __init__(self, most: Mapping[str, int] | None, tools: Sequence[str]) -> None:
        self.most = dict(most or {})
        if unknown := [name for name in self.most if name not in (*tools, ALL)]:
            raise ValueError(
                f"calls: there is no tool {', '.join(map(repr, unknown))}; name {', '.join((*tools, ALL))}"
            )
        if bad := {name: value for name, value in self.most.items() if type(value) is not int or value < 0}:
            raise ValueError(f"calls: numbers of calls are 0 or more, not {bad}")

    def announced(self) -> str:
        """Returns what an agent reads before its first turn; empty if nothing is limited."""
        parts = [f"{_of(name)} {_times(most)}" for name, most in self.most.items()]
        return f"\nYou may call {', '.join(parts)}." if parts else ""

    def refused(self, made: Mapping[str, int], tool: str) -> Observation | None:
        """Returns the answer to a call that is one too many, or None if it may be carried out.

        Args:
            made: Calls so far, by tool.
        """
        for name, count in ((tool, made.get(tool, 0)), (ALL, sum(made.values()))):
            most = self.most.get(name)
            if most is not None and count >= most:
                text = f"You may call {_of(name)} {_times(most)}, and have done so. Answer with what you know."
                return Observation(text, valid=False, status=CallStatus.limit)
        return None

    def counted(self, made: Mapping[str, int], tool: str) -> Mapping[str, int]:
        """Returns the calls so far and one more; where nothing is limited, nothing is counted, and a call leaves a
        state as it was."""
        return {**made, tool: made.get(tool, 0) + 1} if self.most else made

    def allow(self, calls: Sequence[str]) -> bool:
        """Returns whether an episode may make these calls, named by their tools."""
        return all((len(calls) if name == ALL else calls.count(name)) <= most for name, most in self.most.items())


def read_calls(data: object) -> dict[str, int]:
    """Returns the calls that a snapshot says were made.

    Raises:
        ValueError: They are none.
    """
    if not isinstance(data, dict) or not all(isinstance(k, str) and type(v) is int and v > 0 for k, v in data.items()):
        raise ValueError("the calls are no numbers by tool")
    return dict(data)


def _of(name: str) -> str:
    return "tools" if name == ALL else name


def _times(most: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(most, f"{most} times")
