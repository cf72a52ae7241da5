"""Calls of a program that plays the agent's part itself: what a turn is to it, and where the next call stands in ids.

A call goes on from the conversation that it begins with, whose ids stay as they were drawn: only what is new is
encoded. Which conversation that is, the environment says (`env_servers.program.requests.continues`).
"""

from typing import Any

from agentr.config.turns import FullContext, PromptConfig, TurnFormat, TurnsConfig
from agentr.errors import ConfigError
from agentr.policy.chat import ChatCodec
from agentr.search import Child, Tree
from agentr.types import Asked, Completion, Message, messages_of
from env_servers.observation import Answer

#: What of a call's settings is obeyed.
_OBEYED = {"stop", "max_tokens"}


def heard(asked: Asked) -> list[Message]:
    """Returns the new messages of a call.

    Raises:
        ConfigError: It needs what is not served.
    """
    lacking = sorted(asked.settings.keys() - _OBEYED)
    if asked.tools or any("calls" in message or message["role"] == "tool" for message in asked.messages or ()):
        lacking.insert(0, "tools")
    if lacking:
        raise ConfigError(
            f"the program's call has {', '.join(lacking)}, which agentr does not serve yet.",
            hint="Offer tools in the text of the prompt, and read calls from the answer's text.",
        )
    return messages_of(asked.messages or ())


def check_settings(prompt: PromptConfig, turns: TurnsConfig) -> None:
    """Checks that nothing is configured that a program does itself: it writes its prompts, and shortens them.

    Raises:
        ConfigError: Something is.
    """
    own = {
        "prompt.system": bool(prompt.system),
        "prompt.examples": prompt.examples > 0,
        "turns.full_context": turns.full_context is FullContext.truncate,
        "turns.keep_reasoning": not turns.keep_reasoning,
        "turns.format": turns.format is not TurnFormat.environment,
    }
    if named := [key for key, is_set in own.items() if is_set]:
        raise ConfigError(
            f"{', '.join(named)}: a program writes its prompts itself.", hint="Leave them at their defaults."
        )


def answered(completion: Completion, prompt: int, asked: Asked) -> str:
    """Returns what the program is given for a turn, as an action: what an engine's own server would answer.

    Args:
        prompt: Tokens of the prompt.
    """
    text = completion.text
    for stop in asked.settings.get("stop", ()):
        text = text.removesuffix(stop)
    return Answer(text, finish=completion.finish.value, usage=(prompt, len(completion.token_ids))).text


def following(
    tree: Tree, node: int, codec: ChatCodec, turn: Child, prompt: tuple[int, ...], asked: Asked
) -> dict[str, Any]:
    """Returns what a turn has after which a program asks again, or has ended.

    Args:
        node: What the turn was taken after.
        turn: The turn, as it is in an environment that is no program.
        prompt: What the turn was drawn after, as ids.
        asked: The call that follows.

    Returns:
        Fields of :class:`agentr.search.Child`.

    Raises:
        ConfigError, ModelError: The call cannot be served, or the model's template does not show it.
    """
    about = {"asked": asked, "action": turn.action if asked.action is None else asked.action}
    if asked.messages is None:
        return about
    new, path = heard(asked), tree.path(node)
    if not asked.after:
        return {**about, "behind": (0, 0), "bridge_ids": tuple(codec.prompt(new))}
    own = asked.after == len(path) + 1
    ids = turn.token_ids if own else path[asked.after - 1].token_ids
    seen = prompt if own else tuple(tree.prompt(path[asked.after - 1].parent))
    if asked.answered:
        bridge = codec.behind(new, closed=ids[-1:] == (codec.end_id,))
        return {**about, "behind": None if own else (asked.after, len(seen) + len(ids)), "bridge_ids": tuple(bridge)}
    if not new:
        return {**about, "behind": (asked.after, len(seen)), "bridge_ids": ()}
    if new[0].role == "assistant":
        first, *rest = new
        bridge = [*codec.turn(first.content), *codec.behind(rest)]
        return {**about, "behind": (asked.after, len(seen)), "bridge_ids": tuple(bridge)}
    opening, bridge = codec.instead(new)
    kept = len(seen) - len(opening)
    if [*seen[kept:]] != opening:  # a prompt that ends otherwise, such as behind a tool's answer: it begins anew
        everything = [*tree.conversation(path[asked.after - 1].parent if not own else node), *new]
        return {**about, "behind": (0, 0), "bridge_ids": tuple(codec.prompt(everything))}
    return {**about, "behind": (asked.after, kept), "bridge_ids": tuple(bridge)}
