from env_servers.gym.environment import Gym

ENVIRONMENT = Gym

__all__ = ["ENVIRONMENT", "Gym"]
