"""The engines of a run: started when weights are first to answer, asleep or ended where a trainer takes their GPUs."""

from pathlib import Path
from typing import Any

from agentr.cluster.failures import cause_of
from agentr.cluster.nodes import nodes
from agentr.cluster.roles import Role, matches
from agentr.config.policy import PolicyBackend
from agentr.rounds.ray_cluster import RayCluster, Served


class Engines:
    """``policy.engines`` actors."""

    def __init__(self, served: Served, cluster: RayCluster) -> None:
        self.served = served
        self._cluster = cluster
        self._actors: dict[int, Any] = {}

    @property
    def by_name(self) -> dict[str, Any]:
        """Handles of those that run."""
        return {f"rollout-{number}": actor for number, actor in self._actors.items()}

    def take_over(self, served: Served) -> None:
        """Serves another run. What it would start the same runs on."""
        before, now = self.served.plan, served.plan
        if (before.config.model, before.places.policy, before.places.trainer.share, before.places.online) != (
            now.config.model,
            now.places.policy,
            now.places.trainer.share,
            now.places.online,
        ):
            self.stop()
        self.served = served

    def start(self, checkpoint: Path) -> list[Any]:
        """Handles of the actors, started with ``checkpoint`` if none run; none where an API is the policy."""
        places = self.served.plan.places
        if places.policy.backend is PolicyBackend.openai:
            return []
        if missing := [number for number in range(places.policy.engines) if number not in self._actors]:
            self._cluster.connect()
            from agentr.policy.actor import start_engines

            with self.served.reporter.task(f"{places.policy.engines} vLLM engine(s)"):
                model, name = self.served.plan.config.model, self.served.name
                self._actors |= start_engines(places, model, name, checkpoint, missing, self.served.logs)
        return [self._actors[number] for number in sorted(self._actors)]

    def sleep(self) -> None:
        """Lets engines free their GPUs for an online training, where they take turns; asked for weights, they wake.

        Raises:
            AgentrError: An engine could not. One that died has freed its memory, too.
        """
        from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

        places = self.served.plan.places
        if not places.sleeping(self._cluster.gpus()):
            return
        for name, engine in self.by_name.items():
            try:
                self._cluster.connect().get(engine.sleep.remote(), timeout=places.policy.timeout_s)
            except (ActorDiedError, ActorUnavailableError):
                self.served.reporter.message(
                    f"{name} died before the training of this online step; it starts again", "yellow"
                )
            except RayError as error:
                raise cause_of(error, name) from error

    def make_room(self) -> None:
        """Ends as many engines as the trainer needs GPUs of, on nodes where it may run. The others stay up."""
        places = self.served.plan.places
        there = {node.id: node.gpus for node in nodes() if matches(node.labels, places.labels[Role.trainer])}
        on = {number: self._node_of(engine) for number, engine in self._actors.items()}
        near = [number for number, node in on.items() if node is None or node in there]
        size = places.policy.tensor_parallel_size
        free = sum(there.values()) - size * len(near)
        while near and free < places.trainer.workers:
            self._cluster.connect().kill(self._actors.pop(near.pop()))
            free += size

    def _node_of(self, engine: Any) -> str | None:
        """The node that an engine is on; None if it is not up."""
        ray = self._cluster.connect()
        try:
            return ray.get(engine.node.remote(), timeout=10.0)
        except ray.exceptions.RayError:
            return None

    def stop(self) -> None:
        for engine in self._actors.values():
            self._cluster.connect().kill(engine)
        self._actors = {}
