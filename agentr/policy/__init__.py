"""Policies: engines behind a router, or an API; conversations as token ids."""
