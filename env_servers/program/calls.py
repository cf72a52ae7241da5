"""A call that a program made, and a program as the gateway sees it."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from env_servers.program.requests import Answer, Request


@dataclass(eq=False)
class Call:
    """A call that a program made.

    Attributes:
        answered: Done when it is answered: with the answer and its number, or None where the program is to get none.
        delivered: Whether the program got the whole answer.
        since: When it came, by the monotonic clock.
    """

    request: Request
    answered: "asyncio.Future[tuple[Answer, int] | None]"
    delivered: bool = False
    since: float = field(default_factory=time.monotonic)


class Asking(Protocol):
    """A program, as the gateway sees it. Its methods are called in the gateway's thread."""

    def called(self, request: Request, again: bool) -> Call | None:
        """Takes a call; None if it gets no answer any more.

        Args:
            again: The client says that it asks again.
        """
        ...

    def reported(self, report: Any) -> None:
        """Takes what the program reports.

        Raises:
            BadRequest: It is no report.
        """
        ...
