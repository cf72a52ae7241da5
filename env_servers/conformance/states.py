"""Checks of the state machine: what reset, fork, expand and snapshot make must go on alike."""

import json

from env_servers.conformance.comparison import Comparison, where
from env_servers.conformance.server import Live, NotApplicable, require
from env_servers.conformance.subject import CheckFunction, Play, Subject


def reset_is_deterministic(subject: Subject) -> str:
    same = Comparison(subject)
    for task in subject.sample():
        first = subject.server.open(task)
        require(not first.last.done, f"task {task!r} is over before it begins")
        require(bool(first.last.observation.strip()), f"task {task!r} opens with an empty observation")
        for server in filter(None, (subject.server, subject.second)):
            same(f"task {task!r} opened again", first.last, server.open(task).last)
    return same.verdict() + ("" if subject.second else "; not compared with another process")


def forks(subject: Subject) -> str:
    """Forks are taken at three points of a play, the original goes on to its end, and only then do the forks follow."""
    _needs_fork(subject)
    same = Comparison(subject)
    for play in _plays(subject):
        live = subject.server.open(play.task)
        cuts = sorted({0, len(play.actions) // 2, max(0, len(play.actions) - 2)})
        taken: list[tuple[int, Live]] = []
        for index, action in enumerate(play.actions):
            if index in cuts:
                taken.append((index, live.fork()))
                same(where(play, index, "a fresh fork"), live.last, taken[-1][1].last)
            same(where(play, index, "a replay"), play.answers[index], live.step(action))
        for cut, fork in taken:
            for index in range(cut, len(play.actions)):
                same(
                    where(play, index, f"a fork after {cut} actions"),
                    play.answers[index],
                    fork.step(play.actions[index]),
                )
    return same.verdict()


def expansion(subject: Subject) -> str:
    _needs_fork(subject)
    same = Comparison(subject)
    for play in _plays(subject):
        live = subject.server.open(play.task)
        for action in play.actions[: len(play.actions) // 2]:
            live.step(action)
        if live.last.done:
            continue
        actions = list(dict.fromkeys([play.actions[live.steps], "xyzzy", *live.actions()[:4]]))
        actions.append(actions[0])  # twins are children of their own
        children = live.expand(actions)
        require(len({child.id for child in children}) == len(children), f"task {play.task!r}: children share a session")
        for action, child in zip(actions, children, strict=True):
            fork = live.fork()
            same(where(play, live.steps, f"child {action!r} against fork and step"), fork.step(action), child.last)
        if not children[0].last.done:
            follow = play.actions[live.steps + 1] if live.steps + 1 < len(play.actions) else "xyzzy"
            first = children[0].step(follow)
            same(where(play, live.steps + 1, "a twin after its twin moved"), first, children[-1].step(follow))
        same(where(play, live.steps, "the parent after its children"), play.answers[live.steps], live.step(actions[0]))
    return same.verdict()


def executed(subject: Subject) -> str:
    """A client plays again what was carried out, not what was asked for: that must lead to the same."""
    same = Comparison(subject)
    for play in _plays(subject):
        if not any(answer.executed for answer in play.answers):
            continue
        live = subject.server.open(play.task)
        for index, (action, answer) in enumerate(zip(play.actions, play.answers, strict=True)):
            carried_out = answer.executed or action
            same(
                where(play, index, f"carried out as {carried_out!r}"),
                answer.model_copy(update={"executed": ""}),
                live.step(carried_out),
            )
    if not same.compared:
        raise NotApplicable("no action of a play was replaced by another")
    return same.verdict()


def snapshots(subject: Subject) -> str:
    same = Comparison(subject)
    for play in _plays(subject):
        live = subject.server.open(play.task)
        half = len(play.actions) // 2
        for action in play.actions[:half]:
            live.step(action)
        stored = live.snapshot()
        for server in filter(None, (subject.server, subject.second)):
            there = "another process" if server is subject.second else "the same process"
            restored = server.restore(stored)
            # Of the last action a snapshot says only how it came out and where it led.
            last = live.last.model_copy(update={"valid": restored.last.valid, "executed": ""})
            same(where(play, half, f"a snapshot restored in {there}"), last, restored.last)
            again = restored.snapshot()
            require(
                not subject.spec.deterministic or again == stored,
                f"task {play.task!r} after {half} actions: a restored snapshot, stored again, is another: "
                f"{json.dumps(stored)[:200]} and {json.dumps(again)[:200]}",
            )
            for index in range(half, len(play.actions)):
                same(
                    where(play, index, f"played on in {there}"), play.answers[index], restored.step(play.actions[index])
                )
    return same.verdict() + ("" if subject.second else "; not carried to another process")


def _plays(subject: Subject) -> list[Play]:
    return [play for task in subject.sample() for play in subject.plays(task) if play.actions]


def _needs_fork(subject: Subject) -> None:
    if subject.spec.can_fork:
        return
    live = subject.server.open(subject.sample()[0])
    for path, more in (("fork", {}), ("expand", {"actions": ["xyzzy"]})):
        response = subject.server.http.post(f"/v1/{path}", json={"session": live.id, **more})
        subject.server.refuses(f"{path} where the specification says can_fork: false", (409,), response)
    raise NotApplicable("the environment cannot fork, it says, and refuses to")


CHECKS: list[tuple[str, CheckFunction]] = [
    ("reset is deterministic", reset_is_deterministic),
    ("a fork plays on as a replay does", forks),
    ("expand is fork and step", expansion),
    ("what was carried out can be asked for", executed),
    ("a snapshot survives storage", snapshots),
]
