from env_servers.textcraft.environment import TextCraft

ENVIRONMENT = TextCraft

__all__ = ["ENVIRONMENT", "TextCraft"]
