"""Starting values that a paper or its released code uses; a configuration file and the command line override them."""

from __future__ import annotations

from typing import Any

#: Agent-R (arXiv 2501.11425, section 4.2): 8 simulations of depth 20, 4 candidates at temperature 1, alpha 0.5/0.7/1.0, beta 0.2.
PAPER: dict[str, Any] = {
    "collect": {
        "search": {
            "iterations": 8,
            "max_depth": 20,
            "width": 4,
            "c_uct": 0.25,
            "dedupe": "none",
            "stop_dive_at_success": False,
            "enough_good": 0,
            "stop_hopeless_after": 0,
            "max_invalid": 0,
        },
        "sampling": {"temperature": 1.0, "max_tokens": 500},
    },
    "revise": {
        "splice": "paper",
        "alpha": [0.5, 0.7, 1.0],
        "alpha_inclusive": True,
        "beta": 0.2,
        "pairing": "threshold",
        "pairs_per_task": 0,
        "judge": "actor",
        "judge_sampling": {"temperature": 1.0, "max_tokens": 500},
        "judge_shared_prefix": True,
        "audit": False,
    },
    "build": {"good_per_task": 1_000_000, "revisions_per_task": 0, "train_on_invalid": True, "eta": 0.2},
}

#: The released code differs: siblings with the same text are one node, good - bad > beta in place of Eq. 4, good > alpha in place of >=
#: (with which the paper's last alpha, 1.0, leaves no data: 0.99 stands for it here).
RELEASED: dict[str, Any] = {
    "collect": {**PAPER["collect"], "search": {**PAPER["collect"]["search"], "dedupe": "text"}},
    "revise": {**PAPER["revise"], "pairing": "gap", "alpha_inclusive": False, "alpha": [0.5, 0.7, 0.99]},
    "build": PAPER["build"],
}

PRESETS: dict[str, dict[str, Any]] = {"default": {}, "paper": PAPER, "released": RELEASED}
