"""The summary of a tree in one row: the columns of ``summary.parquet`` beside the trees of a stage."""

import json
from dataclasses import asdict, fields
from statistics import fmean
from typing import Any

from agentr.search.tree import Tree
from agentr.types import Cost

#: Columns and their Arrow types. Within a version of the stored form columns are added, never changed.
COLUMNS: dict[str, str] = {
    "key": "string",
    "env": "string",
    "task": "string",
    "split": "string",
    "labels": "string",
    "policy": "string",
    "turns": "int32",
    "depth": "int32",
    "ends": "int32",
    "successes": "int32",
    "best": "float32",
    "mean": "float32",
    "revisions": "int32",
    "stopped": "string",
    "events": "string",
    **{field.name: "int64" for field in fields(Cost)},
    "policy_s": "float32",
    "env_s": "float32",
}

#: What the columns mean, for the reference of the run directory.
MEANING: dict[str, str] = {
    "key": "key of the tree: the task's id, safe as a file name",
    "env": "name of the environment",
    "task": "id of the task",
    "split": "split of the environment that the task is from",
    "labels": "labels of the task, JSON",
    "policy": "stage that trained the policy",
    "turns": "turns of the tree: nodes without the root",
    "depth": "actions on the longest path",
    "ends": "ended episodes",
    "successes": "those that ended in success and are not taken over from another tree",
    "best": "highest return of an ended episode; none without one",
    "mean": "mean return of the ended episodes; none without one",
    "revisions": "attempts to revise a bad path",
    "stopped": "why the search ended, where the strategy says",
    "events": "counts of events: duplicates, unparsed turns and so on, JSON",
    "calls": "requests to the policy that drew turns",
    "completions": "turns drawn",
    "prompt_tokens": "prompt tokens of the requests",
    "cached_tokens": "those of them that came from the prefix cache",
    "completion_tokens": "tokens generated",
    "env_steps": "actions that the environment carried out for new turns",
    "judge_calls": "requests to the policy for a verdict",
    "policy_s": "seconds of the policy, waiting included, over all expansions",
    "env_s": "seconds of the environment, waiting included, over all expansions",
}


def summary_row(tree: Tree) -> dict[str, Any]:
    """Returns the row of a tree."""
    returns = [node.reward for node in tree.ended()]
    return {
        "key": tree.task.key,
        "env": tree.task.env,
        "task": tree.task.id,
        "split": tree.task.split,
        "labels": json.dumps(tree.task.labels, sort_keys=True),
        "policy": tree.policy,
        "turns": len(tree.nodes) - 1,
        "depth": max(node.depth for node in tree.nodes),
        "ends": len(returns),
        "successes": len(tree.successes()),
        "best": max(returns) if returns else None,
        "mean": fmean(returns) if returns else None,
        "revisions": len(tree.revisions),
        "stopped": str(tree.search.get("stopped") or ""),
        "events": json.dumps(tree.events, sort_keys=True),
        **asdict(tree.cost),
        "policy_s": sum(spent.policy_s for spent in tree.spent),
        "env_s": sum(spent.env_s for spent in tree.spent),
    }
