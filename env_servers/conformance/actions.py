"""Checks of what may be said and stored: suggestions, the expert's actions, nonsense, damaged snapshots."""

from collections import Counter
from typing import Any

from env_servers.conformance.comparison import shown
from env_servers.conformance.server import Live, NotApplicable, Server, require
from env_servers.conformance.subject import CheckFunction, Subject
from env_servers.protocol import MAX_ACTION_CHARS, EnvironmentSpec, ObservedState

#: Most suggestions that are tried in one state.
MAX_TRIED = 16
#: What no environment understands.
NONSENSE = ("", "   ", "xyzzy", "?!", "\n\n", "Thought: hm\nAction:", "{}", "null")
#: What must be survived, whatever the answer.
HOSTILE = (
    "\0",
    "\x1b[2J\x07",
    "\u202egnirts\u202c \U0001f600 e\u0301",
    "$(reboot); `reboot` && reboot | reboot",
    "__import__('os').system('reboot')",
    "'; DROP TABLE tasks; --",
    "../../../../etc/passwd",
    "%s%s%n %d {0.__class__} {} ${x}",
    "<script>alert(1)</script> <answer></answer> <search>",
    "\\" * 100,
    "(" * 2000,
    "[" * MAX_ACTION_CHARS,
    "9" * MAX_ACTION_CHARS,
    "a " * (MAX_ACTION_CHARS // 2),
)


def suggestions(subject: Subject) -> str:
    """Suggestions of a session are asked for again when others are open: they are its own."""
    tried = 0
    listed: list[tuple[Live, list[str]]] = []
    for task in subject.sample():
        live = subject.server.open(task)
        suggested = live.actions()
        listed.append((live, suggested))
        require(
            suggested == live.actions(), f"task {task!r}: the same state suggests other actions, or in another order"
        )
        require(len(set(suggested)) == len(suggested), f"task {task!r}: an action is suggested twice")
        unusable = [a for a in suggested if not 0 < len(a) <= MAX_ACTION_CHARS]
        require(not unusable, f"task {task!r}: suggestions that cannot be sent: {unusable[:3]!r}")
        if suggested:
            answers = _try_all(live, suggested[:MAX_TRIED])
            require(
                any(a.valid for a in answers), f"task {task!r}: none of the first {len(answers)} suggestions is valid"
            )
            tried += len(answers)
    for task, (live, suggested) in zip(subject.sample(), listed, strict=True):
        require(suggested == live.actions(), f"task {task!r}: a session suggests other actions once others are open")
    if not tried:
        raise NotApplicable("the environment suggests no actions")
    return f"{tried} suggestions tried"


def expert(subject: Subject) -> str:
    spec = subject.spec
    demonstrated, without = 0, 0
    for task in subject.sample():
        steps = subject.server.expert(task)
        if steps is None:
            without += 1
            continue
        require(bool(steps), f"task {task!r}: the expert has nothing to do")
        live = subject.server.open(task)
        for number, (thought, action) in enumerate(steps, start=1):
            at = f"task {task!r}, expert action {number} of {len(steps)}, {action!r}"
            require(not live.last.done, f"{at}: the episode was over before")
            thinks = subject.spec.action_format != "turn"  # a whole turn holds its thought
            require(bool(thought.strip()) or not thinks, f"{at}: no thought")
            answer = live.step(action)
            require(answer.valid, f"{at}: answered as not valid: {answer.observation[:200]!r}")
        require(
            _won(live.last, spec),
            f"task {task!r}: the expert ends with {shown(live.last)}, success is a scaled reward of "
            f"{spec.reward.success}",
        )
        demonstrated += 1
    if not demonstrated:
        raise NotApplicable("the environment has no expert for the tasks tried")
    return f"{demonstrated} tasks demonstrated, {without} without an expert"


def expert_from(subject: Subject) -> str:
    """From states of random play and of the expert's, and beside a step elsewhere; the state stays as it is."""
    asked, without = 0, 0
    for task in subject.sample():
        for play in subject.plays(task):
            for taken in {0, len(play.actions) // 2, len(play.actions)}:
                live = subject.server.open(task)
                for action in play.actions[:taken]:
                    live.step(action)
                at = f"task {task!r}, after {taken} actions of {play.kind}"
                steps = None if live.last.done else live.expert()
                require(steps is None or subject.spec.guides, f"{at}: an expert, and the specification says none")
                if steps is None:
                    without += 1
                    continue
                asked += 1
                require(steps == live.expert(), f"{at}: asked again, the expert says something else")
                for _, action in steps:
                    require(not live.last.done, f"{at}: the episode is over before {action!r}")
                    require(live.step(action).valid, f"{at}: {action!r} of the expert is not valid")
                require(_won(live.last, subject.spec), f"{at}: the expert ends with {shown(live.last)}")
    if not subject.spec.guides:
        raise NotApplicable("the environment's expert plays from the beginning alone")
    require(asked > 0, "the specification says that the expert goes on from any state, and it never did")
    return f"{asked} states gone on from, {without} without an expert"


def redrawn(subject: Subject) -> str:
    """Nothing that was seen changes with the world: neither in the session itself, nor in the one that goes on."""
    drawn, others = 0, 0
    for task in subject.sample():
        for play in subject.plays(task):
            live = subject.server.open(task)
            for action in play.actions[: len(play.actions) // 2]:
                live.step(action)
            at, body = f"task {task!r}, {live.steps} actions of {play.kind}", {"session": live.id, "seed": 1}
            if not subject.spec.redraws:
                answer = subject.server.http.post("/v1/redraw", json=body)
                subject.server.refuses(
                    f"{at}: another world, which the specification says there is not", (409,), answer
                )
                continue
            before = live.snapshot()["state"]
            first, again, second = (live.redraw(seed) for seed in (1, 1, 2))
            require(live.snapshot()["state"] == before, f"{at}: the session itself is in another world then")
            seen = live.last.model_copy(update={"session": first.id})
            require(first.last == seen, f"{at}: something else was observed there: {shown(first.last)}")
            worlds = [each.snapshot()["state"] for each in (first, again, second)]
            require(worlds[0] == worlds[1], f"{at}: the same seed draws two worlds")
            drawn += 1
            others += worlds[2] != before or worlds[0] != before
    if not subject.spec.redraws:
        raise NotApplicable("the environment draws no other worlds")
    require(others > 0, "no world that was drawn is another one")
    return f"{drawn} states, of which {others} went on in another world"


def nonsense(subject: Subject) -> str:
    tried = 0
    for task in subject.sample()[:2]:
        live = subject.server.open(task)
        mangled = [f"{a} xyzzy" for a in live.actions()[:4]] + [a[: len(a) // 2] for a in live.actions()[:4]]
        actions = [*NONSENSE, *HOSTILE, *mangled]
        for action, answer in zip(actions, _try_all(live, actions), strict=True):
            require(not _won(answer, subject.spec), f"task {task!r}: {action[:60]!r} solves it")
            if action in NONSENSE and subject.spec.action_format != "turn":  # a program may take any turn
                require(not answer.valid, f"task {task!r}: {action!r} is answered as valid: {shown(answer)}")
            tried += 1
    return f"{tried} actions tried"


def statuses(subject: Subject) -> str:
    """That a status is one of the five, and a score from 0 to 1, is checked of every answer."""
    counts: Counter[str] = Counter()
    scores: set[str] = set()
    for task in subject.sample():
        for play in subject.plays(task):
            for action, answer in zip(play.actions, play.answers, strict=True):
                at = f"task {task!r}, {play.kind}, {action!r}"
                require(answer.done or not answer.scores, f"{at}: scores before the end: {shown(answer)}")
                counts[answer.status] += 1
                scores |= answer.scores.keys()
    seen = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    return f"{seen or 'no answers'}; scores: {', '.join(sorted(scores)) or 'none'}"


def damaged_snapshots(subject: Subject) -> str:
    """Only what is plainly no snapshot must be refused; anything else must not break the server."""
    server = subject.server
    task = subject.sample()[0]
    stored = server.open(task).snapshot()
    for why, change in {
        "a snapshot of another environment": {"environment": f"not-{stored['environment']}"},
        "a snapshot of another version": {"version": f"{stored['version']}-other"},
        "a snapshot without a state": {"state": {}},
        "a snapshot with a state of another shape": {"state": {"x": [1, {"y": None}]}},
    }.items():
        server.refuses(why, (422,), server.http.post("/v1/restore", json={**stored, **change}))
    tried = 0
    for key in stored["state"]:
        for value in (None, -1, "x", [], {}, [[]], 1e308, True):
            state = {**stored["state"], key: value}
            tried += _survives(server, f"state with {key} = {value!r}", {**stored, "state": state})
        _survives(
            server, f"state without {key}", {**stored, "state": {k: v for k, v in stored["state"].items() if k != key}}
        )
    return f"{tried} damaged states tried"


def _won(observed: ObservedState, spec: EnvironmentSpec) -> bool:
    scaled = (observed.reward - spec.reward.low) / (spec.reward.high - spec.reward.low)
    return observed.done and scaled >= spec.reward.success


def _try_all(live: Live, actions: list[str]) -> list[ObservedState]:
    """The answer to each action in the same state."""
    if live.server.spec.can_fork:
        return [child.last for child in live.expand(actions)]
    stored = live.snapshot()
    return [live.server.restore(stored).step(action) for action in actions]


def _survives(server: Server, what: str, snapshot: dict[str, Any]) -> int:
    response = server.http.post("/v1/restore", json=snapshot)
    if response.status_code != 200:
        server.refuses(f"restoring a {what}", (422,), response)
        return 1
    live = server.adopt(ObservedState.model_validate_json(response.content), snapshot["steps"])
    body = {"session": live.id, "action": "xyzzy"}
    status = server.http.post("/v1/step", json=body).status_code
    require(status < 500, f"a {what} was accepted, and then a step fails with {status}")
    return 1


CHECKS: list[tuple[str, CheckFunction]] = [
    ("suggested actions are usable and in a fixed order", suggestions),
    ("the expert earns the reward", expert),
    ("the expert goes on from any state", expert_from),
    ("another world fits what was observed", redrawn),
    ("nonsense is answered, not understood", nonsense),
    ("scores come with the end of an episode", statuses),
    ("a damaged snapshot is refused", damaged_snapshots),
]
