"""ARPO's reward: right, well formed, and a little more for the use of several tools (arXiv 2507.19849, section 3.4)."""

from collections.abc import Sequence

from agentr.rewards.group import Group, Reward
from agentr.search.episode import Episode


class ARPOReward:
    """-1 for an episode with a turn that could not be read, or without an answer; else the environment's return, and a
    bonus if that is above 0 and every tool was called.

    Args:
        tools: How the actions of each tool begin.
        bonus: For calling all of them.
    """

    def __init__(self, tools: Sequence[str] = ("search:", "python:"), bonus: float = 0.1) -> None:
        if isinstance(tools, str) or not tools:
            raise ValueError(f"tools is {tools!r} and must be a list of beginnings of actions")
        self._tools, self._bonus = tuple(tools), bonus

    def __call__(self, group: Group) -> list[Reward]:
        return [self._one(episode) for episode in group.episodes]

    def _one(self, episode: Episode) -> Reward:
        if episode.malformed or episode.unanswered:
            return Reward(-1.0, {"correct": episode.earned, "format": -1.0, "tools": 0.0})
        used = all(any(node.action.startswith(tool) for node in episode.path) for tool in self._tools)
        bonus = self._bonus if used and episode.earned > 0 else 0.0
        return Reward(episode.earned + bonus, {"correct": episode.earned, "format": 0.0, "tools": bonus}, shaping=bonus)


REWARD = ARPOReward
