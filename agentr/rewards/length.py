"""A price on what the policy writes."""

from agentr.rewards.group import Group, Reward


class Length:
    """Minus a price for each generated token.

    Args:
        per_token: The price, at least 0.
        observations: Whether tokens of observations cost as much.
    """

    def __init__(self, per_token: float = 0.001, observations: bool = False) -> None:
        if per_token < 0:
            raise ValueError(f"per_token is {per_token:g} and must not be below 0")
        self._per_token, self._observations = per_token, observations

    def __call__(self, group: Group) -> list[Reward]:
        prices = (
            -self._per_token * (e.tokens_with_observations if self._observations else e.tokens) for e in group.episodes
        )
        return [Reward(price, shaping=price) for price in prices]


REWARD = Length
