"""Questions to agentr's own code: each takes a configuration and a vector's inputs, and returns agentr's answer as
plain data."""
