"""Another level that fits what was seen of one.

A level is a function of the numbers that minigrid's generator draws, so levels are drawn by Metropolis-Hastings over
these numbers (Wingate et al. 2011, AISTATS 15, section 3). One of them is drawn anew, and the generator runs again with
the others as they were, by the place in its code where each is drawn. The level that it makes takes the place of the
one before with probability min(1, n / n'), where n and n' are how many numbers the two took, if the agent would have
seen the same in it. Whatever the level, that leaves the generator's own distribution, given what was seen, as it is.
"""

import random
from collections.abc import Callable
from typing import Any

from env_servers.babyai import levels
from env_servers.babyai.tape import Draw, Impossible, Tape, given

#: How many numbers are drawn anew, one after the other. A room has some thirty, nine rooms have three hundred and take
#: ten milliseconds for each.
PROPOSALS = 400


def another(name: str, seed: levels.Seed, fits: Callable[[Any], bool], rng: random.Random) -> tuple[float, ...]:
    """Returns the numbers of another level than the one with this seed.

    Args:
        fits: Whether the agent would have seen the same in minigrid's environment of a level; it may play it.
    """
    from env_servers.babyai.mission import mend

    environment = levels.empty(name)
    environment.gen_obs = levels.no_picture
    now = Tape(environment, _seeded(seed) if isinstance(seed, int) else given(seed), float("inf"))
    environment.reset()
    for _ in range(PROPOSALS):
        known = dict(zip(now.places, now.drawn, strict=True))
        del known[rng.choice(now.places)]
        tape = Tape(environment, lambda low, high, whole: _drawn(rng, low, high, whole), known=known)
        try:
            environment.reset()
        except Impossible:
            continue
        if tape.drawn != now.drawn and rng.random() * len(tape.drawn) < len(now.drawn):
            mend(environment)
            if fits(environment):
                now = tape
    return tuple(now.drawn)


def _seeded(seed: int) -> Draw:
    """Draws what a level with this seed draws."""
    from gymnasium.utils.seeding import np_random

    numpys, _ = np_random(seed)
    return lambda low, high, whole: (
        int(numpys.integers(int(low), int(high))) if whole else float(numpys.uniform(low, high))
    )


def _drawn(rng: random.Random, low: float, high: float, whole: bool) -> float:
    return rng.randrange(int(low), int(high)) if whole else rng.uniform(low, high)
