from env_servers.alfworld.environment import Alfworld

ENVIRONMENT = Alfworld

__all__ = ["ENVIRONMENT", "Alfworld"]
