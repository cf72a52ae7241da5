"""A call that a program made, and a program as the gateway sees it."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from env_servers.observation import Answer
from env_servers.program.others import Heard
from env_servers.program.requests import Request


@dataclass(eq=False)
class Call:
    """A call that a program made.

    Attributes:
        answered: Done when it is answered: with the answer and its number.
        delivered: Whether the whole answer was sent.
        left: Whether its client went away before it was answered, and did not ask again.
        since: When it came, by the monotonic clock.
    """

    request: Request
    answered: "asyncio.Future[tuple[Answer, int]]"
    delivered: bool = False
    left: bool = False
    since: float = field(default_factory=time.monotonic)

    @property
    def waits(self) -> bool:
        """Whether somebody waits for its answer."""
        return not self.answered.done() and not self.left


class Asking(Protocol):
    """A program, as the gateway sees it. Its methods are called in the gateway's thread.

    Attributes:
        refused: Why the last of its requests that could not be read was refused.
        heard: What other models answered it.
    """

    refused: str
    heard: Heard

    def called(self, request: Request, again: bool) -> Call | None:
        """Takes a call; None if it gets no answer any more.

        Args:
            again: The client says that it asks again.
        """
        ...

    def lost(self) -> None:
        """Ends it for the environment: ``heard`` says what it has lost."""
        ...

    def reported(self, report: Any) -> None:
        """Takes what the program reports.

        Raises:
            BadRequest: It is no report.
        """
        ...
