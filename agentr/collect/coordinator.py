"""The coordinator as a Ray actor: one event loop that owns whole trees and talks to engines and environment servers.

Several may share a stage, each with tasks of its own.

It keeps nothing that a restart would miss: what is finished is in the forest, what is growing is in the journals, and
each call names the policy and the engines. So the driver may call again after it died.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentr.cluster.push import Lag, Pusher, start
from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.demonstrate import NoPolicy
from agentr.collect.job import TreeJob, run_job
from agentr.collect.meter import Meter
from agentr.collect.replays import replays
from agentr.collect.units import StageProgress, as_dict
from agentr.config.policy import PolicyBackend
from agentr.config.schema import TaskSelection
from agentr.cpu import look_for_cycles_rarely
from agentr.envs.connect import connect
from agentr.envs.pool import Urls
from agentr.envs.splits import assert_disjoint, assert_trainable
from agentr.errors import ConfigError
from agentr.models.load import load_codec
from agentr.policy.base import Policy
from agentr.secrets import Secret, clean_output
from agentr.store.growing import GrowingForest
from agentr.types import Task
from env_servers.protocol import EnvironmentSpec


class Coordinator:
    """Runs stages of trees.

    Args:
        urls: Where the environment servers are: their addresses, or an async function that says.
        model: Folder of the base model, for its tokenizer.
        secrets: Values of the environment variables that the configuration names: here they need not be set.
        number: Of this coordinator, for its metrics.
    """

    def __init__(
        self,
        settings: AgentSettings,
        urls: Urls,
        token: Secret,
        model: Path,
        secrets: Mapping[str, Secret],
        number: int = 0,
    ) -> None:
        clean_output()
        self.settings = settings
        self.secrets = secrets
        self.env = connect(settings.env, urls, token)
        self.codec = load_codec(model, settings.model)
        self._progress = StageProgress()
        self._policy: Policy | None = None
        self._engines: tuple = ()
        self._number = number
        self._meter = Meter()
        self.env.pool.causes = self._meter.causes
        self._pusher: Pusher | None = None

    async def ready(self) -> EnvironmentSpec:
        """The environment's specification: it answers once everything is up."""
        if self._pusher is None:
            look_for_cycles_rarely()
            lag = Lag()
            name = f"coordinator-{self._number}"
            self._pusher = start(self.settings.run, name, lambda: self._meter.samples(self._policy, lag.look()))
        return await self.env.spec()

    async def tasks(self, selection: TaskSelection, training: bool) -> list[Task]:
        """The tasks of a selection. Held-out tasks are refused for a stage that trains, unless ``env.allow_leaks``.

        Raises:
            ConfigError: Unknown split or label, no task, or a held-out task in a training stage.
        """
        tasks = await self.env.tasks(selection)
        if not tasks:
            raise ConfigError(
                f"split {selection.split!r} with these filters has no task",
                hint="Widen tasks.where or raise tasks.limit.",
            )
        if training and not self.settings.env.allow_leaks:
            spec = await self.env.spec()
            assert_trainable(tasks, spec, await self.env.held_out())
            assert_disjoint(tasks, await self.env.tasks(self.settings.held_out), spec)
        return tasks

    async def replays(self) -> str:
        """Whether a program that is the environment repeats itself (`agentr.collect.replays`)."""
        splits = (await self.env.spec()).splits
        split = next((name for name, found in splits.items() if found.train), next(iter(splits)))
        return await replays(self.env, (await self.env.tasks(TaskSelection(split=split, limit=1)))[0])

    async def run(self, job: TreeJob, policy: Path | None, engines: Sequence[Any]) -> dict[str, Any]:
        """Runs a job, or a part of one, to its end and returns its progress.

        Args:
            job: Whose folder the driver took over for the job's epoch.
            policy: Checkpoint that is to answer; None for jobs without a policy.
            engines: Handles of the engines' actors.

        Raises:
            RunError: Too many units failed. AgentrError in general: with what was wrong.
        """
        self._progress = StageProgress()
        self._meter.begin(self._progress)
        spec = await self.env.spec()
        agent = Agent.of(
            self.settings,
            await self._ready_policy(policy, engines),
            self.env,
            self.codec,
            spec,
            self.secrets,
            self._meter,
        )
        steps = self.env.stats.steps
        room = spec.at_once * self.settings.env.servers
        job = replace(job, limits=job.limits.within(room, job.parts * job.work.at_once))
        await run_job(job, agent, self._progress, GrowingForest(job.folder, epoch=job.epoch, part=job.part, taken=True))
        self._progress.env_steps_executed = self.env.stats.steps - steps
        return as_dict(self._progress)

    async def progress(self) -> dict[str, Any]:
        """Progress of the stage that is running."""
        problems = getattr(self._policy, "problems", None)  # of a router, of an API's client
        waiting = problems() if problems is not None else {}
        return {**as_dict(self._progress), "waiting": waiting}

    async def _ready_policy(self, checkpoint: Path | None, engines: Sequence[Any]) -> Policy:
        if checkpoint is None:
            return NoPolicy()
        if self.settings.policy.backend is PolicyBackend.openai:
            if self._policy is None:
                from agentr.policy.openai_api import OpenAIPolicy

                self._policy = OpenAIPolicy(self.settings.policy, self.codec, self.secrets)
            return self._policy
        from agentr.policy.router import Router

        if self._policy is None or tuple(engines) != self._engines:
            if isinstance(self._policy, Router):
                await self._policy.close()
            self._policy, self._engines = Router.over_actors(engines, self.settings.policy), tuple(engines)
            self._policy.causes = self._meter.causes
        assert isinstance(self._policy, Router)
        await self._policy.load(str(checkpoint))
        return self._policy
