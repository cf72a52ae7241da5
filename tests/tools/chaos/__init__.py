"""Breaks a run on purpose and compares what came of it with an undisturbed one: ``python -m tests.tools.chaos``."""
