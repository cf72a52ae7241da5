"""agentr: distributed self-training of language-model agents on their own search trees."""

__version__ = "0.1.0"
