"""Whatever an API sends is an answer, a refused prompt, a failure that is tried again, or an error of the run in the
API's own words."""

import asyncio
import gzip
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from agentr.backoff import Backoff
from agentr.config.policy import OpenAIConfig, PolicyConfig
from agentr.errors import ConfigError, ContextOverflow, InfraError, PromptRefused
from agentr.policy.base import GenerateRequest
from agentr.policy.chat import ChatCodec
from agentr.policy.openai_api import OpenAIPolicy
from agentr.policy.refusals import refusal
from agentr.types import Completion, FinishReason, Message, Sampling
from tests.foreign import HANG, answers, raw, response
from tests.policy.test_tools import tooled
from tests.support import tiny_tokenizer

CODEC = ChatCodec(tiny_tokenizer())
SAID = "Thought: I look.\nAction: look"


def chat(content: Any = SAID, finish: Any = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return {
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 5},
    }


def call(name: str = "act", arguments: Any = '{"action": "look"}') -> dict[str, Any]:
    return {"tool_calls": [{"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}]}


def policy_at(url: str, codec: ChatCodec = CODEC, timeout_s: float = 5.0, **api: Any) -> OpenAIPolicy:
    config = PolicyConfig(timeout_s=timeout_s, retries=1, openai=OpenAIConfig(base_url=f"{url}/v1", model="m", **api))
    return OpenAIPolicy(
        config, codec, {"OPENAI_API_KEY": "sk-foreign-canary"}, backoff=Backoff(first_s=0.001, longest_s=0.002)
    )


async def drawn(policy: OpenAIPolicy, n: int = 1, codec: ChatCodec = CODEC) -> Any:
    request = GenerateRequest(
        (1, 2, 3), n, Sampling(max_tokens=32, seed=1), messages=(Message("user", "Go."),), codec=codec
    )
    try:
        return await policy.generate(request)
    except (InfraError, PromptRefused, ConfigError) as error:
        return error


async def asked(url: str, *, n: int = 1, codec: ChatCodec = CODEC, **how: Any) -> Any:
    policy = policy_at(url, **how)
    try:
        return await drawn(policy, n, codec)
    finally:
        await policy.close()


def sent(*replies: bytes, **how: Any) -> Any:
    """What comes of answers in this order, of which the last one repeats."""
    left = list(replies)

    async def main() -> Any:
        async with raw(lambda path, body: left.pop(0) if len(left) > 1 else left[0]) as url:
            return await asked(url, **how)

    return asyncio.run(main())


def told(body: Any, status: int = 200, **how: Any) -> Any:
    return sent(response(json.dumps(body).encode(), status), **how)


@pytest.mark.slow
@pytest.mark.parametrize("tools", [False, True])
def test_whatever_is_sent_is_one_of_four_things(tools: bool) -> None:
    codec = tooled("Qwen 2.5") if tools else CODEC
    valid = chat(None, "tool_calls", **call()) if tools else chat([{"type": "text", "text": SAID}])
    now = [b""]
    with asyncio.Runner() as runner:
        server = raw(lambda path, body: now[0])
        policy = policy_at(runner.run(server.__aenter__()), timeout_s=2.0)

        @settings(
            derandomize=True, deadline=None, max_examples=60, suppress_health_check=list(HealthCheck), database=None
        )
        @given(answers(valid))
        def check(reply: bytes) -> None:
            now[0], began = reply, time.monotonic()
            got = runner.run(drawn(policy, codec=codec))
            assert time.monotonic() - began < 6.0
            if isinstance(got, list):
                (completion,) = got
                assert isinstance(completion, Completion) and all(isinstance(i, int) for i in completion.token_ids)
                completion.text.encode()
            else:
                assert isinstance(got, InfraError | PromptRefused | ConfigError) and "foreign-canary" not in str(got)

        check()
        runner.run(policy.close())
        runner.run(server.__aexit__(None, None, None))


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (response(b"\x1f\x8bnot", 200, b"Content-Encoding: gzip"), "DecodingError"),
        (response(gzip.compress(b"{}")[:-9], 200, b"Content-Encoding: gzip"), "an answer"),
        (response(b"{}", length=99), "RemoteProtocolError"),
        (response(b'{"choices": null}'), "an answer without choices"),
        (
            response(b'{"id": "x", "error": {"message": "the model is warming up", "code": 502}}'),
            "the model is warming up",
        ),
        (response(b'{"error": "busy"}', 429), "HTTP 429: busy"),
        (response(json.dumps(chat("Nice \ud83d")).encode()), "no JSON of finite numbers and whole characters"),
        (
            response(json.dumps(chat() | {"usage": float("nan")}).encode()),
            "no JSON of finite numbers and whole characters",
        ),
        (response("é".encode("latin-1")), "no JSON of finite numbers and whole characters"),
        (
            response(json.dumps(chat([{"type": "image_url", "image_url": {}}])).encode()),
            "a part of the type 'image_url', which is no text",
        ),
        (response(json.dumps(chat(7)).encode()), "not a chat completion"),
    ],
)
def test_what_is_wrong_is_tried_again_and_named_in_the_end(wrong: bytes, problem: str) -> None:
    good = response(json.dumps(chat()).encode())
    assert [c.text for c in sent(wrong, good)] == [SAID]
    got = sent(wrong)
    assert isinstance(got, InfraError) and re.search(problem, str(got)), got


def test_an_api_that_hangs_costs_its_deadlines() -> None:
    assert "no answer within 0.2 s" in str(sent(HANG, timeout_s=0.2))


@pytest.mark.parametrize(
    "name", ["content_filter", "max_tokens", "MAX_TOKENS", "error", "length", "SAFETY", "something new"]
)
def test_a_turn_that_was_broken_off_is_not_closed(name: str) -> None:
    (completion,) = told(chat("Thought: I look wh", name))
    assert completion.finish is FinishReason.LENGTH and completion.token_ids == tuple(CODEC.begin("Thought: I look wh"))
    (whole,) = told(chat(finish="STOP"))
    assert whole.finish is FinishReason.STOP and whole.token_ids == tuple(CODEC.turn(SAID))


def test_content_in_parts_is_joined_and_odd_counts_are_no_error() -> None:
    parts = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Thought: I look.\n"},
        {"type": "text", "text": "Action: look"},
    ]
    for usage in (
        {"prompt_tokens": "12.0", "completion_tokens": None},
        {"prompt_tokens": -3, "completion_tokens": []},
        [],
        "many",
    ):
        (completion,) = told(chat(parts) | {"usage": usage})
        assert completion.text == SAID


def test_a_turn_far_longer_than_asked_for_is_cut_off() -> None:
    (completion,) = told(chat("look " * 400_000))
    assert completion.finish is FinishReason.LENGTH and len(completion.token_ids) == 4 * 32
    assert completion.text == CODEC.decode(completion.token_ids)


#: As they were seen at vLLM (three versions), SGLang (two), llama.cpp, Anthropic, Gemini, Groq, TGI (two), OpenAI,
#: Mistral, Cohere, xAI.
TOO_LONG = [
    (
        400,
        {
            "message": "This model's maximum context length is 8192 tokens. However, you requested 10159 tokens",
            "code": 400,
        },
    ),
    (
        400,
        {"message": "The decoder prompt (length 10127) is longer than the maximum model length of 8192.", "code": 400},
    ),
    (
        400,
        {
            "error": {
                "message": (
                    "'max_tokens' or 'max_completion_tokens' is too large: 32. This model's maximum context length is "
                    "8192"
                )
            }
        },
    ),
    (400, {"error": {"message": "max_tokens must be at least 1, got -1935."}}),
    (400, {"message": "The input (10127 tokens) is longer than the model's context length (8192 tokens)."}),
    (400, {"message": "Input length (10127 tokens) exceeds the maximum allowed length (8186 tokens)."}),
    (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size",
                "type": "exceed_context_size_error",
            }
        },
    ),
    (
        500,
        {
            "error": {
                "code": 500,
                "message": "the request exceeds the available context size. try increasing the context size",
            }
        },
    ),
    (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 208310 tokens > 200000 maximum"},
        },
    ),
    (400, {"error": {"message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"}}),
    (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": (
                        "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."
                    ),
                }
            }
        ],
    ),
    (
        400,
        {
            "error": {
                "message": "Please reduce the length of the messages or completion.",
                "code": "context_length_exceeded",
            }
        },
    ),
    (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 10127",
            "error_type": "validation",
        },
    ),
    (
        422,
        {
            "error": "Input validation error: `inputs` must have less than 4095 tokens. Given: 10127",
            "error_type": "validation",
        },
    ),
    (
        400,
        {
            "message": (
                "Prompt contains 40960 tokens and 0 draft tokens, too large for model with 32768 maximum context length"
            )
        },
    ),
    (400, {"message": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 10127"}),
    (400, {"error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}),
    (413, {"error": {"message": "Request Entity Too Large"}}),
]
FILTERED = [
    (400, {"error": {"message": "The prompt triggered the content policy.", "code": "content_filter"}}),
    (
        400,
        {
            "error": {
                "message": "The response was filtered due to Azure OpenAI's content management policy.",
                "code": "content_filter",
            }
        },
    ),
    (
        400,
        {
            "error": {
                "message": "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
                "code": "invalid_prompt",
            }
        },
    ),
    (400, {"error": {"message": "Output blocked by content filtering policy", "type": "invalid_request_error"}}),
    (400, {"error": {"message": "Content Exists Risk", "type": "invalid_request_error"}}),
    (400, {"error": {"code": "data_inspection_failed", "message": "Input data may contain inappropriate content."}}),
    (403, {"error": {"code": 403, "message": "m requires moderation. Your input was flagged for 'violence'"}}),
]
FOR_GOOD = [
    (401, {"error": {"message": "Incorrect API key provided"}}, "Incorrect API key provided.*Check the key in KEY"),
    (403, {"error": {"message": "Your organization was flagged: access is closed"}}, "Check the key in KEY"),
    (
        429,
        {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}},
        "exceeded your current quota.*credit",
    ),
    (402, {"error": {"message": "Insufficient Balance"}}, "Insufficient Balance.*credit"),
    (
        400,
        {"error": {"message": "Your credit balance is too low to access the API"}},
        "credit balance is too low.*credit",
    ),
    (
        404,
        {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}},
        "`m` does not exist.*base_url and model",
    ),
    (
        400,
        {"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model."}},
        "parameters",
    ),
    (
        400,
        {"error": {"message": "max_tokens is too large: 99999. This model supports at most 16384 completion tokens"}},
        "at most 16384",
    ),
    (
        400,
        {
            "message": (
                "[{'loc': ('body', 'temperature'), 'msg': 'Input should be less than or equal to 2', 'input': 3.0}]"
            )
        },
        "temperature",
    ),
    (200, {"error": {"message": "No such model", "code": 404}}, "No such model"),
]
FOR_NOW = [
    (
        429,
        {
            "error": {
                "message": "You exceeded your current quota, please check your plan. Please retry in 7 s.",
                "status": "RESOURCE_EXHAUSTED",
            }
        },
    ),
    (429, {"error": {"message": "Rate limit reached: too many tokens per minute, reduce the length of the messages"}}),
    (503, {"error": {"message": "The model is overloaded. Please try again later."}}),
    (500, {"error": "internal"}),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
]


@pytest.mark.parametrize(("status", "body"), TOO_LONG)
def test_a_prompt_that_is_too_long_is_known_in_every_servers_words(status: int, body: Any) -> None:
    assert isinstance(refusal(status, json.dumps(body).encode(), "url", "KEY"), ContextOverflow)


@pytest.mark.parametrize(("status", "body"), FILTERED)
def test_a_filters_decision_is_about_this_prompt_alone(status: int, body: Any) -> None:
    found = refusal(status, json.dumps(body).encode(), "url", "KEY")
    assert type(found) is PromptRefused and "base_url" not in str(found)


@pytest.mark.parametrize(("status", "body", "words"), FOR_GOOD)
def test_what_is_wrong_for_good_ends_the_run_in_the_providers_words(status: int, body: Any, words: str) -> None:
    found = refusal(status, json.dumps(body).encode(), "url", "KEY")
    assert isinstance(found, ConfigError) and re.search(words, str(found)), found


@pytest.mark.parametrize(("status", "body"), FOR_NOW)
def test_what_passes_is_tried_again(status: int, body: Any) -> None:
    assert type(refusal(status, json.dumps(body).encode(), "url", "KEY")).__name__ == "TransientError"


def test_parameters_are_called_as_the_model_knows_them_or_left_out() -> None:
    bodies: list[dict[str, Any]] = []

    def answer(path: str, body: bytes) -> bytes:
        bodies.append(json.loads(body))
        return response(json.dumps(chat()).encode())

    async def main() -> Any:
        async with raw(answer) as url:
            named = {"max_tokens": "max_completion_tokens", "seed": "", "n": "", "temperature": ""}
            return await asked(url, n=3, parameters=named)

    assert len(asyncio.run(main())) == 3 and len(bodies) == 3, "an API without n is asked once for each"
    assert (
        set(bodies[0]) == {"model", "messages", "top_p", "max_completion_tokens"}
        and bodies[0]["max_completion_tokens"] == 32
    )


def test_this_machine_itself_is_not_asked_by_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://me:secret-word@127.0.0.1:9\n")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert [c.text for c in told(chat())] == [SAID]


@pytest.mark.parametrize(
    "case", [json.loads(line) for line in Path(__file__).parents[1].joinpath("inputs/api_answers.jsonl").open()]
)
def test_answers_that_were_reported(case: dict[str, Any]) -> None:
    got = told(case["body"], case["status"], codec=tooled("Qwen 2.5") if case["tools"] else CODEC)
    right = {
        "parts-text": "Thought: I look what I have.\nAction: inventory",
        "error-200": "the model is warming up",
        "quota": "exceeded your current quota",
        "filter-400": "content policy",
        "context-vllm": "longer than the maximum model length",
        "cut-by-filter": "Thought: I look wh",
        "usage-nan": "Thought: I look what I have.\nAction: inventory",
        "arguments-object": '{"name": "act", "arguments": {"action": "inventory"}}',
        "parameters": "policy.openai.parameters",
    }[case["id"]]
    assert right in (got[0].text if isinstance(got, list) else str(got))
