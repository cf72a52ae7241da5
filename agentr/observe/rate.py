"""How fast work gets on, and how long it will still take: from what was seen lately, and nothing before enough was
seen."""

from collections import deque

#: The rate is the mean of so many seconds, or of more if fewer than ``FEW`` units ended in them.
WINDOW_S = 120.0

#: No rate before so many units ended, and not before so many seconds have passed.
FEW, SOON_S = 3, 10.0


class Pace:
    """Units a minute in a window of time.

    What is done at the first word counts for nothing: after a restart it is the work of an earlier process.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def add(self, at: float, done: float) -> None:
        """Notes how much is done.

        Args:
            at: The time, in seconds.
            done: Less than before says that it begins again.
        """
        seen = self._seen
        if seen and done < seen[-1][1]:
            seen.clear()
        if not seen or done > seen[-1][1]:
            seen.append((at, done))
        while len(seen) > 1 and seen[1][0] <= at - WINDOW_S and seen[-1][1] - seen[1][1] >= FEW:
            seen.popleft()

    def per_minute(self, at: float) -> float | None:
        """Returns the rate at a time, or None if too little was seen."""
        if not self._seen:
            return None
        (since, before), (_, done) = self._seen[0], self._seen[-1]
        if at - since < SOON_S or done - before < FEW:
            return None
        return 60.0 * (done - before) / (at - since)
