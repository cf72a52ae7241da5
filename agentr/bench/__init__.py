"""Measurements that the project stands by: each runs both sides in one go, on the same machine and the same parts."""
