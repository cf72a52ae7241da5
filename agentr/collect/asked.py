"""Calls of a program that plays the agent's part itself: what a turn is to it, and where the next call stands in ids.

A call goes on from the conversation that it begins with, whose ids stay as they were drawn: only what is new is
encoded. Which conversation that is, the environment says (`env_servers.program.requests.continues`).
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentr.config.turns import Dialect, FullContext, PromptConfig, RepeatRefused, TurnFormat, TurnsConfig
from agentr.errors import ConfigError
from agentr.policy.chat import ChatCodec
from agentr.search import Child, Tree
from agentr.tasks.tool_calls import Call
from agentr.types import REASONED, Asked, Completion, Observation, Sampling, messages_of
from env_servers.observation import Answer

log = logging.getLogger(__name__)


def codec_of(codec: ChatCodec, asked: Asked | None, dialect: Dialect) -> ChatCodec:
    """Returns the codec for a call: with its tools, if it has any, or if there are calls in its messages.

    Raises:
        ModelError: The model's template has no place for them.
    """
    if asked is None:
        return codec
    calls = asked.tools or any("calls" in message or message["role"] == "tool" for message in asked.messages or ())
    return codec.with_tools(asked.tools, dialect) if calls else codec


def heard(asked: Asked, codec: ChatCodec) -> Asked:
    """Returns a call as the tree keeps it: its messages are texts, in which calls of tools stand as the model writes
    them; what answers a call has its id.

    Args:
        codec: Of the call (`codec_of`).

    """
    if asked.messages is None:
        return asked
    return replace(asked, messages=tuple(_text(message, codec) for message in asked.messages))


def _text(message: Mapping[str, Any], codec: ChatCodec) -> dict[str, str]:
    content = message["content"]
    if calls := message.get("calls"):
        assert codec.offers is not None, "the codec is the call's"
        content = codec.offers.written(content, [Call(call["name"], _object(call["arguments"])) for call in calls])
    answers = {"call_id": message["call_id"]} if message.get("call_id") else {}
    return {"role": message["role"], "content": content, **answers}


def _object(arguments: str) -> Mapping[str, Any] | str:
    """The arguments of a call, as templates are given them; what is no JSON object stays a text."""
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return read if isinstance(read, dict) else arguments


def form_of(asked: Asked, codec: ChatCodec) -> str:
    """Returns the grammar that a turn must follow, as `Sampling.form`: calls where they are demanded, or an answer of a
    JSON schema; behind the reasoning where the prompt has opened it.

    Args:
        codec: Of the call.
    """
    choice, parts = asked.settings.get("tool_choice"), list[dict[str, Any]]()
    said = asked.settings.get("response_format")
    if codec.offers is not None and asked.tools and choice != "none" and (said or choice):
        named = choice["name"] if isinstance(choice, Mapping) else ""
        tools = [schema["function"] for schema in codec.offers.schemas]
        callable = [(tool["name"], tool["parameters"]) for tool in tools if named in ("", tool["name"])]
        one = bool(named) or asked.settings.get("parallel_tool_calls") is False
        parts.append(codec.offers.dialect.form(callable, one))
    if said and (choice is None or choice == "none"):
        parts.append({"type": "json_schema", "json_schema": said})
    if not parts:
        return ""
    form = parts[0] if len(parts) == 1 else {"type": "or", "elements": parts}
    if codec.begins_in_reasoning("", ()):
        thought = {"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": REASONED}
        form = {"type": "sequence", "elements": [thought, {"type": "regex", "pattern": r"\s*"}, form]}
    return json.dumps({"type": "structural_tag", "format": form})


def narrowed(sampling: Sampling, asked: Asked, codec: ChatCodec, *, free: bool) -> Sampling:
    """Returns how a turn is drawn, with what the program's call narrows.

    Args:
        codec: Of the call.
        free: Whether the turn follows no grammar, whatever the call demands.
    """
    most, stop = asked.settings.get("max_tokens", sampling.max_tokens), asked.settings.get("stop", ())
    form = "" if free else form_of(asked, codec)
    return replace(sampling, max_tokens=min(sampling.max_tokens, most), stop=(*sampling.stop, *stop), form=form)


def refusals(tree: Tree, node: int, seen: Sequence[Observation]) -> int:
    """Counts the turns after a node to which a program could not be brought, and logs why."""
    lost = [observed.asked.refused for observed in seen if observed.asked is not None and observed.asked.refused]
    if lost:
        log.warning("a turn after turn %d of %s is left out: %s (env.options.ignore)", node, tree.task.id, lost[0])
    return len(lost)


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
        "turns.repeat_refused": turns.repeat_refused is not RepeatRefused.allow,
        "turns.format": turns.format is not TurnFormat.environment,
    }
    if named := [key for key, is_set in own.items() if is_set]:
        raise ConfigError(
            f"{', '.join(named)}: a program writes its prompts itself.", hint="Leave them at their defaults."
        )


def answered(completion: Completion, prompt: int, asked: Asked, codec: ChatCodec) -> str:
    """Returns what the program is given for a turn, as an action: what an engine's own server would answer.

    Args:
        prompt: Tokens of the prompt.
        codec: Of the call.
    """
    text, calls = completion.text, []
    for stop in asked.settings.get("stop", ()):
        text = text.removesuffix(stop)
    if asked.tools and codec.offers is not None and asked.settings.get("tool_choice") != "none":
        answer = codec.answer(text, completion.token_ids)  # calls in reasoning are none
        said, calls = codec.offers.read(answer)
        text = text.removesuffix(answer) + said
    if asked.settings.get("parallel_tool_calls") is False:
        del calls[1:]
    made = tuple({"name": call.name, "arguments": str(call.arguments)} for call in calls)
    return Answer(text, made, completion.finish.value, (prompt, len(completion.token_ids))).text


def following(
    tree: Tree, node: int, codec: ChatCodec, turn: Child, prompt: tuple[int, ...], asked: Asked
) -> dict[str, Any]:
    """Returns what a turn has after which a program asks again, or has ended.

    Args:
        node: What the turn was taken after.
        codec: Of the call that follows.
        turn: The turn, as it is in an environment that is no program.
        prompt: What the turn was drawn after, as ids.
        asked: The call that follows.

    Returns:
        Fields of :class:`agentr.search.Child`.

    Raises:
        ConfigError, ModelError: The call cannot be served, or the model's template does not show it.
    """
    asked = heard(asked, codec)
    about = {"asked": asked, "action": turn.action if asked.action is None else asked.action}
    if asked.messages is None:
        return about
    new, path = messages_of(asked.messages), tree.path(node)
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
