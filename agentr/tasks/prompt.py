"""The opening of an episode: what the agent is told before its first turn."""

from __future__ import annotations

from agentr.config.turns import PromptConfig
from agentr.errors import ConfigError
from agentr.types import Message
from env_servers.protocol import EnvironmentSpec


def opening(spec: EnvironmentSpec, config: PromptConfig, observation: str) -> tuple[Message, ...]:
    """System prompt, instruction with its acknowledgement, worked examples, first observation.

    Args:
        observation: First observation of the task; always the last message.

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
        messages.append(Message("user", spec.instruction))
        messages.append(Message("assistant", spec.acknowledgement or "Ok."))
    for example in spec.examples[: config.examples]:
        messages += [Message(turn.role, turn.content) for turn in example]
    return (*messages, Message("user", observation))
