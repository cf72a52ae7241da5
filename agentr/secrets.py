"""Secrets: read through one type that never shows them, and taken out of every text that leaves a process.

A secret is a `Secret` from where it is read to the line that sends it (`reveal`). Each one that is made is known to
`redact`, and so are the values of variables whose names show what they hold, which libraries read by themselves. A text
is cleaned where it comes in from a stranger (`quoted`, before it is cut) and where it goes out: events, notes and
failures (`agentr.store.files.append_line`), logs (`agentr.logs`), the terminal (`clean_output`).
"""

from __future__ import annotations

import base64
import html
import os
import re
import sys
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, TextIO
from urllib.parse import unquote

from agentr.errors import ConfigError


class SecretKind(StrEnum):
    """What a secret lets one into."""

    API = "API"
    """``policy.openai.api_key_env`` and its like."""
    ENVIRONMENT = "environment servers"
    """``env.token_env``, AGENTR_ENV_TOKEN, or made for a run."""
    PAGES = "pages"
    """Of `agentr ui`."""
    RAY = "Ray"
    """RAY_AUTH_TOKEN."""
    TRACKER = "trackers"
    """What their libraries read: WANDB_API_KEY, MLFLOW_TRACKING_PASSWORD, HF_TOKEN and so on."""
    STORE = "object store"
    """What its library reads: AWS_SECRET_ACCESS_KEY and so on."""
    PROXY = "proxy"
    """The password in HTTP_PROXY and its like."""


#: Names of variables whose values are secrets.
NAMES = re.compile(r"(^|_)(KEY|KEY_ID|SECRET|TOKEN|PASS|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
#: What is shorter is no secret, and stands in many texts.
LEAST = 6
#: Who somebody is at an address, in front of its host.
_USER = re.compile(r"(\w://)([^/?#\s]*)@")
#: A backslash, in an address perhaps.
_ESCAPE = r"(?:\\|%(?:25)*5[cC])"
_KNOWN: dict[str, str] = {}


class Secret:
    """A value that is sent, and shown nowhere. False if it is empty.

    Args:
        name: Of its variable: it stands for the value wherever that would be shown.
        value: Blanks and line breaks around it, which files and secret stores leave there, are no part of it. What is a
            secret already keeps its name.

    Raises:
        ConfigError: There is a control character in it; names the variable.
    """

    __slots__ = ("_value", "kind", "name")

    def __init__(self, kind: SecretKind, name: str, value: str | Secret) -> None:
        name, value = (value.name, value.reveal()) if isinstance(value, Secret) else (name, value.strip())
        if not value.isprintable():
            hint = "Was more than the secret copied? Set it anew."
            raise ConfigError(f"the value of {name} has a line break or another control character in it", hint=hint)
        self.kind, self.name, self._value = kind, name, value
        _KNOWN.update(dict.fromkeys(_long(_passwords(value) if kind is SecretKind.PROXY else {value}), name))

    @classmethod
    def read(cls, kind: SecretKind, name: str) -> Secret:
        """Reads a variable, which is set anew without blanks and line breaks around: a library may read it as well."""
        value = os.environ.get(name, "")
        secret = cls(kind, name, value)
        if secret._value != value:
            os.environ[name] = secret._value
        return secret

    def reveal(self) -> str:
        """Returns the value, for the one line that sends it."""
        return self._value

    def bearer(self) -> dict[str, str]:
        """Returns the header that sends it; none if it is empty.

        Raises:
            ConfigError: No header can hold it.
        """
        if not self._value.isascii():
            raise ConfigError(
                f"the value of {self.name} has a letter in it that no header can hold", hint="Is it the right one?"
            )
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return f"({self.name})"

    def __reduce__(self) -> tuple[type[Secret], tuple[SecretKind, str, str]]:
        return Secret, (self.kind, self.name, self._value)  # so that the process that gets it knows what not to show


def read_all(kind: SecretKind, begins: tuple[str, ...]) -> None:
    """Reads the secrets among the variables whose names begin so, on behalf of a library."""
    for name in tuple(os.environ):
        if name.startswith(begins) and _held(name, os.environ[name]):
            Secret.read(kind, name)


def redact(text: str) -> str:
    """Returns a text without the secrets that this process knows, in whatever form, and without users and passwords in
    addresses."""
    if "@" in text:
        text = _USER.sub(r"\1", text)
    known = _KNOWN | {value: name for name, given in tuple(os.environ.items()) for value in _held(name, given)}
    if not known:
        return text
    pattern, names = _pattern(frozenset(known.items()))
    return pattern.sub(lambda found: f"({names[(found.lastindex or 1) - 1]})", text)


def quoted(said: object, most: int = 300) -> str:
    """Returns what a stranger said, for a message: on one line, without secrets, and cut only then, since half a secret
    is one, too."""
    text = said[: 1 << 16].decode("utf-8", "replace") if isinstance(said, bytes) else str(said)[: 1 << 16]
    return " ".join(redact(text).split())[:most]


def cleaned(data: Any) -> Any:
    """Returns plain data with each text in it redacted."""
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, dict):
        return {key: cleaned(value) for key, value in data.items()}
    return [cleaned(value) for value in data] if isinstance(data, list | tuple) else data


def clean_output() -> None:
    """Redacts from now on what this process prints."""
    for name in ("stdout", "stderr"):
        if not isinstance(stream := getattr(sys, name), Cleaned):
            setattr(sys, name, Cleaned(stream))


class Cleaned:
    """A stream of text that is redacted; as the stream below it in all else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@lru_cache(maxsize=1024)
def _held(name: str, value: str) -> set[str]:
    """The secrets in a variable: all of it by its name, unless that is a file's, or a password in an address."""
    whole = NAMES.search(name) and not os.path.exists(value)  # noqa: PTH110 - Path.exists raises where a value is too long for a name
    return _long({value.strip()} if whole else _passwords(value))


def _passwords(value: str) -> set[str]:
    password = user[2].partition(":")[2] if (user := _USER.search(value)) else ""
    return {password, unquote(password)}


def _long(values: set[str]) -> set[str]:
    return {value for value in values if len(value) >= LEAST}


@lru_cache(maxsize=8)
def _pattern(known: frozenset[tuple[str, str]]) -> tuple[re.Pattern[str], list[str]]:
    """A group for each secret, the longest first: one may be a part of another."""
    longest = sorted(known, key=lambda held: -len(held[0]))
    return re.compile("|".join(f"({_forms(value)})" for value, _ in longest)), [name for _, name in longest]


@cache
def _forms(value: str) -> str:
    """What matches a secret as it is, in base64 behind whatever text, and either of them escaped once or more."""
    raw, texts = value.encode("utf-8", "surrogateescape"), {value}
    for before, first in enumerate((0, 2, 3)):  # characters that depend on the value alone, after so many bytes
        inner = base64.b64encode(bytes(before) + raw).decode()[first : 8 * (before + len(raw)) // 6]
        texts |= {inner, inner.translate(str.maketrans("+/", "-_"))}
    return "|".join(
        "".join(map(_forms_of_character, text)) for text in sorted(texts, key=len, reverse=True) if len(text) >= LEAST
    )


@cache
def _forms_of_character(character: str) -> str:
    """As it is, and as addresses, JSON, Python and HTML write it, and one of them within another."""
    if character.isascii() and character.isalnum():
        return character
    data, units = character.encode("utf-8", "surrogateescape"), character.encode("utf-16-be", "surrogatepass").hex()
    forms = [
        rf"{_ESCAPE}*{re.escape(character)}",
        rf"{_ESCAPE}*" + "".join(rf"%(?:25)*(?i:{byte:02x})" for byte in data),
        "".join(rf"{_ESCAPE}+x(?i:{byte:02x})" for byte in data),
        "".join(rf"{_ESCAPE}+u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4)),
        rf"{_ESCAPE}+U(?i:{ord(character):08x})",
        html.escape(character).replace("&", "&(?:amp;)*") if character in "&<>\"'" else "",
        r"\+" if character == " " else "",
    ]
    return f"(?:{'|'.join(filter(None, forms))})"
