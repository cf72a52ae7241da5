"""The rows of a step of online training: every rollout of its trees, with rewards and advantages."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from agentr.rewards.group import Group, Reward
from agentr.rows.advantages import AdvantageConfig, advantages
from agentr.rows.sequences import NO_LOGPROBS, Turn, conversations, dropped, provenance, recorded
from agentr.search.tree import Tree
from agentr.store.rows import Dropped, Rollout


def rollout_rows(
    group: Group, rewards: Sequence[Reward], config: AdvantageConfig, *, train_on_reasoning: bool = True, trees: int = 0
) -> Iterator[Rollout | Dropped]:
    """Yields the rows of a group. A turn that is in several rollouts (of a tree) is in as many rows, with the advantage
    that it has there. One whose log-probabilities are not known, such as one that had to follow a grammar, is context.

    Args:
        rewards: Of each episode.
        train_on_reasoning: Also train on the reasoning of turns.
        trees: As for ``advantages``.
    """
    by_turn = advantages(group.episodes, [reward.total for reward in rewards], config, trees)
    for episode, reward, values in zip(group.episodes, rewards, by_turn, strict=True):
        tree, nodes = episode.tree, [node.id for node in episode.path]
        if not any(node.logprobs for node in episode.path):
            yield dropped(tree, NO_LOGPROBS, nodes)
            continue
        turns = recorded(episode.path, trained=True, on_reasoning=train_on_reasoning)
        scores = {"total": reward.total, **reward.parts}
        yield rollout(tree, turns, values, scores, "rollout", earned=episode.earned)


def rollout(
    tree: Tree,
    turns: Sequence[Turn],
    advantages: Sequence[float],
    scores: Mapping[str, float],
    kind: str,
    **detail: float | int | str,
) -> Rollout | Dropped:
    """Makes the row of turns after the tree's opening, with an advantage for each. A turn without log-probabilities is
    context."""
    turns = [replace(turn, trained=turn.trained and bool(turn.logprobs)) for turn in turns]
    parts = conversations(tree, turns)
    if not parts:
        return dropped(tree, "no token", [turn.node for turn in turns])
    each: list[float] = []
    for part in parts:
        by_token = itertools.chain.from_iterable(
            itertools.repeat(advantages[number], sum(turns[number].mask)) for number in part.starts
        )
        each += [next(by_token) if trained else 0.0 for trained in part.mask]
    ids, mask, logprobs = (
        tuple(itertools.chain.from_iterable(getattr(part, name) for part in parts))
        for name in ("ids", "mask", "logprobs")
    )
    starts = tuple(itertools.accumulate(len(part.ids) for part in parts[:-1]))
    made = provenance(tree, turns, kind, **detail)
    return Rollout(ids, mask, made, logprobs, tuple(each), tree.task.key, dict(scores), starts)
