"""Chat templates that come with agentr, and what ``model.chat_template`` and ``model.template_args`` mean."""

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentr.errors import ConfigError
from agentr.outside import read_file

_FOLDER = Path(__file__).parent / "chat_templates"
AUTO = "auto"
_NAME = re.compile(r"[A-Za-z_]\w*")
#: How files of templates end. The text of a file becomes part of the configuration, and may be shown.
_ENDINGS = (".jinja", ".jinja2", ".j2")
#: Bytes of a template.
_MOST = 1 << 20


def names() -> list[str]:
    """Returns the names of the templates that come with agentr."""
    return sorted(path.stem for path in _FOLDER.glob("*.jinja"))


def shipped(name: str) -> str:
    """Returns the text of a template that comes with agentr."""
    return (_FOLDER / f"{name}.jinja").read_text(encoding="utf-8").rstrip("\n")


def template_text(value: str, *, files: bool = True) -> str:
    """Returns the text of the template that ``model.chat_template`` means: a name, a file, or the text itself; "" means
    the model's own.

    Args:
        files: Whether it may be a file. In what a run has stored it is none.

    Raises:
        ConfigError: It is none of these.
    """
    if value in ("", AUTO):
        return ""
    if "{" in value:
        return value
    if value in names():
        return shipped(value)
    file = Path(value).expanduser()
    if files and file.exists():
        if file.resolve().suffix not in _ENDINGS:
            raise ConfigError(
                f"model.chat_template: {file} is no file of a template", hint=f"Its name ends in {', '.join(_ENDINGS)}."
            )
        try:
            return read_file(file, _MOST).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"model.chat_template: {file} cannot be read: {error}") from error
    near = difflib.get_close_matches(value, names(), n=1)
    raise ConfigError(
        f"model.chat_template: {value!r} is neither a template that comes with agentr, nor a file, nor the text of a "
        "template",
        hint=(
            f"{f'Did you mean {near[0]}? ' if near else ''}There are {', '.join(names())}; auto keeps the model's own."
        ),
    )


def bound(template: str, arguments: Mapping[str, Any]) -> str:
    """Returns a template with arguments set in its own text, so that everybody who renders it afterwards sees the same.

    ``strftime_now`` is a function in templates; a text given for it is what it returns for every format.

    Raises:
        ConfigError: The template does not use an argument.
    """
    lines = []
    for name, value in arguments.items():
        if not _NAME.fullmatch(name) or not re.search(rf"\b{name}\b", template):
            raise ConfigError(
                f"model.template_args: the chat template does not use {name!r}",
                hint="A template's arguments are the names that it reads besides messages; see its text.",
            )
        if name == "strftime_now":
            lines.append(f"{{%- macro strftime_now(format) -%}}{{{{- {_literal(value)} -}}}}{{%- endmacro -%}}\n")
        else:
            lines.append(f"{{%- set {name} = {_literal(value)} -%}}\n")
    return "".join(lines) + template


def _literal(value: Any) -> str:
    """Writes a value as Jinja reads it: JSON, but for ``none``."""
    return "none" if value is None else json.dumps(value)
