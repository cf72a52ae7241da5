"""The wire models of the environment servers: one definition, used by the servers and by ``agentr.envs``.

The protocol in one paragraph: a **session** is one live state of one task. ``open`` makes one; ``expand`` forks a
session once for each action, steps the copies and returns them as child sessions, which is what a search tree needs;
``step`` moves a session in place; ``actions`` suggests some; ``snapshot`` and ``restore`` carry a state across
processes; ``close`` frees sessions. Session ids carry the server's epoch, so that after a restart an old id is answered
with 410 Gone and the client replays its actions.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from env_servers.observation import NOT_AGAIN, Again, Asked, CallStatus, OtherAnswer

#: Environment variable from which a server, and a client of a server that runs already, read the bearer token.
TOKEN_ENV = "AGENTR_ENV_TOKEN"
#: Longest action that a server accepts, in characters, unless its specification says more.
MAX_ACTION_CHARS = 4096
#: The most that a specification may say.
MOST_ACTION_CHARS = 1_000_000
#: Most children that one expand call may ask for.
MAX_EXPAND = 256
#: How long a server takes at most over a split or an expert, in seconds, unless set otherwise. Both are rare and may
#: be slow by nature: ScienceWorld's solver was measured at 3-54 s.
EXPERT_TIMEOUT_S = 300.0


def text(value: Any) -> Any:
    """Returns a value of JSON in which all texts can be sent.

    Raises:
        ValueError: One holds half a character, which JSON's escapes can say, and UTF-8 cannot. pydantic finds it itself
            in a text that has a limit, and in no other.
    """
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            try:
                part.encode()
            except UnicodeEncodeError as error:
                raise ValueError("half a unicode character (a lone surrogate)") from error
        elif isinstance(part, dict):
            waiting += (*part, *part.values())
        elif isinstance(part, list):
            waiting += part
    return value


#: What an agent does, as a server takes it from anybody.
Action = Annotated[str, Field(max_length=MOST_ACTION_CHARS)]
#: Any text that can be sent.
Text = Annotated[str, AfterValidator(text)]
#: A session's id, and what names an environment and its version.
Name = Annotated[str, Field(max_length=128)]
#: A number in [0, 1].
Score = Annotated[float, Field(ge=0, le=1)]


class Wire(BaseModel):
    """Base of all wire models: unknown keys are refused, so that a typo is an error and not a silent default."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def later(default: Any, description: str | None = None) -> Any:
    """A field that came later: it is sent only if it says something, and who does not know it reads all other
    answers."""
    return Field(default, exclude_if=lambda value: value == default, description=description)


class Turn(Wire):
    """One message of an example or an instruction."""

    role: Literal["system", "user", "assistant"]
    content: str


class Split(Wire):
    """A named set of tasks."""

    about: str
    train: bool = Field(
        description="Whether its tasks may be trained on; tasks of the other splits are held out everywhere."
    )


class RewardScale(Wire):
    """The environment's raw reward range; agentr maps it to [0, 1] and clips."""

    low: float = 0.0
    high: float = 1.0
    success: float = Field(default=1.0, description="Scaled reward from which an episode counts as a success.")


class Tool(Wire):
    """A tool that an agent may call where it acts by tool calls, and the action that a call is.

    Raises:
        ValueError: ``action`` and ``parameters`` do not name the same arguments, or one of them is neither required nor
            has a default.
    """

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")
    description: str
    parameters: dict[str, Any] = Field(
        description="JSON schema of the arguments: an object with `properties` and `required`."
    )
    action: str = Field(description="The action of a call, with each argument's name in braces: `python: {code}`.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        properties = self.parameters.get("properties", {})
        named = re.findall(r"\{(\w+)\}", self.action)
        if sorted(named) != sorted(properties):
            raise ValueError(
                f"the action of tool {self.name} has the arguments {sorted(named)}, its parameters are "
                f"{sorted(properties)}"
            )
        for name, schema in properties.items():
            if name not in self.parameters.get("required", ()) and "default" not in schema:
                raise ValueError(f"tool {self.name}: the argument {name!r} is neither required nor has a default")
        return self


class EnvironmentSpec(Wire):
    """The published description of an environment, at ``/spec``: all that an agent needs to play."""

    name: str
    title: str
    version: str
    instruction: str = Field(description="First user message of every episode.")
    acknowledgement: str = Field("", description="Assistant message after the instruction; empty for none.")
    action_format: Literal["react", "bare", "codeact", "tags", "turn"] = "react"
    examples: list[list[Turn]] = Field(default_factory=list, description="Worked episodes for few-shot prompts.")
    splits: dict[str, Split] = Field(description="Each split by its name.")
    reward: RewardScale = RewardScale()
    step_limit: int = Field(30, gt=0, description="Actions an episode may take; the agent's side enforces it.")
    identity: str = Field(
        default="",
        description="Label that says which problem a task poses. Tasks with the same value "
        "are the same problem under another "
        "id, "
        "so a run that evaluates on one must not train on the other.",
    )
    strata: list[str] = Field(
        default_factory=list,
        description=(
            "Labels that evaluations break success down by: each has few values, and says how hard or of what kind a "
            "task is."
        ),
    )
    answer_prefix: str = Field(
        default="",
        description="How an action begins that is an answer and no call. Operators that "
        "leave out a call have the answer given "
        "anew, "
        "and evaluations say how many tasks were solved within so many answers.",
    )
    parallel: int = Field(
        default=0,
        ge=0,
        exclude_if=lambda value: value == 0,
        description="How many calls into the environment go on at the same time, where "
        "more would only take turns; 0 if that "
        "does not "
        "matter. Servers have so many threads; clients have so many requests at a server, and keep others before their "
        "deadlines begin.",
    )
    at_once: Annotated[int, Field(ge=0)] = later(
        0, "Sessions that go on at the same time without one of them being begun again; 0 if that does not matter."
    )
    action_chars: Annotated[int, Field(ge=1, le=MOST_ACTION_CHARS)] = later(
        MAX_ACTION_CHARS, "Longest action, in characters."
    )
    can_fork: bool = True
    deterministic: bool = True
    hidden: bool = later(
        False, "Whether the agent does not see all of the state: what it observed fits several worlds."
    )
    redraws: bool = later(False, "Whether it can draw another world that fits all that was observed.")
    guides: bool = later(False, "Whether the expert goes on from any state, and not from the beginning alone.")
    reorders: bool = later(
        False, "Whether what comes side by side may come in another order: a replay then says what is to come next."
    )
    source: str = Field("", description="Where tasks and texts come from, and under which licence.")
    tools: list[Tool] = later(
        [], "Its actions as tools, for agents that act by tool calls; empty: agentr offers one that takes any action."
    )
    tools_instruction: str = later(
        "", "The instruction for such agents, which says nothing on how a call is written; empty for `instruction`."
    )


class TaskEntry(Wire):
    """A task id with the labels that one may filter by."""

    id: str
    labels: dict[str, int | float | str] = Field(default_factory=dict)


class SplitResponse(Wire):
    name: str
    tasks: list[TaskEntry]


def sendable(answers: list[OtherAnswer]) -> list[OtherAnswer]:
    """Returns answers whose texts can be sent.

    Raises:
        ValueError: As in `text`.
    """
    text([vars(answer) for answer in answers])
    return answers


Expected = Annotated[
    Text | None,
    Field(
        description="In a replay, what was observed next; only for an environment that `reorders`.",
        exclude_if=lambda value: value is None,
    ),
]


class OpenRequest(Wire):
    task: str = Field(max_length=256)
    expected: Expected = None
    others: Annotated[list[OtherAnswer], AfterValidator(sendable)] = later(
        [], "In a replay, what other models answered on the way; only for an environment that `reorders`."
    )


class ObservedState(Wire):
    """A session and what was last observed in it. ``reward`` is in the environment's own scale.

    ``executed`` is the action that was really carried out, where the environment put it in place of the one asked for;
    empty otherwise. It is what a client records and replays. ``status`` is how it came out. ``scores`` come with an
    answer that ends the episode.
    """

    session: str
    observation: str
    reward: float = 0.0
    done: bool = False
    valid: bool = True
    executed: str = ""
    status: CallStatus = later(CallStatus.ok)
    scores: dict[str, Score] = later({})
    asked: Asked | None = later(None)
    again: Again = later(NOT_AGAIN)


class StepRequest(Wire):
    session: Name
    action: Action
    index: int | None = Field(
        None,
        ge=0,
        description="Number of steps already taken. The last index again, with the same "
        "action, returns the stored answer, so "
        "a retried request is safe; any other mismatch is refused with 409.",
    )
    expected: Expected = None


class ExpandRequest(Wire):
    session: Name
    actions: list[Action] = Field(min_length=1, max_length=MAX_EXPAND)


class ExpandResponse(Wire):
    children: list[ObservedState]


class SessionRequest(Wire):
    session: Name


class RedrawRequest(Wire):
    session: Name
    seed: int = Field(ge=0, lt=2**63)


class ActionsResponse(Wire):
    """Some actions that make sense in the session's state, in a fixed order; empty where the environment has no notion
    of it."""

    actions: list[str]


class CloseRequest(Wire):
    sessions: list[Name] = Field(max_length=10_000)


class CloseResponse(Wire):
    closed: int


class Snapshot(Wire):
    """A state outside any session: what ``/snapshot`` answers and ``/restore`` takes."""

    environment: Name
    version: Name
    steps: int = Field(ge=0)
    done: bool
    observation: Text
    reward: float
    status: CallStatus = later(CallStatus.ok)
    scores: dict[str, Score] = later({})
    asked: Asked | None = later(None)
    state: Annotated[dict[str, Any], AfterValidator(text)]


class ExpertResponse(Wire):
    """A demonstration: pairs of thought and action; None where the environment has no expert for it.

    Attributes:
        task: Empty for one that goes on from a session.
    """

    task: str
    steps: list[tuple[str, str]] | None


class Health(Wire):
    """How a server is.

    Attributes:
        max_sessions: Sessions that it holds at the same time.
        refused_s: Seconds since it last refused a session because there was no room; None if it never did.
    """

    status: Literal["ok"] = "ok"
    name: str
    epoch: str
    sessions: int
    uptime_s: float
    max_sessions: int = 0
    refused_s: float | None = None


class ErrorBody(Wire):
    """Body of every 4xx and 5xx answer: what was wrong, and what to do about it."""

    error: str
    hint: str = ""
