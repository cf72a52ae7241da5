from env_servers.textcraft.environment import TextCraft

__all__ = ["TextCraft"]
