"""What a configuration would cost at most. Nothing is started."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from agentr.cluster.places import Places
from agentr.config.identity import plain
from agentr.config.model import ModelConfig, ModelSource
from agentr.config.policy import Device, PolicyBackend, Who
from agentr.config.schema import CollectConfig, Config, EnvConfig, TaskSelection, WarmStartConfig
from agentr.config.training import Share
from agentr.envs.selection import select
from agentr.methods import methods_of
from agentr.rounds.method import Method, optimiser_steps
from agentr.rounds.plan import Plan
from agentr.types import Task
from env_servers import registry

#: Bytes of a turn in a stored tree: 160 to 270 in the demo's eight forests, which are there twice while one is sealed
#: or revised.
NODE_BYTES = 540
#: Bytes of a parameter in float32 with AdamW's two moments and the model's own copy, in a resumable checkpoint.
STATE_BYTES = 16


@dataclass(frozen=True)
class Bound:
    """An upper bound; None if it cannot be known before the run.

    Attributes:
        why: What it depends on, if it cannot be known.
    """

    value: int | None
    why: str = ""

    def __str__(self) -> str:
        return f"at most {self.value:,}" if self.value is not None else f"not known: {self.why}"


@dataclass(frozen=True)
class RunEstimate:
    """Upper bounds on a whole run, and the resources that it needs.

    Attributes:
        trees: Trees of exploration, over all rounds.
        completions: Turns that they draw. Searches that stop early draw far fewer.
        completion_tokens: Tokens of those turns.
        env_steps: Actions that they carry out.
        episodes: Held-out episodes, over all policies, those of validation included.
        episode_turns: Turns in them.
        optimiser_steps: Over all trainings, the control's and the ceiling's included.
        disk_bytes: Models, resumable checkpoints and trees.
        resources: What the cluster must have, in words.
    """

    title: list[str]
    trees: Bound
    completions: Bound
    completion_tokens: Bound
    env_steps: Bound
    episodes: Bound
    episode_turns: Bound
    optimiser_steps: Bound
    disk_bytes: Bound
    resources: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Returns the estimate, a line for each bound."""
        disk = self.disk_bytes
        shown = f"at most {_size(disk.value)}" if disk.value is not None else str(disk)
        rows = {
            "trees": self.trees,
            "completions": self.completions,
            "completion tokens": self.completion_tokens,
            "actions": self.env_steps,
            "held-out episodes": self.episodes,
            "turns in them": self.episode_turns,
            "optimiser steps": self.optimiser_steps,
            "disk": shown,
        }
        lines = [
            *self.title,
            *(f"{name + ':':20}{value}" for name, value in rows.items()),
            "needs: " + "; ".join(self.resources),
        ]
        return "\n".join(lines)


def estimate(plan: Plan) -> RunEstimate:
    """Returns upper bounds on what a run costs."""
    config, methods = plan.config, methods_of(plan)
    known = None if config.env.url else registry.about(config.env.name)
    limit = known.step_limit if known is not None else 0
    rounds = config.run.rounds
    tasks = count_tasks(config.env, config.collect.tasks)
    each = []
    for number in range(1, rounds + 1):
        here = plan.at(number)
        theirs = tasks if here.collect.tasks == config.collect.tasks else count_tasks(here.env, here.collect.tasks)
        each.append(_Round.of(here, methods[number], number, limit, theirs))
    beside = sorted({stage for round_ in each for stage in round_.beside})
    trees, completions = _sum(round_.trees for round_ in each), _sum(round_.completions for round_ in each)
    tokens = _sum(round_.tokens for round_ in each)
    references = len(plan.references)
    policies = 1 + rounds + references
    held_out = count_tasks(config.env, config.eval.tasks)
    choosing = (
        count_tasks(config.env, replace(config.eval.tasks, split=config.eval.select))
        if config.eval.select
        else Bound(0)
    )
    chosen = _times(choosing, config.eval.episodes * (1 + rounds))
    each_task = config.eval.episodes + config.eval.sampled
    episodes = _sum([_times(held_out, each_task * policies), chosen, *(round_.validated for round_ in each)])
    asked = {
        "recovery": config.eval.recovery,
        "conciseness": config.eval.conciseness,
        "judge": config.eval.judge.who is not Who.nobody,
    }
    beside += [f"eval.{name}" for name, whether in asked.items() if whether]
    actions = config.eval.max_steps or limit
    turns = _times(episodes, actions) if actions else Bound(None, "the server's step limit")
    return RunEstimate(
        title=[
            (
                f"{methods[0].name} on {config.env.name}: {rounds} rounds, preset {config.method.preset}, seed "
                f"{config.run.seed}"
            ),
            f"each round: {_of(tasks)} tasks of split {config.collect.tasks.split!r}: {methods[0].describe()}",
            *(
                f"from round {number}: {methods[number].name}: {methods[number].describe()}"
                for number in config.from_round
            ),
            (
                f"policy: {config.policy.engines} x {config.policy.backend.value}, model "
                f"{config.model.path or config.model.source.value}"
            ),
            *_taught(config),
            f"held-out: {_of(held_out)} tasks of split {config.eval.tasks.split!r}",
            *(
                f"not counted: turns, verdicts and actions of {stage}, as many as its trees give occasion for"
                for stage in beside
            ),
        ],
        trees=trees,
        completions=completions,
        completion_tokens=tokens,
        env_steps=completions,
        episodes=episodes,
        episode_turns=turns,
        optimiser_steps=_optimiser_steps(config.warm_start, config.env, each, references),
        disk_bytes=_disk(config.model, policies, completions, turns),
        resources=_resources(plan.places, each, config.warm_start.enabled),
    )


@dataclass(frozen=True)
class _Round:
    """What a round costs.

    Attributes:
        tokens: Of the completions.
        beside: StageForecaster that draw no turns that count.
        validated: Episodes of validation while it trains.
        optimiser_steps: None if they depend on the rows.
    """

    trees: Bound
    completions: Bound
    tokens: Bound
    beside: list[str]
    validated: Bound
    optimiser_steps: int | None
    online: bool

    @classmethod
    def of(cls, config: Config, method: Method, number: int, limit: int, tasks: Bound) -> _Round:
        stages = method.exploration(number)
        grown = [work for work in stages.values() if work.max_completions(limit or 1)]
        explored = method.trees(tasks.value)
        explored = tasks if explored is None else Bound(explored)
        unbounded = any(work.max_completions(limit) == 0 for work in grown)
        completions = (
            Bound(None, "the server's step limit")
            if unbounded
            else _completions(config.collect, grown, explored, limit, config.turns.draws)
        )
        beside = [stage for stage, work in stages.items() if not work.max_completions(limit or 1)]
        train = config.train[min(number, len(config.train)) - 1]
        times, watched = method.validations()
        return cls(
            trees=_times(explored, len(grown)),
            completions=completions,
            tokens=_times(completions, config.collect.sampling.max_tokens),
            beside=beside,
            validated=Bound(0)
            if watched is None
            else _times(count_tasks(config.env, watched), times * config.eval.episodes),
            optimiser_steps=method.optimiser_steps(train, None),
            online=method.online,
        )


def _sum(bounds: Iterable[Bound]) -> Bound:
    total = 0
    for bound in bounds:
        if bound.value is None:
            return bound
        total += bound.value
    return Bound(total)


def _completions(collect: CollectConfig, grown: list, tasks: Bound, limit: int, draws: int) -> Bound:
    if not grown:
        return Bound(0)
    per_tree = [work.max_completions(limit) * draws for work in grown]
    budget = collect.max_completions
    # one tree is started even if it might not fit; a tree that is taken up again counts with what it has drawn before
    if budget:
        per_tree = [sum(bounds) for bounds in _chains(grown, per_tree)]
        capped = sum(
            max(budget, each) if tasks.value is None else min(each * tasks.value, max(budget, each))
            for each in per_tree
        )
        return Bound(capped)
    return _times(tasks, sum(per_tree))


def _chains(works: list, bounds: list[int]) -> list[list[int]]:
    """Groups the bounds of works so that a work that goes on with another one's trees stands with it."""
    chains: list[list[int]] = []
    for work, bound in zip(works, bounds, strict=True):
        if work.extends and chains:
            chains[-1].append(bound)
        else:
            chains.append([bound])
    return chains


def _taught(config: Config) -> Iterator[str]:
    warm = config.warm_start
    if warm.enabled and warm.teacher.who is Who.openai:
        episodes = _times(_sum(count_tasks(config.env, selection) for selection in warm.tasks), warm.episodes)
        yield f"demonstrations: {_of(episodes)} episodes by {warm.teacher.openai.model}, whose turns are not counted"
        if config.run.ceiling:
            times = config.run.rounds if config.collect.fresh_tasks else 1
            searched = _times(count_tasks(config.env, config.collect.tasks), warm.episodes * times)
            yield f"ceiling: up to {_of(searched)} episodes by {warm.teacher.openai.model}, not counted either"


def _optimiser_steps(warm_start: WarmStartConfig, env: EnvConfig, rounds: Sequence[_Round], references: int) -> Bound:
    counts = [count_tasks(env, selection).value for selection in warm_start.tasks]
    demonstrations = None if any(count is None for count in counts) else sum(count or 0 for count in counts)
    warm = [optimiser_steps(warm_start.train, demonstrations)] if warm_start.enabled else []
    each = [round_.optimiser_steps for round_ in rounds]
    total = 0
    for steps in [*warm, *each, *(references * each)]:
        if steps is None:
            return Bound(None, "by epochs, and so by the number of rows that the trees give")
        total += steps
    return Bound(total)


def _disk(config: ModelConfig, policies: int, completions: Bound, turns: Bound) -> Bound:
    model = _model_bytes(config)
    if model is None:
        return Bound(None, f"the size of {config.path} (a folder would have it)")
    if completions.value is None or turns.value is None:
        return Bound(None, (completions if completions.value is None else turns).why)
    weights = {"float32": 4}.get(config.dtype.value, 2)
    checkpoints = 3 * model // weights * STATE_BYTES  # two are kept while a third is written
    return Bound((policies + 1) * model + checkpoints + NODE_BYTES * (completions.value + turns.value))


def _model_bytes(model: ModelConfig) -> int | None:
    known = {ModelSource.nano: 1_600_000, ModelSource.smollm2: 134_515_008}
    if parameters := known.get(model.source):
        return parameters * (4 if model.dtype.value == "float32" else 2)
    folder = Path(model.path)
    if not folder.is_dir():
        return None
    return sum(file.stat().st_size for file in folder.iterdir() if file.suffix in (".safetensors", ".bin"))


def _resources(places: Places, rounds: Sequence[_Round], warm_start: bool) -> list[str]:
    """What the cluster must have."""
    policy, trainer, env = places.policy, places.trainer, places.env
    needs = []
    on_gpu = policy.device is Device.gpu or (policy.device is Device.auto and trainer.use_gpu)
    if policy.backend is PolicyBackend.openai:
        needs.append(f"{policy.openai.concurrency} requests at a time at {policy.openai.base_url}")
    elif not on_gpu:
        needs.append(
            f"{policy.engines} engine(s) of {policy.threads} thread(s) and {policy.kv_cache_gib:g} GiB of cache"
        )
    engines = policy.engines * policy.tensor_parallel_size if on_gpu and policy.backend is PolicyBackend.vllm else 0
    if engines or trainer.use_gpu:
        needs += _gpus(places, engines, rounds, warm_start)
    if not trainer.use_gpu:
        needs.append(f"{trainer.workers} trainer worker(s) of {trainer.threads} thread(s)")
    needs.append(env.url or f"{env.servers} environment server(s)")
    return needs


def _gpus(places: Places, engines: int, rounds: Sequence[_Round], warm_start: bool) -> Iterator[str]:
    """Yields how many GPUs are needed, and what is up on them at the same time in each stage."""
    share, workers = places.trainer.share, places.trainer.workers if places.trainer.use_gpu else 0
    apart = share is Share.split
    yield f"{engines + workers if apart else max(engines, workers)} GPU(s)"
    yield f"engines on {engines} while trees grow and policies are measured"
    online = [number for number, round_ in enumerate(rounds, 1) if round_.online]
    if warm_start or len(online) < len(rounds):
        beside = {
            Share.split: f"engines keep {engines}",
            Share.together: "beside engines on the same",
            Share.time: "engines make room",
        }
        yield f"trainer on {workers} for trainings on datasets ({beside[share]})"
    if online:
        beside = {
            Share.split: f"engines on {engines} others",
            Share.together: (
                f"an engine takes {places.policy.gpu_memory_utilization:g} of a GPU's memory, a worker the rest"
            ),
            Share.time: "engines sleep while it trains, and it keeps its memory while they draw",
        }
        yield f"trainer on {workers} all through round {', '.join(map(str, online))}, online ({beside[share]})"


def count_tasks(env: EnvConfig, selection: TaskSelection) -> Bound:
    """Tasks of a selection. They are counted if the environment can be had, without starting a server."""
    if env.url:
        return Bound(selection.limit, f"all tasks of the server's split {selection.split!r}")
    return _counted(env.name, json.dumps(plain(env.options)), json.dumps(plain(selection)))


@lru_cache(maxsize=256)
def _counted(env: str, options: str, chosen: str) -> Bound:
    """The same, from texts: loading an environment takes long, and who compares plans asks often."""
    selection = TaskSelection(**json.loads(chosen))
    try:
        entries = registry.load(env, json.loads(options)).split(selection.split)
    except (registry.UnknownEnvironment, registry.BadOptions, KeyError):
        return Bound(selection.limit, f"all tasks of split {selection.split!r}")
    tasks = [Task(env, entry.id, selection.split, entry.labels) for entry in entries]
    return Bound(len(select(tasks, selection)))


def _of(tasks: Bound) -> str:
    return f"{tasks.value:,}" if tasks.value is not None else "all"


def _times(bound: Bound, factor: int) -> Bound:
    return bound if bound.value is None else Bound(bound.value * factor)


def _size(count: int) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count //= 1000
    return f"{count} TB"
