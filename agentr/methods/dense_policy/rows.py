"""Builds DensePolicy's pairs: of two turns after the same conversation, the one that led further is preferred.

A row is the conversation as prompt and one turn on either side, all of whose tokens count. ``siblings.py`` decides
which turns are a pair, because the search stops by the number of pairs; this module decides how many of them are used,
and in what mixture.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from pydantic import NonNegativeInt

from agentr.config.checks import Problem
from agentr.errors import ConfigError
from agentr.methods.dense_policy.siblings import SiblingPair, SiblingRule, TurnValue, estimates, sibling_candidates
from agentr.rows.sequences import dropped, make_pair, recorded
from agentr.search.tree import Node, Tree
from agentr.store.rows import Dropped, Preference
from agentr.types import Task

T = TypeVar("T")


@dataclass
class SiblingsConfig(SiblingRule):
    """Pairs of two turns after the same conversation, by the mean return after each (DensePolicy)."""

    pairs_per_task: NonNegativeInt = 0
    """Most pairs of a tree, largest difference first; 0 means all."""
    tasks: NonNegativeInt = 0
    """Number of tasks to keep (of each group, with `mix`), those with most pairs first; 0 means all.
    With `pairs`, the density axis."""
    pairs: NonNegativeInt = 0
    """Number of pairs to draw, the same share from each task; 0 means all."""
    mix_label: str = ""
    """Task label whose values are the groups of `mix`, such as family."""
    mix: dict[str, int] = field(default_factory=dict)
    """Pairs to draw from each group, 0 for all of it; groups that are not named are left out. Replaces `pairs`."""

    def problems(self) -> Iterator[Problem]:
        if self.mix and not self.mix_label:
            yield Problem("mix", "mix needs mix_label", "Name the task label whose values are the groups.")
        for group, pairs in self.mix.items():
            if pairs < 0:
                yield Problem(f"mix.{group}", f"{pairs} is out of range", "Give a number at least 0; 0 means all.")

    def rule(self) -> SiblingRule:
        """Returns the rule by which two turns are a pair, without the caps on the number of pairs used."""
        return SiblingRule(**{f.name: getattr(self, f.name) for f in fields(SiblingRule)})


def preference_rows(
    tree: Tree, config: SiblingsConfig, max_length: int, *, train_on_invalid: bool, train_on_reasoning: bool
) -> Iterator[Preference | Dropped]:
    """Yields the pairs of one tree, largest gap first, at most ``pairs_per_parent`` below a node and ``pairs_per_task``
    in all.

    Args:
        max_length: Most tokens of a pair's longer side.
        train_on_invalid: Also choose turns that the environment did not understand; they may be rejected in any case.
        train_on_reasoning: Also train on their reasoning.
    """
    found = estimates(tree, config.turns_left)
    below: Counter[int] = Counter()
    for pair in sibling_candidates(tree, config):
        chosen, rejected = tree.nodes[pair.chosen], tree.nodes[pair.rejected]
        reason = pair.fault
        row: Preference | None = None
        if reason:
            pass
        elif not (chosen.valid or train_on_invalid):
            reason = "pairs whose chosen turn was invalid"
        elif not (chosen.token_ids and rejected.token_ids):
            reason = "pairs with a turn without tokens"
        elif (row := _row(tree, pair, chosen, rejected, found, train_on_reasoning)) is None:
            reason = "pairs with a turn that is reasoning alone"
        elif row.longest > max_length:
            reason = "longer than build.max_length"
        elif 0 < config.pairs_per_parent <= below[chosen.parent]:
            reason = "over method.pairs.pairs_per_parent"
        elif 0 < config.pairs_per_task <= below.total():
            reason = "over method.pairs.pairs_per_task"
        if reason or row is None:
            yield dropped(tree, reason, [chosen.id], [rejected.id])
        else:
            below[chosen.parent] += 1
            yield row


def _row(
    tree: Tree, pair: SiblingPair, chosen: Node, rejected: Node, found: list[TurnValue | None], on_reasoning: bool
) -> Preference | None:
    better, worse = found[chosen.id], found[rejected.id]
    assert better is not None and worse is not None, "a pair is made of estimates"
    detail: dict[str, float | int | str] = {
        "gap": pair.gap,
        "chosen_value": better.value,
        "rejected_value": worse.value,
        "chosen_visits": chosen.visits,
        "rejected_visits": rejected.visits,
        "depth": chosen.depth,
    }
    # Siblings were drawn from the same prompt, also where it was shortened: the pair has just that one.
    better_side, worse_side = (
        (tree, recorded([replace(turn, forgotten=0)], trained=True, on_reasoning=on_reasoning))
        for turn in (chosen, rejected)
    )
    return make_pair(tree.prompt(chosen.parent, chosen.forgotten), better_side, worse_side, "sibling", **detail)


def mix_pairs(by_task: Mapping[Task, Sequence[T]], config: SiblingsConfig, seed: int) -> list[T]:
    """Returns a round's pairs: of the tasks with most pairs, the same share of the pairs of each.

    With ``mix``, each of its groups is drawn by itself. The same number of pairs from fewer tasks trains on each task
    more densely.

    Args:
        by_task: The pairs of every task, tasks without pairs included.
        seed: Seed of the draw; the same seed gives the same rows in the same order.

    Raises:
        ConfigError: ``mix`` names a group that no task belongs to.
    """
    if not config.mix:
        return _draw(by_task, config.tasks, config.pairs, random.Random(f"siblings/{seed}"))
    labels = {task: str(task.labels[config.mix_label]) for task in by_task if config.mix_label in task.labels}
    pairs: list[T] = []
    for name, wanted in config.mix.items():
        group = {task: by_task[task] for task, label in labels.items() if label == name}
        if not group:
            raise ConfigError(
                f"method.pairs.mix names {name!r}, and no task has {config.mix_label} = {name!r}",
                hint=f"The tasks of this round have: {', '.join(sorted(set(labels.values()))) or 'no such label'}.",
            )
        pairs += _draw(group, config.tasks, wanted, random.Random(f"siblings/{seed}"))
    return pairs


def _draw(by_task: Mapping[Task, Sequence[T]], tasks: int, wanted: int, chance: random.Random) -> list[T]:
    """Draws ``wanted`` pairs in all, the same share from each of the ``tasks`` tasks with most pairs; 0 means all.

    Shares are rounded down, and those with the largest remainders are rounded up until there are ``wanted`` pairs.
    """
    most = sorted(by_task, key=lambda task: (-len(by_task[task]), task.key))[: tasks or None]
    total = sum(len(by_task[task]) for task in most)
    if not wanted or wanted >= total:
        return [pair for task in most for pair in by_task[task]]
    quota = {task: divmod(len(by_task[task]) * wanted, total) for task in most}
    by_remainder = sorted(most, key=lambda task: (-quota[task][1], chance.random()))
    rounded_up = set(by_remainder[: wanted - sum(whole for whole, _ in quota.values())])
    drawn: list[T] = []
    for task in most:
        pairs = by_task[task]
        drawn += [pairs[i] for i in sorted(chance.sample(range(len(pairs)), quota[task][0] + (task in rounded_up)))]
    return drawn
