"""Reasoning that is left out of later prompts (``turns.keep_reasoning: false``): how turns are shown once others
follow."""

from dataclasses import dataclass
from typing import Protocol


class Taken(Protocol):
    """A turn as ids: a node, a child, or a turn of a row."""

    @property
    def token_ids(self) -> tuple[int, ...]: ...

    @property
    def bridge_ids(self) -> tuple[int, ...]: ...

    @property
    def reasoning(self) -> int: ...


@dataclass(frozen=True)
class Hiding:
    """How turns without their reasoning are shown.

    Attributes:
        opened: How many ids at the end of each prompt open the reasoning; they are taken off before an earlier turn.
        instead: Ids that the chat template writes in their place.
    """

    opened: int = 0
    instead: tuple[int, ...] = ()

    def changes(self, turn: Taken) -> bool:
        """Returns whether a turn is shown otherwise once others follow."""
        return bool(turn.reasoning or self.opened or self.instead)

    def show(self, prompt: list[int], turn: Taken) -> None:
        """Adds a turn that was taken after a prompt to it, as it is shown from then on, and the bridge to the next
        turn."""
        del prompt[len(prompt) - self.opened :]
        prompt += self.instead
        prompt += turn.token_ids[turn.reasoning :]
        prompt += turn.bridge_ids

    def length(self, turn: Taken) -> int:
        """Returns how many tokens ``show`` adds."""
        return len(self.instead) - self.opened + len(turn.token_ids) - turn.reasoning + len(turn.bridge_ids)
