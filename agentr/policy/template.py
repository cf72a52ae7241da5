"""What a chat template writes around the contents of messages.

The template is rendered with marks in place of the contents; the texts between the marks are its *frame*. A
conversation is then built by appending to the frame of its beginning, and the template is never asked again. Of earlier
turns what it would leave out stays as it was, or is left out as ids (`Template.hiding`). What that comes to is in
`Template.remarks`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from agentr.errors import ModelError
from agentr.policy.limited import Limit
from agentr.policy.plain_text import PlainText
from agentr.search.hiding import Hiding
from agentr.types import REASONED

#: What opens the part of a turn that holds reasoning.
REASONS = "<think>"
#: What a turn that was written, not drawn, begins with where the prompt has opened the reasoning already.
UNREASONED = f"\n{REASONED}\n\n"

#: What messages of a role hold besides; Mistral's templates want ids of nine characters.
CALL_ID = "call00000"
ABOUT: dict[str, dict[str, Any]] = {"tool": {"tool_call_id": CALL_ID}}

_TURN = ("user", "assistant", "user")
_MARK = "content7c1f{}end"
_THOUGHT = "thought7c1f"
_OTHERS = (
    "Set model.chat_template to the name of a template that comes with agentr (docs/models.md), to a file, or to a "
    "template's text."
)


@dataclass(frozen=True)
class Ending:
    """How a turn of the agent ends.

    Attributes:
        token: Text of the token that the policy ends it with.
        before: White space and tokens that the template writes before it, in turns that were not drawn.
    """

    token: str
    before: str


class Renderer:
    """Renders a chat template.

    Attributes:
        tools: Those that openings may offer, as the template takes them (`agentr.policy.tools` sets them).
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self._tokenizer, self._name = tokenizer, name
        self.tools: list[Mapping[str, Any]] = []
        self.frame = cache(self._frame)

    def _frame(self, roles: tuple[str, ...], offered: bool = False) -> list[str]:
        """Renders the texts before, between and after the contents, with the tools if ``offered``: ``len(roles) + 1``
        of them."""
        marks = [_MARK.format(i) for i in range(len(roles))]
        rest = self.texts(list(zip(roles, marks, strict=True)), **({"tools": self.tools} if offered else {}))
        pieces = []
        for role, mark in zip(roles, marks, strict=True):
            piece, found, rest = rest.partition(mark)
            if not found or mark in rest:
                raise ModelError(
                    f"{self._name}: its chat template does not show the {role} message of ({', '.join(roles)}) once "
                    "and in its place.",
                    hint=(
                        "Set prompt.system to '' if there is no place for a system message, or set model.chat_template."
                    ),
                )
            pieces.append(piece)
        return [*pieces, rest]

    def texts(self, messages: Sequence[tuple[str, str]], **more: Any) -> str:
        return self.render(
            [{"role": role, "content": content, **ABOUT.get(role, {})} for role, content in messages], **more
        )

    def render(self, messages: list[dict[str, Any]], **more: Any) -> str:
        """Renders messages as they are, up to the agent's next turn.

        Raises:
            ModelError: The template refuses them.
        """
        from jinja2 import TemplateError

        try:
            return self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **more)
        except (TemplateError, Limit) as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ModelError(
                f"{self._name}: its chat template refuses the roles {roles}: {error}", hint=_OTHERS
            ) from error

    def refuse_dates(self) -> None:
        """A template that prints today's date gives the same task another prompt tomorrow, and a resumed run another
        opening."""
        text = str(self._tokenizer.chat_template)
        if "strftime_now" not in text:
            return
        days = (
            self.texts([("user", "Go.")], strftime_now=lambda format, day=day: day)
            for day in ("1 May 2025", "2 May 2025")
        )
        if len(set(days)) == 1:
            return
        named = re.search(r"\b(\w*date\w*)\s+is\s+(?:not\s+)?defined", text)
        raise ModelError(
            f"{self._name}: its chat template prints today's date, so the same task would have another prompt "
            "tomorrow.",
            hint=f"Fix it: model.template_args={{{named[1] if named else 'strftime_now'}: '26 July 2025'}}",
        )


class Template:
    """The chat template of a tokenizer.

    Args:
        name: What errors call the model.
        end_of_turn: Text of the token that ends a turn; empty finds it in the template.

    Attributes:
        opening: What stands between a user's message and the agent's turn, at the end of every prompt.
        lead: What a turn that was written, not drawn, begins with.
        reasons: Whether it knows that turns may hold reasoning.
        frame: Renders the texts before, between and after the contents of messages of some roles, with the tools if
            they are offered.

    Raises:
        ModelError: A conversation cannot be built by appending: the template rewrites earlier messages, does not show
            all of them, prints today's date, or ends a turn without a token of its own.
    """

    def __init__(self, tokenizer: Any, name: str, plain: PlainText, end_of_turn: str = "") -> None:
        self._name = name
        self._plain = plain
        self.renderer = Renderer(tokenizer, name)
        self.renderer.refuse_dates()
        self.frame = self.renderer.frame
        *_, self.opening = self.frame(("user",))
        _, self._before, after, _ = self.frame(_TURN)
        self._closing, self._written = self._closed_by(after, tokenizer.eos_token)
        self.ending = self._ending(after, end_of_turn)
        self.lead = self._lead(self._before)
        self._check_stability()
        self.reasons = REASONED in str(tokenizer.chat_template)

    @property
    def opens_reasoning(self) -> bool:
        """Whether a prompt opens the agent's reasoning, so that a turn holds only its end."""
        return self.lead == UNREASONED

    @property
    def tail(self) -> str:
        """The end of every prompt, from its last special token on: what a tokenizer sees before a turn."""
        return self.opening[self._plain.last_special(self.opening) :]

    def hiding(self) -> Hiding:
        """Returns how the template shows a turn without its reasoning once others follow."""
        if REASONED not in self._before.removeprefix(self.opening) and self._before.startswith(self.opening):
            return Hiding()  # what it writes there is no reasoning: a turn that was drawn has, or has not, its own
        last, earlier = self._plain.raw(self.opening), self._plain.raw(self._before)
        same = next(
            (i for i, (a, b) in enumerate(zip(last, earlier, strict=False)) if a != b), min(len(last), len(earlier))
        )
        return Hiding(len(last) - same, tuple(earlier[same:]))

    def after_turn(self, roles: Sequence[str]) -> list[str]:
        """Returns the texts after a turn's last token, around messages of ``roles``, up to the agent's next turn."""
        _, _, after, *more = self.frame(("user", "assistant", *roles))
        return [self.after_end(after), *more]

    def after_end(self, text: str) -> str:
        """Returns what stands after the token that ends a turn, in what the template writes after the turn's
        content."""
        return text.removeprefix(self._closing).removeprefix(self._written)

    # what it does with a turn -----------------------------------------------------------------------------------------

    def _closed_by(self, after: str, last: str) -> tuple[str, str]:
        """Returns the token that ends a turn, and what stands before it: of the tokens in a row, the end of a sequence,
        else the first."""
        at = len(after) - len(after.lstrip())
        row = []
        while found := self._plain.spelled.match(after, row[-1].end() if row else at):
            row.append(found)
        for found in row:
            if found[0] == last:
                return after[: found.start()], found[0]
        return (after[:at], row[0][0]) if row else ("", "")

    def _ending(self, after: str, end_of_turn: str) -> Ending:
        if not self._written:
            raise ModelError(
                f"{self._name}: its chat template does not end the assistant's turn with a special token, but with "
                f"{after[:20]!r}.",
                hint=(
                    f"{_OTHERS} Where the tokenizer has such a token and does not call it special, the template must "
                    "write it."
                ),
            )
        if end_of_turn and end_of_turn not in self._plain.special.values():
            known = ", ".join(sorted(self._plain.special.values())[:20])
            raise ModelError(
                f"model.end_of_turn: {end_of_turn!r} is no special token of {self._name}.", hint=f"It has {known}."
            )
        return Ending(end_of_turn or self._written, self._closing)

    def _lead(self, before: str) -> str:
        if before.startswith(self.opening):
            return before[len(self.opening) :]
        if self.opening.startswith(before) and REASONED in self.opening[len(before) :]:
            return ""
        head, thinks, opened = self.opening.rpartition(REASONS)
        if thinks and not opened.strip() and not re.sub(rf"{REASONS}|{REASONED}|\s", "", before.removeprefix(head)):
            return UNREASONED
        raise self._unstable(
            f"it opens a turn with {self.opening[-40:]!r}, and writes {before[-40:]!r} before one that was taken"
        )

    def _check_stability(self) -> None:
        first, _, after, last = self.frame(_TURN)
        long = self.frame((*_TURN, *_TURN[1:]))
        if (
            first != self.frame(("user",))[0]
            or last != self.opening
            or long != [first, self._before, after, self._before, after, last]
        ):
            raise self._unstable("it writes earlier messages otherwise once others follow")

    def _unstable(self, how: str) -> ModelError:
        return ModelError(f"{self._name}: its chat template is not prefix-stable: {how}.", hint=_OTHERS)

    def remarks(self, keeps: bool, trains: bool | None) -> Iterator[str]:
        """Yields what is so in the conversations that are built, and would be otherwise if the template rendered them.

        Args:
            keeps: Whether reasoning stays in later prompts (``turns.keep_reasoning``).
            trains: Whether it is trained on (``build.train_on_reasoning``); None if that changes in a run.
        """
        if self.ending.token != self._written:
            yield f"turns end with {self.ending.token} (model.end_of_turn); the template would write {self._written}"
        blank = f" {_MARK} \n"
        if blank not in self.renderer.texts([("user", blank)]):
            yield "the template trims messages; here white space at their ends stays"
        if not self.reasons:
            switches = (("turns.keep_reasoning", keeps), ("build.train_on_reasoning", trains is not False))
            for key in (key for key, on in switches if not on):
                yield f"{key}=false changes nothing: the template knows of no {REASONED}"
            return
        if keeps and not self._before.startswith(self.opening):
            opened = self.opening[self.opening.index(REASONS) :]
            yield (
                f"the template opens the last turn alone with {opened!r}; here earlier turns keep it "
                "(turns.keep_reasoning)"
            )
        if keeps and self._leaves_out():
            yield "the template leaves the reasoning out of earlier turns; here it stays in them (turns.keep_reasoning)"
        if not keeps:
            like = "as by the template" if self._leaves_out() else "which the template would show"
            yield (
                f"the reasoning is left out of earlier turns, {like} (turns.keep_reasoning=false): what follows a turn "
                "is computed anew, and trained in a row of its own"
            )
        yield {
            None: "the reasoning is trained on in the rounds that set so (build.train_on_reasoning)",
            True: "the reasoning is trained on (build.train_on_reasoning)",
            False: "the reasoning is not trained on (build.train_on_reasoning=false)",
        }[trains]

    def _leaves_out(self) -> bool:
        thought = f"{REASONS}\n{_THOUGHT}\n{REASONED}\n\nDone."
        return _THOUGHT not in self.renderer.texts([("user", "Go."), ("assistant", thought), ("user", "On.")])
