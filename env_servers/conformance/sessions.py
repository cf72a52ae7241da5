"""Checks of sessions: isolation, repetition, closing, ends."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

from env_servers.conformance.comparison import Comparison
from env_servers.conformance.server import Broken, Live, NotApplicable, require
from env_servers.conformance.subject import CheckFunction, Play, Subject
from env_servers.protocol import ObservedState

#: Longest wait for sessions to be gone after they were closed.
SETTLE_S = 5.0


def isolation(subject: Subject) -> str:
    """Plays many sessions at once, several of them on the same task; each must get the answers that it gets alone."""
    plays = [play for task in subject.sample() for play in subject.plays(task) if play.actions]
    chosen = [random.Random(f"{subject.effort.seed}/{i}").choice(plays) for i in range(subject.effort.sessions)]

    def one(play: Play) -> tuple[Play, list]:
        live = subject.server.open(play.task)
        return play, [live.last, *(live.step(action) for action in play.actions)]

    same = Comparison(subject)
    with ThreadPoolExecutor(len(chosen)) as pool:
        for play, seen in pool.map(one, chosen):
            for index, (expected, got) in enumerate(zip([play.opening, *play.answers], seen, strict=True)):
                same(f"task {play.task!r}, {play.kind}, answer {index} among {len(chosen)} sessions", expected, got)
    return f"{len(chosen)} sessions at once, {same.verdict()}"


def repetition(subject: Subject) -> str:
    """The client may not have seen an answer, and asks again: it must get the same one, and the state must not move
    twice."""
    server, play = subject.server, _long_play(subject)
    live, other = server.open(play.task), server.open(play.task)
    same = Comparison(subject)
    body = {"session": live.id, "action": play.actions[0], "index": 0}
    first = live.step(play.actions[0])
    again = server.http.post("/v1/step", json=body)
    require(
        again.status_code == 200,
        f"a step sent again, with its index, is answered with {again.status_code} {again.text[:200]}",
    )
    repeated = ObservedState.model_validate_json(again.content)
    require(repeated == first, f"a step sent again is answered with {repeated}, at first it was {first}")
    other.step(play.actions[0])
    same("the action after a repeated one", other.step(play.actions[1]), live.step(play.actions[1]))
    for why, index in (("a step whose index is far behind", 0), ("a step whose index is ahead", 7)):
        response = server.http.post("/v1/step", json={**body, "action": play.actions[0] + " ", "index": index})
        server.refuses(why, (409,), response)
    return same.verdict()


def closing(subject: Subject) -> str:
    server, task = subject.server, subject.sample()[0]
    before = server.health().sessions
    sessions = [server.open(task).id for _ in range(5)]
    sessions += [server.open(task).fork().id] if subject.spec.can_fork else []
    counted = server.close(sessions + sessions[:2])
    require(counted == len(sessions), f"{len(sessions)} sessions were closed, and the server counts {counted}")
    require(server.close(sessions) == 0, "closed sessions are closed again, and counted")
    for path, more in (("step", {"action": "xyzzy"}), ("snapshot", {}), ("actions", {})):
        response = server.http.post(f"/v1/{path}", json={"session": sessions[0], **more})
        server.refuses(f"{path} of a closed session", (404,), response)
    server.close_all()
    deadline = time.monotonic() + SETTLE_S
    while (now := server.health().sessions) > before:
        if time.monotonic() > deadline:
            raise Broken(
                f"{before} sessions were open before, {now} after all were closed (check again if others use this "
                "server)"
            )
        time.sleep(0.05)
    return f"{len(sessions)} sessions closed"


def ends(subject: Subject) -> str:
    """An episode that is over takes no further step, and nothing can be expanded from it."""
    live = _ended(subject)
    server = subject.server
    refused = [("step", {"action": "xyzzy"}), ("expand", {"actions": ["xyzzy"]})]
    for path, more in refused if subject.spec.can_fork else refused[:1]:
        response = server.http.post(f"/v1/{path}", json={"session": live.id, **more})
        server.refuses(f"{path} after the end", (409,), response)
    restored = server.restore(live.snapshot())
    require(restored.last.done, "the snapshot of an ended episode is restored as one that goes on")
    scores = restored.last.scores
    require(
        scores == live.last.scores, f"an ended episode with the scores {live.last.scores} is restored with {scores}"
    )
    server.refuses(
        "a step after the end, restored",
        (409,),
        server.http.post("/v1/step", json={"session": restored.id, "action": "x"}),
    )
    return f"ended with {live.last.observation[:60]!r}"


def foreign_ids(subject: Subject) -> str:
    server = subject.server
    epoch = server.health().epoch
    ids = {
        "an id of another start of the server": (f"0{epoch}x.{'x' * 22}", 410),
        "an id that was never given out": (f"{epoch}.x", 404),
    }
    if subject.second is not None:
        theirs = subject.second.open(subject.sample()[0]).id
        ids["a session of another server"] = (theirs, 410)
    for why, (session, status) in ids.items():
        for path, more in (
            ("step", {"action": "xyzzy"}),
            ("fork", {}),
            ("expand", {"actions": ["x"]}),
            ("snapshot", {}),
            ("actions", {}),
        ):
            response = server.http.post(f"/v1/{path}", json={"session": session, **more})
            server.refuses(f"{path} of {why}", (status,), response)
    return ", ".join(ids)


def _long_play(subject: Subject) -> Play:
    for task in subject.sample():
        for play in subject.plays(task):
            if len(play.actions) >= 2:
                return play
    raise NotApplicable("no play of two actions was found")


def _ended(subject: Subject) -> Live:
    for task in subject.sample():
        scripts = [
            [action for _, action in subject.server.expert(task) or []],
            *(play.actions for play in subject.plays(task)),
        ]
        for script in scripts:
            live = subject.server.open(task)
            for action in script:
                if live.step(action).done:
                    return live
    raise NotApplicable("no play that ends was found")


CHECKS: list[tuple[str, CheckFunction]] = [
    ("sessions do not see each other", isolation),
    ("a repeated step is not carried out again", repetition),
    ("closing frees sessions", closing),
    ("an ended episode takes no more steps", ends),
    ("ids of other servers and closed sessions are refused", foreign_ids),
]
