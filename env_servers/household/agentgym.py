"""AgentGym's dialect of ALFWorld. AgentGym has no server of this environment, so there is no client side."""

from env_servers.alfred.agentgym import routes

__all__ = ["routes"]
