"""AgentGym's clients of ALFWorld can play here too."""

from env_servers.alfworld.agentgym import routes

__all__ = ["routes"]
