"""Metrics of a policy over its held-out trees, with intervals."""
