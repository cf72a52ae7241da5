"""TextCraft as those play it that are measured beside agentr, with the observations that agentr's agent sees."""

from agentr.tasks.formats import CUT_OFF, ReAct
from env_servers.textcraft import TextCraft

GAME, FORMAT = TextCraft(recipes="exact", distractors=3), ReAct()


def carried_out(game, text: str, *, cut: bool) -> tuple[str, bool, float, bool]:
    """Carries out a turn, or says what was wrong with it.

    Args:
        cut: Whether the turn ended at its limit of tokens.

    Returns:
        What the agent sees, whether the game is over, the reward, and whether the action was a valid one.
    """
    parsed = FORMAT.parse(text)
    if cut:
        return CUT_OFF, False, 0.0, False
    if parsed.action is None:
        return parsed.problem, False, 0.0, False
    seen = GAME.step(game, parsed.action)
    return seen.observation, seen.done, seen.reward, seen.valid
