"""Record of an attempt to make a better episode of one that is there (ET-Agent's flywheel, R3L's retries)."""

from dataclasses import dataclass


@dataclass(kw_only=True)
class Evolution:
    """One use of an operator (ET-Agent, arXiv 2601.06860, section 3.2; R3L, arXiv 2601.03715, section 4.1). Places are
    node ids.

    Attributes:
        parent: Leaf of the episode that it started from.
        operator: Its name; whoever runs it fills it in.
        turn: The turn that was found to be redundant or wrong, counted from 1; 0 if no turn was named.
        kept: Turns at the beginning that were taken over, the wrong one included.
        end: Leaf of the episode that came of it, -1 if there is none.
        reason: Why there is none.
        completions: Turns that the policy drew for it.
        env_steps: Actions that the environment carried out for it.
        asked: Requests to a teacher.
        guidance: What the policy was told before it went on, which rows of the episode do not show.
        answer: What was written about the episode that it started from.
        answer_ids: The same as token ids, if the policy wrote it.
        answer_logprobs: Log-probability of each of them.
    """

    parent: int
    operator: str = ""
    turn: int = 0
    kept: int = 0
    end: int = -1
    reason: str = ""
    completions: int = 0
    env_steps: int = 0
    asked: int = 0
    guidance: str = ""
    answer: str = ""
    answer_ids: tuple[int, ...] = ()
    answer_logprobs: tuple[float, ...] = ()
