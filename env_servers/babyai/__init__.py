from env_servers.babyai.environment import BabyAI

ENVIRONMENT = BabyAI

__all__ = ["ENVIRONMENT", "BabyAI"]
