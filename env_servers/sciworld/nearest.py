"""The valid action nearest to what an agent said, as Agent-R's client chooses it for every model that it trains or
measures.

It makes the game easier, since the agent is shown the right words, and what the agent said is not what happened. Off by
default.
"""

import re
from collections.abc import Sequence

#: Actions that nobody gets without having asked for them: a wrong focus ends the game, and a reset loses what was
#: reached.
DELIBERATE = ("focus on", "reset task")


def nearest(action: str, valid: Sequence[str]) -> str:
    """``action`` if it is valid, else the valid action that shares most words with it; of several the shortest, then
    the first.

    Doors can only be opened: the list also says how to look at, move and wire them. An action that shares no word with
    any stays.
    """
    if action in valid or not valid:
        return action
    said = set(_words(action))
    candidates = [
        candidate
        for candidate in valid
        if (" door " not in candidate or candidate.startswith("open door"))
        and not any(candidate.startswith(start) and not action.startswith(start.split()[0]) for start in DELIBERATE)
    ]
    shared = {candidate: len(said.intersection(_words(candidate))) for candidate in candidates}
    best = min(candidates, key=lambda c: (-shared[c], len(c), c), default=action)
    return best if shared.get(best) else action


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())
