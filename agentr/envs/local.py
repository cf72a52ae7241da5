"""An environment server for as long as somebody at this machine needs it."""

import contextlib
import difflib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentr.config.schema import EnvConfig
from agentr.config.secrets import env_token
from agentr.envs.server import EnvServer, new_token
from agentr.errors import ConfigError
from agentr.secrets import Secret, SecretKind
from env_servers.protocol import TOKEN_ENV
from env_servers.registry import ENVIRONMENTS


def is_url(target: str) -> bool:
    """Checks whether ``target`` is the address of a running server, and not an environment's name."""
    return target.startswith(("http://", "https://"))


@contextlib.contextmanager
def reachable(target: str, options: Mapping[str, Any], count: int = 1) -> Iterator[tuple[list[str], Secret]]:
    """Addresses and token of servers of ``target``: a URL stands for itself, an environment's name for ``count``
    servers of our own.

    The token of a server at a URL is read from the environment variable that servers read theirs from.

    Raises:
        ConfigError: There is no such environment; or options for a server that runs already.
        InfraError: A server did not start; quotes its log.
    """
    if is_url(target):
        if options:
            raise ConfigError(
                "a server that runs already takes no options", hint="Give --option with an environment's name."
            )
        yield [target], Secret.read(SecretKind.ENVIRONMENT, TOKEN_ENV)
        return
    if ":" not in target and target not in ENVIRONMENTS:
        near = difflib.get_close_matches(target, ENVIRONMENTS, n=1)
        hint = (
            f"Did you mean {near[0]!r}? " if near else ""
        ) + f"There are {', '.join(ENVIRONMENTS)}, or module:class, or an address."
        raise ConfigError(f"no environment is called {target!r}", hint=hint)
    with serving(EnvConfig(name=target, options=dict(options)), count) as (urls, token):
        yield urls, token


@contextlib.contextmanager
def serving(config: EnvConfig, count: int = 1) -> Iterator[tuple[list[str], Secret]]:
    """Addresses and token of servers of a configured environment: the one that the configuration names, or ``count`` of
    our own.

    Raises:
        InfraError: A server did not start; quotes its log.
    """
    if config.url:
        yield [config.url], env_token(config)
        return
    token = new_token()
    with tempfile.TemporaryDirectory(prefix="agentr-env-") as logs, contextlib.ExitStack() as running:
        urls = []
        for number in range(count):
            server = EnvServer(config, token, str(Path(logs) / f"{number}.log"))
            running.callback(server.stop)
            urls.append(server.url())
        yield urls, token
