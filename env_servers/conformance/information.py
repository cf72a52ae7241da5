"""Checks of what a server publishes: its specification and its splits."""

from itertools import product

from env_servers.conformance.server import NotApplicable, require
from env_servers.conformance.subject import CheckFunction, Subject

#: Longest task id that `OpenRequest` takes.
MAX_TASK_ID = 256
#: Examples that a failure lists.
LISTED = 3


def specification(subject: Subject) -> str:
    spec = subject.spec
    for key in ("name", "title", "version", "instruction", "source"):
        require(bool(getattr(spec, key).strip()), f"the specification says nothing under {key!r}")
    require(spec.reward.low < spec.reward.high, f"the reward scale is empty: {spec.reward.low} to {spec.reward.high}")
    require(0 < spec.reward.success <= 1, f"success is a scaled reward in (0, 1], not {spec.reward.success}")
    require(any(s.train for s in spec.splits.values()), "no split may be trained on")
    require(not all(s.train for s in spec.splits.values()), "no split is held out")
    for number, example in enumerate(spec.examples):
        require(bool(example), f"example {number} is empty")
    return f"{spec.name} {spec.version}, {spec.action_format}, {len(spec.examples)} examples"


def splits(subject: Subject) -> str:
    counts = []
    for name in subject.spec.splits:
        tasks = subject.server.split(name)
        ids = [task.id for task in tasks]
        require(bool(ids), f"split {name!r} is empty")
        require(len(set(ids)) == len(ids), f"split {name!r} lists a task twice: {_twice(ids)}")
        long = [i for i in ids if not 0 < len(i) <= MAX_TASK_ID]
        require(
            not long, f"split {name!r} has ids that are empty or longer than {MAX_TASK_ID} characters: {long[:LISTED]}"
        )
        if identity := subject.spec.identity:
            without = [task.id for task in tasks if identity not in task.labels]
            require(not without, f"tasks of {name!r} lack the identity label {identity!r}: {without[:LISTED]}")
        if subject.second is not None:
            require(
                subject.second.split(name) == tasks,
                f"another process lists split {name!r} in another order or with other tasks",
            )
        counts.append(f"{name} {len(ids)}")
    return ", ".join(counts) + ("" if subject.second else "; not compared with another process")


def no_common_task(subject: Subject) -> str:
    train, held_out = _sides(subject)
    for a, b in product(train, held_out):
        common = {t.id for t in subject.server.split(a)} & {t.id for t in subject.server.split(b)}
        require(not common, f"{len(common)} tasks are in {a!r} and in held-out {b!r}: {sorted(common)[:LISTED]}")
    return f"{', '.join(train)} against {', '.join(held_out)}"


def no_common_problem(subject: Subject) -> str:
    """Looks for a training split without common problems for each held-out split: an environment may have several
    families of splits."""
    identity = subject.spec.identity
    if not identity:
        raise NotApplicable("the specification names no identity label: each id is a problem of its own")
    train, held_out = _sides(subject)
    problems = {
        name: {task.labels.get(identity) for task in subject.server.split(name)} for name in subject.spec.splits
    }
    pairs = []
    for b in held_out:
        common = {a: problems[a] & problems[b] for a in train}
        safe = [a for a in train if not common[a]]
        shared = ", ".join(f"{len(common[a])} with {a!r}" for a in train if common[a])
        require(
            bool(safe), f"no training split is safe beside held-out {b!r}: it shares problems ({identity}): {shared}"
        )
        pairs.append(
            f"{b} beside {' or '.join(safe)}" + (f" (not {', '.join(a for a in train if common[a])})" if shared else "")
        )
    return "; ".join(pairs)


def _sides(subject: Subject) -> tuple[list[str], list[str]]:
    by_side = {side: [n for n, s in subject.spec.splits.items() if s.train is side] for side in (True, False)}
    return by_side[True], by_side[False]


def _twice(ids: list[str]) -> list[str]:
    seen: set[str] = set()
    return [i for i in ids if i in seen or seen.add(i)][:LISTED]


CHECKS: list[tuple[str, CheckFunction]] = [
    ("the specification is complete", specification),
    ("splits list distinct tasks in a stable order", splits),
    ("training and held-out splits share no task", no_common_task),
    ("training and held-out splits share no problem", no_common_problem),
]
