"""The text in OpenEnv's structured actions and observations: which fields hold it, and how it gets in and out."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentr.config.openenv import OpenEnvOptions
from agentr.errors import ConfigError

#: Names of the field with the text where a schema has several text fields; the first one that is there.
ACTION_NAMES = ("message", "text", "command", "code", "action", "answer", "query")
OBSERVATION_NAMES = ("message", "text", "observation", "output", "result", "response", "prompt", "stdout")
#: Fields that every action or observation has, which are not its text.
COMMON = ("metadata", "done", "reward")


@dataclass(frozen=True)
class Fields:
    """Where the text is.

    Attributes:
        action: Path of the field with the agent's text.
        constant: The other fields of every action.
        observation: Paths of the fields that are read, in order.
    """

    action: tuple[str, ...]
    constant: Mapping[str, Any]
    observation: tuple[tuple[str, ...], ...]

    def compose(self, text: str) -> dict[str, Any]:
        """Returns the action that says ``text``."""
        made: dict[str, Any] = json.loads(json.dumps(dict(self.constant)))
        place = made
        for part in self.action[:-1]:
            place = place.setdefault(part, {})
        place[self.action[-1]] = text
        return made

    def read(self, observation: Mapping[str, Any]) -> str:
        """Returns the text of an observation: its fields below each other, without those that are empty."""
        found = (_at(observation, path) for path in self.observation)
        return "\n".join(text for value in found if (text := _shown(value)))


def fields_of(options: OpenEnvOptions, schema: Mapping[str, Any], url: str) -> Fields:
    """Finds the fields, by the options or else by the server's schema.

    Args:
        schema: What ``/schema`` answers.

    Raises:
        ConfigError: The schema does not name the field, or has no such field, or asks for fields that no option
            gives.
    """
    taken = _properties(schema.get("action"))
    seen = {**_properties(schema.get("reset_observation")), **_properties(schema.get("observation"))}
    action = options.action_field or _only_text(taken, options.action, ACTION_NAMES, "action", url)
    observation = options.observation_fields or (_only_text(seen, (), OBSERVATION_NAMES, "observation", url),)
    first = action.partition(".")[0]
    for key, names, known in (
        ("action_field", [first], taken),
        ("action", options.action, taken),
        ("observation_field", observation, seen),
    ):
        if known and (unknown := [name for name in names if name.partition(".")[0] not in known]):
            message = f"{_kind(key)} of {url} has no field {', '.join(map(repr, unknown))}"
            raise ConfigError(message, hint=f"Set env.options.{key} to one of its own: {', '.join(known)}.")
    if missing := [
        name
        for name in (schema.get("action") or {}).get("required", ())
        if name != first and name not in options.action
    ]:
        message = f"an action of {url} also needs {', '.join(missing)}"
        raise ConfigError(
            message,
            hint=f"Give it in env.options.action, such as {{{missing[0]}: ...}}; the agent's text is in {action!r}.",
        )
    return Fields(tuple(action.split(".")), options.action, tuple(tuple(path.split(".")) for path in observation))


def _kind(key: str) -> str:
    return "an observation" if key.startswith("observation") else "an action"


def _properties(schema: Any) -> dict[str, Any]:
    found = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    return {name: about for name, about in found.items() if name not in COMMON}


def _only_text(known: Mapping[str, Any], given: Iterable[str], preferred: Iterable[str], what: str, url: str) -> str:
    texts = [name for name, about in known.items() if name not in given and _is_text(about)]
    found = texts if len(texts) == 1 else [name for name in preferred if name in texts][:1]
    if not found:
        listed = f"its text fields are {', '.join(texts)}" if texts else f"its fields are {', '.join(known) or 'none'}"
        message = f"which field of an {what} of {url} is text is not in its schema: {listed}"
        raise ConfigError(message, hint=f"Set env.options.{what}_field.")
    return found[0]


def _is_text(about: Any) -> bool:
    """Whether a field is a text, or a text or nothing."""
    if not isinstance(about, Mapping):
        return False
    kinds = [kind.get("type") for kind in about.get("anyOf", ()) if isinstance(kind, Mapping)] or [about.get("type")]
    return "string" in kinds and set(kinds) <= {"string", "null"}


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _shown(value: Any) -> str:
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
