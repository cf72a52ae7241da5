from env_servers.webshop.environment import WebShop

ENVIRONMENT = WebShop

__all__ = ["ENVIRONMENT", "WebShop"]
