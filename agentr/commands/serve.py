"""Environment servers on a cluster, for whoever uses them from elsewhere."""

import asyncio
import threading
from pathlib import Path

from agentr.cluster.connect import connect, joined, leave
from agentr.cluster.nodes import nodes
from agentr.cluster.restarts import Restarts
from agentr.cluster.roles import Role
from agentr.commands.run import run_dir
from agentr.envs.fleet import EnvServers
from agentr.observe.progress import Reporter
from agentr.rounds.plan import Plan
from agentr.secrets import Secret, SecretKind
from agentr.signals import ending_cleanly
from env_servers.protocol import TOKEN_ENV

#: Seconds between two looks at the servers.
LOOK_S = 10.0


def serve(plan: Plan, reporter: Reporter, token: str = "") -> None:
    """Runs the environment servers of a configuration until this process is ended.

    Args:
        token: That clients must have; by default that of the environment, or a new one, which is written below the run
            directory.

    Raises:
        InfraError: They do not start, or none is left.
    """
    given = Secret(SecretKind.ENVIRONMENT, TOKEN_ENV, token) or Secret.read(SecretKind.ENVIRONMENT, TOKEN_ENV)
    config, places, folder = plan.config, plan.places, run_dir(plan.config.run)
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with ending_cleanly():
        ray = connect(places.cluster)
        here = joined(places.cluster) and len(nodes()) > 1
        servers = asyncio.run(
            EnvServers.start(
                config.env,
                str(logs),
                token=given,
                host="" if here else "127.0.0.1",
                options=places.options(Role.environment, spread=True),
                restarts=Restarts.of(places.cluster, logs),
                run=config.run.name,
            )
        )
        file = folder / "token"
        if not given:
            _keep(file, servers.token)
        where = TOKEN_ENV if given else file
        try:
            said: list[str] = []
            while True:
                urls = sorted(asyncio.run(servers.urls()))
                if urls != said:
                    reporter.message(f"{config.env.name}: {' '.join(urls) or 'being started again'} (token in {where})")
                    said = urls
                threading.Event().wait(LOOK_S)
        finally:
            asyncio.run(servers.stop())
            file.unlink(missing_ok=True)
            leave(ray)


def _keep(file: Path, token: Secret) -> None:
    """Writes a token where only this user reads it."""
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_text(token.reveal(), encoding="utf-8")
