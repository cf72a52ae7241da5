"""The official client asks the gateway as it asks OpenAI: plain, streamed, and two conversations at a time."""

import json
import sys
from pathlib import Path

import pytest

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
