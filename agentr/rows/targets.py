"""Which turns of a path are learnt.
The others stay in the row as context: what came of them is seen, and they are not imitated."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from agentr.config.schema import BuildConfig
from agentr.rows.sequences import Turn, recorded
from agentr.search.pairs import by_luck
from agentr.search.revision import reflects
from agentr.search.tree import Node

#: Why a turn is not learnt that other worlds do not pay.
LUCK = "turn that was luck"


@dataclass(frozen=True)
class Targets:
    """A choice among the turns of a path.

    Attributes:
        invalid: Turns that the environment did not understand are learnt.
        said_twice: Turns that repeat a sentence are learnt.
        least_logprob: Least mean log-probability of a token in a turn that is learnt; None learns all. What no policy
            drew has none.
        reasoning: The reasoning of turns that are learnt is learnt.
        reflections: Openings of reflections that are not learnt after a move that was carried out; empty learns all.
        luck: Turns that earned what they did by luck are learnt (`agentr.search.pairs.by_luck`).
    """

    invalid: bool = False
    said_twice: bool = True
    least_logprob: float | None = None
    reasoning: bool = True
    reflections: tuple[str, ...] = ()
    luck: bool = False

    @classmethod
    def of(cls, config: BuildConfig, reflections: Sequence[str] = ()) -> Targets:
        """Returns the choice of a configuration."""
        return cls(
            config.train_on_invalid,
            config.train_on_said_twice,
            config.least_logprob,
            config.train_on_reasoning,
            tuple(reflections),
        )

    def turns(self, path: Sequence[Node], start: int = 0) -> tuple[list[Turn], Counter[str]]:
        """Returns a path as turns of a sequence, and how many of them are context by this choice, by reason.

        Args:
            start: The first turn that may be learnt.
        """
        turns, reasons = recorded(path[:start], trained=False), Counter[str]()
        for move in range(start, len(path)):
            reason = self._unlearnt(path, move)
            turns += recorded([path[move]], trained=not reason, on_invalid=self.invalid, on_reasoning=self.reasoning)
            if reason:
                reasons[reason] += 1
        return turns, reasons

    def _unlearnt(self, path: Sequence[Node], move: int) -> str:
        node = path[move]
        if not self.said_twice and said_twice(node.text):
            return "sentence said twice"
        if self.least_logprob is not None and node.logprobs and fmean(node.logprobs) < self.least_logprob:
            return "unlikely turn"
        if reflects(node.text, self.reflections) and (move == 0 or path[move - 1].valid):
            return "reflection on a move that worked"
        if not self.luck and by_luck(path, move):
            return LUCK
        return ""


def said_twice(text: str) -> bool:
    """Whether a turn has a sentence of several words twice."""
    sentences = [said for part in re.split(r"[.!?:\n]+", text) if len((said := part.strip().lower()).split()) > 1]
    return len(sentences) > len(set(sentences))
