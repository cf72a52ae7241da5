"""Calls to services that may be slow, busy or gone: one deadline over all attempts, and waits that grow between
them."""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from env_servers.retrieval.base import RetrievalFailure

#: First wait between attempts, in seconds; doubled for each further one.
BACKOFF_S = 0.5
#: Answers that say "later", not "never".
LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True)
class Key:
    """A secret that a service wants, by the environment variable that holds it.

    Attributes:
        required: Nothing is called while it is not set.
    """

    variable: str
    header: str = "Authorization"
    prefix: str = "Bearer "
    required: bool = True


class Service:
    """A JSON service over HTTP. Safe under threads.

    Args:
        what: Its name for messages.
        key: Sent with every request; never shown in messages.
        deadline_s: Seconds for one call, all its attempts and waits included. A search and its summary together should
            stay below what a client of an environment server waits for a step (30 s).
        attempts: Most requests of one call.
    """

    def __init__(self, what: str, key: Key | None, *, deadline_s: float, attempts: int) -> None:
        if deadline_s <= 0 or attempts < 1:
            raise ValueError(f"deadline_s and attempts must be positive, not {deadline_s} and {attempts}")
        self._what = what
        self._deadline_s = deadline_s
        self._attempts = attempts
        secret = os.environ.get(key.variable, "").strip() if key else ""
        self._lacks = key.variable if key and key.required and not secret else None
        self._http = httpx.Client(
            headers={key.header: key.prefix + secret} if key and secret else None, follow_redirects=False
        )
        self._jitter = random.Random()

    def check(self) -> None:
        """Checks that the service's key is set.

        Raises:
            RetrievalFailure: Its key is not set.
        """
        if self._lacks:
            raise RetrievalFailure(
                f"{self._what} needs a key in the environment variable {self._lacks}, and is not called without it"
            )

    def call(self, method: str, url: str, read: Callable[[Any], Any], **content: Any) -> Any:
        """``read`` of the JSON answer.

        Args:
            read: Takes what is wanted from the answer; what it raises counts as a malformed answer.
            content: As for httpx (``json=``, ``params=``).

        Raises:
            RetrievalFailure: There was no good answer within the deadline, the service refuses for good, or the key is
                not set.
        """
        self.check()
        end = time.monotonic() + self._deadline_s
        wait = BACKOFF_S
        for attempt in range(1, self._attempts + 1):
            left = end - time.monotonic()
            try:
                response = self._http.request(method, url, timeout=max(left, 0.001), **content)
                problem, asked = f"status {response.status_code}", _retry_after(response)
                if response.is_success:
                    return self._read(response, read)
                if response.status_code not in LATER:
                    raise RetrievalFailure(f"{self._what} refuses the request: {problem} {response.text[:200]!r}")
            except httpx.TransportError as error:
                problem, asked = f"{type(error).__name__}: {error}", 0.0
            pause = max(asked, wait * self._jitter.uniform(0.5, 1.5))
            if attempt == self._attempts or time.monotonic() + pause >= end:
                break
            time.sleep(pause)
            wait *= 2
        raise RetrievalFailure(
            f"{self._what} gave no answer in {attempt} attempts within {self._deadline_s:g} s; the last: {problem}"
        )

    def _read(self, response: httpx.Response, read: Callable[[Any], Any]) -> Any:
        try:
            return read(response.json())
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise RetrievalFailure(
                f"{self._what} gave an answer of another form than expected ({error!r}): {response.text[:200]!r}"
            ) from error


def _retry_after(response: httpx.Response) -> float:
    """Seconds that the service asks to wait."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0
