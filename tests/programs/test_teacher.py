"""Demonstrations of a stronger model behind an API: a program with tools asks it, and its turns are kept in our
tokens."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request

import agentr
from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.demonstrate import NoPolicy, Taught
from agentr.collect.job import TreeJob, run_job
from agentr.collect.units import StageProgress
from agentr.config.policy import AdvisorConfig, OpenAIConfig, SamplingConfig, Who
from agentr.config.schema import Config, EnvConfig, TaskSelection, WarmStartConfig
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.errors import BudgetExceeded
from agentr.rows.revision import demonstrated_rows
from agentr.rows.targets import Targets
from agentr.search import Origin, Tree
from agentr.store.forest import Forest
from agentr.store.rows import Row
from env_servers.sandbox import launch
from env_servers.textcraft import TextCraft
from tests.chaos.driver import end, start
from tests.players import OPTIONS
from tests.programs.test_conversations import CODEC
from tests.try_inputs import _serving

isolated = pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here")

#: Asks for two lamps at once, shows what each call came to, and ends with an answer in words.
AGENT = """
import json, os, urllib.request

def ask(messages):
    light = {"name": "light", "parameters": {"type": "object", "properties": {"lamp": {"type": "string"}}}}
    body = json.dumps({"model": "m", "messages": messages, "tools": [{"type": "function", "function": light}]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    return json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers)))["choices"][0]["message"]

task, lit = json.load(open(os.environ["AGENTR_TASK"])), []
messages = [{"role": "user", "content": "Light " + " and ".join(task["lamps"]) + "."}]
while True:
    said = ask(messages)
    messages.append(said)
    if not said.get("tool_calls"):
        break
    for call in said["tool_calls"]:
        lit.append(json.loads(call["function"]["arguments"])["lamp"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": lit[-1] + " is on."})
json.dump(float(sorted(lit) == task["lamps"]), open("reward.json", "w"))
"""


@pytest.fixture
def lights(tmp_path: Path) -> Iterator[EnvServer]:
    (tmp_path / "agent.py").write_text(AGENT)
    tasks = [{"id": "two", "lamps": ["a", "b"]}, {"id": "hard", "lamps": ["c"]}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    options = {"command": [sys.executable, str(tmp_path / "agent.py")]}
    options |= {"tasks": {"train": str(tmp_path / "train.jsonl")}}
    server = EnvServer(EnvConfig(name="program", options=options), "secret", str(tmp_path / "server.log"))
    yield server
    server.stop()


def teaches(bodies: list[dict[str, Any]]) -> FastAPI:
    """A model that lights the lamps of its prompt at once, but never the lamp c."""
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> dict[str, Any]:
        bodies.append(body := await request.json())
        lamps = [lamp for lamp in body["messages"][0]["content"][6:-1].split(" and ") if lamp != "c"]
        calls = [
            {"id": lamp, "type": "function", "function": {"name": "light", "arguments": json.dumps({"lamp": lamp})}}
            for lamp in lamps
        ]
        message: dict[str, Any] = {"role": "assistant", "content": "Done."}
        if calls and len(body["messages"]) == 1:
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        usage = {"prompt_tokens": 50, "completion_tokens": 10}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    return app


def taught(server: EnvServer, folder: Path, url: str, **api: Any) -> list[Tree]:
    teacher = AdvisorConfig(Who.openai, OpenAIConfig(base_url=f"{url}/v1", model="big", **api))
    config = Config(env=EnvConfig(name="program"), warm_start=WarmStartConfig(teacher=teacher, episodes=2))

    async def main() -> None:
        env = EnvClient([server.url()], "secret", timeout_s=120, retries=0)
        try:
            spec, tasks = await env.spec(), await env.tasks(TaskSelection(split="train"))
            agent = Agent.of(AgentSettings.of(config), NoPolicy(), env, CODEC, spec, {"OPENAI_API_KEY": "a key"})
            work, drawn = Taught(teacher, 2), SamplingConfig(max_tokens=64)
            job = TreeJob(folder=folder, tasks=tuple(tasks), seed=3, policy="", work=work, sampling=drawn)
            await run_job(job, agent, StageProgress())
        finally:
            await env.aclose()

    asyncio.run(main())
    return list(Forest(folder))


@isolated
def test_a_program_is_played_by_a_model_behind_an_api(lights: EnvServer, tmp_path: Path) -> None:
    bodies: list[dict[str, Any]] = []
    with _serving(teaches(bodies)) as url:
        trees = taught(lights, tmp_path / "trees", url)
    two, hard = sorted(trees, key=lambda tree: tree.task.id, reverse=True)
    assert len(two.successes()) == 2 and not hard.successes()
    assert {node.origin for tree in trees for node in tree.nodes[1:]} == {Origin.EXPERT}
    opening = two.messages
    for leaf in two.successes():  # what it said is in our tokens as the template writes it, and so is what came back
        first, _ = two.path(leaf.id)
        codec = CODEC.with_tools(two.root.asked.tools if two.root.asked else ())
        assert codec.offers is not None and [call.name for call in codec.offers.read(first.text)[1]] == ["light"] * 2
        assert two.prompt(first.id) == codec.prompt(two.conversation(first.id)) and opening == tuple(
            two.conversation(0)
        )
    asked = [body["messages"] for body in bodies if len(body["messages"]) > 1 and "tool_calls" in body["messages"][1]]
    assert len(asked) == 2
    for _, said, *results in asked:
        names = {call["id"]: json.loads(call["function"]["arguments"])["lamp"] for call in said["tool_calls"]}
        assert [names[result["tool_call_id"]] + " is on." for result in results] == [r["content"] for r in results]
    made = [each for tree in (two, hard) for each in demonstrated_rows(tree, Targets())]
    rows = [each for each in made if isinstance(each, Row)]
    assert len(rows) == 1 and rows[0].provenance.kind == "demonstration", (
        "the second episode is the same, and the hard task failed"
    )
    assert len(made) == 4


@isolated
def test_a_teacher_whose_budget_is_spent_stops_the_run(lights: EnvServer, tmp_path: Path) -> None:
    with _serving(teaches([])) as url, pytest.raises(BudgetExceeded, match="Raise"):
        taught(lights, tmp_path / "trees", url, max_cost=0.5, prompt_price_per_mtok=1e4)


CONFIG = """
run: {name: taught, rounds: 0}
method: {type: agent_r}
model: {source: nano, dtype: float32, max_model_len: 1024}
env: {name: textcraft, options: {recipes: exact, distractors: 3}}
prompt: {instruction: false}
policy: {max_num_seqs: 8, kv_cache_gib: 0.25}
warm_start:
  tasks: [{split: train, where: {depth: 1}, limit: 3}]
  teacher: {who: openai, openai: {model: big, base_url: URL/v1}, sampling: {max_tokens: 64}}
  train: {steps: 2, batch_size: 2, micro_batch_size: 2, max_length: 768}
build: {max_length: 768}
eval: {tasks: {split: test, limit: 1}, max_steps: 1, sampling: {max_tokens: 8}}
cluster: {dashboard: false}
"""


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_a_warm_start_on_a_teachers_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    game, app = TextCraft(**OPTIONS), FastAPI()
    plans = {game.reset(task.id)[1].observation: game.expert(task.id) or [] for task in game.split("train")}

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> dict[str, Any]:
        messages = (await request.json())["messages"]
        step = plans[messages[0]["content"]][len(messages) // 2]
        said = {"role": "assistant", "content": f"Thought: {step.thought}\nAction: {step.action}"}
        return {"choices": [{"message": said, "finish_reason": "stop"}]}

    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    with _serving(app) as url:
        (tmp_path / "run.yaml").write_text(CONFIG.replace("URL", url))
        driver = start(tmp_path / "log", "run", str(tmp_path / "run.yaml"), f"run.dir={tmp_path}/run")
        try:
            assert driver.wait(500) == 0, (tmp_path / "log").read_text()[-3000:]
        finally:
            end(driver)
    assert "3 of 3 succeeded by big" in (tmp_path / "log").read_text()
    run = agentr.open(tmp_path / "run")
    assert run.policies()
