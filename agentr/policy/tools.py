"""What a chat template writes for agents that act by tool calls: tools in the opening, a call in a turn, an answer
after it."""

import json
from typing import Any

from agentr.config.turns import Dialect
from agentr.errors import ModelError
from agentr.policy.plain_text import PlainText
from agentr.policy.template import ABOUT, CALL_ID, Template
from agentr.tasks.tool_calls import DIALECTS, Call, ToolDialect, ToolOffer
from agentr.tasks.tools import ACT

_OTHERS = (
    "Set model.chat_template to a template with a place for tools (hermes comes with agentr), or "
    "turns.format=environment."
)
_GO = {"role": "user", "content": "Go."}
_SEEN = "seen7c1f"


def dialect_of(template: Template, name: str, wanted: Dialect = Dialect.auto) -> ToolDialect:
    """Returns how a model writes tool calls: as its chat template does, unless ``wanted`` says it.

    Args:
        name: What errors call the model.

    Raises:
        ModelError: The template writes calls in another way than those that are known, or not at all.
    """
    spoken = [dialect for dialect in DIALECTS if wanted in (Dialect.auto, dialect.name)]
    text = _one_call(template, {"action": "look"})
    for dialect in spoken:
        if dialect.write(Call(ACT.name, {"action": "look"})) in text:
            return dialect
    if wanted is not Dialect.auto:
        return spoken[0]
    known = ", ".join(dict.fromkeys(dialect.name for dialect in DIALECTS))
    raise ModelError(
        f"{name}: its chat template writes no tool call in a way that agentr knows ({known}).",
        hint=f"{_OTHERS} If the model speaks one of them all the same, set turns.dialect.",
    )


class ToolFrames:
    """The parts of conversations with tools that are others than those of conversations without.

    Args:
        template: The template; from here on its openings can offer the tools.
        name: What errors call the model.

    Attributes:
        lead: What a turn that was written begins with if it is a call alone.
        answers: Whether what follows a call is a message of role ``tool``; otherwise it is the user's.

    Raises:
        ModelError: The template has no place for tools.
    """

    def __init__(self, template: Template, plain: PlainText, name: str, calls: ToolOffer) -> None:
        template.renderer.tools = [*calls.schemas]
        (bare, _), (before, opening) = template.frame(("user",)), template.frame(("user",), bool(calls.schemas))
        shown = not calls.schemas or (before != bare and all(name in before for name in calls.names))
        if opening != template.opening or not shown:
            raise ModelError(f"{name}: its chat template has no place for tools.", hint=_OTHERS)
        arguments = {"action": _SEEN}
        call, text = calls.dialect.write(Call(ACT.name, arguments)), _one_call(template, arguments)
        first, found, after = text.partition(call)
        opened = template.renderer.render([_GO])
        self.lead = first[len(opened) :] if found and first.startswith(opened) else template.lead
        self.answers = bool(found) and self._appends(template, plain, template.after_end(after))
        quotes = '"'
        self._quoted = self.answers and f"\\{quotes}" in template.renderer.render(
            [_GO, _said("Look."), _answer(quotes)]
        )

    def heard(self, text: str) -> str:
        """Returns a tool's answer as the template writes it: some quote it as JSON."""
        return json.dumps(text, ensure_ascii=False)[1:-1] if self._quoted else text

    def read(self, text: str) -> str:
        """Returns what a tool answered, from what the template wrote."""
        try:
            return json.loads(f'"{text}"', strict=False) if self._quoted else text
        except ValueError:
            return text

    def _appends(self, template: Template, plain: PlainText, after_call: str) -> bool:
        """Whether messages of role ``tool`` can be appended, after a call and after what was answered before."""
        try:
            first, before, after, last = template.frame(("user", "assistant", "tool"))
            long = template.frame(("user", "assistant", "tool", "assistant", "tool"))
            written = template.after_turn(["tool"])[0]
        except ModelError:
            return False
        same = [*long[:3], *long[4:]] == [first, before, after, after, last] and after_call.startswith(written)
        return same and _after_special(plain, last) == _after_special(plain, template.opening)


def _after_special(plain: PlainText, text: str) -> str:
    """The end of a text, after its last special token."""
    return plain.spelled.split(text)[-1]


def _said(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def _answer(content: str) -> dict[str, Any]:
    return {"role": "tool", "content": content, **ABOUT["tool"]}


def _one_call(template: Template, arguments: dict[str, Any]) -> str:
    """Renders a call of `ACT` and its answer; "" if the template refuses one of them."""
    call = {"id": CALL_ID, "type": "function", "function": {"name": ACT.name, "arguments": arguments}}
    try:
        return template.renderer.render([_GO, {**_said(""), "tool_calls": [call]}, _answer("A door.")])
    except (ModelError, TypeError):  # some want the arguments as text
        return ""
