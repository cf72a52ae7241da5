from env_servers.mathtool.environment import MathTool

ENVIRONMENT = MathTool

__all__ = ["ENVIRONMENT", "MathTool"]
