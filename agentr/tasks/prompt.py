"""The opening of an episode: what the agent reads before its first turn."""

from agentr.config.turns import PromptConfig
from agentr.errors import ConfigError
from agentr.tasks.formats import action_format, written
from agentr.tasks.tool_calls import ToolCalls
from agentr.tasks.tools import instruction_of
from agentr.types import Message
from env_servers.protocol import EnvironmentSpec, Turn


def opening(
    spec: EnvironmentSpec, config: PromptConfig, observation: str, calls: ToolCalls | None = None
) -> tuple[Message, ...]:
    """System prompt, instruction with its acknowledgement, worked examples, first observation.

    Args:
        observation: First observation of the task; always the last message.
        calls: For an agent that acts by tool calls: the examples are written so.

    Raises:
        ConfigError: More examples are asked for than the environment has.
    """
    if config.examples > len(spec.examples):
        raise ConfigError(
            f"prompt.examples = {config.examples}, but {spec.name} has {len(spec.examples)} worked examples",
            hint="Lower prompt.examples, or add examples to the environment's spec.yaml.",
        )
    messages: list[Message] = []
    if config.system:
        messages.append(Message("system", config.system))
    if config.instruction:
        messages.append(Message("user", instruction_of(spec) if calls else spec.instruction))
        messages.append(Message("assistant", spec.acknowledgement or "Ok."))
    for example in spec.examples[: config.examples]:
        messages += (
            _called(example, spec.action_format, calls)
            if calls
            else [Message(turn.role, turn.content) for turn in example]
        )
    return (*messages, Message("user", observation))


def as_call(turn: str, action_format_name: str, calls: ToolCalls) -> str:
    """Returns a turn in an environment's own format as a turn with a call; one that is no such turn, or has a call, as
    it is."""
    parsed = action_format(action_format_name).parse(turn)
    if calls.called(turn) is not None or parsed.action is None:
        return turn
    return written(calls, parsed.thought, parsed.action) or turn


def _called(example: list[Turn], action_format_name: str, calls: ToolCalls) -> list[Message]:
    """A worked example, written in the environment's own format, with tool calls and their answers."""
    messages: list[Message] = []
    for turn in example:
        if turn.role == "assistant":
            messages.append(Message("assistant", as_call(turn.content, action_format_name, calls)))
        else:
            answers = (
                bool(messages) and messages[-1].role == "assistant" and calls.called(messages[-1].content) is not None
            )
            messages.append(Message("tool" if turn.role == "user" and answers else turn.role, turn.content))
    return messages
