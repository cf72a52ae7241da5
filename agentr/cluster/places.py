"""Where the parts of a run may be, and what they book there. Pure: Ray is not asked here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentr.cluster.roles import Role
from agentr.config.cluster import ClusterConfig
from agentr.config.model import ModelConfig
from agentr.config.policy import Device, PolicyBackend, PolicyConfig
from agentr.config.schema import Config, EnvConfig
from agentr.config.training import Share, TrainerConfig

_MORE_THAN_HALF = 0.51


@dataclass(frozen=True)
class Need:
    """Places for one role.

    Attributes:
        count: How many processes there are.
        gpus: GPUs of each, on one node.
        threads: CPUs that each would use; they are shared, not reserved.
        labels: What its nodes must be labelled with.
        setting: The keys that set it.
    """

    role: Role
    count: int
    gpus: int
    threads: int
    labels: dict[str, str]
    setting: str


@dataclass(frozen=True)
class Places:
    """What a configuration says of where a run's parts are.

    GPUs that "are there" are those that the cluster has now, for ``policy.device=auto``.

    Attributes:
        labels: What each role's nodes must be labelled with, as Ray's label selectors write it.
        coordinators: How many there are.
        in_flight: Most trees that grow at the same time.
        online: Whether a method of the run trains while its engines are up.
    """

    cluster: ClusterConfig
    policy: PolicyConfig
    trainer: TrainerConfig
    env: EnvConfig
    model: ModelConfig
    labels: Mapping[Role, dict[str, str]]
    coordinators: int
    in_flight: int
    online: bool

    @classmethod
    def of(cls, config: Config, online: bool = False) -> Places:
        # Ray takes "in(a, b)" and then looks for " b".
        named = {role: getattr(config.cluster.nodes, role.value) for role in Role}
        labels = {
            role: {key: condition.replace(" ", "") for key, condition in wanted.items()}
            for role, wanted in named.items()
        }
        return cls(
            cluster=config.cluster,
            policy=config.policy,
            trainer=config.trainer,
            env=config.env,
            model=config.model,
            labels=labels,
            coordinators=config.collect.coordinators,
            in_flight=max(config.collect.in_flight, config.eval.in_flight),
            online=online,
        )

    def options(self, role: Role, *, gpus: float = 0, spread: bool = False) -> dict[str, Any]:
        """Returns the Ray options of an actor.

        It reserves no CPUs: trees, servers and engines wait most of the time, and where engine and trainer take turns
        on two cores a reservation would leave none for the other. GPUs are reserved, all on one node, since an actor's
        request is never split.

        Args:
            spread: Put each actor on the node with the fewest.
        """
        found: dict[str, Any] = {"num_cpus": 0, "num_gpus": gpus, "max_restarts": -1, "max_task_retries": 0}
        if labels := self.labels[role]:
            found["label_selector"] = labels
        if spread:
            found["scheduling_strategy"] = "SPREAD"
        return found

    def engines_on_gpu(self, gpus_there: float) -> bool:
        """Returns whether engines run on GPUs: the configuration's word, and only without one what the cluster has
        now."""
        return self.policy.device is Device.gpu or (self.policy.device is Device.auto and gpus_there > 0)

    def booked(self, gpus_there: float) -> tuple[float, float]:
        """Returns the GPUs that each engine and each trainer worker books, where it runs on GPUs.

        On a GPU that the two share the engine books more than half and the worker the rest, so that no two engines come
        to be on one.
        """
        policy, trainer = self.policy, self.trainer
        apart = trainer.share is Share.split or (trainer.share is Share.time and not self.online)
        if (
            apart
            or not trainer.use_gpu
            or policy.backend is not PolicyBackend.vllm
            or not self.engines_on_gpu(gpus_there)
        ):
            return policy.tensor_parallel_size, 1
        engine = max(policy.gpu_memory_utilization, _MORE_THAN_HALF)
        return engine, round(1 - engine, 4)  # Ray counts in ten thousandths

    def sleeping(self, gpus_there: float) -> bool:
        """Returns whether engines sleep while a trainer on their GPUs trains."""
        return (
            self.online
            and self.trainer.share is Share.time
            and self.trainer.use_gpu
            and self.engines_on_gpu(gpus_there)
        )

    def needs(self, gpus_there: float) -> list[Need]:
        """Returns what each role needs, in the order in which places are given out."""
        policy, trainer, labels = self.policy, self.trainer, self.labels
        gpu, threads = (1, 1) if trainer.use_gpu else (0, trainer.threads)
        found = [Need(Role.trainer, trainer.workers, gpu, threads, labels[Role.trainer], "trainer.workers")]
        if policy.backend is PolicyBackend.vllm:
            size = policy.tensor_parallel_size if self.engines_on_gpu(gpus_there) else 0
            setting = "policy.engines" + (" and policy.tensor_parallel_size" if size > 1 else "")
            found.append(
                Need(Role.engine, policy.engines, size, 1 if size else policy.threads, labels[Role.engine], setting)
            )
        found.append(Need(Role.coordinator, self.coordinators, 0, 1, labels[Role.coordinator], "collect.coordinators"))
        if not self.env.url:
            found.append(Need(Role.environment, self.env.servers, 0, 1, labels[Role.environment], "env.servers"))
        return found
