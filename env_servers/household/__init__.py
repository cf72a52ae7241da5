from env_servers.household.environment import Household

ENVIRONMENT = Household

__all__ = ["ENVIRONMENT", "Household"]
