"""Compares two answers of a server."""

from env_servers.conformance.server import Broken, require
from env_servers.conformance.subject import Play, Subject
from env_servers.protocol import ObservedState

#: Of an environment that says it is not deterministic, at least this share of answers must be repeated.
LEAST_REPEATED = 0.5


class Comparison:
    """Compares answers: each must be the same, to the letter.
    Of a spec that says ``deterministic: false``, most must."""

    def __init__(self, subject: Subject) -> None:
        self._exact = subject.spec.deterministic
        self.compared = 0
        self.same = 0

    def __call__(self, what: str, expected: ObservedState, got: ObservedState) -> None:
        self.compared += 1
        differ = _differ(expected, got)
        if not differ:
            self.same += 1
        elif self._exact:
            raise Broken(f"{what}: expected {shown(expected)}, got {shown(got)}; not the same: {', '.join(differ)}")

    def verdict(self) -> str:
        enough = self.same >= LEAST_REPEATED * self.compared
        require(
            enough, f"only {self.same} of {self.compared} answers were repeated; even chance should not change so many"
        )
        return f"{self.compared} answers compared" + (
            "" if self._exact else f", {self.same} the same (not deterministic, it says)"
        )


def where(play: Play, index: int, what: str) -> str:
    action = repr(play.actions[index]) if index < len(play.actions) else "the end"
    return f"task {play.task!r}, {play.kind}, action {index + 1} ({action}), {what}"


def shown(observed: ObservedState) -> str:
    text = observed.observation
    instead = f", carried out {observed.executed!r}" if observed.executed else ""
    cut = "..." if len(text) > 200 else ""
    scores = "".join(f", {name} {score:g}" for name, score in observed.scores.items())
    facts = (
        f"reward {observed.reward:g}, done {observed.done}, valid {observed.valid}, {observed.status}{scores}{instead}"
    )
    return f"{text[:200]!r}{cut} ({facts})"


def _differ(one: ObservedState, other: ObservedState) -> list[str]:
    """The names of what differs in two answers; the session and what it took to get there may."""
    return [
        name
        for name in ObservedState.model_fields
        if name not in ("session", "again") and getattr(one, name) != getattr(other, name)
    ]
