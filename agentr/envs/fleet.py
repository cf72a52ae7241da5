"""The environment servers of a run, as Ray actors; and where the client finds them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentr.cluster.failures import cause_of
from agentr.cluster.restarts import Restarts
from agentr.config.schema import EnvConfig
from agentr.envs.server import EnvServer, ServerState, ServerStatus, Supervision, new_token
from agentr.errors import InfraError
from agentr.secrets import Secret

#: Deadline of one call to a supervisor; its methods only read.
CALL_TIMEOUT_S = 10.0


class EnvServers:
    """Handles of the supervisors of one environment's servers.
    Can be pickled, so that any process may make a client from it: ``EnvClient(servers.urls, servers.token)``.

    The servers end with ``stop``, or when the last handle is gone.
    """

    def __init__(self, actors: list[Any], token: Secret) -> None:
        self.actors = actors
        self.token = token

    @classmethod
    async def start(
        cls,
        config: EnvConfig,
        log_dir: str,
        *,
        token: Secret | None = None,
        host: str = "127.0.0.1",
        supervision: Supervision | None = None,
        options: Mapping[str, Any] | None = None,
        restarts: Restarts | None = None,
        run: str = "",
    ) -> EnvServers:
        """``config.servers`` servers, all of which listen.

        Args:
            log_dir: Each server appends to ``env-server-<i>.log`` in here.
            token: Bearer token; none, or an empty one, makes a new one.
            host: Address that each server binds, see `EnvServer`.
            options: Ray options of the supervisors' actors (``agentr.cluster.roles.options``).
            restarts: How often a supervisor may die; by default three times.
            run: The run's name, for metrics.

        Raises:
            InfraError: A server did not start in time; quotes its log.
        """
        import ray
        from ray.exceptions import RayError

        # The supervisors take no CPU: theirs is only to watch.
        token = token or new_token()
        rules = supervision or Supervision()
        how = dict(options) if options is not None else {"num_cpus": 0, "max_restarts": 3}
        life = secrets.token_hex(3)
        actors = []
        for i in range(config.servers):
            name = f"env-{config.name.rpartition(':')[2]}-{i}"
            counted = restarts.named(name, life) if restarts is not None else None
            actor = ray.remote(EnvServer).options(name=f"{name}-{life}", **how)
            log_path = str(Path(log_dir) / f"env-server-{i}.log")
            more = {"host": host, "supervision": rules, "restarts": counted, "run": run, "number": i}
            actors.append(actor.remote(config, token, log_path, **more))
        servers = cls(actors, token)
        deadline_s = rules.start_timeout_s + 60.0  # an actor's own process takes seconds to come up
        statuses = await asyncio.gather(*(_ask(a.status, deadline_s) for a in actors), return_exceptions=True)
        for status in statuses:
            if isinstance(status, BaseException):
                await servers.stop()
                if isinstance(status, RayError):
                    raise cause_of(status, "an environment server") from status
                raise InfraError(f"an environment server did not start within {deadline_s:g} s: {status}") from status
        return servers

    async def status(self) -> list[ServerStatus]:
        """The status of each server.
        One whose supervisor is dead has failed; one whose supervisor does not answer may come back."""
        from ray.exceptions import ActorDiedError

        answers = await asyncio.gather(*(_ask(a.status, CALL_TIMEOUT_S) for a in self.actors), return_exceptions=True)
        statuses = []
        for answer in answers:
            if isinstance(answer, BaseException):
                state = ServerState.FAILED if isinstance(answer, ActorDiedError) else ServerState.STARTING
                answer = ServerStatus(state, error=f"its supervisor does not answer: {type(answer).__name__}: {answer}")
            statuses.append(answer)
        return statuses

    async def urls(self) -> list[str]:
        """The servers that are up now; empty while all are being restarted.

        Raises:
            InfraError: None is up and none will be.
        """
        statuses = await self.status()
        if all(status.state in (ServerState.FAILED, ServerState.STOPPED) for status in statuses):
            errors = "; ".join(sorted({status.error or status.state for status in statuses}))
            raise InfraError(f"no environment server is left: {errors}")
        return [status.url for status in statuses if status.state is ServerState.UP]

    async def stop(self) -> None:
        """Ends all servers and their supervisors."""
        import ray

        await asyncio.gather(*(_ask(a.stop, CALL_TIMEOUT_S) for a in self.actors), return_exceptions=True)
        for actor in self.actors:
            ray.kill(actor)


async def _ask(method: Any, timeout_s: float) -> Any:
    """The answer of an actor's method within a deadline."""

    async def answer() -> Any:
        return await method.remote()

    return await asyncio.wait_for(answer(), timeout_s)
