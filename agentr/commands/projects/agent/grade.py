"""The reward of the agent: called when it has ended, in a process of its own."""

import json
from pathlib import Path


def score(task, folder, transcript):
    """Returns a number from 0 to 1, or {"reward": ..., "scores": {...}}."""
    return float(json.loads(Path(folder, "guessed.json").read_text())["solved"])
