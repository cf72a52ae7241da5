"""What the environment says."""

from agentr.rewards.group import Group, Reward


class OutcomeReward:
    """The environment's return.

    Args:
        success_only: 1 for a success and 0 for anything else, in place of a return between.
    """

    def __init__(self, success_only: bool = False) -> None:
        self._success_only = success_only

    def __call__(self, group: Group) -> list[Reward]:
        return [Reward(float(r.succeeded) if self._success_only else r.earned) for r in group.episodes]


REWARD = OutcomeReward
