"""What every section of the configuration shares: its types are checked by pydantic, rules between its keys by
``problems``.

A range stands in a field's type (``PositiveInt``, ``Proportion``). A rule between the fields of one section is a method
``problems`` of its class; rules between sections are ``Config.problems``. All that is wrong is found at once, so that a
person mends a file once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

#: A share, a reward or a probability.
Proportion = Annotated[float, Field(ge=0, le=1)]

#: The message of a key that there is not.
UNKNOWN = "unknown key"

#: Characters of a value that an error shows.
_SHOWN = 200

S = TypeVar("S", bound="Section")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        key: Full name of the key, such as ``train[0].dpo.beta``.
        message: What is wrong, with the value.
        hint: What to do about it.
        source: File or other place that gives the key its value; empty for a default.
    """

    key: str
    message: str
    hint: str = ""
    source: str = ""

    def __str__(self) -> str:
        what = (
            f"unknown key {self.key!r}"
            if self.message == UNKNOWN
            else f"{self.key}: {self.message}"
            if self.key
            else self.message
        )
        return (
            (f"{self.source}: " if self.source else "")
            + f"{what.rstrip('.')}."
            + (f" {self.hint}" if self.hint else "")
        )

    def within(self, section: str) -> Problem:
        """Returns the same problem with its key below ``section``."""
        return replace(self, key=f"{section}.{self.key}" if section else self.key)


class Section:
    """The base of each configuration dataclass: an unknown key is refused, and the text below a field describes it."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def problems(self) -> Iterable[Problem]:
        """Yields what is wrong between the keys of the section; a section that extends another yields that one's
        problems, too."""
        return ()


@cache
def adapter(section: type[S]) -> TypeAdapter[S]:
    """Returns pydantic's view of a section."""
    return TypeAdapter(section)


def parse(section: type[S], data: Mapping[str, Any], prefix: str = "") -> tuple[S | None, list[Problem]]:
    """Makes a section of plain data.

    Args:
        prefix: Full key of the section in the problems.

    Returns:
        The section, or None; and all unknown keys, wrong types and numbers out of range.
    """
    try:
        return adapter(section).validate_python(data), []
    except ValidationError as refused:
        return None, [_problem(error).within(prefix) for error in refused.errors(include_url=False)]


def _problem(error: Any) -> Problem:
    key = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"] if part != "[key]"
    ).lstrip(".")
    if error["type"] == "unexpected_keyword_argument":
        return Problem(key, UNKNOWN)
    if error["type"] == "dataclass_type":
        return Problem(key, f"{_shown(error['input'])} is no section", "Give keys with values.")
    return Problem(
        key, f"{_shown(error['input'])} is refused", f"{error['msg'].replace('Input should', 'It should', 1)}."
    )


def _shown(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def rules(config: Any, section: str = "") -> Iterator[Problem]:
    """Yields the broken rules between keys in a section and in those that it holds.

    Args:
        section: Prefix of the keys that are named.
    """
    for each in fields(config):
        value = getattr(config, each.name)
        for index, inner in enumerate(value if isinstance(value, list) else [value]):
            if is_dataclass(inner):
                yield from rules(
                    inner, f"{section}{each.name}[{index}]." if isinstance(value, list) else f"{section}{each.name}."
                )
    yield from (problem.within(section.rstrip(".")) for problem in config.problems())


def find_problems(section: Section, prefix: str = "") -> list[Problem]:
    """Returns all that is wrong in a section that was made in Python: types, ranges, rules.

    Args:
        prefix: Prefix of the keys that are named, with its dot.
    """
    _, wrong = parse(type(section), asdict(section), prefix.rstrip("."))  # type: ignore[arg-type]
    return [*wrong, *rules(section, prefix)]
