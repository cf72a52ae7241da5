"""DensePolicy: values, selection, pairs, shares."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from agentr.methods.dense_policy.dense import Dense
from agentr.methods.dense_policy.rows import mix_pairs, preference_rows
from agentr.methods.dense_policy.siblings import contrasts, estimates, sibling_pairs
from agentr.search import Origin
from agentr.search.written import PROMPT, Turns, name_of, new_tree, searched, spoken, tree_of
from agentr.store.rows import Preference
from agentr.types import Task


def dense(method: Any, **changes: Any) -> Dense:
    return Dense(replace(method.search, **changes), method.pairs.rule())


def values(paths: Sequence[str]) -> dict[str, float]:
    tree = tree_of(paths)
    return {name_of(tree.nodes[place]): found.value for place, found in enumerate(estimates(tree)) if found}


def turns_left(method: Any, paths: Sequence[str]) -> dict[str, float]:
    tree = tree_of(paths)
    found = estimates(tree, method.pairs.turns_left)
    return {name_of(tree.nodes[place]): estimate.turns_left for place, estimate in enumerate(found) if estimate}


def contrast(paths: Sequence[str], executed: Sequence[str] = ()) -> dict[str, float]:
    tree = tree_of(executed, origin=Origin.REVISION, into=tree_of(paths))
    return {name_of(tree.nodes[place]): found for place, found in enumerate(contrasts(tree, estimates(tree)))}


def score(method: Any, contrast: float, turns_left: float, visits: int) -> float:
    return dense(method).score(contrast, turns_left, visits)


def temperatures(method: Any, branches: Sequence[int]) -> list[float]:
    return [dense(method).temperature(branch) for branch in branches]


def first_batch(method: Any, base: int, depth: int) -> list[list[int]]:
    """The first turns of the tree, by the branches and temperatures that are asked for."""
    asked = dense(method, base=base, max_depth=depth).ask(new_tree())
    return [[expansion.node, expansion.n, cast(float, expansion.temperature)] for expansion in asked]  # type: ignore[list-item]


def first_rollouts(method: Any, base: int, depth: int) -> list[list[int]]:
    """The branches that the first rollouts took."""
    tree, _ = searched(dense(method, base=base, max_depth=depth, stop_rollouts=base), {})
    return [[cast(int, node.branch) for node in tree.path(leaf.id)] for leaf in tree.ended()]


def pairs(
    method: Any, paths: Sequence[str], turns: Turns | None = None, executed: Sequence[str] = ()
) -> list[list[str]]:
    tree = tree_of(executed, origin=Origin.REVISION, into=tree_of(paths, turns))
    found = sibling_pairs(tree, method.pairs.rule())
    return sorted([name_of(tree.nodes[pair.chosen]), name_of(tree.nodes[pair.rejected])] for pair in found)


def rows(
    method: Any, build: Any, paths: Sequence[str], turns: Turns | None = None, max_length: int = 10_000
) -> list[Any]:
    """The rows: prompt, chosen and rejected side, and what of them counts."""
    tree = tree_of(paths, turns)
    rules = method.pairs
    found = preference_rows(
        tree, rules, max_length, train_on_invalid=build.train_on_invalid, train_on_reasoning=build.train_on_reasoning
    )
    return [
        [
            [
                turn
                for turn, _ in spoken(tree, row.prompt_ids[len(PROMPT) :], [0] * (len(row.prompt_ids) - len(PROMPT)))
            ],
            spoken(tree, row.chosen_ids, row.chosen_mask),
            spoken(tree, row.rejected_ids, row.rejected_mask),
        ]
        for row in found
        if isinstance(row, Preference)
    ]


def shares(method: Any, counts: Mapping[str, int], tasks: int, pairs: int) -> dict[str, int]:
    """How many pairs are drawn of each task."""
    by_task = {Task("toy", task, "train"): [task] * count for task, count in counts.items()}
    drawn = mix_pairs(by_task, replace(method.pairs, tasks=tasks, pairs=pairs), 0)
    return {task: drawn.count(task) for task in counts}
