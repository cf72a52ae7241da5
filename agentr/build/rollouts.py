"""The rows of a step of online training: every rollout of its trees, with rewards and advantages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from agentr.build.advantages import AdvantageConfig, advantages
from agentr.build.sequences import dropped, make_row, recorded
from agentr.rewards.group import Group, Reward
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
        by_token = itertools.chain.from_iterable(
            itertools.repeat(turn, len(node.token_ids)) for turn, node in zip(turns, episode.path, strict=True)
        )
        each = tuple(next(by_token) if trained else 0.0 for trained in row.loss_mask)
        scores = {"total": reward.total, **reward.parts}
        yield Rollout(row.input_ids, row.loss_mask, row.provenance, row.logprobs, each, episode.tree.task.key, scores)
