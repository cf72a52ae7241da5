"""The rows of a step of online training: every rollout of its trees, with rewards and advantages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentr.build.advantages import AdvantageConfig, advantages
from agentr.build.sequences import dropped, make_row, recorded
from agentr.rewards.group import Group, Reward
from agentr.search.tree import Node
from agentr.store.rows import Dropped, Rollout


def rollout_rows(group: Group, rewards: Sequence[Reward], config: AdvantageConfig) -> Iterator[Rollout | Dropped]:
    """Yields the rows of a group. A turn that is in several rollouts (of a tree) is in as many rows, with the advantage that it has there.

    Args:
        rewards: Of each episode.
    """
    by_turn = advantages(group.episodes, [reward.total for reward in rewards], config)
    for episode, reward, turns in zip(group.episodes, rewards, by_turn, strict=True):
        nodes = [node.id for node in episode.path]
        if not all(node.logprobs for node in episode.path):
            yield dropped(episode.tree, "no log-probabilities", nodes)
            continue
        row = make_row(episode.tree, recorded(episode.path, trained=True), "rollout", earned=episode.earned)
        if row is None:
            yield dropped(episode.tree, "no token", nodes)
            continue
        each = _by_token(len(episode.tree.prompt_ids), episode.path, turns)
        scores = {"total": reward.total, **reward.parts}
        yield Rollout(row.input_ids, row.loss_mask, row.provenance, row.logprobs, each, episode.tree.task.key, scores)


def _by_token(opening: int, path: Sequence[Node], turns: Sequence[float]) -> tuple[float, ...]:
    found = [0.0] * opening
    for position, (node, advantage) in enumerate(zip(path, turns, strict=True)):
        found += [advantage] * len(node.token_ids)
        if position < len(path) - 1:
            found += [0.0] * len(node.bridge_ids)
    return tuple(found)
