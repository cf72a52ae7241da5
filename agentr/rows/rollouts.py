"""The rows of a step of online training: every rollout of its trees, with rewards and advantages."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agentr.rewards.group import Group, Reward
from agentr.rows.advantages import AdvantageConfig, advantages
from agentr.rows.sequences import SEVERAL, dropped, make_row, recorded
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

    Raises:
        DataError: The policy did not see the reasoning of earlier turns, so that a rollout is no one sequence.
    """
    by_turn = advantages(group.episodes, [reward.total for reward in rewards], config, trees)
    for episode, reward, turns in zip(group.episodes, rewards, by_turn, strict=True):
        nodes = [node.id for node in episode.path]
        if not any(node.logprobs for node in episode.path):
            yield dropped(episode.tree, "no log-probabilities", nodes)
            continue
        if any(node.behind for node in episode.path[:-1]):
            yield dropped(episode.tree, SEVERAL, nodes)
            continue
        recorded_turns = recorded(episode.path, trained=True, on_reasoning=train_on_reasoning)
        taken = [replace(turn, trained=turn.trained and bool(turn.logprobs)) for turn in recorded_turns]
        row = make_row(episode.tree, taken, "rollout", earned=episode.earned)
        if row is None:
            yield dropped(episode.tree, "no token", nodes)
            continue
        by_token = itertools.chain.from_iterable(
            itertools.repeat(value, sum(turn.mask)) for value, turn in zip(turns, taken, strict=True)
        )
        each = tuple(next(by_token) if trained else 0.0 for trained in row.loss_mask)
        scores = {"total": reward.total, **reward.parts}
        yield Rollout(row.input_ids, row.loss_mask, row.provenance, row.logprobs, each, episode.tree.task.key, scores)
