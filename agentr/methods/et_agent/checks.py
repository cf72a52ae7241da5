"""ET-Agent: choice of tasks, rewards, metrics, answers."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentr.evaluate.metrics import BEHAVIOUR, conciseness
from agentr.methods.et_agent.flywheel_checks import episode_of
from agentr.rewards import Rewards
from agentr.rewards.group import group_of
from agentr.rows.pareto import MeasuredTask, choose, crowding, fronts, measure, select
from agentr.search import Tree
from agentr.search.evolution import Evolution
from agentr.search.written import named, new_tree, tree_of
from agentr.types import Task
from env_servers.registry import load


def group(
    earned: Sequence[float], calls: Sequence[int], tokens: Sequence[int], seen: Sequence[int], malformed: Sequence[int]
) -> Tree:
    """A tree of one episode for each return: its calls, the policy's tokens, those of its first observation, malformed
    turns before it."""
    tree = new_tree()
    for number, reward in enumerate(earned):
        made = calls[number] + malformed[number]
        turns: dict[str, dict[str, Any]] = {f"{number}.{turn}": {"tokens": 1} for turn in range(made)}
        turns[f"{number}.0"] = {"tokens": tokens[number] - made + 1, "seen": seen[number]}
        for turn in range(malformed[number]):
            turns[f"{number}.{turn}"]["action"] = ""
        tree_of([" / ".join(turns) + f": {reward}"], turns, into=tree)
    return tree


def rewards(
    method: Any,
    earned: Sequence[float],
    calls: Sequence[int],
    tokens: Sequence[int] = (),
    seen: Sequence[int] = (),
    malformed: Sequence[int] = (),
    round_: int = 1,
    progress: float = 0.0,
) -> list[float]:
    same = [1] * len(earned)
    tree = group(earned, calls, tokens or [max(calls) + 1] * len(earned), seen or same, malformed or [0] * len(earned))
    found = Rewards.of(method.rewards, method.gate)(group_of(tree, progress=progress, round_=round_))
    return [reward.total for reward in found]


def dispersion(method: Any, earned: Sequence[float], calls: Sequence[int]) -> list[float]:
    tree = group(earned, calls, [9] * len(earned), [1] * len(earned), [0] * len(earned))
    (found,) = measure([tree], method.pareto.dispersion, "")
    return [found.earned, found.calls]


def settled(method: Any, earned: Sequence[Sequence[float]]) -> list[bool]:
    """Whether each task is always or never solved, by what its episodes earned."""
    ones = [[1] * len(returns) for returns in earned]
    trees = [group(returns, one, one, one, [0] * len(returns)) for returns, one in zip(earned, ones, strict=True)]
    return [found.settled for found in measure(trees, method.pareto.dispersion, "")]


def front(points: Sequence[Sequence[float]]) -> list[int]:
    return fronts([(one, other) for one, other in points])


def alone(points: Sequence[Sequence[float]]) -> list[float]:
    return crowding([(one, other) for one, other in points])


def selected(points: Sequence[Sequence[float]], count: int) -> list[int]:
    return sorted(select([(one, other) for one, other in points], count))


def taken(
    method: Any,
    tasks: Mapping[str, Sequence[float]],
    settled: Sequence[str],
    count: int,
    kinds: Mapping[str, str] | None = None,
) -> list[str]:
    """The tasks that are trained on, of those with these dispersions; episodes of ``settled`` tasks all succeed, or
    none does."""
    pareto = method.pareto
    labels = {name: {"kind": (kinds or {}).get(name, "")} for name in tasks}
    found = [
        MeasuredTask(Task("toy", t, "train", {**labels[t]}), one, other, t in settled)
        for t, (one, other) in tasks.items()
    ]
    return [one.task.id for one in choose(found, replace(pareto, tasks=count))]


def behaviour(path: str, failed: Sequence[str] = (), tokens: int = 1) -> dict[str, float]:
    names = path.rpartition(":")[0].split(" / ")
    turns: dict[str, dict[str, Any]] = {name: {"valid": name not in failed, "tokens": 1} for name in names}
    turns[names[0]]["tokens"] = tokens - len(names) + 1
    turns[names[-1]]["action"] = "answer: it"
    episode = episode_of(tree_of([path], turns), names[-1], "answer:")
    return {name: of(episode) for name, of in BEHAVIOUR.items()}


def concise(episodes: Mapping[str, str]) -> dict[str, float]:
    """The share of episodes of which no turn could be left out, and the share of their turns that were needed.

    Args:
        episodes: Episodes, each with what is left of it; empty if no turn could be left out.
    """
    trees = []
    for number, (before, after) in enumerate(episodes.items()):
        tree = tree_of([before, *([after] if after else [])], into=new_tree(str(number)))
        ends = [node for node in tree.nodes if node.outcome is not None]
        tree.evolutions.append(Evolution(parent=ends[0].id, end=named(tree, ends[-1].observation).id if after else -1))
        trees.append(tree)
    return {name: found.mean for name, found in conciseness(trees).items()}


def answered(env: Any, answer: str, golds: Sequence[str]) -> dict[str, float]:
    """What the environment for search QA says of an answer: its scores, and what the episode earns.

    Raises:
        UnknownEnvironment: The environment is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        questions, corpus = Path(folder) / "questions.json", Path(folder) / "corpus.jsonl"
        questions.write_text(json.dumps([{"question": "Who is it?", "answer": list(golds)}]), encoding="utf-8")
        corpus.write_text(json.dumps({"id": "0", "contents": "Someone\nIt is someone."}) + "\n", encoding="utf-8")
        environment = load("searchqa", {"questions": str(questions), "corpus": str(corpus), **env.options})
        state, _ = environment.reset("test/0")
        seen = environment.step(state, f"answer: {answer}")
    return {**seen.scores, "reward": seen.reward}
