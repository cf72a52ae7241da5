"""Searches from a turn of a stored tree: what the policy sees, what is checked before, what is left, and that the run
is only read."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

import agentr
from agentr.cli import app
from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, run_job
from agentr.collect.units import StageProgress, as_dict
from agentr.commands.place import find_place
from agentr.commands.run import run as run_experiment
from agentr.commands.search import STAGE, Search, branches, plan, search, table
from agentr.config.schema import TaskSelection
from agentr.envs.connect import connect
from agentr.envs.server import EnvServer
from agentr.errors import AgentrError, ConfigError, DataError, InfraError, RunError
from agentr.methods import load, plan_of
from agentr.models.load import load_codec
from agentr.models.nano import load_pretrained
from agentr.observe.progress import Reporter
from agentr.policy.base import GenerateRequest
from agentr.policy.chat import ChatCodec
from agentr.read.run import StoredPolicy
from agentr.rounds.plan import Plan
from agentr.rounds.prune import Prunable, prune
from agentr.rounds.services import Services
from agentr.search import UCT, Origin, Tree, UCTConfig
from agentr.search.stored import to_json
from agentr.store.forest import Forest
from agentr.store.layout import Checkpoint
from agentr.store.run import RunStore
from agentr.store.seal import hash_files
from agentr.store.summaries import TrainSummary
from agentr.types import Completion, Message, Outcome, Task
from agentr.ui.show import show_tree
from agentr.ui.views.home import card
from env_servers import registry
from tests.one_part import OnePart
from tests.players import SloppyExpert
from tests.runs import round_of
from tests.trees import door

OVERRIDES = [
    "method.type=agent_r",
    "run.name=first",
    "env.options={recipes: exact, distractors: 3}",
    "collect.sampling.max_tokens=64",
    "model.max_model_len=1024",
]
OVERRIDES += [
    "method.search.iterations=3",
    "method.search.max_depth=9",
    "method.search.width=3",
    "method.search.enough_good=0",
]


class Noting(SloppyExpert):
    """Also keeps what it was asked."""

    def __init__(self, codec: ChatCodec, task: Task) -> None:
        super().__init__(codec, [task])
        self.asked: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        self.asked.append(request)
        return await super().generate(request)


@dataclass
class Here(OnePart):
    """Services in this process: a real environment server, and a policy that answers by prompt and seed alone."""

    server: EnvServer
    policy: Noting | None = None
    weights: list[Path] = field(default_factory=list)
    model: Path | None = None
    engines_early: bool = False

    def take_over(self, plan: Plan, store: RunStore) -> None:
        self.config = plan.config

    def environment(self) -> tuple[list[str], str]:
        return [self.server.url()], "secret"

    def spec(self) -> Any:
        return asyncio.run(self._with_agent(None, lambda agent: agent.env.spec()))

    def collect(self, title: str, job: TreeJob, policy: Checkpoint | None, update: Any = None) -> dict[str, Any]:
        assert policy is not None
        self.weights.append(policy.path)
        progress = StageProgress()
        asyncio.run(self._with_agent(job.tasks[0], lambda agent: run_job(job, agent, progress)))
        return as_dict(progress)

    async def _with_agent(self, task: Task | None, do: Any) -> Any:
        env = connect(self.config.env, *self.environment())
        try:
            codec = load_codec(cast(Path, self.model), self.config.model)
            self.policy = Noting(codec, task) if task is not None else self.policy
            return await do(
                Agent.of(AgentSettings.of(self.config), cast(Any, self.policy), env, codec, await env.spec())
            )
        finally:
            await env.aclose()


@pytest.fixture(scope="module")
def made(server: EnvServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one searched tree, and policies of two rounds."""
    folder = tmp_path_factory.mktemp("runs")
    model = load_pretrained(folder / "nano")
    tree = asyncio.run(grown(server, model, folder / "forest"))
    round_ = round_of(folder / "first", OVERRIDES, model=model, collect=[tree])
    store = round_.experiment.store
    for number in (0, 1):

        def train(out: Path, number: int = number) -> TrainSummary:
            shutil.copytree(model, out / "model")
            (out / "model" / "note.txt").write_text(str(number))
            return TrainSummary(checkpoint=f"rounds/{number:02d}/train/model")

        store.stages.run(f"rounds/{number:02d}/train", TrainSummary, train)
    store.close()
    return folder / "first"


async def grown(server: EnvServer, model: Path, folder: Path) -> Tree:
    config = load(None, OVERRIDES)
    env = connect(config.env, [server.url()], "secret")
    try:
        (task,) = await env.tasks(TaskSelection(split="train", where={"depth": 2}, limit=1))
        codec = load_codec(model, config.model)
        agent = Agent.of(AgentSettings.of(config), SloppyExpert(codec, [task]), env, codec, await env.spec())
        work = Grow(UCT(UCTConfig(iterations=3, max_depth=9, width=3, enough_good=0)))
        await run_job(
            TreeJob(folder=folder, tasks=(task,), seed=3, policy="model", work=work, sampling=config.collect.sampling),
            agent,
            StageProgress(),
        )
        return Forest(folder).read(task.key)
    finally:
        await env.aclose()


@pytest.fixture
def stored(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "first", symlinks=True))


def tree_of(path: Path) -> Tree:
    return next(iter(agentr.open(path).rounds[1].collect))


def turn_of(tree: Tree, depth: int = 2) -> int:
    """A turn after which the episode goes on."""
    return next(node.id for node in tree.nodes if node.depth == depth and node.outcome is None)


def planned(path: Path, out: Path, policy: str = "rounds/01", *overrides: str, **where: Any) -> Search:
    tree = tree_of(path)
    return plan(find_place(path, "", tree.task.key, where.get("node", turn_of(tree))), policy, overrides, out)


def searched(to_do: Search, server: EnvServer) -> tuple[Tree, Here]:
    services = Here(server)
    return search(to_do, Reporter(), cast(Services, services)), services


def files(path: Path) -> Mapping[str, Any]:
    return hash_files(path, sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()))


# the search -----------------------------------------------------------------------------------------------------------


def test_it_goes_on_from_what_the_policy_saw_at_that_turn(made: Path, server: EnvServer, tmp_path: Path) -> None:
    before, source = files(made), tree_of(made)
    node, out = turn_of(source), tmp_path / "out"
    to_do = planned(made, out, "rounds/01", "method.search.iterations=2", node=node)
    tree, services = searched(to_do, server)
    depth = source.nodes[node].depth
    assert services.policy is not None and services.policy.asked
    assert list(services.policy.asked[0].prompt_ids) == source.prompt(node)
    assert services.weights == [made / "rounds/01/train/model"]
    for turn, then in zip(tree.path(depth), source.path(node), strict=True):
        assert (turn.token_ids, turn.bridge_ids, turn.observation) == (
            then.token_ids,
            then.bridge_ids,
            then.observation,
        )
        assert turn.origin is Origin.PREFIX and turn.id == turn.depth
    drawn = tree.nodes[depth + 1 :]
    assert drawn and all(turn.origin is Origin.POLICY for turn in drawn) and tree.nodes[depth].children
    assert tree.search["iteration"] == 2 and tree.nodes[depth].visits == sum(1 for _ in tree.ended())
    assert files(made) == before, "the run is only read"


def test_what_it_leaves_is_read_as_any_run(made: Path, server: EnvServer, tmp_path: Path) -> None:
    out = tmp_path / "out"
    to_do = planned(made, out, "rounds/01", "run.seed=5")
    tree, _ = searched(to_do, server)
    run = agentr.open(out)
    assert list(run.stages()) == ["model", STAGE] and all(
        stage.sealed and not stage.verify() for stage in run.stages().values()
    )
    assert len(run.stage(STAGE)) == 1 and to_json(run.stage(STAGE)[tree.task.id]) == to_json(tree)
    assert run.model == made / "rounds/01/train/model"
    told = {key: run.search[key] for key in ("run", "stage", "tree", "turn", "policy", "seed")}
    assert told == {
        "run": str(made),
        "stage": "rounds/01/collect",
        "tree": tree.task.key,
        "turn": to_do.place.node,
        "policy": "rounds/01",
        "seed": 5,
    }
    assert run.search["weights"] == run.stage("model").record.summary["folder_hash"]
    assert run.search["search"]["iterations"] == 3 and run.search["sampling"]["max_tokens"] == 64
    assert card("out", out)["state"] == "finished"
    assert tree.task.key in show_tree(run, STAGE, tree.task.key)
    with pytest.raises(RunError, match="holds a search"):
        run_experiment(plan_of(load(run.layout.config, files=False, whole=True)), Reporter())


def test_the_same_search_is_the_same_tree_and_is_done_once(made: Path, server: EnvServer, tmp_path: Path) -> None:
    first, _ = searched(planned(made, tmp_path / "a"), server)
    second, _ = searched(planned(made, tmp_path / "b"), server)
    assert to_json(first) == to_json(second)
    other, _ = searched(planned(made, tmp_path / "c", "rounds/01", "run.seed=1"), server)
    assert to_json(other) != to_json(first)
    again, services = searched(planned(made, tmp_path / "a"), server)
    assert to_json(again) == to_json(first) and services.policy is None, "nothing is drawn twice"


def test_it_may_begin_at_the_beginning(made: Path, server: EnvServer, tmp_path: Path) -> None:
    tree, services = searched(planned(made, tmp_path / "out", "base", "method.search.iterations=1", node=0), server)
    assert tree.nodes[1].origin is Origin.POLICY and services.weights[0].name == "nano"


@pytest.mark.parametrize("changed", ["observation", "opening", "tokens"])
def test_a_world_that_answers_otherwise_is_refused(made: Path, server: EnvServer, tmp_path: Path, changed: str) -> None:
    tree = tree_of(made)
    node = turn_of(tree)
    if changed == "observation":
        tree.path(node)[0].observation = "You see a dragon."
    elif changed == "opening":
        tree.messages = (*tree.messages[:-1], Message(tree.messages[-1].role, "Slay the dragon."))
    else:
        tree.prompt_ids = tree.prompt_ids[:-1]
    round_ = round_of(tmp_path / "other", OVERRIDES, model=made.parent / "nano", collect=[tree])
    round_.experiment.store.close()
    error = InfraError if changed == "observation" else DataError
    with pytest.raises(error, match="other tokens" if changed == "tokens" else "dragon") as refused:
        searched(planned(tmp_path / "other", tmp_path / "out", "base", "env.retries=0", node=node), server)
    assert refused.value.hint
    assert not agentr.open(tmp_path / "out").records().get(STAGE), "no tree was begun"


# settings -------------------------------------------------------------------------------------------------------------


def test_the_settings_are_the_runs_own_but_for_those_that_are_said(made: Path, tmp_path: Path) -> None:
    own = load(made / "config.yaml", files=False, whole=True)
    config = planned(
        made, tmp_path / "out", "rounds/00", "method.search.width=7", "collect.sampling.temperature=0.5"
    ).config
    assert cast(Any, config.method).search == replace(cast(Any, own.method).search, width=7)
    assert config.collect.sampling == replace(own.collect.sampling, temperature=0.5)
    assert (config.env, config.prompt, config.turns, config.eval) == (own.env, own.prompt, own.turns, own.eval)
    assert config.model == replace(own.model, source=config.model.source, path=str(made / "rounds/00/train/model"))


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        (["method.type=eto"], UCTConfig()),
        (["method.type=dense_policy"], UCTConfig()),
        (["method.type=agent_r", "method.preset=paper"], UCTConfig(8, 20, 4, 0.25, cast(Any, "none"), False, 0, 2)),
        (
            ["method.type=tree_grpo", "method.tasks=2", "method.episodes=8", "method.search.c_uct=2.0"],
            UCTConfig(dedupe=cast(Any, "none"), enough_good=0, c_uct=2.0),
        ),
        (["method.type=agent_r", "run.rounds=2", "from_round.2.method.search.iterations=5"], UCTConfig(iterations=5)),
    ],
)
def test_a_method_without_such_a_search_gets_the_defaults(
    made: Path, tmp_path: Path, overrides: list[str], found: UCTConfig
) -> None:
    tree = tree_of(made)
    round_ = round_of(tmp_path / "run", overrides, number=2, model=made.parent / "nano", collect=[tree])
    round_.experiment.store.close()
    place = find_place(tmp_path / "run", "rounds/02/collect", tree.task.key, 0)
    config = plan(place, "base", [], tmp_path / "out").config
    assert cast(Any, config.method).search == found and not config.from_round


def test_a_folder_of_its_own_is_named_after_the_turn(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = tree_of(made)
    place = find_place(made, "", tree.task.id, turn_of(tree))
    assert plan(place, "warm_start").out == tmp_path / "searches" / f"first-{tree.task.key}-{place.node}-rounds-00"
    assert not (tmp_path / "searches").exists(), "a plan writes nothing"


# what is refused ------------------------------------------------------------------------------------------------------


def refused(run: Path, *arguments: str, tree: str | None = None, turn: int = 0, policy: str = "base") -> AgentrError:
    key = tree_of(run).task.key if tree is None else tree
    result = CliRunner().invoke(
        app, ["search", "--run", str(run), "--tree", key, "--turn", str(turn), "--policy", policy, *arguments]
    )
    assert isinstance(result.exception, AgentrError), result.output + repr(result.exception)
    return result.exception


def test_what_is_not_there_is_named_with_what_is(stored: Path, tmp_path: Path) -> None:
    tree = tree_of(stored)
    ended = next(tree.ended())
    assert (
        "there is no such folder"
        in CliRunner().invoke(app, ["search", "--run", str(tmp_path / "no")]).exception.message
    )  # type: ignore[union-attr]
    assert "no tree" in refused(stored, tree="").message
    assert "rounds/01/collect" in refused(stored, tree="nothing").hint
    assert "rounds/01/collect" in refused(stored, "--stage", "rounds/01/colect").hint
    assert "no trees" in refused(stored, "--stage", "rounds/01/train").message
    assert f"0 to {len(tree.nodes) - 1}" in refused(stored, turn=999).hint
    over = refused(stored, turn=ended.id)
    assert "the episode ended" in over.message and f"--turn {ended.parent}" in over.hint
    unknown = refused(stored, policy="rounds/09")
    assert isinstance(unknown, DataError) and unknown.hint == "There are base, rounds/00, rounds/01."
    assert refused(stored, policy="").hint == unknown.hint
    assert "model.path" in refused(stored, "--set", "model.path=x").message
    assert "method.search.iteration" in refused(stored, "--set", "method.search.iteration=2").message
    deep = refused(stored, "--set", "method.search.max_depth=1", turn=turn_of(tree))
    assert isinstance(deep, ConfigError) and "method.search.max_depth" in deep.hint


def test_weights_that_are_gone_or_damaged_are_said(stored: Path) -> None:
    weights = stored / "rounds/00/train/model/model.safetensors"
    with weights.open("r+b") as file:
        file.write(b"x")
    damaged = refused(stored, policy="warm_start")
    assert isinstance(damaged, DataError) and "rounds/00/train/model/model.safetensors" in damaged.message
    prune(stored, [Prunable("rounds/01/train/model/model.safetensors", 1, "weights", "rounds/01/train")])
    assert "deleted to save space" in refused(stored, policy="rounds/01").message


def test_an_environment_that_is_not_there_is_said(stored: Path) -> None:
    assert "no environment is called 'nothing'" in refused(stored, "--set", "env.name=nothing").message
    for found in registry.describe():
        if not found.available:
            assert f"{found.name} cannot be used here" in refused(stored, "--set", f"env.name={found.name}").message
            return


def test_a_search_is_written_beside_runs_and_over_nothing(stored: Path, server: EnvServer, tmp_path: Path) -> None:
    for inside in (stored, stored / "rounds/01/collect", stored / "new"):
        assert "is in the run" in refused(stored, "--out", str(inside)).message
    other = tmp_path / "other"
    other.mkdir()
    planned(stored, other)  # an empty folder will do
    (other / "letter.txt").write_text("Dear")
    assert "something else" in refused(stored, "--out", str(other)).message
    (tmp_path / "file").write_text("")
    assert "something else" in refused(stored, "--out", str(tmp_path / "file")).message
    searched(planned(stored, tmp_path / "out", "base", node=0), server)
    assert "turn: 0 -> " in refused(stored, "--out", str(tmp_path / "out"), turn=turn_of(tree_of(stored))).message
    assert "weights" in refused(stored, "--out", str(tmp_path / "out"), policy="rounds/01").message
    assert "iterations: 3 -> 4" in refused(stored, "--out", str(tmp_path / "out"), "--iterations", "4").message
    assert "is in the run" in refused(stored, "--out", str(tmp_path / "out" / "below")).message


# what is shown --------------------------------------------------------------------------------------------------------


def test_the_branches_of_a_state_with_what_came_of_them(made: Path, tmp_path: Path) -> None:
    tree = door()
    opened, gave_up = branches(tree, 0)
    assert (opened.turn.action, opened.ended, opened.solved) == ("open", 3, 2)
    assert [turn.action for turn in opened.best] == ["open", "take key", "unlock"], "of equal returns the shortest"
    assert (gave_up.turn.action, gave_up.ended, gave_up.solved, gave_up.best[-1].reward) == ("give up", 1, 0, 0.2)
    assert [branch.turn.action for branch in branches(tree, 4)] == ["sleep", "take key"]
    to_do = replace(planned(made, tmp_path / "out", node=0), policy=StoredPolicy("rounds/02/train", tmp_path, None))
    tree.nodes[1].action = "open [red]it"
    console = Console(width=200, record=True, file=(tmp_path / "shown").open("w"))
    console.print(table(to_do, tree))
    shown = console.export_text()
    assert (
        "from turn 0 of rounds/01/collect with round 2" in shown
        and "open [red]it > take key > unlock" in shown
        and "2 of 3" in shown
    )


# the real thing -------------------------------------------------------------------------------------------------------


@pytest.mark.cluster
@pytest.mark.timeout(1200)
def test_a_checkpoint_searches_on_in_an_engine(stored: Path, tmp_path: Path) -> None:
    """With Ray, vLLM and the environment's servers, twice: the same tree both times."""
    tree = tree_of(stored)
    node = turn_of(tree)
    hashes = []
    for name in ("one", "two"):
        said = (
            f"search --run {stored} --turn {node} --policy rounds/01 --iterations 2 --set cluster.dashboard=false "
            f"--out {tmp_path / name}"
        )
        command = [
            sys.executable,
            "-m",
            "agentr.cli",
            *said.split(),
            "--tree",
            tree.task.id,
            "--set",
            "cluster.dashboard=false",
        ]
        # its Ray has a token, which stays in a process
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (
            "visits" in done.stdout
            and f"agentr report --tree {tmp_path / name}" not in done.stdout.split("agentr ui")[0]
        )
        run = agentr.open(tmp_path / name)
        found = run.stage(STAGE)[tree.task.key]
        depth = tree.nodes[node].depth
        assert found.prompt(depth) == tree.prompt(node) and found.nodes[depth].visits > 0
        assert found.search["stopped"] in ("iterations", "exhausted") and found.nodes[depth + 1].logprobs
        hashes.append(run.stage(STAGE).summary.trees_hash)
    assert hashes[0] == hashes[1] and Outcome.INFRA not in {turn.outcome for turn in found.nodes}
