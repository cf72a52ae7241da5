"""Online training through a program that has tools, demands a call and asks in two conversations: rows,
log-probabilities, a step."""

import json
import sys
from itertools import groupby
from pathlib import Path

import pytest

import agentr
from agentr.read.stage import Rollouts
from agentr.store.files import read_lines
from agentr.store.rows import Rollout
from env_servers.sandbox import launch
from tests.chaos.driver import end, start

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here"),
]

#: Offers a tool, asks for a title beside, and goes on with what it asked first.
AGENT = """
import json, os, urllib.request

def ask(messages, **more):
    body = json.dumps({"model": "m", "messages": messages, **more}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    return json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers)))["choices"][0]["message"]

task = json.load(open(os.environ["AGENTR_TASK"]))
paint = {"name": "paint", "parameters": {"type": "object", "properties": {"colour": {"type": "string"}}}}
tools = [{"type": "function", "function": paint}]
messages = [{"role": "user", "content": "Paint the door " + task["colour"] + "."}]
first = ask(messages, tools=tools)
results = [{"role": "tool", "content": "Done.", "tool_call_id": call["id"]} for call in first.get("tool_calls") or []]
title = ask([{"role": "system", "content": "You give titles."}, *messages])
messages += [first, *(results or [{"role": "user", "content": "Say it in a word."}])]
last = ask(messages, tools=tools, tool_choice="required")
json.dump(min(1.0, sum(len(each["content"] or "") for each in (first, title, last)) / 1000), open("reward.json", "w"))
"""

CONFIG = """
run: {name: online, rounds: 1}
method: {type: grpo, steps: 2, tasks: 2, episodes: 2, validation: {every: 0}}
model: {source: nano, dtype: float32, chat_template: hermes, max_model_len: 1024}
env:
  name: program
  options: {command: [PYTHON, agent.py], workdir: agent, tasks: {train: train.jsonl, test: test.jsonl}}
policy: {max_num_seqs: 8, kv_cache_gib: 0.25}
warm_start: {enabled: false}
collect: {tasks: {split: train, limit: 4}, sampling: {max_tokens: 24}}
turns: {grammar: false}
build: {max_length: 1024}
train:
  - {batch_size: 4, micro_batch_size: 2, learning_rate: 1.0e-4, bf16: false, max_length: 1024}
eval: {tasks: {split: test, limit: 1}, sampling: {max_tokens: 24}}
cluster: {dashboard: false}
"""


def test_a_step_of_grpo_through_tools_and_two_conversations(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/agent.py").write_text(AGENT)
    tasks = [{"id": colour, "colour": colour} for colour in ("red", "blue", "green", "white")]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    (tmp_path / "test.jsonl").write_text(json.dumps({"id": "black", "colour": "black"}))
    (tmp_path / "run.yaml").write_text(CONFIG.replace("PYTHON", sys.executable))
    driver = start(tmp_path / "log", "run", str(tmp_path / "run.yaml"), f"run.dir={tmp_path}/run")
    try:
        assert driver.wait(800) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        end(driver)
    run = agentr.open(tmp_path / "run")
    rollouts = run.rounds[1].rollouts
    assert isinstance(rollouts, Rollouts)
    for step in (1, 2):
        rows = list(rollouts.steps[step].dataset.rows)
        assert len(rows) == 4
        for row in rows:
            assert isinstance(row, Rollout) and len(row.starts) == 1 and len(row.provenance.nodes) == 3
            assert any(row.loss_mask[: row.starts[0]]) and any(row.loss_mask[row.starts[0] :])
            assert [learnt for learnt, _ in groupby(row.loss_mask)].count(1) == 3, "each turn is learnt"
    metrics = read_lines(tmp_path / "run/rounds/01/train/metrics.jsonl")
    assert len(metrics) == 2
    for line in metrics:  # what the engine says of a turn, the trainer says of it, and after a step of the new weights
        assert line["logprob_difference"] < 1e-4 and line["entropy"] > 0
