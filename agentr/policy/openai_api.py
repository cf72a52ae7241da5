"""A policy behind an OpenAI-compatible chat API: GPT-4o as the actor, or a vLLM server elsewhere.

Such an API takes messages and returns text, and calls of tools where they are offered (`agentr.policy.openai_tools`).
The text is encoded with the local codec, so the ids are *a* tokenization of the turn, not the one that was sampled, and
there are no log-probabilities: the rows can be used for supervised fine-tuning, not for methods that need the sampling
distribution. A request whose last message is the assistant's asks for the rest of that turn; APIs that cannot continue
a turn start it again, so a repeated beginning is removed.
"""

import asyncio
import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from agentr.backoff import Backoff
from agentr.config.policy import OpenAIConfig, PolicyConfig
from agentr.errors import BudgetExceeded, ConfigError, InfraError
from agentr.foreign import MOST_BYTES, Unreadable, read
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.chat import ChatCodec
from agentr.policy.http_retry import TransientError, pause_before_retry
from agentr.policy.openai_tools import as_messages, as_turn, narrowing, text_of
from agentr.policy.refusals import refusal
from agentr.secrets import Secret, SecretKind, quoted
from agentr.seeds import derived_seed
from agentr.tasks.tool_calls import ToolOffer
from agentr.types import Completion, Cost, FinishReason

BACKOFF = Backoff(first_s=1.0, longest_s=60.0, jitter=0.3)
"""Pauses between attempts."""

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1|\[::1\]")
#: Why a completion ended, where it ended by itself. What else an API says is a turn that was cut off: its length, a
#: filter, an error.
_WHOLE = (
    "",
    "stop",
    "tool_calls",
    "tool_use",
    "function_call",
    "end_turn",
    "eos",
    "eos_token",
    "stop_sequence",
    "complete",
)
#: In tokens of the local model, to one of the API's: a turn that is longer than so many times max_tokens is cut off
#: there.
_TOKENS = 4
#: Most characters of a token of any model, on average over a turn.
_CHARACTERS = 16

_KEY_HINT = "Export it, or set policy.openai.api_key_env to the name of the variable that holds the key."


class ChatEndpoint:
    """An address that is asked for chat completions.

    Raises:
        ConfigError: It is none, or its proxy is none.
    """

    def __init__(self, api: OpenAIConfig, key: Secret, timeout_s: float) -> None:
        self.url = api.base_url.rstrip("/") + "/chat/completions"
        self._timeout_s, self._key_env = timeout_s, api.api_key_env
        for name in _PROXIES:
            Secret.read(SecretKind.PROXY, name)
        limits = httpx.Limits(max_connections=api.concurrency, max_keepalive_connections=api.concurrency)
        try:
            # This machine itself is not asked by a proxy.
            trust = not _LOOPBACK.fullmatch(httpx.URL(self.url).host)
            self.client = httpx.AsyncClient(headers=key.bearer(), timeout=timeout_s, limits=limits, trust_env=trust)
        except (httpx.InvalidURL, ValueError, ImportError) as error:
            hint = "Check policy.openai.base_url, and HTTPS_PROXY and its like."
            raise ConfigError(f"{self.url} cannot be asked: {quoted(error)}", hint=hint) from None

    async def post(self, body: dict[str, Any]) -> bytes:
        """The body of one answer.

        Raises:
            TransientError, PromptRefused, ConfigError: There is none, as `refusal` says.
        """
        data = bytearray()
        try:
            async with asyncio.timeout(self._timeout_s), self.client.stream("POST", self.url, json=body) as response:
                async for part in response.aiter_bytes():
                    data += part
                    if len(data) > MOST_BYTES:
                        raise TransientError(f"an answer of more than {MOST_BYTES >> 20} MiB")
        except (TimeoutError, httpx.TimeoutException):
            raise TransientError(f"no answer within {self._timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise TransientError(quoted(f"{type(error).__name__}: {error}")) from None
        if response.status_code != 200:
            raise self.refused(response.status_code, bytes(data), response.headers.get("Retry-After", ""))
        return bytes(data)

    def refused(self, status: int, data: bytes, retry_after: str = "") -> Exception:
        return refusal(status, data, self.url, self._key_env, retry_after)


class OpenAIPolicy:
    """A policy that asks for chat completions over HTTP. Belongs to one event loop.

    Invariants: no more than ``openai.concurrency`` calls are in flight; no call starts once ``openai.max_cost`` is
    spent (the calls in flight at that moment still end and are counted).

    Args:
        config: ``timeout_s`` bounds one attempt, ``retries`` the attempts after the first.
        codec: Encodes the answers of conversations that have none of their own (`GenerateRequest.codec`).
        secrets: Values of environment variables, this process's or those of the driver.
        backoff: Pauses between attempts; none is shorter than the server's Retry-After.
        spent: What was spent of ``openai.max_cost`` before.

    Raises:
        ConfigError: No model, no key in the environment, or a spending cap without prices.
    """

    def __init__(
        self,
        config: PolicyConfig,
        codec: ChatCodec,
        secrets: Mapping[str, str | Secret] = os.environ,
        *,
        backoff: Backoff = BACKOFF,
        spent: float = 0.0,
    ) -> None:
        api = config.openai
        if not api.model:
            raise ConfigError("policy.openai.model is empty.", hint="Name the model that the API should use.")
        key = Secret(SecretKind.API, api.api_key_env, secrets.get(api.api_key_env, ""))
        if not key:
            raise ConfigError(
                f"the environment variable {api.api_key_env} with the API key is not set.", hint=_KEY_HINT
            )
        if api.max_cost and not (api.prompt_price_per_mtok or api.completion_price_per_mtok):
            raise ConfigError(
                "policy.openai.max_cost is set without prices.", hint="Set prompt_ and completion_price_per_mtok."
            )
        self._config, self._api = config, api
        self._codec = codec
        self._backoff = backoff
        self._endpoint = ChatEndpoint(api, key, config.timeout_s)
        self._slots = asyncio.Semaphore(api.concurrency)
        self._stats = PolicyStats(spent=spent)
        self._failed_in_a_row, self._failure = 0, ""

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        """See `Policy.generate`. An API that returns fewer than ``n`` choices is asked again for the rest.

        Raises:
            ConfigError: The API refuses the key, the model or the request.
        """
        if not request.messages:
            raise ConfigError("a request to an API needs its messages; this one has token ids only.")
        total_s = self._config.timeout_s * (self._config.retries + 1)
        problems: list[str] = []
        began = time.monotonic()
        try:
            async with asyncio.timeout(total_s):
                completions: list[Completion] = []
                while len(completions) < request.n:
                    completions += await self._ask(self._body(request, len(completions)), request, problems)
        except TimeoutError:
            problems.append(f"the deadline of {total_s:g} s for all attempts")
            raise self._failed(problems) from None
        self._stats += PolicyStats(Cost(calls=1, completions=request.n), busy_s=time.monotonic() - began)
        return completions[: request.n]

    async def stats(self) -> PolicyStats:
        """Returns the counters so far; ``busy_s`` is summed over calls."""
        return replace(self._stats)

    def problems(self) -> dict[str, str]:
        """Returns why the API gives nothing, by its address, while no call comes through; else nothing."""
        many = self._failed_in_a_row
        return {self._api.base_url: f"{self._failure}, {many} times in a row"} if many else {}

    async def close(self) -> None:
        """Closes the connections."""
        await self._endpoint.client.aclose()

    # ------------------------------------------------------------------------------------------------------------------

    def _body(self, request: GenerateRequest, have: int) -> dict[str, Any]:
        sampling, offers = request.sampling, request.codec.offers if request.codec else None
        plain = [{"role": m.role, "content": m.content} for m in request.messages]
        body: dict[str, Any] = {
            "model": self._api.model,
            "messages": plain if offers is None else as_messages(request.messages, offers),
            "n": request.n - have,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": derived_seed(sampling.seed, have),
            **narrowing(offers, request.settings),
        }
        body |= {"stop": list(sampling.stop)} if sampling.stop else {}
        renamed = self._api.parameters.get
        return {renamed(name, name): value for name, value in body.items() if renamed(name, name)}

    async def _ask(self, body: dict[str, Any], request: GenerateRequest, problems: list[str]) -> list[Completion]:
        """Requests one answer, with retries, and adds each failure to ``problems``."""
        for attempt in range(self._config.retries + 1):
            self._check_budget()
            try:
                async with self._slots:
                    self._check_budget()
                    answer = await self._endpoint.post(body)
                completions = self._read(answer, request)
                self._failed_in_a_row = 0
                return completions
            except TransientError as error:
                self._failed_in_a_row, self._failure = self._failed_in_a_row + 1, str(error)
                problems.append(str(error))
                if attempt < self._config.retries:
                    await asyncio.sleep(pause_before_retry(error, attempt, self._backoff))
        raise self._failed(problems)

    def _read(self, data: bytes, request: GenerateRequest) -> list[Completion]:
        """Reads the completions of an answer. Counts the reported usage even if the rest is unusable."""
        try:
            answer = read(data, dict[str, Any])
            self._charge(answer.get("usage"), request)
            if not answer.get("choices"):
                raise self._endpoint.refused(200, data)
            completions = [self._completion(choice, request) for choice in answer["choices"][: request.n]]
        except (Unreadable, KeyError, TypeError, AttributeError) as error:
            why = (
                error
                if isinstance(error, Unreadable)
                else f"{type(error).__name__}: {quoted(error, 80)} in {quoted(data, 200)!r}"
            )
            raise TransientError(f"an answer that is not a chat completion ({why})") from None
        self._stats += PolicyStats(Cost(completion_tokens=sum(len(c.token_ids) for c in completions)))
        return completions

    def _completion(self, choice: dict[str, Any], request: GenerateRequest) -> Completion:
        begun = request.messages[-1].content if request.messages[-1].role == "assistant" else ""
        # A refusal has content null: an empty turn, which no action format accepts.
        codec, most = request.codec or self._codec, _TOKENS * request.sampling.max_tokens
        said = _said(choice["message"], codec.offers, begun).removeprefix(begun)
        text = said[: most * _CHARACTERS]
        cut = text != said or str(choice.get("finish_reason") or "").lower() not in _WHOLE
        ids = codec.begin(text, begun) if cut else codec.turn(text, begun)
        # the end of a turn is no part of its length
        if len(codec.begin(text, begun) if len(ids) > most else ids) > most:
            cut, ids = True, codec.begin(text, begun)[:most]
            text = codec.decode(ids)
        return Completion(text, tuple(ids), (), FinishReason.LENGTH if cut else FinishReason.STOP)

    def _charge(self, usage: Any, request: GenerateRequest) -> None:
        counts = usage if isinstance(usage, dict) else {}
        prompt = _count(counts, "prompt_tokens", 0) or len(request.prompt_ids)
        # Without usage the dearest answer is assumed: a spending cap must hold for servers that do not report.
        completion = _count(counts, "completion_tokens", request.n * request.sampling.max_tokens)
        price = (prompt * self._api.prompt_price_per_mtok + completion * self._api.completion_price_per_mtok) / 1e6
        cached = _count(counts.get("prompt_tokens_details"), "cached_tokens", 0)
        self._stats += PolicyStats(Cost(prompt_tokens=prompt, cached_tokens=cached), spent=price)

    def _check_budget(self) -> None:
        if self._api.max_cost and self._stats.spent >= self._api.max_cost:
            raise BudgetExceeded(
                f"{self._stats.spent:.4f} was spent at {self._api.base_url}, the limit is {self._api.max_cost:g}.",
                hint="Raise policy.openai.max_cost and resume.",
            )

    def _failed(self, problems: list[str]) -> InfraError:
        return InfraError(f"{self._endpoint.url} gave no completion: {'; '.join(problems)}.")


def _said(message: dict[str, Any], offers: ToolOffer | None, begun: str) -> str:
    """The turn that an answer is, in the local model's dialect; behind a beginning that it does not repeat, a call is
    on a line of its own."""
    if offers is None:
        return text_of(message.get("content"))
    text = as_turn(message, offers)
    return f"\n{text}" if begun and not text.startswith(begun) and offers.called(text) == 0 else text


def _count(counts: Any, name: str, otherwise: int) -> int:
    """A number of tokens that a server reports, or ``otherwise`` where it reports none that can be."""
    try:
        found = int(float(counts[name]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return otherwise
    return found if 0 <= found < 1 << 31 else otherwise
