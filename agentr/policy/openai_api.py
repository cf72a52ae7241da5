"""A policy behind an OpenAI-compatible chat API: GPT-4o as the actor, or a vLLM server elsewhere.

Such an API takes messages and returns text, and calls of tools where they are offered (`agentr.policy.openai_tools`).
The text is encoded with the local codec, so the ids are *a* tokenization of the turn, not the one that was sampled, and
there are no log-probabilities: the rows can be used for supervised fine-tuning, not for methods that need the sampling
distribution. A request whose last message is the assistant's asks for the rest of that turn; APIs that cannot continue a
turn start it again, so a repeated beginning is removed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from agentr.backoff import Backoff
from agentr.config.policy import PolicyConfig
from agentr.errors import AgentrError, BudgetExceeded, ConfigError, ContextOverflow, InfraError
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.chat import ChatCodec
from agentr.policy.http_retry import TransientError, json_object, pause_before_retry
from agentr.policy.openai_tools import as_messages, as_turn
from agentr.secrets import Kind, Secret, quoted
from agentr.seeds import derived_seed
from agentr.tasks.tools import schema
from agentr.types import Completion, Cost, FinishReason

BACKOFF = Backoff(first_s=1.0, longest_s=60.0, jitter=0.3)
"""Pauses between attempts."""

_KEY_HINT = "Export it, or set policy.openai.api_key_env to the name of the variable that holds the key."


class OpenAIPolicy:
    """A policy that asks for chat completions over HTTP. Belongs to one event loop.

    Invariants: no more than ``openai.concurrency`` calls are in flight; no call starts once ``openai.max_cost`` is
    spent (the calls in flight at that moment still end and are counted).

    Args:
        config: ``timeout_s`` bounds one attempt, ``retries`` the attempts after the first.
        codec: Encodes the answers.
        secrets: Values of environment variables, this process's or those of the driver.
        backoff: Pauses between attempts; none is shorter than the server's Retry-After.

    Raises:
        ConfigError: No model, no key in the environment, or a spending cap without prices.
    """

    def __init__(
        self, config: PolicyConfig, codec: ChatCodec, secrets: Mapping[str, str | Secret] = os.environ, *, backoff: Backoff = BACKOFF
    ) -> None:
        api = config.openai
        if not api.model:
            raise ConfigError("policy.openai.model is empty.", hint="Name the model that the API should use.")
        key = Secret(Kind.API, api.api_key_env, secrets.get(api.api_key_env, ""))
        if not key:
            raise ConfigError(f"the environment variable {api.api_key_env} with the API key is not set.", hint=_KEY_HINT)
        if api.max_cost and not (api.prompt_price_per_mtok or api.completion_price_per_mtok):
            raise ConfigError("policy.openai.max_cost is set without prices.", hint="Set prompt_ and completion_price_per_mtok.")
        self._config = config
        self._codec = codec
        self._backoff = backoff
        self._url = api.base_url.rstrip("/") + "/chat/completions"
        self._slots = asyncio.Semaphore(api.concurrency)
        self._stats = PolicyStats()
        self._failed_in_a_row, self._failure = 0, ""
        self._client = httpx.AsyncClient(
            headers=key.bearer(),
            timeout=config.timeout_s,
            limits=httpx.Limits(max_connections=api.concurrency, max_keepalive_connections=api.concurrency),
        )

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
                    body = self._body(request, len(completions))
                    completions += await self._ask(body, request, problems)
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
        if not self._failed_in_a_row:
            return {}
        return {self._config.openai.base_url: f"{self._failure}, {self._failed_in_a_row} times in a row"}

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()

    # ------------------------------------------------------------------------------------------------------------------

    def _body(self, request: GenerateRequest, have: int) -> dict[str, Any]:
        sampling = request.sampling
        calls = self._codec.calls if request.tools else None
        body: dict[str, Any] = {
            "model": self._config.openai.model,
            "messages": as_messages(request.messages, calls)
            if calls
            else [{"role": m.role, "content": m.content} for m in request.messages],
            "n": request.n - have,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": derived_seed(sampling.seed, have),
        }
        if calls:
            body |= {"tools": [schema(tool) for tool in calls.tools], "parallel_tool_calls": False}
        return body | ({"stop": list(sampling.stop)} if sampling.stop else {})

    async def _ask(self, body: dict[str, Any], request: GenerateRequest, problems: list[str]) -> list[Completion]:
        """Requests one answer, with retries, and adds each failure to ``problems``."""
        for attempt in range(self._config.retries + 1):
            self._check_budget()
            try:
                async with self._slots:
                    self._check_budget()
                    answer = await self._post(body)
                completions = self._read(answer, request)
                self._failed_in_a_row = 0
                return completions
            except TransientError as error:
                self._failed_in_a_row, self._failure = self._failed_in_a_row + 1, str(error)
                problems.append(str(error))
                if attempt < self._config.retries:
                    await asyncio.sleep(pause_before_retry(error, attempt, self._backoff))
        raise self._failed(problems)

    async def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._config.timeout_s):
                response = await self._client.post(self._url, json=body)
        except (TimeoutError, httpx.TimeoutException):
            raise TransientError(f"no answer within {self._config.timeout_s:g} s") from None
        except httpx.TransportError as error:
            raise TransientError(quoted(f"{type(error).__name__}: {error}")) from None
        if response.status_code in (408, 409, 429) or response.status_code >= 500:
            raise TransientError(f"HTTP {response.status_code}", response.headers.get("Retry-After", ""))
        if response.status_code >= 400:
            raise self._refused(response)
        return json_object(response)

    def _read(self, answer: dict[str, Any], request: GenerateRequest) -> list[Completion]:
        """Reads the completions of an answer. Counts the reported usage even if the rest is unusable."""
        self._charge(answer.get("usage"), request)
        begun = request.messages[-1].content if request.messages[-1].role == "assistant" else ""
        try:
            completions = []
            for choice in answer["choices"]:
                # A refusal has content null: an empty turn, which no action format accepts.
                text = self._said(choice["message"], request).removeprefix(begun)
                cut = choice.get("finish_reason") == "length"
                ids = self._codec.begin(text, begun) if cut else self._codec.turn(text, begun)
                finish = FinishReason.LENGTH if cut else FinishReason.STOP
                completions.append(Completion(text=text, token_ids=tuple(ids), logprobs=(), finish=finish))
        except (KeyError, TypeError, AttributeError) as error:
            raise TransientError(f"an answer that is not a chat completion ({type(error).__name__}: {error})") from None
        if not completions:
            raise TransientError("an answer without choices")
        self._stats += PolicyStats(Cost(completion_tokens=sum(len(c.token_ids) for c in completions)))
        return completions

    def _said(self, message: dict[str, Any], request: GenerateRequest) -> str:
        calls = self._codec.calls if request.tools else None
        if calls is None:
            return str(message.get("content") or "")
        text = as_turn(message, calls)
        begun = request.messages[-1].role == "assistant" and not text.startswith(request.messages[-1].content)
        return f"\n{text}" if begun and calls.called(text) == 0 else text

    def _charge(self, usage: Any, request: GenerateRequest) -> None:
        counts = usage if isinstance(usage, dict) else {}
        prompt = int(counts.get("prompt_tokens") or len(request.prompt_ids))
        # Without usage the dearest answer is assumed: a spending cap must hold for servers that do not report.
        completion = int(counts.get("completion_tokens") or 0) if counts else request.n * request.sampling.max_tokens
        details = counts.get("prompt_tokens_details") or {}
        api = self._config.openai
        price = (prompt * api.prompt_price_per_mtok + completion * api.completion_price_per_mtok) / 1e6
        cached = int(details.get("cached_tokens") or 0) if isinstance(details, dict) else 0
        self._stats += PolicyStats(Cost(prompt_tokens=prompt, cached_tokens=cached), spent=price)

    def _check_budget(self) -> None:
        api = self._config.openai
        if api.max_cost and self._stats.spent >= api.max_cost:
            raise BudgetExceeded(
                f"{self._stats.spent:.4f} was spent at {api.base_url}, the limit is {api.max_cost:g}.",
                hint="Raise policy.openai.max_cost and resume.",
            )

    def _refused(self, response: httpx.Response) -> AgentrError:
        said = quoted(response.text)
        where = f"{self._url} answered HTTP {response.status_code}: {said}"
        if response.status_code in (401, 403):
            return ConfigError(where, hint=f"Check the key in {self._config.openai.api_key_env}.")
        if "context_length" in said or "maximum context length" in said:
            return ContextOverflow(where, hint="Lower model.max_model_len to the API's.")
        return ConfigError(where, hint="Check policy.openai.base_url and model.")

    def _failed(self, problems: list[str]) -> InfraError:
        return InfraError(f"{self._url} gave no completion: {'; '.join(problems)}.")
