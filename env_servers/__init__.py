"""Environment servers: simulated worlds behind HTTP. A package of its own that imports nothing from agentr."""
