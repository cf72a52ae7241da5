"""Episodes by tool calls, from the opening to the row: real servers, the families' templates, a policy that follows the
expert's plan."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.demonstrate import Demonstrate, NoPolicy
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, Work, run_job
from agentr.collect.judge import JudgeConfig, _question
from agentr.collect.units import Limits, StageProgress
from agentr.config.model import ModelConfig
from agentr.config.schema import Config, SamplingConfig, TaskSelection
from agentr.config.turns import PromptConfig, TurnFormat, TurnsConfig
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.errors import ModelError
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.chat import ChatCodec
from agentr.rows.conversations import ConversationReader, spoken_row
from agentr.rows.revision import good_rows
from agentr.rows.targets import Targets
from agentr.search import UCT, Tree, UCTConfig
from agentr.store.forest import Forest
from agentr.store.rows import Row
from agentr.tasks.formats import ReAct
from agentr.tasks.tools import ACT, described
from agentr.types import Completion, FinishReason, Task
from env_servers.app import create_app
from env_servers.searchqa import SearchQA
from env_servers.textcraft import TextCraft
from tests.env_servers.support import TOKEN, serving
from tests.players import OPTIONS
from tests.policy.test_tools import calls_of, tooled
from tests.trees import codec as plain_codec

CONFIG = Config(
    model=ModelConfig(max_model_len=1 << 16),
    prompt=PromptConfig(examples=1),
    turns=TurnsConfig(format=TurnFormat.tool_calls),
)
FAMILIES = ("Qwen 2.5", "Llama 3.1", "Mistral 7B 0.3")


class Planner:
    """Follows the expert's plan with some probability, and forgets to call a tool now and then.
    Its texts are an engine's: without special tokens."""

    def __init__(self, codec: ChatCodec, tasks: Sequence[Task]) -> None:
        self.codec = codec
        self.plans = {task.key: [step.action for step in TextCraft(**OPTIONS).expert(task.id) or []] for task in tasks}
        self.asked: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        self.asked.append(request)
        return [self._answer(request, random.Random(f"{request.sampling.seed}/{i}")) for i in range(request.n)]

    async def stats(self) -> PolicyStats:
        return PolicyStats()

    def _answer(self, request: GenerateRequest, rng: random.Random) -> Completion:
        calls = calls_of(self.codec)
        plan = list(self.plans[request.affinity])
        for message in request.messages:
            if message.role == "assistant" and (done := calls.parse(message.content).action) in plan:
                plan.remove(done)
        action = plan[0] if plan and rng.random() < 0.7 else "inventory"
        text = "I forgot to call." if rng.random() < 0.25 else calls.compose("I go on.", action)
        ids = tuple(self.codec.turn(text))
        return Completion(
            self.codec.tokenizer.decode(ids, skip_special_tokens=True), ids, (-0.25,) * len(ids), FinishReason.STOP
        )


def grown(
    url: str, token: str, family: str, folder: Path, work: Work, selection: TaskSelection
) -> tuple[Agent, list[Tree]]:
    async def main() -> Agent:
        env = EnvClient([url], token, timeout_s=20, retries=2)
        try:
            tasks, spec = await env.tasks(selection), await env.spec()
            agent = Agent.of(AgentSettings.of(CONFIG), NoPolicy(), env, tooled(family).plain, spec)
            agent = replace(agent, policy=Planner(agent.codec, tasks if spec.name == "textcraft" else ()))
            sampling = SamplingConfig(max_tokens=128)
            job = TreeJob(
                folder=folder, tasks=tuple(tasks), seed=3, policy="p", work=work, sampling=sampling, limits=Limits()
            )
            await run_job(job, agent, StageProgress())
            return agent
        finally:
            await env.aclose()

    agent = asyncio.run(main())
    return agent, list(Forest(folder))


def marked(codec: ChatCodec, row: Row) -> str:
    """A row as text, with the trained tokens in double brackets."""
    text, inside = "", 0
    for i, own in zip(row.input_ids, row.loss_mask, strict=True):
        text += ("⟦" if own > inside else "⟧" if own < inside else "") + codec.decode([i], special=True)
        inside = own
    return text + "⟧" * inside


@pytest.mark.parametrize("family", FAMILIES)
def test_a_search_by_tool_calls_makes_rows_that_train_on_the_calls_alone(
    server: EnvServer, tmp_path: Path, family: str
) -> None:
    selection = TaskSelection(split="train", where={"depth": [1]}, limit=2)
    agent, trees = grown(
        server.url(), "secret", family, tmp_path, Grow(UCT(UCTConfig(iterations=6, max_depth=8, width=2))), selection
    )
    codec = agent.codec
    assert calls_of(codec) is agent.format
    told = {n.observation for tree in trees for n in tree.nodes[1:] if not n.action}
    assert told and all(text.startswith("No tool call was found") for text in told)
    rows = [row for tree in trees for row in good_rows(tree, 1.0, limit=1, targets=Targets()) if isinstance(row, Row)]
    assert rows
    for row in rows:
        text = marked(codec, row)
        assert '"act"' in text.split("⟦")[0]  # the opening offers the tool
        passages = ConversationReader(codec).conversation(row.input_ids)
        turns = [p for p in passages if p.message.role == "assistant" and any(row.loss_mask[p.start : p.end])]
        assert turns and all(f"⟦{p.message.content}" in text.replace("⟦ ", "⟦") for p in turns)
        assert {p.message.role for p in passages} >= {"tool"}
        assert not any(
            any(row.loss_mask[p.start : p.end]) for p in passages if p.message.role in ("tool", "user", "system")
        )
        assert not spoken_row(row, ConversationReader(codec)).respelled


def test_worked_examples_and_demonstrations_are_written_as_calls(tmp_path: Path) -> None:
    with serving(create_app(SearchQA(k=2), token=TOKEN)) as url:
        agent, (tree,) = grown(url, TOKEN, "Qwen 3", tmp_path, Demonstrate(), TaskSelection(split="train", limit=1))
    system, acknowledged, *example, asked = tree.messages
    assert "<search>" not in system.content and acknowledged.role == "assistant" and asked.role == "user"
    assert [m.role for m in example] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert example[1].content.endswith(
        '<tool_call>\n{"name": "search", "arguments": {"query": "The Velvet Orchard"}}\n</tool_call>'
    )
    opening = agent.codec.decode(tree.prompt_ids, special=True)
    assert opening.count("<tool_response>") == 2 and '{"type": "function", "function": {"name": "search"' in opening
    assert tree.successes() and {n.action.partition(":")[0] for n in tree.nodes[1:]} == {"search", "answer"}
    marks = [agent.codec.tokenizer.convert_tokens_to_ids(mark) for mark in ("<tool_call>", "</tool_call>")]
    assert all([i for i in n.token_ids if i in marks] == marks for n in tree.nodes[1:])


def test_trajectories_in_the_environments_own_format_are_played_as_calls(server: EnvServer, tmp_path: Path) -> None:
    selection = TaskSelection(split="train", where={"depth": [1]}, limit=1)
    _, (played,) = grown(server.url(), "secret", "Qwen 2.5", tmp_path / "a", Demonstrate(), selection)
    turns = [ReAct().compose("I go on.", n.action) for n in played.nodes[1:-1]] + [played.nodes[-1].text]
    work = Demonstrate({played.task.id: tuple(turns)})
    agent, (again,) = grown(server.url(), "secret", "Qwen 2.5", tmp_path / "b", work, selection)
    assert again.successes() and [n.action for n in again.nodes] == [n.action for n in played.nodes]
    assert [n.text for n in again.nodes[1:-1]] == [
        calls_of(agent.codec).compose("I go on.", n.action) for n in played.nodes[1:-1]
    ]


def test_a_judge_is_asked_without_tools(server: EnvServer, tmp_path: Path) -> None:
    selection = TaskSelection(split="train", where={"depth": [1]}, limit=1)
    agent, (tree,) = grown(server.url(), "secret", "Qwen 2.5", tmp_path, Demonstrate(), selection)
    request = _question(tree, [tree.nodes[1]], agent, JudgeConfig())
    assert "<tools>" in agent.codec.decode(tree.prompt_ids) and "<tools>" not in agent.codec.decode(request.prompt_ids)
    assert request.codec is None


def test_a_model_without_a_place_for_tools_is_refused() -> None:
    spec = TextCraft().spec
    with pytest.raises(ModelError, match=r"turns\.format=environment"):
        Agent.of(AgentSettings.of(CONFIG), NoPolicy(), None, plain_codec(), spec)  # type: ignore[arg-type]


def test_a_stage_keeps_the_tools_of_its_conversations() -> None:
    spec: Any = TextCraft().spec
    assert described(spec, TurnsConfig()) == {"action_format": "react"}
    kept = described(spec, CONFIG.turns)
    assert kept["action_format"] == "tool_calls" and kept["tools"] == [ACT.model_dump_json()]
