"""Makes clients of environment servers, in the protocol that the servers speak."""

from functools import partial

from agentr.config.openenv import openenv_options
from agentr.config.schema import EnvConfig, EnvProtocol
from agentr.envs.agentgym import AgentGymTransport
from agentr.envs.client import EnvClient, Urls
from agentr.envs.openenv import OpenEnvTransport
from agentr.errors import ConfigError
from agentr.secrets import Secret
from env_servers.registry import BadOptions, UnknownEnvironment, client_dialect, client_dialects, load


def connect(config: EnvConfig, urls: Urls, token: str | Secret) -> EnvClient:
    """Makes a client for servers of the configured environment.

    Raises:
        ConfigError: The protocol is another than ours, and there is no such server, or it does not take the options; or
            the protocol is AgentGym's, and no environment here knows its tasks.
    """
    client = partial(
        EnvClient, urls, token, timeout_s=config.timeout_s, retries=config.retries, one_line=config.one_line
    )
    if config.protocol is EnvProtocol.agentr:
        return client()
    if not config.url:
        raise ConfigError(
            f"env.protocol is {config.protocol}, and env.url is empty",
            hint="Give the address of a server that speaks it.",
        )
    if config.protocol is EnvProtocol.openenv:
        return client(transport=partial(OpenEnvTransport, openenv_options(config.options), config.name))
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
        raise ConfigError(
            f"the tasks of {config.name} are not known here: {error}", hint="See `agentr list environments`."
        ) from error
    return client(transport=lambda *arguments: AgentGymTransport(environment, dialect, *arguments))
