"""Records of judging and revising: verdicts on turns, and attempts to revise a bad path."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Splice(StrEnum):
    """How a revision joins a bad prefix and a good end."""

    executed = "executed"
    """The bad prefix and the good actions are run in the real environment; kept only if they earn at least the good
    path's return."""
    paper = "paper"
    """Agent-R section 3: texts are spliced, never executed."""
    direct = "direct"
    """Direct-Revision: the whole bad trajectory, then the good one."""


class Rating(StrEnum):
    """Verdict on one turn."""

    GOOD = "good"
    UNCERTAIN = "uncertain"
    BAD = "bad"


@dataclass(frozen=True)
class Verdict:
    """A judge's verdict on one turn.

    Attributes:
        reason: The judge's reason in words; None if the tree's values decided without asking.
        answer: The judge's whole answer as it came, also one that could not be read; None if nobody was asked.
    """

    rating: Rating
    reason: str | None = None
    answer: str | None = None


@dataclass(kw_only=True)
class Revision:
    """One attempt to revise a bad path (Agent-R, arXiv 2501.11425, section 3.2). All places are node ids.

    Attributes:
        bad: Leaf of the bad path.
        good: Leaf of the good path; where the good end is no path of the tree (``revise.end``), that of the revision,
            or the transition if there is none.
        ancestor: Deepest node that both paths share.
        transition: Last node of the bad prefix.
        reflection: Sentence put before the good action's thought.
        spliced: The good actions alone, executed after the bad prefix, earned the good path's return.
        end: Leaf of the executed revision if it earned the good path's return, else -1.
        continued: The policy had to go on by itself.
    """

    bad: int
    good: int
    ancestor: int
    transition: int
    reflection: str
    spliced: bool = False
    end: int = -1
    continued: bool = False


def reflects(text: str, sentences: Collection[str]) -> bool:
    """Whether a turn says one of the sentences that reflections open with."""
    return any(sentence in text for sentence in sentences)
