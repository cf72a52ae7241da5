"""The numbers of an online step for people, and which of them look like a collapse."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from agentr.rewards.group import group_of
from agentr.store.forest import Forest


def describe(forest: Forest, answer_prefix: str) -> dict[str, Any]:
    """Returns what there is to say of the rollouts of a step: success, calls, lengths, cost, seconds."""
    episodes = [episode for tree in forest for episode in group_of(tree, answer_prefix).episodes]
    manifest = forest.manifest
    return {
        "version": manifest["stage"]["version"],
        "episodes": len(episodes),
        "success": round(fmean(e.succeeded for e in episodes), 5) if episodes else 0.0,
        "calls": round(fmean(e.calls for e in episodes), 4) if episodes else 0.0,
        "turns": round(fmean(len(e.path) for e in episodes), 4) if episodes else 0.0,
        "tokens": round(fmean(e.tokens for e in episodes), 3) if episodes else 0.0,
        "malformed": round(fmean(e.malformed for e in episodes), 5) if episodes else 0.0,
        **{name: manifest["progress"]["counts"].get(name, 0) for name in ("completions", "completion_tokens", "env_steps_executed")},
        **manifest["stage"]["seconds"],
    }


#: Entropy in nats a token below which a policy has all but one choice; and how many times as long as at first rollouts have run off.
COLLAPSED, RUN_OFF = 0.01, 3.0


def alarms(line: dict[str, Any], first: dict[str, Any], entropy: float | None) -> Iterator[str]:
    """Yields what in a step looks like a collapse, in words.

    Args:
        line: What there is to say of the step.
        first: The same of the first step.
        entropy: Mean entropy of a token in the last step that was trained on; None before the first.
    """
    if line["groups"] and line["silent_groups"] == line["groups"]:
        yield "all rollouts of each task are worth the same: there is nothing to learn from; choose other tasks, rewards or more episodes"
    if first["tokens"] and line["tokens"] > RUN_OFF * first["tokens"]:
        yield f"rollouts are over {RUN_OFF:g} times as long as at first: give lengths a price (reward length), or lower the learning rate"
    if entropy is not None and entropy < COLLAPSED:
        yield f"the entropy is below {COLLAPSED:g}: rollouts are hardly different any more; lower the learning rate, or set grpo.entropy"
