"""Entrypoints for ``ray job submit``: thin, each reads a configuration and calls one function of agentr."""
