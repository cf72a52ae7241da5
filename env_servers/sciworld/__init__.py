from env_servers.sciworld.environment import ScienceWorld

ENVIRONMENT = ScienceWorld

__all__ = ["ENVIRONMENT", "ScienceWorld"]
