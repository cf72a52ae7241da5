"""What the environment says of an answer, by name."""

from agentr.rewards.group import Group, Reward
from agentr.types import Outcome


class NamedScore:
    """The environment's score of this name for the answer that ended the episode; 0 without an answer.

    Args:
        name: ``f1`` or ``em`` of searchqa, ``math`` of mathtool, or another name that the environment gives.

    Raises:
        ValueError: The environment ended episodes, and gave none of them such a score.
    """

    def __init__(self, name: str = "f1") -> None:
        self._name = name

    def __call__(self, group: Group) -> list[Reward]:
        ended = [e.leaf.scores for e in group.episodes if e.leaf.outcome in (Outcome.SUCCESS, Outcome.FAILURE)]
        if ended and not any(self._name in scores for scores in ended):
            given = ", ".join(sorted(set().union(*ended)))
            hint = (
                f"it gives {given}: name one of them" if given else "it gives none: use another reward, such as outcome"
            )
            raise ValueError(f"the environment gives no score {self._name!r} with an answer; {hint}")
        return [Reward(episode.leaf.scores.get(self._name, 0.0)) for episode in group.episodes]


REWARD = NamedScore
