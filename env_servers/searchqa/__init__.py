from env_servers.searchqa.environment import SearchQA

ENVIRONMENT = SearchQA

__all__ = ["ENVIRONMENT", "SearchQA"]
