"""Agents of other libraries, as `examples/agents` has them, are searched, begun again, revised and made rows of.

mini-swe-agent and coding agents by hand, these where docs/your_agent.md puts them:
``AGENTR_TEST_CODING=/tmp/coding/bin pytest tests/programs/test_agents.py --by-hand -k coding``.
"""

import asyncio
import os
import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agentr.collect.agent import Agent
from agentr.collect.asked import codec_of
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, run_job
from agentr.collect.sessions import Sessions
from agentr.collect.units import Limits, StageProgress
from agentr.config.chat_template import shipped
from agentr.config.policy import SamplingConfig
from agentr.config.schema import EnvConfig, TaskSelection
from agentr.config.turns import Dialect, PromptConfig
from agentr.envs.client import EnvClient
from agentr.envs.server import EnvServer
from agentr.methods.agent_r.revise import ReviseConfig, execute, good_turns, splice
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.chat import ChatCodec
from agentr.rows.sequences import make_rows, recorded
from agentr.search import UCT, Origin, Tree, UCTConfig
from agentr.search.pairs import Pair
from agentr.store.forest import Forest
from agentr.tasks.formats import WholeTurn
from agentr.tasks.tool_calls import HERMES, Call
from agentr.types import Completion, FinishReason, Outcome
from env_servers.sandbox import launch
from env_servers.sandbox.programs import HOME
from tests.support import tiny_tokenizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here"),
]

FindPython = Callable[[Path], Path]
Serve = Callable[[dict[str, Any]], EnvServer]
EXAMPLES = Path(__file__).parents[2] / "examples/agents"


def call(name: str, **arguments: Any) -> str:
    return HERMES.write(Call(name, arguments))


LOOK, TAKE, SOME = (
    call("count", item="apples"),
    call("take", item="apples", number=2),
    call("take", item="pears", number=1),
)
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
MEND = "sed -i 's:/ 2:/ len(numbers):' mean.py"
LINES = ("cat mean.py", "sed -i 's:/ 2:/ 3:' mean.py", "ls")
#: Turns that solve the task, one after the other, and others, right, wrong and broken. By the agent, as its file's name
#: and argument.
AGENTS: dict[str, tuple[list[str], list[str]]] = {
    "with_langgraph": ([TAKE, "Done."], [f"So.\n{LOOK}\n{TAKE}", SOME, call("sell"), "<tool_call>\n{"]),
    "with_langgraph_fan_out": ([TAKE, "Done."], [SOME, "Take 2 apples."]),
    "with_openai_agents": (
        [call("transfer_to_clerk"), TAKE, "Done."],
        [LOOK, SOME, f"So.\n{LOOK}\n{TAKE}", call("take", item="apples", number=9)],
    ),
    "with_smolagents": (
        ["<code>\ntake('apples', 2)\n</code>", "<code>\nfinal_answer('3')\n</code>"],
        ["Thought: how many?\n<code>\nprint(count('apples'))\n</code>", "<code>\ntake('pears', 1)\n</code>", "Well."],
    ),
    "with_smolagents tools": ([TAKE, call("final_answer", answer="3")], [f"{LOOK}\n{TAKE}", SOME]),
    "with_pydantic_ai": (
        [TAKE, call("final_result", left=3)],
        [f"{LOOK}\n{TAKE}", SOME, call("final_result", left="x"), call("final_result", left=5)],
    ),
    "with_mini_swe_agent": (
        [call("bash", command=MEND), call("bash", command=SUBMIT)],
        [*(call("bash", command=line) for line in LINES), "Well."],
    ),
    "with_coding_agent claude": (
        [call("Bash", command=MEND), "Done."],
        [
            *(call("Bash", command=line) for line in LINES),
            "\n".join(call("Read", file_path=f"{HOME}/work/{name}.py") for name in ("mean", "test_mean")),
        ],
    ),
    "with_coding_agent codex": (
        [call("exec_command", cmd=MEND), "Done."],
        [*(call("exec_command", cmd=line) for line in LINES), "Well."],
    ),
    "with_coding_agent opencode": (
        [call("bash", command=MEND, description="Mends."), "Done."],
        [*(call("bash", command=line, description="Looks.") for line in LINES), "Well."],
    ),
}
#: What is imported once; the others are started anew each time.
PRELOAD = {
    "with_langgraph": ["langchain.agents", "langchain_openai"],
    "with_openai_agents": ["agents"],
    "with_smolagents": ["smolagents"],
    "with_pydantic_ai": ["pydantic_ai"],
}
#: Minutes each: packages of npm, or two Pythons that are started for each branch.
LONG = [name for name in AGENTS if "coding" in name or "swe" in name]
NAMES = [pytest.param(name, marks=pytest.mark.by_hand) if name in LONG else name for name in AGENTS]


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> FindPython:
    """The Python of an environment with what a script says that it needs; kept in AGENTR_TEST_AGENTS, if that is
    set."""
    folder = Path(os.environ.get("AGENTR_TEST_AGENTS") or tmp_path_factory.mktemp("agents"))

    @cache
    def made(needs: tuple[str, ...]) -> Path:
        place = folder / re.sub(r"\W+", "-", needs[0])
        if not (place / "made").exists():
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            pip = [place / "bin/pip", "install", "--quiet", *needs]
            installed = subprocess.run(pip, capture_output=True, text=True, timeout=600, check=False)
            if installed.returncode:
                pytest.skip(f"{needs[0]} cannot be installed here: {installed.stderr[-300:]}")
            (place / "made").touch()
        return place / "bin/python"

    def of(script: Path) -> Path:
        about = re.search(r"^# /// script\n(.*?)^# ///$", script.read_text(), re.MULTILINE | re.DOTALL)
        assert about is not None, script
        return made(tuple(tomllib.loads(re.sub("^# ?", "", about[1], flags=re.MULTILINE))["dependencies"]))

    return of


def options_of(name: str, python: FindPython) -> dict[str, Any]:
    script, *arguments = name.split()
    mends = script in ("with_mini_swe_agent", "with_coding_agent")
    options: dict[str, Any] = {
        "workdir": str(EXAMPLES),
        "tasks": {"train": str(EXAMPLES / ("repairs.jsonl" if mends else "shop.jsonl"))},
        "reward": "" if mends else f"{EXAMPLES}/shop.py:score",
        "live": 3,
    }
    options["preload"] = PRELOAD.get(name, ())
    if "coding" not in name:
        return {**options, "command": [str(python(EXAMPLES / f"{script}.py")), f"{script}.py", *arguments]}
    if not (folder := os.environ.get("AGENTR_TEST_CODING")):
        pytest.skip("AGENTR_TEST_CODING names no folder of coding agents")
    return {
        **options,
        "command": [sys.executable, f"{script}.py", f"{folder}/{arguments[0]}"],
        "limits": {"memory_mb": 24000, "processes": 1000, "first_call_s": 200},
        "ignore": [r"messages /Chunk ID: \w+|Wall time: [0-9.]+/"],
    }


class Scripted:
    """Draws, by the seed and the number of turns so far, as often the next right turn as one of the others; a turn ends
    where a stop string does, as an engine's."""

    def __init__(self, codec: ChatCodec, right: Sequence[str], others: Sequence[str]) -> None:
        self.codec, self.right, self.others = codec.with_tools(()), right, others

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        return [self._drawn(random.Random(f"{request.sampling.seed}/{n}"), request) for n in range(request.n)]

    def _drawn(self, rng: random.Random, request: GenerateRequest) -> Completion:
        turn = sum(message.role == "assistant" for message in request.messages)
        follows = rng.random() < 0.5 and turn < len(self.right)
        text = self.right[turn] if follows else rng.choice(self.others)
        ends = next((stop for stop in request.sampling.stop if text.endswith(stop)), "")
        ids = tuple(self.codec.begin(text) if ends else self.codec.turn(text))
        return Completion(text, ids, (-0.25,) * len(ids), FinishReason.STOP)

    async def stats(self) -> PolicyStats:
        return PolicyStats()


@pytest.fixture(scope="module")
def codec() -> ChatCodec:
    tokenizer = deepcopy(tiny_tokenizer())
    tokenizer.chat_template = shipped("hermes")
    return ChatCodec(tokenizer)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    servers: list[EnvServer] = []

    def of(options: dict[str, Any]) -> EnvServer:
        config = EnvConfig(name="program", options=options, timeout_s=300)
        servers.append(EnvServer(config, "secret", str(tmp_path / f"server{len(servers)}.log")))
        return servers[-1]

    yield of
    for server in servers:
        server.stop()


async def agent_of(env: EnvClient, codec: ChatCodec, name: str) -> Agent:
    return Agent(
        policy=Scripted(codec, *AGENTS[name]),
        env=env,
        codec=codec,
        spec=await env.spec(),
        format=WholeTurn(),
        prompt=PromptConfig(),
        sampling=SamplingConfig(max_tokens=256),
        max_model_len=200_000,
        policy_name="test",
    )


def check(tree: Tree, codec: ChatCodec) -> None:
    """What must be so of every tree: its prompts are what the template writes of its conversations, and each drawn turn
    is a target once on each path."""
    for node in tree.nodes:
        if not node.terminal or (node.asked is not None and node.asked.messages is not None):
            whole = codec_of(codec, node.asked, Dialect.auto).prompt(tree.conversation(node.id))
            assert tree.prompt(node.id) == whole, tree.conversation(node.id)
    for leaf in tree.ended():
        path = tree.path(leaf.id)
        rows = make_rows(tree, recorded(path, True), "rollout")
        assert sum(sum(row.loss_mask) for row in rows) == sum(len(turn.token_ids) for turn in path)


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_of_another_library_is_searched_and_revised(
    name: str,
    python: Callable[[Path], Path],
    serve: Callable[[dict[str, Any]], EnvServer],
    codec: ChatCodec,
    tmp_path: Path,
) -> None:
    server = serve(options_of(name, python))

    async def main() -> tuple[Tree, str]:
        env = EnvClient([server.url()], "secret", timeout_s=300, retries=0)
        try:
            agent = await agent_of(env, codec, name)
            tasks = (await env.tasks(TaskSelection(split="train")))[:1]
            plan = TreeJob(
                folder=tmp_path / "trees",
                tasks=tuple(tasks),
                seed=3,
                policy="test",
                work=Grow(UCT(UCTConfig(iterations=10, max_depth=6, width=3))),
                sampling=agent.sampling,
                limits=Limits(infra_retries=0),
            )
            await run_job(plan, agent, StageProgress())
            (tree,) = Forest(tmp_path / "trees")
            return tree, await revised(tree, agent, env)
        finally:
            await env.aclose()

    tree, how = asyncio.run(main())
    check(tree, codec)
    branches = [node for node in tree.nodes if node.depth >= 2 and len(node.children) > 1]
    assert tree.cost.completions >= 20 and branches, "branches were taken behind calls that had been answered"
    earned = {leaf.reward for leaf in tree.ended()}
    assert earned == {0.0, 1.0} and how == "executed"
    refused = [node for node in tree.nodes if node.outcome is Outcome.REFUSED]
    assert not refused or "fan_out" in name, "tools that run one after the other are repeated exactly"


async def revised(tree: Tree, agent: Agent, env: EnvClient) -> str:
    """Executes a revision that leaves a bad path for a good one's end."""
    ended = [leaf for leaf in tree.ended() if leaf.depth > 1]
    good = max(ended, key=lambda leaf: (leaf.reward, -leaf.depth))
    for bad in ended:
        start = tree.common_ancestor(bad.id, good.id)
        last = next((node for node in tree.path(bad.id) if node.parent == start), good)
        if bad.reward == 0 and last.outcome is None:
            pair = Pair(bad.id, good.id, start)
            revision, config = splice(tree, pair, last, ReviseConfig()), ReviseConfig()
            sessions = Sessions(tree, env)
            await execute(tree, revision, good_turns(tree, pair, agent), good.reward, agent, sessions, config, 8)
            sessions.close()
            if any(node.origin is Origin.REVISION for node in tree.nodes):
                return "executed"
    return "there is no pair"


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_that_sees_a_clock_is_refused_at_its_first_call(
    name: str, python: FindPython, serve: Serve, tmp_path: Path
) -> None:
    options = options_of(name, python)
    (tmp_path / "late.py").write_text(
        "import json, os, runpy, sys, time\n"
        "task = json.load(open(os.environ['AGENTR_TASK']))\n"
        "task['ask'] += f' It is {time.time_ns()}.'\n"
        "os.environ['AGENTR_TASK'] = os.path.abspath('late.json')\n"
        "json.dump(task, open('late.json', 'w'))\n"
        "sys.argv, sys.path[0] = sys.argv[1:], os.getcwd()\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    options["command"] = [options["command"][0], str(tmp_path / "late.py"), *options["command"][1:]]
    for ignore in ([], [r"messages /It is \d+/"]):
        server = serve(options | {"ignore": [*options.get("ignore", []), *ignore]})

        async def main(url: str = server.url()) -> list[str]:
            env = EnvClient([url], "secret", timeout_s=300, retries=0)
            try:
                session = await env.open((await env.tasks(TaskSelection(split="train")))[0])
                asked = [child.last.asked for child in await session.expand(["a", "b"])]
                return sorted(call.refused for call in asked if call is not None)
            finally:
                await env.aclose()

        first, second = asyncio.run(main())
        assert first == "" and bool(second) is not bool(ignore)
        assert ignore or re.search(r"did not repeat itself: in call 1, messages\.\d.*It is", second), second
