"""The typed configuration. One dataclass for each section of the YAML; an unknown key is an error.

What a method needs is in ``Config.method``, whose class comes with the method; nothing in this package knows
a method by name. Imports nothing heavy, so that ``agentr run --dry-run`` answers at once. Numbers that a paper gives
name it.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import NonNegativeFloat, NonNegativeInt, NonPositiveFloat, PositiveFloat, PositiveInt

from agentr.config.checks import Problem, Proportion, Section
from agentr.config.cluster import ClusterConfig, WatchdogConfig
from agentr.config.model import ModelConfig
from agentr.config.policy import AdvisorConfig, PolicyBackend, PolicyConfig, SamplingConfig, Who
from agentr.config.training import Share, TrainConfig, TrainerConfig
from agentr.config.turns import PromptConfig, TurnsConfig
from agentr.words import seen


class EnvProtocol(StrEnum):
    agentr = "agentr"
    """agentr's own, whose states fork."""
    agentgym = "agentgym"
    """The server at ``env.url`` is AgentGym's own.
    It cannot copy a state, so every branch is a reset and a replay, which is checked."""
    openenv = "openenv"
    """The server at ``env.url`` is one of OpenEnv's (Meta and Hugging Face).
    No state can be copied there either; what ``env.options`` says of it is in docs/environments.md, and ``env.name`` is
    a name that you give it."""


@dataclass
class MethodConfig(Section):
    """What every method's section has; a method's own keys are in its subclass (docs of the method)."""

    type: str = ""
    """The method: a name of ``agentr list methods``, or a Python file with a method (docs/add_a_method.md), relative to
    the YAML file."""
    preset: str = "default"
    """Starting values: default (ours), or those that the method's paper or released code gives."""

    def reflections(self) -> Sequence[str]:
        """Returns what reflections open with in the method's rows; nothing for a method that does not teach to
        reflect."""
        return ()


def rounds_kept(rule: str) -> int | None:
    """Returns how many of the last rounds keep their weights by ``run.keep``: 0 means all; None if it is no such
    rule."""
    if rule in ("all", "best"):
        return int(rule == "best")
    found = re.fullmatch(r"last ([1-9]\d*)", rule)
    return int(found[1]) if found else None


#: What ``run.mirror`` may look like, by how it begins.
_MIRRORS = {"s3": "s3://bucket/prefix", "gs": "gs://bucket/prefix", "file": "file:///folder"}


def _mirror_problems(url: str) -> Iterator[Problem]:
    """Yields what is wrong with the address of a mirror. What may be credentials is not shown."""
    kind, _, place = url.partition("://")
    bucket, folder = place.partition("/")[0], place.strip("/")
    hint = f"Give {', '.join(_MIRRORS.values())}, or nothing."
    if kind not in _MIRRORS:
        yield Problem("mirror", f"{kind!r} is no kind of mirror", hint)
    elif "@" in bucket or "?" in place:
        hint = "Leave them out: they come from the environment, such as AWS_ACCESS_KEY_ID."
        yield Problem(
            "mirror", f"an address {kind}:// holds a bucket and a prefix, and no credentials or options", hint
        )
    elif kind == "file" and (bucket or not folder):
        yield Problem("mirror", f"{url} names no folder from the root on", hint)
    elif kind != "file" and not bucket:
        yield Problem("mirror", f"{url} names no bucket", hint)


@dataclass
class RunConfig(Section):
    """What this experiment is called and how long it goes on."""

    name: str = "experiment"
    """Name in tables and pages."""
    dir: str = ""
    """Run directory; empty means runs/<name>."""
    seed: NonNegativeInt = 0
    """Every random decision derives from it."""
    rounds: NonNegativeInt = 3
    """Rounds of self-training after the warm start; 0 evaluates the warm start only."""
    control: bool = False
    """Also train the warm start on demonstrations alone for as many optimiser steps, and evaluate it."""
    ceiling: bool = False
    """Also train the warm start on the expert's episodes of the tasks that were searched, for as many optimiser steps,
    and evaluate it: what imitation of the expert comes to."""
    keep: str = "all"
    """Rounds that keep their weights once the next one is measured: all, best, or last N.
    The warm start, the best and the last round always do; 'agentr prune' deletes by hand."""
    mirror: str = ""
    """Where stages are copied to once they are sealed, and checkpoints that a training may go on from:
    s3://bucket/prefix, gs://bucket/prefix or file:///folder, one for each run. A run directory that is lost is filled
    from there. Empty means nowhere."""
    mirror_wait_s: NonNegativeFloat = 600.0
    """Longest wait for the mirror at the end of a run."""

    def problems(self) -> Iterator[Problem]:
        if (
            not self.name
            or len(self.name) > 100
            or seen(self.name) != self.name
            or set(self.name) & set("/\\\n\t")
            or self.name[0] == "."
        ):
            hint = (
                "Give up to 100 characters that are seen, without slashes, and no dot as the first; run.dir says where "
                "the run is."
            )
            yield Problem("name", f"{self.name[:100]!r} is no name of a run", hint)
        if rounds_kept(self.keep) is None:
            yield Problem("keep", f"{self.keep!r} is no rule", "Give all, best, or last N, such as 'last 2'.")
        if self.mirror:
            yield from _mirror_problems(self.mirror)


@dataclass
class EnvConfig(Section):
    """Which environment, and how its servers run."""

    name: str = "textcraft"
    """A name of ``agentr list environments``, or ``module:class``."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment's class, e.g. distractors: 3.
    Files that those of ``program`` name are relative to the YAML file."""
    one_line: bool = False
    """Line breaks and tabs in answers to actions become spaces (the released code of Agent-R); the first observation
    stays as it is."""
    allow_leaks: bool = False
    """Train on tasks that are held out or evaluated on, as released splits of ETO and DensePolicy do; reports then
    show it."""
    servers: PositiveInt = 1
    """Server processes; sessions are spread over them."""
    url: str = ""
    """An environment server that already runs; empty starts our own."""
    protocol: EnvProtocol = EnvProtocol.agentr
    """What the server at ``env.url`` speaks."""
    token_env: str = ""
    """Environment variable that holds the bearer token of that server."""
    python: str = ""
    """Interpreter for the server's process; empty means this one."""
    timeout_s: PositiveFloat = 30.0
    """Deadline of one request; experts and lists of tasks have five minutes."""
    retries: NonNegativeInt = 4
    """Attempts after the first, for requests that are safe to repeat."""


@dataclass
class TaskSelection(Section):
    """Tasks of one split, filtered and in a seeded order."""

    split: str = "train"
    """A split of the environment (``agentr list environments``)."""
    where: dict[str, Any] = field(default_factory=dict)
    """Label filters: a value, a list of values, or {min: .., max: ..}."""
    limit: PositiveInt | None = None
    """Most tasks; none given means all."""
    seed: NonNegativeInt = 0
    """Of the order in which tasks are taken."""


@dataclass
class CollectConfig(Section):
    """Which tasks a round explores, and with how much at a time. How it explores is the method's."""

    tasks: TaskSelection = field(default_factory=TaskSelection)
    """Training tasks."""
    fresh_tasks: bool = True
    """Each round takes the next tasks of the selection's order (wrapping round) instead of the same ones."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """How turns are drawn."""
    in_flight: PositiveInt = 32
    """Trees that grow at the same time."""
    coordinators: PositiveInt = 1
    """Processes that share the trees of each stage: one feeds about 400 expansions a second on a core."""
    max_completions: NonNegativeInt = 0
    """Most completions that a round draws, for comparisons at equal cost; 0 means no limit.
    Stages whose trees begin anew (greedy episodes, steps) have as much each.
    A tree starts only if the budget would hold even if it and every running tree used their maximum. If nothing is
    running one tree is always started, so the total can overshoot by at most one tree."""
    infra_retries: NonNegativeInt = 3
    """Attempts at a tree after an infrastructure failure."""
    max_failed: Proportion = 0.05
    """Share of trees that may fail for infrastructure reasons before the stage is refused."""


@dataclass
class BuildConfig(Section):
    """Which rows may be in a dataset, whatever the method."""

    max_length: PositiveInt = 1024
    """Rows with more tokens are dropped and counted."""
    train_on_invalid: bool = False
    """Also train on turns that the environment did not understand (Agent-R does, in good trajectories)."""
    train_on_reasoning: bool = True
    """Also train on the reasoning of trained turns (``<think>`` to ``</think>``); otherwise it is context
    (docs/models.md)."""
    train_on_said_twice: bool = True
    """Also train on turns that repeat a sentence.
    Of this and the next key: in rows that imitate whole episodes; turns that are not trained on stay in them as
    context, and are counted."""
    least_logprob: NonPositiveFloat | None = None
    """Least mean log-probability of a token, in nats, in turns that are trained on; none given trains on all."""


@dataclass
class WarmStartConfig(Section):
    """Supervised fine-tuning on expert demonstrations before the first round."""

    enabled: bool = True
    """Without it the model itself is the first policy."""
    tasks: list[TaskSelection] = field(default_factory=lambda: [TaskSelection()])
    """Tasks to demonstrate: the union of these selections."""
    files: list[str] = field(default_factory=list)
    """Expert trajectories of your own (docs/your_own_trajectories.md), played in place of the environment's expert."""
    teacher: AdvisorConfig = field(
        default_factory=lambda: AdvisorConfig(who=Who.nobody, sampling=SamplingConfig(max_tokens=512))
    )
    """Who plays the tasks in place of the environment's expert: nobody, or a stronger model behind an API."""
    episodes: PositiveInt = 1
    """Episodes of the teacher on each task; those that succeed are imitated."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """How the demonstrations are imitated."""

    def problems(self) -> Iterator[Problem]:
        if self.teacher.who is Who.policy:
            yield Problem("teacher.who", "before the warm start there is no policy", "Take openai.")
        if self.teacher.who is Who.openai and self.files:
            message = "files and teacher both say where demonstrations come from"
            yield Problem("files", message, "Give one of them.")
        if self.teacher.who is not Who.openai and self.episodes > 1:
            yield Problem("episodes", "an expert plays a task once", "Name a teacher, or leave it at 1.")


class Beginning(StrEnum):
    """Where a bad beginning ends."""

    random = "random"
    """After a random turn of a failed episode (Agent-R Table 3)."""
    refusal = "refusal"
    """After the first turn that the environment did not carry out, whether the episode failed or not."""
    two_refusals = "two_refusals"
    """After the first two such turns in a row."""
    harm = "harm"
    """After the first turn that was carried out and leaves the environment's expert with more to do than before
    (environments whose expert goes on from any state: TextCraft, BabyAI, the household)."""


@dataclass
class EvalConfig(Section):
    """How policies are measured on held-out tasks."""

    tasks: TaskSelection = field(default_factory=lambda: TaskSelection(split="dev"))
    """Held-out tasks."""
    select: str = ""
    """Another held-out split, by whose tasks the best round is chosen; otherwise like eval.tasks.
    Empty means by eval.tasks themselves, which flatters the best round: the report says so."""
    episodes: PositiveInt = 1
    """Episodes for each task; more than one needs a temperature."""
    sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(temperature=0.0))
    """How turns are drawn; greedy by default."""
    max_steps: NonNegativeInt = 0
    """Actions in an episode; 0 means the environment's own limit."""
    max_invalid: NonNegativeInt = 0
    """An episode ends after so many invalid actions in a row; 0 means never."""
    in_flight: PositiveInt = 64
    """Episodes at the same time."""
    sampled: NonNegativeInt = 0
    """Also sample so many episodes of each task, for pass@k and pass^k: at eval.sampling's temperature, or at 1 where
    that is 0."""
    recovery: bool = False
    """Also measure recovery from bad beginnings: the same for all policies of a run, taken from the warm start's own
    episodes of the held-out tasks."""
    recovery_from: list[Beginning] = field(default_factory=lambda: [Beginning.random])
    """Where they end; a stage for each."""
    conciseness: bool = False
    """Also measure which turns of its successes a policy could have done without: the rest is carried out again without
    them."""
    judge: AdvisorConfig = field(
        default_factory=lambda: AdvisorConfig(who=Who.nobody, sampling=SamplingConfig(temperature=0.0, max_tokens=256))
    )
    """Who is asked whether an episode is right, beside the environment: with the expert's answer before it, where there
    is one."""

    def problems(self) -> Iterator[Problem]:
        if self.episodes > 1 and self.sampling.temperature == 0:
            message = f"eval.episodes = {self.episodes} with temperature 0 would repeat the same episode"
            yield Problem("episodes", message, "Set eval.sampling.temperature, or eval.episodes=1.")
        if self.recovery and not self.recovery_from:
            yield Problem(
                "recovery_from", "the list is empty", "Name where beginnings end, or set eval.recovery=false."
            )
        if self.select and self.select == self.tasks.split:
            message = f"{self.select!r} is the split that is reported: choosing by it would flatter the result"
            yield Problem("select", message, "Choose another held-out split, or leave it out.")


#: Experiment trackers that a run can be logged to (``agentr.track``).
TRACKERS = ("tensorboard", "mlflow", "wandb", "trackio")

#: Largest share of a GPU's memory for an engine beside a trainer worker.
MOST_BESIDE = 0.95

#: Sections that may change from a round on.
CHANGING = ("method", "collect", "build", "train")


@dataclass
class Config(Section):
    """A whole experiment."""

    run: RunConfig = field(default_factory=RunConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    turns: TurnsConfig = field(default_factory=TurnsConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    build: BuildConfig = field(default_factory=BuildConfig)
    train: list[TrainConfig] = field(default_factory=lambda: [TrainConfig()])
    """By round; the last entry holds for later rounds."""
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    watchdog: WatchdogConfig = field(default_factory=WatchdogConfig)
    tracking: list[str] = field(default_factory=list)
    """Experiment trackers that log what stages come to and how trainings go, beside the run directory:
    tensorboard, mlflow, wandb, trackio (docs/cluster.md)."""
    from_round: dict[int, Any] = field(default_factory=dict)
    """What changes from a round on, by its number: sections method, collect, build, train.
    So methods may follow each other in a run."""

    def problems(self) -> Iterator[Problem]:
        """Rules between sections."""
        if not self.train:
            yield Problem("train", "the list is empty", "Give at least one entry; the last one holds for later rounds.")
        if self.build.max_length > self.model.max_model_len and self.policy.backend is PolicyBackend.vllm:
            message = (
                f"build.max_length = {self.build.max_length} is longer than model.max_model_len = "
                f"{self.model.max_model_len}"
            )
            yield Problem("build.max_length", message, "No trajectory can be longer than the context.")
        for arm in ("control", "ceiling") if not self.warm_start.enabled else ():
            if getattr(self.run, arm):
                message = f"the {arm} trains on demonstrations, and nobody demonstrates without a warm start"
                yield Problem(f"run.{arm}", message, f"Set run.{arm}=false.")
        for name in self.tracking:
            if name not in TRACKERS:
                near = difflib.get_close_matches(name, TRACKERS, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(TRACKERS)}."
                yield Problem("tracking", f"there is no tracker {name!r}", hint)
        yield from self._sampling()
        yield from self._batches()
        yield from self._changes()
        if self.trainer.share is Share.together:
            yield from self.pairs_on_gpus()

    def pairs_on_gpus(self) -> Iterator[Problem]:
        """Yields why not each trainer worker can have a GPU with one engine, which they share."""
        policy, workers = self.policy, self.trainer.workers
        if not self.trainer.use_gpu or policy.backend is not PolicyBackend.vllm:
            return
        hint = "Or set trainer.share=split: each has its own."
        if policy.tensor_parallel_size > 1:
            message = (
                f"{policy.tensor_parallel_size}: an engine on several GPUs cannot share one of them with a trainer "
                "worker"
            )
            yield Problem("policy.tensor_parallel_size", message, f"Set it to 1. {hint}")
        if workers > policy.engines:
            message = f"{workers} share their GPUs with an engine each, and policy.engines = {policy.engines}"
            yield Problem("trainer.workers", message, f"Set policy.engines={workers}. {hint}")
        if policy.gpu_memory_utilization > MOST_BESIDE:
            message = f"{policy.gpu_memory_utilization:g} of a GPU leaves the trainer worker beside the engine nothing"
            yield Problem("policy.gpu_memory_utilization", message, f"Lower it, to 0.5 for example. {hint}")

    def _changes(self) -> Iterator[Problem]:
        for round_, sections in self.from_round.items():
            key = f"from_round.{round_}"
            if not 1 < round_ <= self.run.rounds:
                message = f"round {round_} is not one of the rounds 2 to {self.run.rounds}"
                yield Problem(key, message, "What holds from the first round on stands in the sections themselves.")
            if not isinstance(sections, dict) or not sections.keys() <= set(CHANGING):
                given = ", ".join(sections) if isinstance(sections, dict) else repr(sections)
                yield Problem(key, f"{given} cannot change by round", f"Give sections of {', '.join(CHANGING)}.")

    def _sampling(self) -> Iterator[Problem]:
        drawn = [("collect", self.collect.sampling), ("eval", self.eval.sampling)]
        if self.policy.backend is not PolicyBackend.vllm:
            drawn.clear()
        if self.warm_start.enabled and self.warm_start.teacher.who is Who.openai:
            drawn.append(("warm_start.teacher", self.warm_start.teacher.sampling))
        for key, sampling in drawn:
            if sampling.max_tokens >= self.model.max_model_len:
                context = self.model.max_model_len
                message = (
                    f"{sampling.max_tokens} tokens for a turn leave no room for a prompt in model.max_model_len = "
                    f"{context}"
                )
                yield Problem(f"{key}.sampling.max_tokens", message, "Lower it, or raise model.max_model_len.")

    def _batches(self) -> Iterator[Problem]:
        """Batches are cut into equal micro-batches, and rows that were built are accepted: of the rounds and of the
        warm start."""
        named = [(f"train[{index}]", train) for index, train in enumerate(self.train)]
        if self.warm_start.enabled:
            named.append(("warm_start.train", self.warm_start.train))
        for key, train in named:
            yield from (problem.within(key) for problem in train.batch_problems(self.trainer.workers))
            if train.max_length < self.build.max_length:
                message = (
                    f"{train.max_length} is less than build.max_length = {self.build.max_length}: the trainer would "
                    "refuse its rows"
                )
                yield Problem(f"{key}.max_length", message, "Raise it, or lower build.max_length.")
