"""Held-out tasks by policies, what recurs in held-out episodes, and luck among the turns to be learnt."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from agentr.errors import DataError
from agentr.observe.problems import PageProblem, read_or
from agentr.read.run import Run, RunRound
from agentr.read.stage import Episodes, summary_of
from agentr.rows.revision import LUCKY, TRIED, lucky
from agentr.rows.targets import said_twice
from agentr.search.tree import Node, Tree
from agentr.store.layout import CEILING, CONTROL, DATASET
from agentr.store.summaries import DatasetSummary
from agentr.types import Outcome

#: Most episodes of a policy that are read for patterns, examples of a pattern, and openings that are shown.
READ = 2000
EXAMPLES = 200
OPENINGS = 12


def evaluated(run: Run) -> list[tuple[str, Episodes]]:
    """Returns the evaluations of a run by the titles of their policies, in order."""
    return [(arm.title, stage) for arm in run.arms if (stage := arm.measured) is not None]


def first_and_last(run: Run) -> list[tuple[str, Episodes]]:
    """Returns the evaluations of the first and of the last policy, control and ceiling aside: of a run that measured
    one policy, that alone."""
    found = [policy for policy in evaluated(run) if policy[0] not in (CONTROL.title, CEILING.title)]
    return [found[0], found[-1]] if len(found) > 1 else found


def tasks(run: Run) -> dict[str, Any]:
    """Returns the score of each held-out task under each policy. A task with several episodes has the mean of them."""
    stages = evaluated(run)
    scores, turns, named, ids = [], [], {}, {}
    problems: list[PageProblem] = []
    for title, stage in stages:
        evaluation = read_or(None, lambda stage=stage: stage.evaluation, problems, f"the evaluation of {title}")
        table = read_or(
            {},
            lambda stage=stage: stage.table(["key", "task", "depth"]).to_pydict(),
            problems,
            f"the episodes of {title}",
        )
        named |= evaluation.problems if evaluation else {}
        scores.append(evaluation.per_task if evaluation else {})
        turns.append(dict(zip(table.get("key", []), table.get("depth", []), strict=True)))
        ids |= dict(zip(table.get("key", []), table.get("task", []), strict=True))
    names = dict.fromkeys(task for found in scores for task in found)
    return {
        "policies": [{"title": title, "stage": stage.name} for title, stage in stages],
        "tasks": [
            {
                "key": name,
                "task": ids.get(name, name),
                "problem": named.get(name, name),
                "scores": [found.get(name) for found in scores],
                "turns": [found.get(name) for found in turns],
            }
            for name in names
        ],
        "problems": problems,
    }


def patterns(run: Run) -> dict[str, Any]:
    """Returns, by policy, what recurs in its held-out episodes and how many of those succeeded; and, by round, how many
    turns that were to be learnt were luck."""
    problems: list[PageProblem] = []
    found = [
        (
            title,
            stage,
            read_or(None, lambda stage=stage: patterns_of(stage, len(stage)), problems, f"the episodes of {title}"),
        )
        for title, stage in evaluated(run)
    ]
    policies = [{"title": title, "stage": stage.name, **recurs} for title, stage, recurs in found if recurs is not None]
    luck = [read_or(None, lambda arm=arm: luck_of(arm), problems, f"the luck of {arm.title}") for arm in run.arms]
    return {"policies": policies, "luck": [found for found in luck if found is not None], "problems": problems}


def luck_of(arm: RunRound) -> dict[str, Any] | None:
    """Returns how many turns a round tried in other worlds, and how many of them earned what they did by luck, with
    trees that have such turns; None where it tried none."""
    counted = summary_of(arm.stages().get(DATASET), DatasetSummary).splices
    if not (tried := counted.get(TRIED)):
        return None
    stage = next(reversed(arm.exploration().values()), None)  # the revised trees: the last that its rows are made of
    if stage is None:
        raise DataError(f"the trees of {arm.title} are gone")
    examples = [tree.task.key for tree in islice(stage, READ) if any(lucky(tree).values())][:EXAMPLES]
    return {"title": arm.title, "stage": stage.name, "tried": tried, "luck": counted.get(LUCKY, 0), "keys": examples}


def patterns_of(trees: Iterable[Tree], episodes: int) -> dict[str, Any]:
    """Returns what recurs in the first ``READ`` episodes."""
    read = [(tree.task.key, path, tree) for tree in islice(trees, READ) for path in episodes_of(tree)]
    found: list[dict[str, Any]] = []
    for name, about, shows in PATTERNS:
        found.append(_pattern(name, about, [(key, path) for key, path, _ in read if shows(path)], len(read)))
    spoken: dict[str, list[tuple[str, list[Node]]]] = {}
    for key, path, _ in read:
        for opening in {opening_of(turn) for turn in path} - {""}:
            spoken.setdefault(opening, []).append((key, path))
    often = sorted(spoken.items(), key=lambda item: (-len(item[1]), item[0]))[:OPENINGS]
    lengths = Counter(len(path) for _, path, _ in read)
    solved = Counter(len(path) for _, path, _ in read if succeeded(path))
    return {
        "episodes": episodes,
        "read": len(read),
        "patterns": found,
        "openings": [
            _pattern(said, "turns that open with it", where, len(read)) for said, where in often if len(where) > 1
        ],
        "lengths": [[length, count, solved[length]] for length, count in sorted(lengths.items())],
        "outcomes": dict(Counter(str(path[-1].outcome) for _, path, _ in read).most_common()),
    }


def opening_of(turn: Node) -> str:
    """Returns the first sentence of a turn, without the word that introduces a thought; empty if it says nothing."""
    text = re.sub(r"^\s*(thought|reasoning)\s*:\s*", "", turn.answer, flags=re.IGNORECASE)
    return re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0][:120].strip()


def episodes_of(tree: Tree) -> Iterator[list[Node]]:
    """Yields the turns of each episode of a tree that ended for the agent's reasons."""
    for leaf in tree.ended():
        if leaf.depth:
            yield tree.path(leaf.id)


def succeeded(path: list[Node]) -> bool:
    return path[-1].outcome is Outcome.SUCCESS


def _repeats(path: list[Node]) -> bool:
    return max(Counter(turn.action for turn in path).values()) >= 3


def _stuck(path: list[Node]) -> bool:
    return len(path) >= 3 and len({turn.action for turn in path[-3:]}) == 1


_LIMITS = (Outcome.STEP_LIMIT, Outcome.CONTEXT_LIMIT)

#: What is looked for: its name, what it means, and whether an episode shows it.
PATTERNS: tuple[tuple[str, str, Callable[[list[Node]], bool]], ...] = (
    ("repeated action", "one action three times or more", _repeats),
    ("stuck at the end", "the last three actions are the same", _stuck),
    (
        "refused action",
        "an action that the environment did not understand or refused",
        lambda path: not all(turn.valid for turn in path),
    ),
    (
        "sentence said twice",
        "a turn that says one sentence twice",
        lambda path: any(said_twice(turn.answer) for turn in path),
    ),
    ("reached the limit", "ended at the limit on actions or context", lambda path: path[-1].outcome in _LIMITS),
)


def _pattern(name: str, about: str, where: list[tuple[str, list[Node]]], of: int) -> dict[str, Any]:
    won = sum(succeeded(path) for _, path in where)
    keys = list(dict.fromkeys(key for key, _ in where))[:EXAMPLES]
    return {"name": name, "about": about, "episodes": len(where), "of": of, "succeeded": won, "keys": keys}
