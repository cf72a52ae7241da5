"""Rows that keep the skills of reflecting and of retrying alive (R3L, arXiv 2601.03715, section 4.1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentr.methods.r3l.retry import question, told
from agentr.policy.chat import ChatCodec
from agentr.rewards.group import Group, Reward
from agentr.rows.rollouts import rollout
from agentr.rows.sequences import provenance, recorded
from agentr.search.episode import Episode
from agentr.search.evolution import Evolution
from agentr.store.rows import Dropped, Rollout
from agentr.types import Message


@dataclass(frozen=True)
class Verified:
    """A retry that earned more than what it began again.

    Attributes:
        scores: What the two are worth: ``total`` the retry, ``before`` the other.
    """

    made: Evolution
    before: Episode
    after: Episode
    scores: dict[str, float]


def corrections(group: Group, rewards: Sequence[Reward]) -> Iterator[Verified]:
    """Yields the verified corrections among a task's rollouts, in the order written."""
    worth = {episode.leaf.id: (episode, reward.total) for episode, reward in zip(group.episodes, rewards, strict=True)}
    for made in group.episodes[0].tree.evolutions if group.episodes else ():
        if made.parent in worth and made.end in worth:
            (before, earned), (after, more) = worth[made.parent], worth[made.end]
            if more > earned:
                yield Verified(made, before, after, {"total": more, "before": earned})


def auxiliary_rows(
    group: Group, rewards: Sequence[Reward], codec: ChatCodec, *, on_reasoning: bool = True
) -> Iterator[Rollout | Dropped]:
    """Yields, for each verified correction, the reflection before it and the retry with its advice. Both are imitated
    (Eq. 9): each token's advantage is 1."""
    for found in corrections(group, rewards):
        made, tree = found.made, found.after.tree
        if made.answer_logprobs:
            asked = codec.plain.prompt((Message("user", question(found.before)),))
            ids, mask = (*asked, *made.answer_ids), (*[0] * len(asked), *[1] * len(made.answer_ids))
            about = provenance(tree, recorded(found.before.path, trained=False), "reflection")
            known = (*[None] * len(asked), *made.answer_logprobs)
            yield Rollout(ids, mask, about, known, tuple(map(float, mask)), tree.task.key, found.scores)
        view = told(tree, made, codec)
        path = view.path(made.end)
        turns = recorded(path[: made.kept], trained=False)
        turns += recorded(path[made.kept :], trained=True, on_reasoning=on_reasoning)
        yield rollout(view, turns, [1.0] * len(turns), found.scores, "guided")
