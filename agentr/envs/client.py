"""The client of the environment servers: tasks, experts and sessions, over any number of servers of one environment."""

from collections.abc import Callable, Sequence

from agentr.config.schema import TaskSelection
from agentr.envs.pool import ServerPool, Urls
from agentr.envs.selection import select
from agentr.envs.session import Exchange, Recorded, Session
from agentr.envs.transport import EnvStats, Transport
from agentr.errors import ConfigError
from agentr.secrets import Secret
from agentr.types import Task
from env_servers.observation import OtherAnswer
from env_servers.protocol import EXPERT_TIMEOUT_S, EnvironmentSpec, ExpertResponse, SplitResponse

__all__ = ["EnvClient", "EnvStats", "Recorded", "Session", "Urls"]


class EnvClient:
    """Access to one environment. One for each process and event loop; safe for any number of coroutines.

    Sessions are placed on the servers in turn. A session stays where it was opened, and so do its forks; when its
    server dies it is rebuilt on another one.

    Args:
        urls: Base URLs of servers of the same environment and options, or a (possibly async) function that says which
            are up now.
        token: Bearer token of the servers; empty for none.
        timeout_s: Deadline of one request.
        expert_timeout_s: Deadline of a request for a split or an expert. The default is a little more than a server's
            own deadline, so that it is the server that says what took so long.
        retries: Attempts after the first. With waits of about 0.5, 1, 2, .. s between them, 4 outlast the restart of a
            server.
        one_line: As in ``Exchange``.
        transport: Makes what speaks to the servers, from token, deadline and counters; another one for another
            protocol.

    Attributes:
        pool: The servers, for requests about a session.
        stats: Counters since the start.
    """

    def __init__(
        self,
        urls: Urls,
        token: str | Secret,
        *,
        timeout_s: float = 30.0,
        expert_timeout_s: float = EXPERT_TIMEOUT_S + 10.0,
        retries: int = 4,
        one_line: bool = False,
        transport: Callable[[str | Secret, float, EnvStats], Transport] = Transport,
    ) -> None:
        self.stats = EnvStats()
        self._transport = transport(token, timeout_s, self.stats)
        self.pool = ServerPool(urls, self._transport, self.stats, retries)
        self._expert_timeout_s = expert_timeout_s
        self._one_line = one_line
        self._spec: EnvironmentSpec | None = None
        self._splits: dict[str, list[Task]] = {}

    async def spec(self) -> EnvironmentSpec:
        """The environment's specification; asked for once.

        Raises:
            InfraError: No server answered, or it refused the token.
        """
        if self._spec is None:
            self._spec = await self.pool.get("the specification", "/v1/spec", EnvironmentSpec)
            self._transport.parallel = self._spec.parallel
            if self._spec.reward.high <= self._spec.reward.low:
                reward = self._spec.reward
                raise ConfigError(f"the reward scale of {self._spec.name} is empty: {reward.low} to {reward.high}")
        return self._spec

    async def tasks(self, selection: TaskSelection) -> list[Task]:
        """The tasks of a split that pass the selection's filters, in its seeded order, up to its limit.

        Raises:
            ConfigError: Unknown split or label, or filters that no task passes.
            InfraError: No server answered.
        """
        return select(await self._split(selection.split), selection)

    async def held_out(self) -> dict[str, str]:
        """Every task id of the splits that are not for training, with the name of its split: for
        `splits.assert_trainable`."""
        spec = await self.spec()
        names = [name for name, split in spec.splits.items() if not split.train]
        return {task.id: name for name in names for task in await self._split(name)}

    async def expert(self, task: Task) -> list[tuple[str, str]] | None:
        """A demonstration as pairs of thought and action, or None where the environment has no expert for the task.

        Raises:
            ConfigError: The environment has no such task.
            InfraError: No server answered, or the expert took longer than the server's deadline.
        """
        what = f"the expert for task {task.id!r}"
        answer = await self.pool.get(what, "/v1/expert", ExpertResponse, self._expert_timeout_s, task=task.id)
        return answer.steps

    async def open(
        self,
        task: Task,
        actions: Sequence[Recorded] = (),
        *,
        opening: str | None = None,
        others: Sequence[OtherAnswer] = (),
    ) -> Session:
        """A session of the task, after the recorded actions if there are any.

        Args:
            actions: Played one after the other; each must give the recorded observation.
            opening: The first observation of the task, if it was recorded too.
            others: What other models answered a program on the way.

        Raises:
            ConfigError: The environment has no such task.
            InfraError: No server answered, or an observation was not the recorded one; names the task, the step and
                both texts.
        """
        exchange = Exchange(self.pool, await self.spec(), self._one_line)
        session = Session(exchange, task, tuple(actions), opening=opening, others=tuple(others))
        await self.pool.retry(f"opening task {task.id!r}", session.ready)
        return session

    async def close_all(self, sessions: Sequence[Session]) -> None:
        """Frees the servers' side of the sessions, as far as the servers can be reached: what is missed there expires.

        Sessions that are garbage-collected unclosed are closed too, some hundreds at a time.
        """
        await self.pool.close([remote for session in sessions if (remote := session.detach()) is not None])

    def free(self, sessions: Sequence[Session]) -> None:
        """Frees the servers' side of the sessions soon, together with others: nothing is waited for."""
        self.pool.free([remote for session in sessions if (remote := session.detach()) is not None])

    async def aclose(self) -> None:
        """Closes the dropped sessions, then the connections.
        Sessions that are still held stay open until they expire."""
        await self.pool.aclose()

    async def _split(self, name: str) -> list[Task]:
        spec = await self.spec()
        if name not in spec.splits:
            raise ConfigError(f"{spec.name} has no split {name!r}", hint=f"It has: {', '.join(spec.splits)}.")
        if name not in self._splits:
            listed = await self.pool.get(f"split {name!r}", f"/v1/splits/{name}", SplitResponse, self._expert_timeout_s)
            self._splits[name] = [Task(spec.name, entry.id, name, dict(entry.labels)) for entry in listed.tasks]
        return self._splits[name]
