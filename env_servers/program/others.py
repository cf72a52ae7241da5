"""Other models that programs ask, by names of their own: requests for them are passed on, and answers are recorded.

They are part of a program's world. One that is begun again gets the recorded answer to each equal request, equal ones
in their order; what it asks beyond them is asked anew.
"""

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from env_servers.observation import OtherAnswer
from env_servers.program.requests import BadRequest, meaning

if TYPE_CHECKING:
    import httpx

#: Longest answer, in bytes: it becomes part of the tree.
MAX_ANSWER = 8 << 20
#: Headers of a request that its endpoint is to see.
_PASSED = ("accept", "anthropic-version", "anthropic-beta", "openai-beta")


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served.

    Attributes:
        url: Up to and including the version.
        model: Its name there; by default the program's.
        key_env: Environment variable with its key.
    """

    url: str
    model: str = ""
    key_env: str = ""


def endpoints(models: Mapping[str, Any]) -> dict[str, Endpoint]:
    """Reads where models are served, by the names that programs say.

    Raises:
        ValueError: It does not say so, or a key is not there.
    """
    found = {}
    for name, said in models.items():
        fits = isinstance(said, Mapping) and all(isinstance(value, str) for value in said.values())
        if not fits or not {"url"} <= said.keys() <= {"url", "model", "key_env"}:
            raise ValueError(f"models: {name} is {said!r}, and must have a url, perhaps model and key_env")
        found[name] = place = Endpoint(**said)
        if not re.match(r"https?://[^/]", place.url):
            raise ValueError(f"models: the url of {name} is {place.url!r}, and must begin with http:// or https://")
        if place.key_env and not os.environ.get(place.key_env, "").strip():
            raise ValueError(f"models: the environment variable {place.key_env}, with the key of {name}, is not set")
    return found


class Heard:
    """What other models answered a program.

    Args:
        recorded: What they answered before it was begun again; an equal request gets it.

    Attributes:
        all: The same, and behind it what they answered since.
        lost: Why one of them gave no answer; whatever the program does then is not its own doing.
    """

    def __init__(self, recorded: Iterable[OtherAnswer] = ()) -> None:
        self.all = tuple(recorded)
        self.lost = ""
        self._left = list(self.all)

    def again(self, asked: str) -> OtherAnswer | None:
        """Returns the recorded answer to a request, once."""
        found = next((answer for answer in self._left if answer.asked == asked), None)
        if found is not None:
            self._left.remove(found)
        return found


class Others:
    """The models behind their endpoints. Used in one event loop.

    Args:
        ignore: What makes no difference in a request.
        deadline_s: Seconds for an answer, with all attempts.
    """

    def __init__(
        self, models: Mapping[str, Endpoint], ignore: Sequence[tuple[str, re.Pattern[str]]], deadline_s: float
    ) -> None:
        self.models, self._ignore, self._deadline_s = models, ignore, deadline_s
        self._http: httpx.AsyncClient | None = None

    def serve(self, body: Any) -> bool:
        """Whether a request is for one of them."""
        return isinstance(body, dict) and isinstance(body.get("model"), str) and body["model"] in self.models

    async def answer(self, heard: Heard, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> OtherAnswer:
        """Answers a request, as recorded or by asking.

        Args:
            path: Of the request, with its query.

        Raises:
            BadRequest: The path leads out of the endpoint, or the answer is no text, or too long.
            ConnectionError: There is none; ``heard`` says why, too.
        """
        if re.search(r"/\.|%2e|\\", path, re.IGNORECASE):
            raise BadRequest(f"{path[:200]} is no path of a model's")
        said = json.dumps([path, meaning(body, "", self._ignore)], sort_keys=True)
        asked = hashlib.sha256(said.encode()).hexdigest()
        if (recorded := heard.again(asked)) is not None:
            return recorded
        try:
            response = await self._asked(path, headers, body)
        except ConnectionError as error:
            heard.lost = f"{body['model']} gave no answer: {error}"
            raise
        try:
            text = response.content.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"what {body['model']} answers is no text, and cannot be recorded") from error
        if len(response.content) > MAX_ANSWER:
            raise BadRequest(f"what {body['model']} answers has more than {MAX_ANSWER >> 20} MiB")
        kind = response.headers.get("content-type", "application/json")
        answer = OtherAnswer(body["model"], asked, response.status_code, kind, text)
        heard.all = (*heard.all, answer)
        return answer

    async def _asked(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> "httpx.Response":
        import httpx  # which most programs do not need

        from env_servers.retrieval.http import BACKOFF_S, LATER

        place = self.models[body["model"]]
        url = place.url.rstrip("/") + path.removeprefix("/v1")
        sent = {name: headers[name] for name in _PASSED if name in headers}
        if key := os.environ.get(place.key_env, "").strip() if place.key_env else "":
            sent |= {"x-api-key": key} if "x-api-key" in headers else {"authorization": f"Bearer {key}"}
        if self._http is None:
            self._http = httpx.AsyncClient()
        end, wait = time.monotonic() + self._deadline_s, BACKOFF_S
        while True:
            try:
                left = max(0.001, end - time.monotonic())
                content = {**body, "model": place.model or body["model"]}
                response = await self._http.post(url, json=content, headers=sent, timeout=left)
                if response.status_code not in LATER:
                    return response
                problem = f"status {response.status_code} {response.text[:200]!r}"
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                problem = f"{type(error).__name__}: {error}"
            if time.monotonic() + wait >= end:
                raise ConnectionError(f"{place.url}: {problem}")
            await asyncio.sleep(wait)
            wait *= 2
