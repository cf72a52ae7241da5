"""What runs that were frozen earlier meant by values that mean something else now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentr.config.identity import flatten

#: Rewards with shaping, which counted for failures, too.
_SHAPING = ("length", "calls", "et_agent", "arpo")


def meant_otherwise(stored: Mapping[str, Any]) -> Iterator[str]:
    """Yields ``key: what it was -> what it is`` for a configuration that was stored before rewards had a gate.

    Such a one says nothing of ``grpo.kl_ratio``, which every configuration has had since.
    """
    values = dict(flatten(stored))
    if any(key.endswith(".grpo.kl_ratio") for key in values):
        return
    for key, value in values.items():
        reward = "method.rewards[" in key and key.endswith("].name")
        if reward and value in _SHAPING:
            yield f"{key}: {value} counted for failures, too -> not, unless method.gate is none"
        if reward and value == "et_agent":
            yield f"{key}: et_agent gave 0 for an episode without an answer -> -1"
        if key.endswith("method.advantages.subtree") and value:
            yield f"{key}: rollouts were compared by first turn -> by tree"
        if key.startswith("from_round.") and key.endswith(".method.preset") and value != "default":
            yield f"{key}: {value} had other values -> those of today"
        if key.endswith(".grpo.kl") and value:
            yield f"{key}: times the ratio -> not, unless grpo.kl_ratio is true"
