"""Queries over trees: rows, pairs, mixtures, exports, imports."""
