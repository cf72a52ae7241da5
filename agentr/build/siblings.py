"""DensePolicy's pairs: the next turn that led further is preferred to its sibling, after the same conversation.

A row is the conversation as prompt and one turn on either side, all of whose tokens count. Which turns are a pair is said by
``agentr.search.siblings``, because the search stops by it; here it is said how many of them are used, and in what mixture.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from agentr.config.methods import BuildConfig, SiblingsConfig
from agentr.errors import ConfigError
from agentr.search.siblings import Estimate, SiblingPair, estimates, sibling_pairs
from agentr.search.tree import Node, Tree
from agentr.store.rows import Preference, Provenance
from agentr.types import Task


def preference_rows(tree: Tree, config: SiblingsConfig, build: BuildConfig, dropped: Counter[str]) -> Iterator[Preference]:
    """The pairs of one tree, largest gap first, at most ``pairs_per_parent`` below a node and ``pairs_per_task`` in all.

    A turn that the environment did not understand is not chosen, unless ``build.train_on_invalid``; it may be rejected.

    Args:
        dropped: Counts, by reason, what was left out.
    """
    found = estimates(tree)
    below: Counter[int] = Counter()
    for pair in sibling_pairs(tree, config, dropped):
        chosen, rejected = tree.nodes[pair.chosen], tree.nodes[pair.rejected]
        if not (chosen.valid or build.train_on_invalid):
            dropped["pairs whose chosen turn was invalid"] += 1
        elif not (chosen.token_ids and rejected.token_ids):
            dropped["pairs with a turn without tokens"] += 1
        elif (row := _row(tree, pair, chosen, rejected, found)).longest > build.max_length:
            dropped["longer than build.max_length"] += 1
        elif 0 < config.pairs_per_parent <= below[chosen.parent]:
            dropped["over build.siblings.pairs_per_parent"] += 1
        elif 0 < config.pairs_per_task <= below.total():
            dropped["over build.siblings.pairs_per_task"] += 1
        else:
            below[chosen.parent] += 1
            yield row


def _row(tree: Tree, pair: SiblingPair, chosen: Node, rejected: Node, found: list[Estimate | None]) -> Preference:
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
    return Preference(
        prompt_ids=tuple(tree.prompt(chosen.parent)),
        chosen_ids=chosen.token_ids,
        chosen_mask=(1,) * len(chosen.token_ids),
        rejected_ids=rejected.token_ids,
        rejected_mask=(1,) * len(rejected.token_ids),
        provenance=Provenance(tree.task.key, (chosen.id,), "sibling", detail, (rejected.id,)),
    )


def mix_pairs(by_task: Mapping[Task, Sequence[Preference]], config: SiblingsConfig, seed: int) -> list[Preference]:
    """What a round is trained on: the tasks with most pairs, and the same share of each one's pairs.

    With ``mix``, this is done in each of its groups; with the same number of pairs from fewer tasks, each task is learnt more densely.

    Args:
        by_task: The pairs of every task, tasks without any included.
        seed: Of the draw; the same rows in the same order for the same seed.

    Raises:
        ConfigError: ``mix`` names a group that no task belongs to, or there is no ``mix_label``.
    """
    if not config.mix:
        return _draw(by_task, config.tasks, config.pairs, random.Random(f"siblings/{seed}"))
    if not config.mix_label:
        raise ConfigError("build.siblings.mix needs build.siblings.mix_label", hint="Name the task label whose values are the groups.")
    labels = {task: str(task.labels[config.mix_label]) for task in by_task if config.mix_label in task.labels}
    pairs: list[Preference] = []
    for name, wanted in config.mix.items():
        group = {task: by_task[task] for task, label in labels.items() if label == name}
        if not group:
            raise ConfigError(
                f"build.siblings.mix names {name!r}, and no task has {config.mix_label} = {name!r}",
                hint=f"The tasks of this round have: {', '.join(sorted(set(labels.values()))) or 'no such label'}.",
            )
        pairs += _draw(group, config.tasks, wanted, random.Random(f"siblings/{seed}"))
    return pairs


def _draw(by_task: Mapping[Task, Sequence[Preference]], tasks: int, wanted: int, chance: random.Random) -> list[Preference]:
    """The same share of the pairs of each of the ``tasks`` tasks with most, ``wanted`` in all; 0 means all.

    A share that is no whole number is rounded down, and up for those with the largest remainder, until there are enough.
    """
    most = sorted(by_task, key=lambda task: (-len(by_task[task]), task.key))[: tasks or None]
    total = sum(len(by_task[task]) for task in most)
    if not wanted or wanted >= total:
        return [pair for task in most for pair in by_task[task]]
    quota = {task: divmod(len(by_task[task]) * wanted, total) for task in most}
    by_remainder = sorted(most, key=lambda task: (-quota[task][1], chance.random()))
    rounded_up = set(by_remainder[: wanted - sum(whole for whole, _ in quota.values())])
    drawn: list[Preference] = []
    for task in most:
        pairs = by_task[task]
        drawn += [pairs[i] for i in sorted(chance.sample(range(len(pairs)), quota[task][0] + (task in rounded_up)))]
    return drawn
