"""Starting values that a paper or its released code uses; a configuration file and the command line override them."""

from __future__ import annotations

from typing import Any

#: Agent-R (arXiv 2501.11425, section 4.2): 8 simulations of depth 20, 4 candidates at temperature 1, alpha 0.5/0.7/1.0, beta 0.2.
AGENT_R_PAPER: dict[str, Any] = {
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
AGENT_R_RELEASED: dict[str, Any] = {
    "collect": {**AGENT_R_PAPER["collect"], "search": {**AGENT_R_PAPER["collect"]["search"], "dedupe": "text"}},
    "revise": {**AGENT_R_PAPER["revise"], "pairing": "gap", "alpha_inclusive": False, "alpha": [0.5, 0.7, 0.99]},
    "build": AGENT_R_PAPER["build"],
}

#: ETO (arXiv 2403.02502, section 4.1): behavioural cloning at 1e-5, one greedy exploration of each training task with one example in
#: the prompt, DPO with beta 0.1 at 1e-6. Two rounds (WebShop, ScienceWorld; ALFWorld has one).
ETO_PAPER: dict[str, Any] = {
    "run": {"rounds": 2},
    "model": {"max_model_len": 4096},
    "prompt": {"examples": 1},
    "warm_start": {"train": {"epochs": 3.0, "learning_rate": 1e-5, "batch_size": 64, "micro_batch_size": 4, "max_length": 4096}},
    "collect": {"episodes": 1, "fresh_tasks": False, "sampling": {"temperature": 0.0, "max_tokens": 512}},
    "build": {"max_length": 4096, "contrast": {"against": "expert", "unit": "trajectory", "margin": 0.0, "extra_turns": 5}},
    "train": [
        {
            "epochs": 3.0,
            "learning_rate": 1e-6,
            "batch_size": 32,
            "micro_batch_size": 2,
            "schedule": "constant_with_warmup",
            "warmup_ratio": 0.1,
            "max_length": 4096,
            "dpo": {"beta": 0.1, "sft": 0.0},
        }
    ],
    "eval": {"sampling": {"temperature": 0.0, "max_tokens": 512}},
}

#: The released script: cloning at 2e-5, three rounds, and from the second on beta 0.5 at 5e-7.
ETO_RELEASED: dict[str, Any] = {
    **ETO_PAPER,
    "run": {"rounds": 3},
    "warm_start": {"train": {**ETO_PAPER["warm_start"]["train"], "learning_rate": 2e-5}},
    "train": [ETO_PAPER["train"][0], {**ETO_PAPER["train"][0], "learning_rate": 5e-7, "dpo": {"beta": 0.5, "sft": 0.0}}],
}

#: DensePolicy's released scripts for MATH (there is no paper): 10 labels, 8 turns, windows of 8, up to 512 pairs or 1,000 rollouts a tree,
#: one round at 7.2e-8 with a warm-up that lasts to the end.
DENSE_POLICY: dict[str, Any] = {
    "run": {"rounds": 1},
    "model": {"max_model_len": 8192},
    "prompt": {"examples": 1},
    "warm_start": {"enabled": False},
    "collect": {
        "dense": {"base": 10, "max_depth": 8, "window": 8, "stop_pairs": 512, "stop_rollouts": 1000, "stop_empty": 1000},
        "sampling": {"temperature": 1.0, "max_tokens": 1024},
    },
    "build": {
        "max_length": 4096,
        "train_on_invalid": True,
        "siblings": {"min_gap": 0.5, "max_visits": 8, "released_visits": True, "dedupe": False},
    },
    "train": [
        {
            "epochs": 1.0,
            "learning_rate": 7.2e-8,
            "batch_size": 32,
            "micro_batch_size": 1,
            "schedule": "cosine",
            "warmup_ratio": 1.0,
            "max_length": 4096,
            "dpo": {"beta": 0.1, "sft": 0.0},
        }
    ],
}

#: By recipe and preset; the default of every recipe is what the schema says.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "agent_r": {"default": {}, "paper": AGENT_R_PAPER, "released": AGENT_R_RELEASED},
    "eto": {"default": {}, "paper": ETO_PAPER, "released": ETO_RELEASED},
    "dense_policy": {"default": {}, "paper": DENSE_POLICY, "released": DENSE_POLICY},
    "rft": {"default": {}},
    "sft": {"default": {}},
}
