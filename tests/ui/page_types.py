"""Writes the types of the pages' answers as TypeScript: ``python -m tests.ui.page_types``."""

import json
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from agentr.ui import api

FILE = Path(api.__file__).parent / "web/src/api.ts"
HEAD = """// Made of agentr/ui/api.py, which says what each is, by python -m tests.ui.page_types. A test compares them.
"""
PLAIN = {int: "number", float: "number", str: "string", bool: "boolean", NoneType: "null", Any: "unknown"}


def typescript() -> str:
    """Returns the declarations of all answers, and of what they are made of."""
    found: dict[str, str] = {}
    for kind in (api.Failure, *api.QUESTIONS.values()):
        _name(kind, found)
    return HEAD + "".join(map(_declared, sorted(found.items())))


def _declared(declaration: tuple[str, str]) -> str:
    name, body = declaration
    short = f"export interface {name} {{ {'; '.join(line.strip(' ;') for line in body.splitlines())} }}\n"
    return short if len(short) <= 140 else f"\nexport interface {name} {{\n{body}}}\n\n"


def _name(kind: Any, found: dict[str, str]) -> str:
    """Returns a type in TypeScript, and declares it and all in it that have names."""
    inner = [_name(part, found) for part in get_args(kind)] if get_origin(kind) is not Literal else []
    match get_origin(kind):
        case None if kind in PLAIN:
            return PLAIN[kind]
        case None if isinstance(kind, type) and issubclass(kind, Enum):
            return " | ".join(json.dumps(one.value) for one in kind)
        case None:
            if kind.__name__ not in found:
                found[kind.__name__] = ""
                hints = get_type_hints(kind)
                found[kind.__name__] = "".join(f"  {key}: {_name(value, found)};\n" for key, value in hints.items())
            return kind.__name__
        case origin if origin is Literal:
            return " | ".join(map(json.dumps, get_args(kind)))
        case origin if origin in (Union, UnionType):
            return " | ".join(dict.fromkeys(inner))
        case origin if origin is list:
            return f"({inner[0]})[]" if "|" in inner[0] else f"{inner[0]}[]"
        case origin if origin is tuple:
            return f"[{', '.join(inner)}]"
        case origin if origin is dict:
            return f"Record<string, {inner[1]}>"  # keys of JSON are texts
    raise TypeError(f"{kind} has no counterpart in TypeScript")


if __name__ == "__main__":
    FILE.write_text(typescript(), encoding="utf-8")
    print(FILE)
