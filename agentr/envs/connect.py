"""Makes clients of environment servers, in the protocol that the servers speak."""

from __future__ import annotations

from functools import partial

from agentr.config.schema import EnvConfig, EnvProtocol
from agentr.envs.agentgym import AgentGymTransport
from agentr.envs.client import EnvClient, Urls
from agentr.errors import ConfigError
from env_servers.registry import BadOptions, UnknownEnvironment, client_dialect, client_dialects, load


def connect(config: EnvConfig, urls: Urls, token: str) -> EnvClient:
    """Makes a client for servers of the configured environment.

    Raises:
        ConfigError: The protocol is AgentGym's, and there is no such server, or no environment here that knows its tasks.
    """
    client = partial(EnvClient, urls, token, timeout_s=config.timeout_s, retries=config.retries, one_line=config.one_line)
    if config.protocol is EnvProtocol.agentr:
        return client()
    if not config.url:
        raise ConfigError("env.protocol is agentgym, and env.url is empty", hint="Give the address of AgentGym's server.")
    try:
        dialect = client_dialect(config.name)
    except UnknownEnvironment:
        dialect = None
    if dialect is None:
        hint = f"They have: {', '.join(client_dialects())}."
        raise ConfigError(f"AgentGym's servers have no environment {config.name!r}", hint=hint)
    try:
        environment = load(config.name, config.options)
    except (UnknownEnvironment, BadOptions) as error:
        raise ConfigError(f"the tasks of {config.name} are not known here: {error}", hint="See `agentr envs`.") from error
    return client(transport=lambda *arguments: AgentGymTransport(environment, dialect, *arguments))
