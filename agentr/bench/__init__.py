"""Benchmarks of agentr against a reference. Each runs both sides one after the other, on the same machine and services."""
