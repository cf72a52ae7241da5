"""The JSON schema of configurations, which editors complete and check YAML by."""

import ast
import copy
import inspect
import itertools
import textwrap
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from agentr.config.checks import Section, adapter
from agentr.config.layers import ENDPOINTS
from agentr.config.load import MethodClass
from agentr.config.overlays import overlays
from agentr.config.schema import CHANGING, Config

#: A value that refers to another key, which every value may be.
_REFERENCE = {"type": "string", "pattern": r"^\$\{[^}]+\}$"}


def config_schema(methods: Mapping[str, MethodClass]) -> dict[str, Any]:
    """Returns the schema of a configuration file: of any part of a configuration, since files lie over each other.

    Args:
        methods: The methods by name.
    """
    schema = copy.deepcopy(section_schema(Config))
    definitions = schema.pop("$defs")
    for name, method in methods.items():
        own = copy.deepcopy(section_schema(method.config_class))
        definitions |= own.pop("$defs", {})
        own["properties"]["type"] = {"const": name, "description": method.title}
        own["properties"]["preset"]["enum"] = list(dict.fromkeys(["default", *method.presets]))
        definitions[method.config_class.__name__] = own
    of = {name: {"$ref": f"#/$defs/{method.config_class.__name__}"} for name, method in methods.items()}
    properties = schema["properties"]
    properties["method"] = _method(
        {name: definitions[method.config_class.__name__] for name, method in methods.items()}, of
    )
    properties["cluster"] = {"anyOf": [properties["cluster"], {"type": "string", "examples": overlays()}]}
    changes = {name: copy.deepcopy(properties[name]) for name in CHANGING}
    properties["from_round"] = {
        "type": "object",
        "description": properties["from_round"]["description"],
        "patternProperties": {"^[0-9]+$": {"type": "object", "properties": changes, "additionalProperties": False}},
        "additionalProperties": False,
    }
    properties["methods"] = {
        "type": "object",
        "description": "Values for methods by their type; those of the method that runs lie under the section method.",
        "properties": of,
        "patternProperties": {r"\.py$": {"type": "object"}},
        "additionalProperties": False,
    }
    properties[ENDPOINTS] = {
        "type": "object",
        "description": "APIs by names of yours, for the keys openai of all roles that ask one.",
        "additionalProperties": {"$ref": "#/$defs/OpenAIConfig"},
    }
    properties["include"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Files that are merged first.",
    }
    for definition in (schema, *definitions.values()):
        for name, value in definition.get("properties", {}).items():
            if name == "openai":
                definition["properties"][name] = {"anyOf": [value, {"type": "string"}], **_told(value)}
            elif value.get("type") != "string" and name not in ("include", "methods", "from_round", ENDPOINTS):
                definition["properties"][name] = {"anyOf": [value, {"$ref": "#/$defs/reference"}], **_told(value)}
    definitions["reference"] = _REFERENCE
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "agentr",
        "$defs": definitions,
    }


def _told(value: dict[str, Any]) -> dict[str, Any]:
    return {key: value.pop(key) for key in ("description", "default") if key in value}


def _method(sections: Mapping[str, dict[str, Any]], of: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the section ``method``: of the type that it names; without one, of any method's keys."""
    any_keys: dict[str, Any] = {}
    for section in sections.values():
        for key, value in section["properties"].items():
            alternatives = any_keys.setdefault(key, {"anyOf": []})["anyOf"]
            if value not in alternatives:
                alternatives.append(copy.deepcopy(value))
    chain: dict[str, Any] = {
        "if": {"properties": {"type": {"pattern": r"\.py$"}}, "required": ["type"]},
        "then": {},
        "else": {"properties": {**any_keys, "type": {"enum": list(sections)}}, "additionalProperties": False},
    }
    for name, section in of.items():
        chain = {"if": {"properties": {"type": {"const": name}}, "required": ["type"]}, "then": section, "else": chain}
    return {"type": "object", "properties": {"type": {"type": "string", "examples": list(of)}}, **chain}


class _Generator(GenerateJsonSchema):
    """Leaves out titles, which repeat the keys, and says what each choice means."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        """Pydantic describes the fields that stand in the class itself; those that it inherits are described in its
        bases."""
        found = super().dataclass_schema(schema)
        for base in schema["cls"].__mro__[1:]:
            for name, above in section_schema(base)["properties"].items() if is_dataclass(base) else ():
                if "description" in above:
                    found["properties"][name].setdefault("description", above["description"])
        return found

    def enum_schema(self, schema: Any) -> dict[str, Any]:
        found, texts = super().enum_schema(schema), meanings(schema["cls"])
        return (
            found | {"markdownEnumDescriptions": [texts.get(value, "") for value in found.get("enum", ())]}
            if texts
            else found
        )


@cache
def section_schema(section: type[Section]) -> dict[str, Any]:
    """Returns the schema of one section, with those that it holds in ``$defs``."""
    return _unwrapped(adapter(section).json_schema(schema_generator=_Generator))


def _unwrapped(found: Any) -> Any:
    if isinstance(found, list):
        return [_unwrapped(each) for each in found]
    if not isinstance(found, dict):
        return found
    return {
        key: unwrapped(value) if key == "description" and isinstance(value, str) else _unwrapped(value)
        for key, value in found.items()
    }


def unwrapped(text: str) -> str:
    """Returns a text with each paragraph on one line: where the lines of a docstring end says nothing."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def meanings(choices: type[Enum]) -> dict[str, str]:
    """Returns what the values of an enumeration mean: the texts below them in its source."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(choices))).body
    found = {}
    for statement, below in itertools.pairwise(body.body if isinstance(body, ast.ClassDef) else ()):
        match statement, below:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                found[choices[name].value] = " ".join(text.split())
    return found
