"""The sections ``prompt`` and ``turns``: how an episode opens, and how the agent's turns are read and carried out."""

from dataclasses import dataclass
from enum import StrEnum

from pydantic import NonNegativeInt, PositiveInt

from agentr.config.checks import Section


@dataclass
class PromptConfig(Section):
    """How an episode opens."""

    system: str = ""
    """System message; empty for none."""
    instruction: bool = True
    """Start with the environment's instruction; a model fine-tuned on the format does without."""
    examples: NonNegativeInt = 0
    """Worked episodes before the task."""


class WithoutAction(StrEnum):
    """What becomes of a turn in the format react that has no ``Action:``."""

    refused = "refused"
    """Nothing is run, and the agent sees an error."""
    last_line = "last_line"
    """Its last line is the action (the released code of Agent-R)."""


class CutOff(StrEnum):
    """What becomes of a turn that reached ``max_tokens``."""

    refused = "refused"
    """Nothing is run, and the agent sees an error."""
    run = "run"
    """It is read as if it were whole (the released code of Agent-R)."""


class FullContext(StrEnum):
    """What happens where the context leaves no room for a turn."""

    end = "end"
    """The path ends, with its return so far."""
    truncate = "truncate"
    """The policy no longer sees the oldest turns (the released code of Agent-R).
    What it says then is context in rows that are whole paths, and not learnt: they show more than it saw."""


class RepeatRefused(StrEnum):
    """What becomes of a turn whose action was refused since the last one that was carried out."""

    allow = "allow"
    """It is made again."""
    redraw = "redraw"
    """Other turns are drawn, and the commonest of them whose action was not refused is taken, if there is one."""
    vote = "vote"
    """As many are drawn, and the commonest is taken, refused or not: what drawing alone does, to compare with."""


class TurnFormat(StrEnum):
    """How actions stand in the agent's turns."""

    environment = "environment"
    """As the environment says: react, bare, codeact or tags."""
    tool_calls = "tool_calls"
    """As calls of tools, in the model's own way of writing them."""


class Dialect(StrEnum):
    """How a model writes a tool call."""

    auto = "auto"
    """As its chat template does."""
    hermes = "hermes"
    """JSON between ``<tool_call>`` and ``</tool_call>`` (Qwen 2.5 and 3, Hermes)."""
    llama = "llama"
    """JSON alone, with name and parameters (Llama 3.1 to 3.3)."""
    mistral = "mistral"
    """A JSON list after ``[TOOL_CALLS]`` (Mistral 7B 0.3, Nemo)."""


@dataclass
class TurnsConfig(Section):
    """How turns are read and carried out, wherever the agent acts: exploration, revision, evaluation."""

    format: TurnFormat = TurnFormat.environment
    """How actions stand in turns: in the environment's own format, or as calls of its tools."""
    dialect: Dialect = Dialect.auto
    """Of tool calls: how the model writes them; auto takes what its chat template writes."""
    without_action: WithoutAction = WithoutAction.refused
    """Of a turn in the format react that has no ``Action:``: whether its last line is run."""
    cut_off: CutOff = CutOff.refused
    """Of a turn that reached max_tokens: whether it is run."""
    full_context: FullContext = FullContext.end
    """Where the context leaves no room for a turn: end the path, or no longer show the oldest turns to the policy.
    What it says without them is not learnt from rows that are whole paths."""
    repeat_refused: RepeatRefused = RepeatRefused.allow
    """Whether an action that the environment did not carry out may be made again before another one is."""
    redraws: PositiveInt = 4
    """Of repeat_refused: how many other turns are drawn."""
    grammar: bool = True
    """Whether a turn of which a program demands a call or JSON follows a grammar as an engine draws it. False draws it
    freely: online methods then learn it, and the program bears those that are neither (docs/your_agent.md)."""
    keep_reasoning: bool = True
    """Whether the reasoning of a turn (``<think>`` to ``</think>``) stays in later prompts.
    False leaves it out, as the templates of reasoning models do: turns become rows of their own, and engines compute
    anew what follows it (docs/models.md)."""

    @property
    def draws(self) -> int:
        """How many completions a turn may take."""
        return 1 if self.repeat_refused is RepeatRefused.allow else 1 + self.redraws
