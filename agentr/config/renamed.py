"""Keys that have another name now: a configuration that uses one is refused with the new name."""

from __future__ import annotations

#: Old key, or the beginning of a group of keys -> new key. The longest match counts.
RENAMED = {
    "run.recipe": "method.type",
    "run.preset": "method.preset",
    "collect.search": "method.search",
    "collect.search.stop_dive_at_success": "method.search.stop_simulation_at_success",
    "collect.search.max_invalid": "method.search.max_invalid (agent_r) or method.max_invalid (eto, rft)",
    "collect.dense": "method.search",
    "collect.dense.greedy_label": "method.search.greedy_branch",
    "collect.episodes": "method.episodes",
    "revise": "method.revise",
    "revise.alpha": "method.revise.alpha (agent_r) or method.min_return (rft)",
    "build.contrast": "method.pairs",
    "build.contrast.unit": "method.pairs.granularity",
    "build.contrast.against": "method.pairs.baseline",
    "build.siblings": "method.pairs",
    "build.good_per_task": "method.good_per_task",
    "build.revisions_per_task": "method.revisions_per_task",
    "build.extra_pairs": "method.extra_pairs",
    "build.demonstrations": "method.mixture.demonstrations",
    "build.earlier_rounds": "method.mixture.earlier_rounds",
    "build.general_path": "method.mixture.general_path",
    "build.eta": "method.mixture.eta",
    "build.balance_tasks": "method.mixture.balance_tasks",
}

#: Values that have another name now, by key.
RENAMED_VALUES = {("trainer.continue_from", "base"): "warm_start"}


def new_name(key: str) -> str:
    """Returns what a key is called now; empty if it never had another name."""
    found = max((old for old in RENAMED if key == old or key.startswith(f"{old}.")), key=len, default="")
    return RENAMED[found] + key.removeprefix(found) if found else ""
