"""A price on what the policy asks of the environment."""

from agentr.rewards.group import Group, Reward


class Calls:
    """Minus a price for each call. An answer is no call.

    Args:
        per_call: The price, at least 0.
    """

    def __init__(self, per_call: float = 0.1) -> None:
        if per_call < 0:
            raise ValueError(f"per_call is {per_call:g} and must not be below 0")
        self._per_call = per_call

    def __call__(self, group: Group) -> list[Reward]:
        prices = (-self._per_call * episode.calls for episode in group.episodes)
        return [Reward(price, shaping=price) for price in prices]


REWARD = Calls
