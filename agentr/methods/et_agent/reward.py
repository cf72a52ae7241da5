"""ET-Agent's reward: right, and economical compared with the other rollouts of the task (arXiv 2601.06860, section
3.3)."""

import math
from statistics import fmean, pstdev

from agentr.rewards.group import Group, Reward


class ETAgentReward:
    """R = correctness x f_tool x f_len + format.

    f_tool = scale / (1 + exp(sigma_tool (T - mean T))) for T calls, and f_len the same for the length's z-value in the
    group: who makes more calls, or writes more, than the others earns less. With sigma = 0 both are scale / 2 for all.
    The format term is ``format`` for an episode with a turn that could not be read or without an answer, else 0. What
    the factors add to those at the mean is shaping.

    Args:
        sigma_tool: Steepness for calls, by round; the last value holds for later rounds (0.1 in the paper, falling by
            round).
        sigma_len: The same for lengths.
        decay: Whether sigma falls to 0 within a round, in equal steps (the released code) or stays (the paper).
        scale: 2 in the released code, so that a factor is 1 at the mean; 1 in the paper.
        observations: Whether observations count for the length (the released code) or not (the paper).
        format: What a malformed or unanswered rollout loses, as a number below or equal to 0.
    """

    def __init__(
        self,
        sigma_tool: float | list[float] = 0.1,
        sigma_len: float | list[float] = 0.1,
        decay: bool = False,
        scale: float = 2.0,
        observations: bool = False,
        format: float = -1.0,
    ) -> None:
        self._tool, self._len = _by_round(sigma_tool, "sigma_tool"), _by_round(sigma_len, "sigma_len")
        if scale <= 0:
            raise ValueError(f"scale is {scale:g} and must be above 0")
        if format > 0:
            raise ValueError(f"format is {format:g} and must be 0 or below")
        self._decay, self._scale, self._observations, self._format = decay, scale, observations, format

    def __call__(self, group: Group) -> list[Reward]:
        if not group.episodes:
            return []
        left = 1.0 - group.progress if self._decay else 1.0
        tool, length = (sigmas[min(group.round_, len(sigmas)) - 1] * left for sigmas in (self._tool, self._len))
        calls = [r.calls for r in group.episodes]
        lengths = [r.tokens_with_observations if self._observations else r.tokens for r in group.episodes]
        mean_calls, mean_length, spread = fmean(calls), fmean(lengths), pstdev(lengths)
        found = []
        for episode, made, size in zip(group.episodes, calls, lengths, strict=True):
            f_tool = self._factor(tool * (made - mean_calls))
            f_len = self._factor(length * ((size - mean_length) / spread if spread else 0.0))
            lost = self._format if episode.malformed or episode.unanswered else 0.0
            parts = {"correct": episode.earned, "f_tool": f_tool, "f_len": f_len, "format": lost}
            shaping = episode.earned * (f_tool * f_len - (self._scale / 2) ** 2)
            found.append(Reward(episode.earned * f_tool * f_len + lost, parts, shaping))
        return found

    def _factor(self, exponent: float) -> float:
        return self._scale / (1.0 + math.exp(min(exponent, 700.0)))


def _by_round(sigma: float | list[float], name: str) -> list[float]:
    found = [float(value) for value in ([sigma] if isinstance(sigma, int | float) else sigma)]
    if not found:
        raise ValueError(f"{name} is empty: give a number, or one for each round")
    if any(value < 0 for value in found):
        raise ValueError(f"{name} is {sigma} and must not be below 0: it would reward more calls")
    return found


REWARD = ETAgentReward
