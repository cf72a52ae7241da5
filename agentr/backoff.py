"""Pauses between attempts: one rule for every retry."""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Exponential back-off.

    Attributes:
        first_s: Pause after the first failure, in seconds; doubled after each further one.
        longest_s: Upper bound of a pause.
        jitter: Share by which a pause may be shortened or lengthened at random, so that clients that were refused
            together do not come back together.
    """

    first_s: float = 0.5
    longest_s: float = 30.0
    jitter: float = 0.0

    def pause_s(self, attempt: int) -> float:
        """Returns the pause after attempt ``attempt`` (counted from 0) failed, in seconds."""
        pause = min(self.longest_s, self.first_s * 2 ** min(attempt, 30))
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter) if self.jitter else pause
