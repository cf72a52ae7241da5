"""AgentGym's dialect of ALFWorld."""

from env_servers.alfred.agentgym import routes
from env_servers.dialect import ClientDialect

__all__ = ["CLIENT", "routes"]

CLIENT = ClientDialect(
    reset=lambda index: {"game": index, "world_type": "Text"},
    actions="available_actions",
    closes=False,
)
