"""The official client asks the gateway as it asks OpenAI: plain, streamed, and two conversations at a time."""

import json
import sys
from pathlib import Path

import pytest

from env_servers.observation import Answer
from env_servers.program import Program
from env_servers.sandbox import launch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here"),
]

PLAIN = "return client.chat.completions.create(model='m', messages=messages).choices[0].message.content"
STREAMED = """
    with client.chat.completions.stream(model='m', messages=messages, stream_options={'include_usage': True}) as stream:
        last = stream.get_final_completion()
    assert last.usage.completion_tokens == 3 and last.choices[0].finish_reason == 'stop'
    return last.choices[0].message.content
"""
SYNC = """
import json, os, openai
client = openai.OpenAI()
def ask(messages):
    {}
messages = [dict(role='user', content='Go.')]
for n in range(3):
    messages += [dict(role='assistant', content=ask(messages)), dict(role='user', content=f'seen {{n}}')]
assert [m.id for m in client.models.list()] == ['agentr']
try:
    client.chat.completions.create(model='m', messages=messages, n=2)
except openai.BadRequestError as error:
    json.dump(float('n=2' in str(error)), open('reward.json', 'w'))
"""
ASYNC = """
import asyncio, json, openai
async def main():
    client, heard = openai.AsyncOpenAI(), []
    async def talk(name):
        messages = [dict(role='user', content=name)]
        for n in range(2):
            said = (await client.chat.completions.create(model='m', messages=messages)).choices[0].message
            messages += [said, dict(role='user', content=f'{name} {n}')]
            heard.append(said.content)
    await asyncio.gather(talk('cats'), talk('dogs'))
    json.dump(float(sorted(heard) == ['one', 'three', 'two', 'zero']), open('reward.json', 'w'))
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "code",
    [SYNC.format(PLAIN), SYNC.format(STREAMED), ASYNC],
    ids=["plain", "streamed", "async"],
)
def test_the_official_client_plays_and_is_begun_again(tmp_path: Path, code: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/agent.py").write_text(code)
    (tmp_path / "tasks.jsonl").write_text('{"id": "one"}')
    command = [sys.executable, "agent.py"]
    env = Program(command, {"train": str(tmp_path / "tasks.jsonl")}, workdir=str(tmp_path / "work"), live=2)
    state, observed = env.reset("one")
    turns = 0
    for word in ("zero", "one", "two", "three"):
        if observed.done:
            break
        action = json.dumps({"content": word, "calls": [], "finish": "stop", "usage": [5, 3]})
        branch = env.fork(state)
        state, branch = branch, state
        if turns == 2:
            env.step(branch, "another")  # it is begun again
        env.close(branch)
        observed, turns = env.step(state, action), turns + 1
    assert observed.done and observed.reward == 1, observed
    assert env._programs.starts == 2


#: A conversation with a tool, by each protocol: the same is asked. The results come in another order than the calls.
SCHEMA = "dict(type='object', properties=dict(q=dict(type='string')))"
CHAT = f"""
import json, openai
client = openai.OpenAI()
tools = [dict(type='function', function=dict(name='find', description='Finds.', parameters={SCHEMA}))]
messages = [dict(role='system', content='You find.'), dict(role='user', content='Go.')]
for n in range(3):
    more = dict(model='m', messages=messages, tools=tools, stop=['#'], max_tokens=100)
    ASK
    messages.append(said.model_dump(exclude_none=True))
    calls = said.tool_calls or []
    messages += [dict(role='tool', tool_call_id=call.id, content=call.function.arguments) for call in calls[::-1]]
    messages += [] if calls else [dict(role='user', content='On.')]
json.dump(1.0, open('reward.json', 'w'))
"""
CHAT_PLAIN = CHAT.replace("ASK", "said = client.chat.completions.create(**more).choices[0].message")
CHAT_STREAM = CHAT.replace(
    "ASK",
    "with client.chat.completions.stream(**more) as stream:\n"
    "        said = stream.get_final_completion().choices[0].message\n"
    "    for call in said.tool_calls or []: call.function.parsed_arguments = None",
)
MESSAGES = f"""
import json, anthropic
client = anthropic.Anthropic()
tools = [dict(name='find', description='Finds.', input_schema={SCHEMA})]
messages = [dict(role='user', content='Go.')]
for n in range(3):
    more = dict(model='m', system='You find.', messages=messages, tools=tools, stop_sequences=['#'], max_tokens=100)
    ASK
    assert said.usage.output_tokens == 3
    messages.append(dict(role='assistant', content=[part.model_dump(exclude_none=True) for part in said.content]))
    calls = [part for part in said.content if part.type == 'tool_use']
    assert (said.stop_reason == 'tool_use') == bool(calls)
    said_of = lambda call: json.dumps(call.input, ensure_ascii=False)
    results = [dict(type='tool_result', tool_use_id=call.id, content=said_of(call)) for call in calls[::-1]]
    messages.append(dict(role='user', content=results or 'On.'))
assert client.messages.count_tokens(model='m', messages=messages).input_tokens > 10
json.dump(1.0, open('reward.json', 'w'))
"""
MESSAGES_PLAIN = MESSAGES.replace("ASK", "said = client.messages.create(**more)")
MESSAGES_STREAM = MESSAGES.replace(
    "ASK", "with client.messages.stream(**more) as stream: said = stream.get_final_message()"
)
RESPONSES = f"""
import json, openai
client = openai.OpenAI()
tools = [dict(type='function', name='find', description='Finds.', parameters={SCHEMA}, strict=False)]
items = [dict(role='user', content='Go.')]
for n in range(3):
    more = dict(model='m', instructions='You find.', input=items, tools=tools, max_output_tokens=100, store=False)
    ASK
    assert said.status == 'completed' and said.usage.output_tokens == 3
    items += [item.model_dump(exclude_none=True) for item in said.output]
    calls = [item for item in said.output if item.type == 'function_call']
    items += [dict(type='function_call_output', call_id=call.call_id, output=call.arguments) for call in calls[::-1]]
    items += [] if calls else [dict(role='user', content='On.')]
json.dump(1.0, open('reward.json', 'w'))
"""
RESPONSES_PLAIN = RESPONSES.replace("ASK", "said = client.responses.create(**more)")
RESPONSES_STREAM = RESPONSES.replace(
    "ASK",
    "with client.responses.stream(**more) as stream:\n"
    "        said = stream.get_final_response()\n"
    "    for item in said.output:\n"
    "        if item.type == 'function_call': item.parsed_arguments = None\n"
    "        for part in getattr(item, 'content', []): part.parsed = None",
)
SPOKEN = {
    "chat": CHAT_PLAIN,
    "chat streamed": CHAT_STREAM,
    "messages": MESSAGES_PLAIN,
    "messages streamed": MESSAGES_STREAM,
    "responses": RESPONSES_PLAIN,
    "responses streamed": RESPONSES_STREAM,
}


@pytest.mark.parametrize("protocol", SPOKEN)
def test_each_protocol_asks_the_same(tmp_path: Path, protocol: str) -> None:
    (tmp_path / "agent.py").write_text(SPOKEN[protocol])
    (tmp_path / "tasks.jsonl").write_text('{"id": "one"}')
    env = Program([sys.executable, str(tmp_path / "agent.py")], {"train": str(tmp_path / "tasks.jsonl")}, live=1)
    calls = ({"name": "find", "arguments": '{"q":  "é"}'}, {"name": "find", "arguments": "{}"})
    answers = [
        Answer(" So. ", calls, "stop", (5, 3)),
        Answer("One.", (), "stop", (5, 3)),
        Answer("", calls[:1], "stop", (5, 3)),
    ]
    state, observed = env.reset("one")
    asked = [observed.asked]
    for answer in answers:
        copy = env.fork(state)
        env.step(state, "another")  # with room for one, what follows is begun again
        state = copy
        observed = env.step(state, answer.text)
        asked.append(observed.asked)
    assert observed.done and observed.reward == 1, observed
    heard = [[(m["role"], m["content"], m.get("call_id", "")) for m in call.messages or ()] for call in asked if call]
    arguments = ['{"q": "é"}' if protocol.startswith("messages") else '{"q":  "é"}', "{}"]
    assert heard == [
        [("system", "You find.", ""), ("user", "Go.", "")],
        [("tool", arguments[0], "call_00001_000"), ("tool", arguments[1], "call_00001_001")],
        [("user", "On.", "")],
        [],
    ]
    assert [(call.after, call.answered) for call in asked if call] == [(0, False), (1, True), (2, True), (0, False)]
    about = {
        "name": "find",
        "description": "Finds.",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
    }
    settings = {"max_tokens": 100, **({} if protocol.startswith("responses") else {"stop": ["#"]})}
    for call in asked[:-1]:
        assert call is not None and [json.loads(tool) for tool in call.tools] == [about] and call.settings == settings
