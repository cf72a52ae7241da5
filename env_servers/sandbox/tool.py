"""Python as an agent's tool: code in, and what the agent reads of it out."""

from dataclasses import dataclass
from functools import lru_cache

from env_servers.observation import CallStatus
from env_servers.sandbox.sandbox import Outcome, Sandbox, Status

#: Runs whose outcome is remembered.
REMEMBERED = 2048
#: What the end of a run is to an agent. Out of memory is an exception, or a crash where none could be raised: an error.
_STATUS = {
    Status.OK: CallStatus.ok,
    Status.ERROR: CallStatus.error,
    Status.CRASH: CallStatus.error,
    Status.TIMEOUT: CallStatus.timeout,
    Status.OUTPUT: CallStatus.limit,
}


@dataclass(frozen=True)
class Told:
    """What an agent reads of code.

    Attributes:
        killed: The code did not end by itself, and would be killed again.
    """

    text: str
    status: CallStatus
    killed: bool


class PythonTool:
    """Runs code in a sandbox and puts the outcome into words. Thread-safe.

    What a sequence of code printed is remembered, so that a fork, a replay or another branch with the same code
    executes nothing.

    Args:
        max_output: Characters of output that an agent is shown; the middle of a longer one is left out.
    """

    def __init__(self, sandbox: Sandbox, max_output: int = 2000) -> None:
        self._limits = sandbox.limits
        self._outcome = lru_cache(REMEMBERED)(sandbox.run)
        self._max_output = max_output

    def run(self, *cells: str) -> Told:
        """Runs cells; returns what the agent reads of the last one. See `Sandbox.run`.

        Raises:
            SandboxFailure: Nothing is known about the code.
        """
        outcome = self._outcome(*cells)
        silent = outcome.status is Status.OK and not outcome.output.strip("\n")
        status = CallStatus.empty if silent else _STATUS[outcome.status]
        return Told(self._text(outcome), status, killed=outcome.status not in (Status.OK, Status.ERROR))

    def _text(self, outcome: Outcome) -> str:
        text = outcome.output.strip("\n")
        if len(text) > self._max_output:
            half = self._max_output // 2
            text = f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"
        ending = {
            Status.OK: "" if text else "(The code printed nothing. Print what you want to see.)",
            Status.ERROR: "" if text else "(The code ended with an error.)",
            Status.CRASH: "(The interpreter crashed.)",
            Status.TIMEOUT: f"(The code was stopped: it may run for {self._limits.cpu_s} seconds.)",
            Status.OUTPUT: "(The code was stopped: it printed too much.)",
        }[outcome.status]
        return f"{text}\n{ending}".strip("\n")
