"""When a policy reflects: after moves that were refused, as it should, or after moves that worked.

What a move was is said by the environment alone: it was carried out or not. One that was carried out and helps nobody
counts as one that worked, so the share of false reflections is an upper bound.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from agentr.evaluate.statistics import Estimate, share_interval
from agentr.search.revision import reflects
from agentr.search.tree import Node, Origin

#: Names of the two shares: of reflections those that follow a move that worked, and of refused moves those that no
#: reflection follows.
FALSE, PASSED_OVER = "after a move that worked", "passed over"


@dataclass
class Reflections:
    """Counts reflections in the episodes of tasks.

    Args:
        sentences: Openings of reflections; without any nothing is counted.
    """

    sentences: Sequence[str]
    _problems: list[str] = field(default_factory=list)
    _counts: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add(self, problem: str, episodes: Iterable[Sequence[Node]]) -> None:
        """Counts the turns of a task's episodes that the policy took after another one."""
        said = false = refused = passed_over = 0
        for path in episodes if self.sentences else ():
            for before, after in pairwise(path):
                if after.origin is not Origin.POLICY:
                    continue
                reflected = reflects(after.text, self.sentences)
                said += reflected
                false += reflected and before.valid
                refused += not before.valid
                passed_over += not before.valid and not reflected
        self._problems.append(problem)
        self._counts.append((said, false, refused, passed_over))

    def shares(self) -> dict[str, Estimate]:
        """Returns both shares with their intervals over problems, ``n`` being reflections and refused moves; nothing
        without sentences."""
        if not self.sentences or not self._counts:
            return {}
        said, false, refused, passed_over = zip(*self._counts, strict=True)
        return {
            FALSE: share_interval(false, said, problems=self._problems),
            PASSED_OVER: share_interval(passed_over, refused, problems=self._problems),
        }
