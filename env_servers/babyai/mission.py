"""One fault of minigrid's missions, mended (minigrid 3.2.0, `envs/babyai/core/verifier.py`).

There, the move that accomplishes the first part of "then" can fail the second, so that the level OpenDoorsOrderN4Debug
cannot be won when it names two doors. Here the second part is failed by later moves alone.
"""

from typing import Any

from minigrid.envs.babyai.core.verifier import AfterInstr, BeforeInstr


class Before(BeforeInstr):
    @property
    def begun(self) -> bool:
        """Whether the first part is done."""
        return self.a_done == "success"

    def verify(self, action: int) -> Any:
        begun, status = self.begun, super().verify(action)
        return "continue" if status == "failure" and not begun and self.begun else status


class After(AfterInstr):
    @property
    def begun(self) -> bool:
        """Whether the part that comes first is done."""
        return self.b_done == "success"

    def verify(self, action: int) -> Any:
        begun, status = self.begun, super().verify(action)
        return "continue" if status == "failure" and not begun and self.begun else status


def mend(environment: Any) -> None:
    """Gives an environment of minigrid's the mended rule; "then" and "after you" stand at the top of a mission only."""
    mission = environment.instrs
    mission.__class__ = {BeforeInstr: Before, AfterInstr: After}.get(type(mission), type(mission))
