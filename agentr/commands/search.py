"""Searches on from a turn of a stored tree, with any policy of its run, as a small run of its own.

In its directory the policy is the model, and ``rounds/01/collect`` holds one tree. That tree begins with the stored
turns, token by token, and is searched below the last of them; the run that it came from is only read. ``search.json``
says which turn it was, and which policy.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.demonstrate import NoPolicy
from agentr.collect.grow import Given, Grow
from agentr.commands.place import Place
from agentr.commands.run import opened
from agentr.config.identity import Identity, plain, to_yaml
from agentr.config.model import ModelSource
from agentr.config.schema import Config, EnvConfig
from agentr.config.training import Share
from agentr.envs.client import EnvClient
from agentr.envs.connect import connect
from agentr.errors import ConfigError, DataError, RunError
from agentr.methods import find_method, load, plan_of
from agentr.observe.progress import Reporter
from agentr.policy.chat import ChatCodec
from agentr.read.run import StoredPolicy
from agentr.rounds.services import Services
from agentr.search import UCT, Node, Tree, UCTConfig
from agentr.store.files import disk_errors, read_json, write_json
from agentr.store.layout import Layout, arm_of
from agentr.store.records import read_config
from agentr.store.run import RunStore
from agentr.store.seal import hash_folder
from agentr.types import Outcome
from env_servers import registry

#: The stage of the search.
STAGE = arm_of(1).stage("collect")

#: Keys that other options set.
_SAID = {"model.source": "--policy", "model.path": "--policy", "run.dir": "--out", "method.type": ""}

#: Longest text of a path in the table.
_LONGEST = 100


@dataclass(frozen=True)
class Search:
    """A search that was not begun, or that can go on.

    Attributes:
        config: The configuration of its directory.
        about: What ``search.json`` says.
    """

    place: Place
    policy: StoredPolicy
    config: Config
    about: dict[str, Any]

    @property
    def out(self) -> Path:
        """Its directory."""
        return Path(self.config.run.dir)


def plan(place: Place, policy: str, overrides: Sequence[str] = (), out: Path | None = None) -> Search:
    """Checks everything that can be checked before anything is started or written.

    Args:
        policy: As in `Run.policy`.
        overrides: ``key=value`` pairs over the run's own configuration.
        out: Folder to write into; by default one in ``searches`` in the current folder.

    Raises:
        ConfigError: The configuration is wrong, the search would end at once, or the environment is not there.
        DataError: There is no such policy, or its files are damaged.
        RunError: Its weights were deleted, or there is something else in ``out``.
    """
    chosen = place.run.policy(policy)
    name = "-".join((place.run.name, place.tree.task.key, str(place.node), chosen.arm)).replace("/", "-")
    target = (out or Path("searches") / name).resolve()
    config = _configured(place, chosen, name, target, overrides)
    most = config.method.search.max_depth  # type: ignore[attr-defined]
    if len(place.turns) > most:
        message = f"node {place.node} is turn {len(place.turns)} of its episode, which the search ends after {most + 1}"
        raise ConfigError(message, hint=f"Raise it: --set method.search.max_depth={len(place.turns) + 20}.")
    _check_environment(config.env)
    _check_outside(target, place.run.path)
    RunStore(place.run.path).stages.checked(chosen.name)
    about = {
        "run": str(place.run.path),
        "name": place.run.name,
        "stage": place.stage,
        "tree": place.tree.task.key,
        "turn": place.node,
        "policy": chosen.arm,
        "weights": hash_folder(chosen.path),
        "seed": config.run.seed,
        "search": plain(config.method.search),  # type: ignore[attr-defined]
        "sampling": plain(config.collect.sampling),
    }
    _check_free(target, about, config)
    return Search(place, chosen, config, about)


def search(planned: Search, reporter: Reporter, services: Services | None = None) -> Tree:
    """Searches, or goes on with a search that was stopped, and returns the tree. For ``services`` see `opened`.

    Raises:
        DataError: The task opens otherwise than in the stored tree.
        InfraError: The environment does not lead to the stored state, or the machinery failed. What was drawn is kept.
    """
    place, config = planned.place, planned.config
    with disk_errors(planned.out):
        planned.out.mkdir(parents=True, exist_ok=True)
    write_json(Layout(planned.out).search, planned.about)
    with opened(plan_of(config), reporter, services=services, again="the same command") as experiment:
        policy = experiment.base_model()
        if not experiment.store.sealed(STAGE):
            urls, token = experiment.services.collecting.environment()
            with reporter.task(f"replaying {len(place.turns)} turns in {config.env.name}"):
                asyncio.run(
                    _replay(place, AgentSettings.of(config), connect(config.env, urls, token), experiment.codec)
                )
        work = Grow(UCT(config.method.search), Given(place.tree, place.node))  # type: ignore[attr-defined]
        forest = experiment.trees(STAGE, work, policy, experiment.plan.seed(1), lambda: [place.tree.task])
        return forest.read(place.tree.task.key)


async def _replay(place: Place, settings: AgentSettings, env: EnvClient, codec: ChatCodec) -> None:
    """Goes to the place in the environment as the search does, and compares all that is seen with what is stored.

    Raises:
        DataError: The policy would be given another task.
        InfraError: An observation is not the recorded one.
    """
    tree = place.tree
    try:
        agent = Agent.of(settings, NoPolicy(), env, codec, await env.spec())
        begun, _ = await agent.start(tree.task, tree.seed, tree.others(0))
        for opening, recorded in zip(begun.messages, tree.messages, strict=False):  # one more or less is found below
            if opening != recorded:
                message = (
                    f"the task {tree.task.id!r} opens otherwise now: recorded {recorded.content!r}, now "
                    f"{opening.content!r}"
                )
                raise DataError(message, hint=_OTHER)
        if (begun.messages, begun.prompt_ids, begun.hiding) != (tree.messages, tree.prompt_ids, tree.hiding):
            raise DataError(f"the opening of task {tree.task.id!r} has other tokens now than in the tree", hint=_OTHER)
        await env.open(tree.task, place.recorded, others=tree.others(place.node))
    finally:
        await env.aclose()


_OTHER = (
    "The environment, its options, the prompt or the chat template are others than when the tree was grown; leave them "
    "as they were."
)


# what is checked before -----------------------------------------------------------------------------------------------


def _configured(place: Place, policy: StoredPolicy, name: str, out: Path, overrides: Sequence[str]) -> Config:
    """The configuration of the tree's round with the policy as its model, on as few parts as one tree needs.

    Its method is the default one, which searches by UCT, with the search settings of the run's own if that has such
    ones.
    """
    for key in (override.partition("=")[0] for override in overrides):
        if key in _SAID:
            raise ConfigError(
                f"{key} is not for a search to set", hint=f"Say {_SAID[key]}." if _SAID[key] else "A search is UCT's."
            )
    own, method = place.config, find_method("").config_class()
    if isinstance(found := getattr(own.method, "search", None), UCTConfig):
        method.search = found  # type: ignore[attr-defined]
    config = replace(
        own,
        run=replace(own.run, name=name, dir=str(out), rounds=1, control=False, ceiling=False, mirror=""),
        method=method,
        model=replace(own.model, source=ModelSource.hf, path=str(policy.path)),
        env=replace(own.env, servers=1),
        policy=replace(own.policy, engines=1),
        collect=replace(own.collect, coordinators=1, max_completions=0),
        trainer=replace(own.trainer, workers=1, share=Share.time),
        tracking=[],
        from_round={},
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "search.yaml"
        file.write_text(to_yaml(config), encoding="utf-8")
        return load(file, overrides, files=False, whole=True)


def _check_environment(env: EnvConfig) -> None:
    if env.url:  # a server that runs already is asked when it is reached
        return
    try:
        known = registry.about(env.name)
    except registry.UnknownEnvironment as error:
        raise ConfigError(str(error), hint="See `agentr list environments`.") from error
    if not known.available:
        lacks = known.fault or "; ".join(f"{missing.name}: {missing.how}" for missing in known.missing)
        raise ConfigError(
            f"the environment {known.name} cannot be used here: {lacks}", hint="See `agentr list environments`."
        )


def _check_outside(out: Path, run: Path) -> None:
    for folder in (out, *out.parents):
        if folder == run or (folder != out and Layout(folder).config.is_file() and Layout(folder).manifest.is_file()):
            raise RunError(
                f"{out} is in the run {folder}",
                hint="A search is kept outside of runs: name another folder with --out.",
            )


def _check_free(out: Path, about: dict[str, Any], config: Config) -> None:
    """Checks that a folder is empty, or holds this search."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    hint = "Name another folder with --out, or remove this one."
    if not Layout(out).search.is_file():
        raise RunError(f"{out} holds something else than a search", hint=hint)
    stored = read_json(Layout(out).search)
    changes = [
        f"{key}: {stored.get(key)} -> {about[key]}"
        for key in ("run", "stage", "tree", "turn", "weights")
        if stored.get(key) != about[key]
    ]
    if not changes and Layout(out).config.is_file():
        changes = Identity.of(config).changes(read_config(out))
    if changes:
        raise RunError(f"{out} holds another search: {'; '.join(changes[:3])}", hint=hint)


# what came of it ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundTurn:
    """What came of one turn after the searched state.

    Attributes:
        ended: Finished paths below it.
        solved: Those of them that succeeded.
        best: The finished path with the highest return, from this turn on; of equal ones the shortest. Empty if none is
            finished.
    """

    turn: Node
    ended: int
    solved: int
    best: list[Node]


def branches(tree: Tree, node: int) -> list[FoundTurn]:
    """Returns the turns that were tried after a node, the most visited ones first."""
    below: dict[int, list[list[Node]]] = {child: [] for child in tree.nodes[node].children}
    depth = tree.nodes[node].depth
    for leaf in tree.ended():
        path = tree.path(leaf.id)
        if len(path) > depth and path[depth].id in below:
            below[path[depth].id].append(path[depth:])
    found = []
    for child, paths in below.items():
        best = max(paths, key=lambda path: (path[-1].reward, -len(path)), default=[])
        found.append(
            FoundTurn(tree.nodes[child], len(paths), sum(path[-1].outcome is Outcome.SUCCESS for path in paths), best)
        )
    return sorted(found, key=lambda branch: (-branch.turn.visits, -branch.turn.mean, branch.turn.id))


def table(planned: Search, tree: Tree) -> Table:
    """Returns a table of what was tried in the searched state, and what it came to."""
    node, place, stopped = len(planned.place.turns), planned.place, tree.search.get("stopped", "not ended")
    begun = f"{tree.task.id}, from turn {place.node} of {place.stage} with {planned.policy.title}"
    title = f"{begun}; finished paths: {tree.nodes[node].visits}; stopped: {stopped}"
    shown = Table("action", "visits", "value", "succeeded", "best return", "best path", title=Text(title))
    for branch in branches(tree, node):
        path = " > ".join(" ".join((turn.action or turn.text).split()) for turn in branch.best)
        shown.add_row(
            Text(" ".join((branch.turn.action or branch.turn.text).split())),
            str(branch.turn.visits),
            f"{branch.turn.mean:.3f}" if branch.turn.visits else "-",
            f"{branch.solved} of {branch.ended}",
            f"{branch.best[-1].reward:g}" if branch.best else "-",
            Text(path if len(path) <= _LONGEST else f"{path[: _LONGEST - 1]}…"),
        )
    return shown
