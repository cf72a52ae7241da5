"""Every shipped configuration is started as far as its first tree: real environment server, real prompts, a scripted
policy."""

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.demonstrate import Demonstrate
from agentr.collect.grow import ExpertPath, Grow
from agentr.collect.job import TreeJob, Work, run_job
from agentr.collect.units import StageProgress
from agentr.config.schema import Config, EnvConfig
from agentr.envs.client import EnvClient
from agentr.envs.connect import connect
from agentr.envs.server import EnvServer
from agentr.methods import load, method_of, plan_of
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.chat import ChatCodec
from agentr.search import Expansion, Strategy, Tree
from agentr.search.tree import Child, Node
from agentr.store.forest import Forest
from agentr.tasks.formats import ActionFormat, written
from agentr.types import Completion, FinishReason, Task
from env_servers import registry
from tests.support import tiny_tokenizer

ROOT = Path(__file__).parents[2]
COMPARED = [
    (m, b) for m in (ROOT / "configs/compare").glob("*.yaml") for b in (ROOT / "configs/compare/tasks").glob("*.yaml")
]
ALONE = [
    (path, None) for path in (ROOT / "configs").rglob("*.yaml") if path.parent.name not in ("compare", "parts", "tasks")
]

#: Completions after which a tree is taken as started.
ENOUGH = 12


@dataclass(frozen=True)
class Begun(Strategy):
    """A strategy that stops soon."""

    strategy: Strategy

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.strategy.kind

    @property
    def max_completions(self) -> int:
        return self.strategy.max_completions

    def bounded(self, step_limit: int) -> Strategy:
        return replace(self, strategy=self.strategy.bounded(step_limit))

    def ask(self, tree: Tree) -> list[Expansion]:
        return [] if tree.cost.completions >= ENOUGH else self.strategy.ask(tree)

    def tell(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> list[Node | None]:
        return self.strategy.tell(tree, expansion, children)

    def record(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> list[Node | None]:
        raise AssertionError("tell is the strategy's own")


class Looking:
    """A policy that looks around, in the environment's action format."""

    def __init__(self, codec: ChatCodec, turns: ActionFormat) -> None:
        self.codec = codec
        self.turns = turns
        self.asked: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        self.asked.append(request)
        return [self._answer(random.Random(f"{request.sampling.seed}/{i}")) for i in range(request.n)]

    async def stats(self) -> PolicyStats:
        return PolicyStats()

    def _answer(self, rng: random.Random) -> Completion:
        action = rng.choice(["look", "inventory", "answer: 7", "search[red lamp]"])
        text = written(self.turns, "let me see", action) or f"{self.turns.begin('let me see')}\n{action}"
        ids = tuple(self.codec.turn(text))
        return Completion(text, ids, (-0.5,) * len(ids), FinishReason.STOP)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, EnvServer]]:
    """Servers by environment and options, started when they are first needed."""
    running: dict[str, EnvServer] = {}
    yield running
    for server in running.values():
        server.stop()


def server_of(env: EnvConfig, servers: dict[str, EnvServer], folder: Path) -> EnvServer:
    known = registry.about(env.name)
    if not known.available:
        pytest.skip(f"{env.name} lacks {', '.join(r.name for r in known.missing) or known.fault}")
    key = json.dumps([env.name, env.options], sort_keys=True)
    if key not in servers:
        servers[key] = EnvServer(EnvConfig(name=env.name, options=env.options), "secret", str(folder / "server.log"))
    return servers[key]


async def begin(config: Config, url: str, folder: Path) -> tuple[dict[str, Tree], Looking]:
    """The first tree of each stage of the first round's exploration."""
    env = connect(config.env, [url], "secret")
    try:
        spec = await env.spec()
        codec = ChatCodec(tiny_tokenizer())
        policy = Looking(codec, Agent.of(AgentSettings.of(config), Looking(codec, None), env, codec, spec).format)  # type: ignore[arg-type]
        agent = Agent.of(AgentSettings.of(config), policy, env, codec, spec)
        found: dict[str, Tree] = {}
        demonstrated = folder / "demonstrations"
        for stage, work in method_of(config.method).exploration(1).items():
            (task,) = await tasks_of(config, env, work)
            source = folder / work.source if work.source else None
            if isinstance(work, Grow):
                if isinstance(work.prefix, ExpertPath):
                    source = demonstrated
                    await run(Demonstrate(), task, agent, config, demonstrated)
                work = replace(work, strategy=Begun(work.strategy))
            found[stage] = await run(work, task, agent, config, folder / stage, source)
        return found, policy
    finally:
        await env.aclose()


async def tasks_of(config: Config, env: EnvClient, work: Work) -> list[Task]:
    return await env.tasks(replace(config.collect.tasks, limit=1))


async def run(work: Work, task: Task, agent: Agent, config: Config, folder: Path, source: Path | None = None) -> Tree:
    sampling = config.collect.sampling
    job = TreeJob(folder=folder, tasks=(task,), seed=0, policy="test", work=work, sampling=sampling, source=source)
    progress = await run_job(job, agent, StageProgress())
    assert (progress.done, progress.failed) == (1, 0), progress.last_error
    return Forest(folder).read(task.key)


def check(config: Config, server: EnvServer, folder: Path) -> None:
    """Begins the trees of the first round, and of each round that changes something."""
    for number in (1, *config.from_round):
        (folder / str(number)).mkdir()
        check_round(plan_of(config).at(number), server, folder / str(number))


def check_round(config: Config, server: EnvServer, folder: Path) -> None:
    found, policy = asyncio.run(begin(config, server.url(), folder))
    assert found.keys() == method_of(config.method).exploration(1).keys()
    for tree in found.values():
        assert len(tree.nodes) > 1, "the first prompt leaves room for a turn, and a turn was taken"
        assert not tree.root.terminal or tree.root.children
    if found:
        opening = [message.content for message in policy.asked[0].messages]
        assert len(opening) >= 1 + 2 * config.prompt.examples, "worked examples are in the prompt"


@pytest.mark.slow
@pytest.mark.parametrize(("path", "base"), sorted(ALONE) + sorted(COMPARED), ids=lambda p: p.stem if p else "")
def test_a_shipped_configuration_comes_to_its_first_tree(
    path: Path,
    base: Path | None,
    servers: dict[str, EnvServer],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = load(path, base=base)
    check(config, server_of(config.env, servers, tmp_path_factory.mktemp("server")), tmp_path)


@pytest.mark.parametrize("env", ["alfworld", "babyai", "household", "sciworld", "textcraft", "webshop"])
@pytest.mark.parametrize("preset", ["paper", "released"])
def test_etos_presets_open_in_every_environment_of_the_paper_and_beyond(
    env: str, preset: str, servers: dict[str, EnvServer], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = load(None, ["method.type=eto", f"method.preset={preset}", f"env.name={env}", "build.max_length=4096"])
    check(config, server_of(config.env, servers, tmp_path_factory.mktemp("server")), tmp_path)
