from env_servers.program.environment import Program

ENVIRONMENT = Program

__all__ = ["ENVIRONMENT", "Program"]
