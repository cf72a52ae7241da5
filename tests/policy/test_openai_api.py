"""The API client against a real server on loopback that fails in the ways APIs fail."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from agentr.backoff import Backoff
from agentr.config.policy import OpenAIConfig, PolicyConfig
from agentr.errors import BudgetExceeded, ConfigError, ContextOverflow, InfraError
from agentr.policy.base import GenerateRequest
from agentr.policy.chat import ChatCodec
from agentr.policy.http_retry import TransientError, pause_before_retry
from agentr.policy.openai_api import OpenAIPolicy
from agentr.tasks.tool_calls import Call
from agentr.tasks.tools import ACT, schema
from agentr.types import FinishReason, Message, Sampling
from tests.policy.test_tools import calls_of, tooled
from tests.support import tiny_tokenizer

Answer = Callable[[dict[str, Any]], Response]


class Stub:
    """Answers the calls in the given order; the last answer repeats."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.active = self.most_active = 0
        self.hang_s = 0.0
        self.url = ""

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/v1/chat/completions")
        async def complete(request: Request) -> Response:
            self.active += 1
            self.most_active = max(self.most_active, self.active)
            try:
                body = await request.json()
                self.bodies.append(body)
                self.keys.append(request.headers.get("Authorization", ""))
                answer = self.answers[min(len(self.bodies), len(self.answers)) - 1]
                await asyncio.sleep(self.hang_s)
                return answer(body)
            finally:
                self.active -= 1

        return app


@pytest.fixture(scope="module")
def listener() -> Iterator[Stub]:
    stub = Stub()
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(stub.app(), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    stub.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    yield stub
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def stub(listener: Stub, monkeypatch) -> Stub:
    monkeypatch.setenv("TEST_API_KEY", "secret")
    while listener.active:  # calls that another test gave up
        time.sleep(0.02)
    listener.answers, listener.bodies, listener.keys, listener.hang_s, listener.most_active = [], [], [], 0.0, 0
    return listener


def good(
    body: dict[str, Any], *, text: str = "Action: look", finish: str = "stop", most: int = 99, usage: bool = True
) -> Response:
    choices = [{"index": i, "message": {"content": text}, "finish_reason": finish} for i in range(min(body["n"], most))]
    counts = {
        "prompt_tokens": 100,
        "completion_tokens": 10 * len(choices),
        "prompt_tokens_details": {"cached_tokens": 64},
    }
    return JSONResponse({"choices": choices} | ({"usage": counts} if usage else {}))


def status(code: int, text: str = "no", **headers: str) -> Answer:
    return lambda body: Response(text, status_code=code, headers={k.replace("_", "-"): v for k, v in headers.items()})


def ask(
    stub: Stub,
    *,
    calls: int = 1,
    n: int = 1,
    messages: tuple[Message, ...] = (Message("user", "Go."),),
    codec: Any = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
):
    """Makes calls one after another on one policy; returns the last answer and the counters."""
    api = {k: options.pop(k) for k in list(options) if k in OpenAIConfig.__dataclass_fields__}
    config = PolicyConfig(**{"timeout_s": 5.0, "retries": 3} | options)
    config.openai = OpenAIConfig(base_url=stub.url, model="m", api_key_env="TEST_API_KEY", **api)

    async def main():
        policy = OpenAIPolicy(config, codec or ChatCodec(tiny_tokenizer()), backoff=Backoff(first_s=0.01))
        how = {"messages": messages, "codec": codec, "settings": settings or {}}
        request = GenerateRequest((1, 2, 3), n, Sampling(max_tokens=32, seed=7), **how)
        try:
            for _ in range(calls):
                answer = await policy.generate(request)
            return answer, await policy.stats()
        finally:
            await policy.close()

    return asyncio.run(main())


def test_a_call_and_what_it_sends(stub):
    stub.answers = [good]
    completions, stats = ask(stub, n=2)
    codec = ChatCodec(tiny_tokenizer())
    assert [c.text for c in completions] == ["Action: look"] * 2
    assert completions[0].token_ids == tuple(codec.turn("Action: look")) and completions[0].logprobs == ()
    assert stub.keys == ["Bearer secret"]
    assert stub.bodies[0]["messages"] == [{"role": "user", "content": "Go."}] and stub.bodies[0]["n"] == 2
    assert (stats.cost.calls, stats.cost.completions, stats.cost.prompt_tokens, stats.cost.cached_tokens) == (
        1,
        2,
        100,
        64,
    )


def test_an_answer_that_was_cut_off_is_not_closed(stub):
    stub.answers = [lambda body: good(body, finish="length")]
    (completion,), _ = ask(stub)
    assert completion.finish is FinishReason.LENGTH
    assert completion.token_ids == tuple(ChatCodec(tiny_tokenizer()).encode("Action: look"))


def test_too_many_requests_then_well(stub):
    stub.answers = [status(429, Retry_After="0.3"), good]
    began = time.monotonic()
    ask(stub)
    assert len(stub.bodies) == 2 and time.monotonic() - began >= 0.3


def test_a_pause_is_no_shorter_than_the_server_asked_for():
    backoff = Backoff(first_s=1.0, longest_s=4.0)
    assert [pause_before_retry(TransientError("HTTP 500"), attempt, backoff) for attempt in range(4)] == [
        1.0,
        2.0,
        4.0,
        4.0,
    ]
    assert pause_before_retry(TransientError("HTTP 429", "9.5"), 0, backoff) == 9.5
    assert pause_before_retry(TransientError("HTTP 429", "0.5"), 0, backoff) == 1.0


@pytest.mark.parametrize(
    "bad",
    [
        status(500),
        status(503, Retry_After="not a date"),
        lambda body: Response("<html>", media_type="application/json"),
        lambda body: JSONResponse([1]),
        lambda body: JSONResponse({"choices": []}),
        lambda body: JSONResponse({"choices": [{"text": "no message"}]}),
        lambda body: JSONResponse({"error": "overloaded"}),
    ],
    ids=["500", "503", "malformed", "list", "empty", "no message", "error"],
)
def test_failures_that_pass_are_retried(stub, bad):
    stub.answers = [bad, good]
    (completion,), _ = ask(stub)
    assert completion.text == "Action: look" and len(stub.bodies) == 2


def test_failures_that_stay_are_named(stub):
    stub.answers = [status(500), lambda body: JSONResponse({"choices": []})]
    with pytest.raises(
        InfraError,
        match=r"gave no completion: HTTP 500: no; an answer without choices: .*; an answer without choices: ",
    ):
        ask(stub, retries=2)
    assert len(stub.bodies) == 3


def test_a_server_that_hangs_meets_a_deadline(stub):
    stub.answers, stub.hang_s = [good], 1.0
    with pytest.raises(InfraError, match=r"no answer within 0\.2 s"):
        ask(stub, timeout_s=0.2, retries=1)


def test_nobody_listens(stub):
    with socket.create_server(("127.0.0.1", 0)) as free:
        gone = Stub()
        gone.url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(InfraError, match="ConnectError"):
        ask(gone, retries=1)


def test_fewer_choices_than_asked_for(stub):
    stub.answers = [lambda body: good(body, most=1)]
    completions, stats = ask(stub, n=3)
    assert len(completions) == 3 and [b["n"] for b in stub.bodies] == [3, 2, 1]
    assert len({b["seed"] for b in stub.bodies}) == 3 and stats.cost.calls == 1


def test_the_spending_cap_stops_the_next_call(stub):
    stub.answers = [good]  # 100 * 1000 / 1e6 = 0.1 each
    with pytest.raises(
        BudgetExceeded, match=r"0\.2000 was spent at .*, the limit is 0\.15\. Raise policy\.openai\.max_cost"
    ):
        ask(stub, calls=3, max_cost=0.15, prompt_price_per_mtok=1000.0)
    assert len(stub.bodies) == 2


def test_calls_that_wait_do_not_start_once_the_cap_is_spent(stub):
    stub.answers, stub.hang_s = [good], 0.05  # 0.1 each
    api = OpenAIConfig(
        base_url=stub.url,
        model="m",
        api_key_env="TEST_API_KEY",
        concurrency=1,
        max_cost=0.05,
        prompt_price_per_mtok=1000.0,
    )

    async def main() -> list[Any]:
        policy = OpenAIPolicy(PolicyConfig(timeout_s=5.0, openai=api), ChatCodec(tiny_tokenizer()))
        request = GenerateRequest((1,), 1, Sampling(), messages=(Message("user", "Go."),))
        answers = await asyncio.gather(*(policy.generate(request) for _ in range(4)), return_exceptions=True)
        await policy.close()
        return answers

    first, *others = asyncio.run(main())
    assert not isinstance(first, BaseException)
    assert all(isinstance(other, BudgetExceeded) for other in others)
    assert len(stub.bodies) == 1


def test_without_usage_the_dearest_answer_is_charged(stub):
    stub.answers = [lambda body: good(body, usage=False)]
    _, stats = ask(stub, n=2, completion_price_per_mtok=1e6, max_cost=1000.0)
    assert stats.spent == 64.0


def test_a_begun_turn_is_not_repeated(stub):
    stub.answers = [lambda body: good(body, text="Thought: I erred. Action: look")]
    (completion,), _ = ask(stub, messages=(Message("user", "Go."), Message("assistant", "Thought: I erred.")))
    assert completion.text == " Action: look"


def test_calls_in_flight_are_bounded(stub):
    stub.answers, stub.hang_s = [good], 0.05
    config = PolicyConfig(
        timeout_s=5.0, openai=OpenAIConfig(base_url=stub.url, model="m", api_key_env="TEST_API_KEY", concurrency=3)
    )

    async def main():
        policy = OpenAIPolicy(config, ChatCodec(tiny_tokenizer()))
        request = GenerateRequest((1,), 1, Sampling(), messages=(Message("user", "Go."),))
        await asyncio.gather(*(policy.generate(request) for _ in range(9)))
        await policy.close()

    asyncio.run(main())
    assert stub.most_active == 3


def test_refusals_are_not_retried(stub):
    stub.answers = [status(401, "bad key")]
    with pytest.raises(ConfigError, match=r"HTTP 401: bad key\. Check the key in TEST_API_KEY"):
        ask(stub)
    stub.answers = [status(400, '{"error": {"code": "context_length_exceeded"}}')]
    with pytest.raises(ContextOverflow, match="HTTP 400"):
        ask(stub)
    assert len(stub.bodies) == 2


def test_configuration_that_cannot_work(stub, monkeypatch):
    with pytest.raises(ConfigError, match=r"needs its messages"):
        ask(stub, messages=())
    with pytest.raises(ConfigError, match=r"max_cost is set without prices"):
        ask(stub, max_cost=1.0)
    monkeypatch.delenv("TEST_API_KEY")
    with pytest.raises(ConfigError, match=r"environment variable TEST_API_KEY with the API key is not set\. Export it"):
        ask(stub)


# tools ----------------------------------------------------------------------------------------------------------------


def calling(*calls: tuple[str, str], content: str | None = None) -> Answer:
    functions = [
        {"id": f"x{n}", "type": "function", "function": {"name": name, "arguments": text}}
        for n, (name, text) in enumerate(calls)
    ]
    message = {"content": content, "tool_calls": functions}
    return lambda body: JSONResponse({"choices": [{"message": message, "finish_reason": "tool_calls"}]})


@pytest.mark.parametrize("family", ["Qwen 2.5", "Llama 3.1", "Mistral 7B 0.3"])
def test_a_call_of_a_tool_is_a_turn_in_the_local_models_dialect(stub, family):
    codec = tooled(family)
    stub.answers = [calling(("act", '{"action": "look"}'), content="I look.")]
    (completion,), _ = ask(stub, codec=codec)
    assert (
        completion.text == calls_of(codec).compose("I look.", "look")
        and calls_of(codec).parse(completion.text).action == "look"
    )
    assert completion.token_ids == tuple(codec.turn(completion.text)) and completion.finish is FinishReason.STOP
    assert stub.bodies[0]["tools"] == [schema(ACT)] and stub.bodies[0]["parallel_tool_calls"] is False


def test_earlier_calls_are_sent_as_calls_and_what_came_back_as_the_tools(stub):
    codec = tooled("Qwen 2.5")
    said = (
        calls_of(codec).compose("I look.", "look"),
        "I forgot.",
        '<tool_call>{"name": "dance"}</tool_call>',
        "I think",
    )
    messages = [Message("user", "Go.")]
    for turn in said:
        messages += [Message("assistant", turn), Message("user", f"after {len(messages)}")]
    stub.answers = [calling(("act", '{"action": "go"}'), content="I think")]
    (completion,), _ = ask(stub, codec=codec, messages=tuple(messages[:-1]))
    call, answer, *others = stub.bodies[0]["messages"][1:]
    assert call["content"] == "I look." and [c["function"] for c in call["tool_calls"]] == [
        {"name": "act", "arguments": '{"action": "look"}'}
    ]
    assert answer == {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "after 1"}
    assert [(m["role"], m["content"]) for m in others] == [
        ("assistant", said[1]),
        ("user", "after 3"),
        ("assistant", said[2]),
        ("user", "after 5"),
        ("assistant", "I think"),
    ]
    assert calls_of(codec).parse("I think" + completion.text).action == "go"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (calling(("act", '{"action": "a"}'), ("act", '{"action": "b"}')), "several tool calls"),
        (calling(("act", '{"action": "a')), "cannot be read"),
        (calling(("act", "[1]")), "no JSON object"),
        (calling(("dance", "{}")), "There is no tool 'dance'"),
        (calling(content="Hm."), "No tool call was found"),
        (calling(), "No tool call was found"),
    ],
)
def test_what_is_wrong_with_a_call_of_an_api_is_said(stub, answer, problem):
    codec = tooled("Qwen 2.5")
    stub.answers = [answer]
    (completion,), _ = ask(stub, codec=codec)
    assert problem in calls_of(codec).parse(completion.text).problem


def test_a_request_that_offers_no_tools_is_sent_without(stub):
    stub.answers = [good]
    config = PolicyConfig(timeout_s=5.0, openai=OpenAIConfig(base_url=stub.url, model="m", api_key_env="TEST_API_KEY"))

    async def main() -> None:
        policy = OpenAIPolicy(config, tooled("Qwen 2.5"))
        await policy.generate(GenerateRequest((1,), 1, Sampling(), messages=(Message("user", "Judge it."),)))
        await policy.close()

    asyncio.run(main())
    assert "tools" not in stub.bodies[0]


FIND = '{"name": "find", "description": "", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}'


def test_calls_side_by_side_of_a_program_are_sent_with_the_answers_that_are_theirs(stub):
    codec = tooled("Qwen 2.5").plain.with_tools([FIND])
    assert codec.offers is not None
    two = codec.offers.written("So.", [Call("find", {"q": "a"}), Call("find", {"q": "b"})])
    for ids, order in [
        (("call_00001_001", "call_00001_000"), (1, 0)),  # ours: they say which call they answer
        (("x", "a"), (0, 1)),  # another's: as they come
        (("call_00001_001", "call_00001_001"), (0, 1)),
    ]:
        answers = [Message("tool", f"result {n}", identity) for n, identity in enumerate(ids)]
        stub.answers = [calling(("find", '{"q": "c"}'), ("find", '{"q": "d"}'), content="On.")]
        messages = (Message("user", "Go."), Message("assistant", two), *answers)
        (completion,), _ = ask(stub, codec=codec, messages=messages)
        _, made, *results = stub.bodies[-1]["messages"]
        named = [call["id"] for call in made["tool_calls"]]
        assert made["content"] == "So." and len({*named}) == 2
        assert [json.loads(call["function"]["arguments"]) for call in made["tool_calls"]] == [{"q": "a"}, {"q": "b"}]
        assert [(each["tool_call_id"], each["content"]) for each in results] == [
            (named[place], f"result {n}") for n, place in enumerate(order)
        ]
        assert completion.text == codec.offers.written("On.", [Call("find", {"q": "c"}), Call("find", {"q": "d"})])
        assert completion.token_ids == tuple(codec.turn(completion.text))


@pytest.mark.parametrize("behind", [("tool",), ("tool", "user"), ("user", "user"), ()])
def test_calls_of_a_program_that_are_not_all_answered_are_sent_as_text(stub, behind):
    codec = tooled("Qwen 2.5").plain.with_tools([FIND])
    assert codec.offers is not None
    two = codec.offers.written("So.", [Call("find", {"q": "a"}), Call("find", {"q": "b"})])
    stub.answers = [good]
    more = [Message(role, "heard") for role in behind]
    ask(stub, codec=codec, messages=(Message("user", "Go."), Message("assistant", two), *more))
    assert stub.bodies[0]["messages"][1:] == [
        {"role": "assistant", "content": two},
        *({"role": "user", "content": "heard"} for _ in behind),
    ]


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({}, {}),
        ({"tool_choice": "required", "parallel_tool_calls": False},) * 2,
        ({"tool_choice": "none"},) * 2,
        ({"tool_choice": {"name": "find"}}, {"tool_choice": {"type": "function", "function": {"name": "find"}}}),
        (
            {"response_format": {"type": "object"}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}},
                }
            },
        ),
    ],
)
def test_what_a_program_narrows_is_passed_on(stub, settings, sent):
    codec = tooled("Qwen 2.5").plain.with_tools([FIND])
    stub.answers = [good]
    ask(stub, codec=codec, settings=settings)
    body = stub.bodies[0]
    assert body["tools"] == [{"type": "function", "function": json.loads(FIND)}]
    assert {key: body[key] for key in ("tool_choice", "parallel_tool_calls", "response_format") if key in body} == sent
    ask(stub, codec=codec.with_tools([]), settings={key: settings[key] for key in settings if "tool" not in key})
    assert "tools" not in stub.bodies[1] and "tool_choice" not in stub.bodies[1]
    assert ("response_format" in stub.bodies[1]) is ("response_format" in settings)
