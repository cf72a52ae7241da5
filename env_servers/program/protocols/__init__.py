"""The protocols in which programs ask a model: each reads requests into one form, and writes answers, whole and as
streams."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from env_servers.observation import Answer
from env_servers.program.protocols import chat, messages, responses
from env_servers.program.requests import Request


class Wire(Protocol):
    """A protocol."""

    def read(self, body: Any) -> Request:
        """Reads the body of a request.

        Raises:
            BadRequest: It is none, or asks for what is not served.
        """
        ...

    def written(self, answer: Answer, number: int, request: Request) -> dict[str, Any]:
        """Returns an answer as the body of a response.

        Args:
            number: Of the answer in its session, from 1 on.
        """
        ...

    def events(self, written: dict[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
        """Yields what `written` returned as the events of a stream, for a request with this body."""
        ...

    def refusal(self, status: int, message: str) -> dict[str, Any]:
        """Returns the body of an error."""
        ...


#: By the path of its requests.
PROTOCOLS: Mapping[str, Wire] = MappingProxyType(
    {"/v1/chat/completions": chat, "/v1/messages": messages, "/v1/responses": responses}
)
