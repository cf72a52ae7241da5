"""What an environment says after an action: on a server and to the agent, and by itself, without the wire models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class CallStatus(StrEnum):
    """How an action came out: for people, filters and rewards.

    ``Observation.valid`` is another thing: whether the action was understood and changed or revealed something. Limits
    of invalid actions, counts of failed calls and masks of training go by that one. In the environments here an action
    is valid if its status is ``ok`` or ``empty``, and only then; an environment that says nothing of a status says
    ``ok`` of everything.
    """

    ok = "ok"
    """It was carried out and answered. A wrong answer to the task is ``ok``, too."""
    empty = "empty"
    """It was carried out, and found or printed nothing."""
    error = "error"
    """It was not understood, could not be done, or failed with an error."""
    timeout = "timeout"
    """It took too long and was stopped."""
    limit = "limit"
    """It was refused because a budget of calls is used up, or stopped because it needed or wrote too much."""

    @property
    def failed(self) -> bool:
        """Whether nothing came of the action."""
        return self in (CallStatus.error, CallStatus.timeout, CallStatus.limit)


@dataclass(frozen=True)
class OtherAnswer:
    """What a model that is not trained answered a program.

    Attributes:
        model: Its name, as the program says it.
        asked: A hash of the request.
        status: Of HTTP.
        kind: The body's media type.
    """

    model: str
    asked: str
    status: int
    kind: str
    body: str


@dataclass(frozen=True)
class Asked:
    """What a program asks a model after an answer: another call, of which the session is now.

    Attributes:
        messages: Those that are new in the conversation, each with ``role`` and ``content``, perhaps ``calls`` (``id``,
            ``name``, ``arguments``) and ``call_id``. None where the program has ended.
        after: The number of the answer, from 1 on in the episode, whose conversation the call goes on from; 0 if it
            begins one.
        answered: Whether that answer is in the conversation; programs drop what they cannot use.
        tools: Those of the call, each a JSON object of ``name``, ``description``, ``parameters`` as a text: templates
            show a schema's keys in their order.
        settings: What narrows the answer: ``stop``; ``max_tokens``; ``tool_choice``, which is ``none``, ``required`` or
            has the ``name`` of a tool; ``parallel_tool_calls`` if it is false; ``response_format``, a JSON schema.
        action: What the program did with the last answer, if it reports that.
        refused: Why the program could not be brought to the last answer: begun again, it did not repeat itself. What
            would have come of the answer is not known, and the episode ends.
        others: What other models answered since the last answer.
    """

    messages: tuple[Mapping[str, Any], ...] | None = None
    after: int = 0
    answered: bool = False
    tools: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    action: str | None = None
    refused: str = ""
    others: tuple[OtherAnswer, ...] = ()


class Again(NamedTuple):
    """What it took to bring programs back to their calls: how many were begun again, the answers that they were given
    again, and seconds."""

    starts: int = 0
    answers: int = 0
    seconds: float = 0.0

    @classmethod
    def sum(cls, parts: Iterable[Again]) -> Again:
        starts, answers, seconds = 0, 0, 0.0
        for part in parts:
            starts, answers, seconds = starts + part.starts, answers + part.answers, seconds + part.seconds
        return cls(starts, answers, seconds)


NOT_AGAIN = Again()


def call_id(number: int, n: int) -> str:
    """Returns the id of a call of a turn; as texts, ids are in the order of the calls.

    Args:
        number: Of the answer in its session, from 1 on.
        n: Of the call in it, from 0 on.
    """
    return f"call_{number:05}_{n:03}"


def call_place(identity: str) -> int:
    """Returns which call of its turn an id of `call_id` is, from 0 on; -1 for another id."""
    found = re.fullmatch(r"call_\d{5,}_(\d{3,})", identity, re.ASCII)
    return int(found[1]) if found and len(identity) < 40 else -1


@dataclass(frozen=True)
class Answer:
    """A turn of the agent, as the program is given it.

    Attributes:
        calls: Each with ``name`` and ``arguments``, a text.
        finish: ``stop``, or ``length`` for a turn that was cut off.
        usage: Tokens of the prompt and of the turn.
    """

    content: str
    calls: tuple[Mapping[str, str], ...] = ()
    finish: str = "stop"
    usage: tuple[int, int] = (0, 0)

    @classmethod
    def read(cls, action: str) -> Answer:
        """Reads an action: what `text` writes, or any other text, which is the content."""
        try:
            said = json.loads(action)
            if isinstance(said, dict) and said.keys() == {"content", "calls", "finish", "usage"}:
                prompt, turn = map(int, said["usage"])
                calls = tuple({"name": str(c["name"]), "arguments": str(c["arguments"])} for c in said["calls"])
                return cls(str(said["content"]), calls, str(said["finish"]), (prompt, turn))
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        return cls(action)

    @property
    def text(self) -> str:
        """The answer as an action."""
        return json.dumps({**vars(self), "calls": list(self.calls)}, ensure_ascii=False)


@dataclass(frozen=True)
class Observation:
    """An environment's answer to a reset or a step.

    Attributes:
        observation: Text for the agent.
        reward: In the environment's own scale where the environment says it. Clients have it in [0, 1], by the scale
            that the specification declares.
        done: The episode has ended; further steps are refused.
        valid: The action was understood and changed or revealed something. False for "could not do that" answers.
        executed: The action that was carried out where it is another than the one asked for (ScienceWorld takes the
            nearest valid one); empty where it is the same. To ask for it in the same state gives the same answer, and
            it stands as it is: that is how a history is played again.
        status: How the action came out; `CallStatus` says how that goes together with ``valid``.
        scores: With an answer that ends the episode, what else it is worth: numbers in [0, 1] by name, such as exact
            match and F1. Which of them is the reward, if any, makes no difference to them.
        asked: Of a program that plays the agent's part itself (`env_servers.program`), what it asks now.
        again: What it took to bring such a program back to its call.
    """

    observation: str
    reward: float = 0.0
    done: bool = False
    valid: bool = True
    executed: str = ""
    status: CallStatus = CallStatus.ok
    scores: Mapping[str, float] = field(default_factory=dict, hash=False)
    asked: Asked | None = field(default=None, hash=False)
    again: Again = field(default=NOT_AGAIN, compare=False, repr=False)

    @classmethod
    def failed(cls, observation: str, reward: float = 0.0, done: bool = False) -> Observation:
        """The answer to an action that was not understood or cannot be done."""
        return cls(observation, reward, done, valid=False, status=CallStatus.error)
