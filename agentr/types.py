"""The words that everything else speaks."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from env_servers.observation import Asked, CallStatus, Observation  # noqa: F401 - words of these, too

#: What closes the part of a turn that holds reasoning, for the models that have one.
REASONED = "</think>"


class Outcome(StrEnum):
    """Why an episode ended at a node."""

    SUCCESS = "success"
    """The environment ended the episode with a reward at or above the task's success threshold."""
    FAILURE = "failure"
    """The environment ended the episode with less."""
    STEP_LIMIT = "step_limit"
    """The limit on actions was reached first; the reward so far counts."""
    CONTEXT_LIMIT = "context_limit"
    """The next prompt would not fit into the model's context; the reward so far counts."""
    REFUSED = "refused"
    """Whoever plays the agent's part refused the prompt (an API's filter, or its context), and would refuse it again;
    or a program that plays it did not repeat itself up to the turn. What would have come of it is not known: never a
    reward and never a row, and counted."""
    INFRA = "infra"
    """Machinery failed (dead server, dead engine, time-out).
    Retried within a budget, never a reward and never a row."""

    @property
    def is_the_agents(self) -> bool:
        """Whether the episode ended by what the agent did: only then it is a return, evidence for a search, a number,
        or a row."""
        return self not in (Outcome.REFUSED, Outcome.INFRA)


class Loss(StrEnum):
    """What a dataset is trained with: all that the trainer knows of a method."""

    IMITATE = "imitate"
    """Cross-entropy on the marked tokens of a sequence (supervised fine-tuning)."""
    PREFER = "prefer"
    """Direct preference optimisation on pairs of continuations (arXiv 2305.18290, Eq. 7)."""
    REINFORCE = "reinforce"
    """A clipped policy gradient on turns that have an advantage (arXiv 2402.03300, Eq. 3, and its successors)."""


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """The model ended its turn."""
    LENGTH = "length"
    """The token limit was reached, or an API broke off: the turn is cut off."""


@dataclass
class Cost:
    """What was spent: by a tree, by a policy, by a stage.

    Attributes:
        calls: Requests to the policy that drew turns.
        completions: Turns drawn in them.
        prompt_tokens: Prompt tokens, each request's prompt once, however many completions share it.
        cached_tokens: Those of them that came from the prefix cache; the rest was computed.
        completion_tokens: Tokens that were generated.
        env_steps: Actions that the environment carried out for new turns.
        judge_calls: Requests to the policy for a verdict. Their tokens are in the three counts of tokens.
    """

    calls: int = 0
    completions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    env_steps: int = 0
    judge_calls: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(operator.add, _amounts(self), _amounts(other)))

    def __sub__(self, other: Cost) -> Cost:
        return Cost(*map(operator.sub, _amounts(self), _amounts(other)))

    @staticmethod
    def sum(costs: Iterable[Cost]) -> Cost:
        """Returns the sum of costs."""
        return Cost(*map(sum, zip(_amounts(Cost()), *map(_amounts, costs), strict=True)))


_amounts = operator.attrgetter(*(entry.name for entry in fields(Cost)))


#: Who says what the agent observes: the user, or a tool that it called.
Answerer = Literal["user", "tool"]


@dataclass(frozen=True)
class Message:
    """One turn of a conversation in text form. What answers a tool call has the role ``tool``.

    Attributes:
        answers: The id of that call, where a program says so.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    answers: str = field(default="", repr=False)


def messages_of(asked: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Returns the messages of a program's call."""
    return [
        Message("system" if m["role"] == "developer" else m["role"], m["content"], m.get("call_id", "")) for m in asked
    ]


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn.

    Attributes:
        temperature: 0 means greedy.
        max_tokens: Longest completion, in tokens.
        seed: Seed of the request; completion ``i`` of ``n`` derives its own from it.
        stop: Strings that end a completion besides the end of the turn.
        stop_ids: Ids of tokens that end it, besides the tokenizer's end of a sequence.
        form: A grammar that it must follow, as the JSON of a structural tag of xgrammar; empty for none.
    """

    temperature: float = 1.0
    max_tokens: int = 256
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    form: str = ""


@dataclass(frozen=True)
class Completion:
    """One answer of the policy.

    Attributes:
        token_ids: Generated ids, including the end-of-turn token where ``finish`` is STOP.
        logprobs: Log-probability of each id at the sampling temperature 1 (the model's own distribution), same length.
        cached_tokens: How many prompt tokens came from the prefix cache (counted on the first completion of a call).
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: FinishReason
    cached_tokens: int = 0


@dataclass(frozen=True)
class Task:
    """A task of an environment with the labels it can be selected and stratified by."""

    env: str
    id: str
    split: str
    labels: dict[str, int | float | str] = field(default_factory=dict, hash=False, compare=False)

    @property
    def key(self) -> str:
        """A name that is safe as a file name and unique within an environment."""
        return _file_name(self.id)


@lru_cache(maxsize=65_536)
def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else f"~{ord(c):x}~" for c in text)


def task_id(key: str) -> str:
    """Returns the id of the task that has a key: the inverse of ``Task.key``."""
    return re.sub("~([0-9a-f]+)~", lambda found: chr(int(found[1], 16)), key)
