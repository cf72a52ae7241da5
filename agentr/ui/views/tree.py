"""One tree: its topology first, then the texts of the turns that are looked at."""

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

from agentr.errors import DataError
from agentr.observe.problems import PageProblem, read_or
from agentr.read.run import Run
from agentr.read.stage import Rollouts, Trees
from agentr.read.trace import made_of
from agentr.search import UCT, UCTConfig
from agentr.search.evolution import Evolution
from agentr.search.tree import Node, Tree
from agentr.store.layout import stage_of
from agentr.ui.texts import Texts, shortened
from agentr.ui.views.forest import trees_of
from agentr.ui.views.program import partings, program_view, said_by, tool_views, tools_of

#: Characters of an action in the topology, and most turns of an answer.
LABEL = 32
TURNS = 200


def tree_view(run: Run, stage: str, key: str) -> dict[str, Any]:
    """Returns everything of a tree but the texts of its turns.

    Raises:
        DataError: There is no such tree, or it is damaged.
    """
    trees = trees_of(run, stage)
    tree = trees[key]
    problems: list[PageProblem] = []
    nodes = tree.nodes
    origins, origin = _coded(str(node.origin) for node in nodes)
    outcomes, outcome = _coded(str(node.outcome) if node.outcome else "" for node in nodes)
    verdicts, verdict = _coded(str(node.verdict.rating) if node.verdict else "" for node in nodes)
    task, tools = tree.task, tools_of(tree)
    return {
        "stage": stage,
        "key": key,
        "task": {"id": task.id, "env": task.env, "split": task.split, "labels": dict(task.labels)},
        "policy": tree.policy,
        "method": run.config["method"]["type"],
        "stopped": str(tree.search.get("stopped") or ""),
        "messages": [
            {"role": m.role, "content": (said := shortened(m.content))[0], "cut": said[1]} for m in tree.messages
        ],
        "origins": origins,
        "outcomes": outcomes,
        "verdicts": verdicts,
        "nodes": {
            "parent": [node.parent for node in nodes],
            "origin": origin,
            "outcome": outcome,
            "verdict": verdict,
            "visits": [node.visits for node in nodes],
            "value": [_round(node.value) for node in nodes],
            "reward": [_round(node.reward) for node in nodes],
            "valid": [int(node.valid) for node in nodes],
            "draws": [node.draws for node in nodes],
            "logprob": [_round(fmean(node.logprobs)) if node.logprobs else None for node in nodes],
            "label": [_label(node) for node in nodes],
        },
        "program": program_view(tree, tree.root, tools),
        "tools": tool_views(tools),
        "partings": partings(tree),
        "searched": any(node.visits for node in nodes),
        "exploration": _exploration(run, stage),
        "revisions": [asdict(revision) for revision in tree.revisions],
        "evolutions": [_evolution(made) for made in tree.evolutions],
        "uses": read_or([], lambda: uses(run, trees, key, tree), problems, "the rows that were made of it"),
        "facts": _facts(tree),
        "elsewhere": read_or(
            [], lambda: _elsewhere(run, stage, key), problems, "the same task's trees in other stages"
        ),
        "commands": _commands(run, stage, key),
        "policies": read_or([], lambda: _policies(run), problems, "the policies of the run"),
        "problems": problems,
    }


def _evolution(made: Evolution) -> dict[str, Any]:
    said = {"answer": shortened(made.answer)[0], "guidance": shortened(made.guidance)[0]}
    return {name: getattr(made, name) for name in ("parent", "operator", "kept", "end", "reason")} | said


def _policies(run: Run) -> list[dict[str, str]]:
    """What `agentr search` may be set to search with."""
    return [{"name": policy.arm, "title": policy.title} for policy in run.policies(base=True)]


def turns_view(
    run: Run,
    stage: str,
    key: str,
    wanted: Sequence[int],
    whole: bool = False,
    limit: int = TURNS,
    texts: Texts | None = None,
) -> dict[str, Any]:
    """Returns the texts of turns.

    Args:
        whole: Long texts are not cut.
        limit: Most turns; 0 means all.
        texts: Of tokens; by default those of the run's tokenizer.

    Raises:
        DataError: There is no such tree or node.
    """
    tree = trees_of(run, stage)[key]
    if wrong := [node for node in wanted if not 0 <= node < len(tree.nodes)]:
        raise DataError(
            f"the tree {key!r} of {stage} has no node {wrong[0]}", hint=f"Its nodes: 0 to {len(tree.nodes) - 1}."
        )
    texts, constant, tools = texts or Texts.of(run), _exploration(run, stage), tools_of(tree)
    shown = [tree.nodes[node] for node in wanted[: limit or None]]
    return {
        "turns": [
            {**_turn(tree, node, texts, constant, whole), "program": program_view(tree, node, tools, whole)}
            for node in shown
        ],
        "problem": texts.problem,
    }


def uses(run: Run, trees: Trees, key: str, tree: Tree) -> list[dict[str, Any]]:
    """Returns the rows that turns of a tree went into, and the candidates with them that were dropped."""
    name, found = trees.name, []
    if isinstance(trees, Rollouts):  # its keys begin with their step
        name = f"{name}/{key.partition('/')[0]}"
    for dataset, stages in made_of(run.path, name).items():
        index = _index(run.path, dataset, _stamp(run.path / dataset))
        for stage in stages:
            found += index.get((stage, tree.task.key), [])
    size = len(tree.nodes)
    return [{**use, "nodes": [node for node in use["nodes"] if node < size]} for use in found]


@lru_cache(maxsize=16)
def _index(root: Path, dataset: str, _: int) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Returns the rows of a dataset by the trees that they were made of."""
    stage = Run(root).stage(dataset)
    pairs = stage.type == "preferences"
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def note(made: Any, index: int | None, reason: str, both: bool) -> None:
        about = {"dataset": dataset, "index": index, "kind": made.kind, "reason": reason}
        side = "chosen" if both else "row"
        found.setdefault((made.stage, made.tree), []).append({**about, "side": side, "nodes": list(made.nodes)})
        if made.rejected:
            where = (made.rejected_stage or made.stage, made.rejected_tree or made.tree)
            found.setdefault(where, []).append({**about, "side": "rejected", "nodes": list(made.rejected)})

    for number, made in enumerate(stage.rows.origins()):
        note(made, number, "", pairs)
    for candidate in stage.dropped():
        note(candidate.provenance, None, candidate.reason, bool(candidate.provenance.rejected))
    return found


def _stamp(folder: Path) -> int:
    return (folder / "manifest.json").stat().st_mtime_ns


def _turn(tree: Tree, node: Node, texts: Texts, constant: float | None, whole: bool) -> dict[str, Any]:
    text, cut = shortened(node.text, whole)
    # what the messages of a program say is shown with them
    observation, observation_cut = shortened("" if node.observation == said_by(node) else node.observation, whole)
    spent = [spent for spent in tree.spent if spent.node == node.parent] if node.parent >= 0 else []
    ids = node.token_ids if whole or not cut else ()
    return {
        "id": node.id,
        "text": text,
        "cut": cut,
        "observation": observation,
        "observationCut": observation_cut,
        "action": shortened(node.action, whole)[0],
        "tokens": texts.pieces(ids) if ids else None,
        "logprobs": [_round(value) for value in node.logprobs] if node.logprobs and ids else [None] * len(ids),
        "reasoning": node.reasoning,
        "forgotten": node.forgotten,
        "finish": str(node.finish),
        "status": str(node.status),
        "scores": dict(node.scores),
        "verdict": {name: value or "" for name, value in asdict(node.verdict).items()} if node.verdict else None,
        "uct": _uct(tree, node, constant),
        "seconds": {"policy": sum(s.policy_s for s in spent), "environment": sum(s.env_s for s in spent)}
        if spent
        else None,
    }


def _uct(tree: Tree, node: Node, constant: float | None) -> float | None:
    """Equation 5 of arXiv 2501.11425 for a visited node; None for one that was never visited, whose score has no
    bound."""
    if constant is None or node.parent < 0 or not node.visits:
        return None
    return UCT(UCTConfig(c_uct=constant)).score(tree.nodes[node.parent], node)


def _exploration(run: Run, stage: str) -> float | None:
    """The constant of the UCT score, for stages that were searched so."""
    place = stage_of(stage)
    search = run.config["method"].get("search") or {}
    return search.get("c_uct") if place is not None and place[1] in ("collect", "revise") else None


def _elsewhere(run: Run, stage: str, key: str) -> list[dict[str, str]]:
    """The same task's trees in other stages."""
    found = []
    for name, other in run.stages().items():
        place = stage_of(name)
        if (
            name != stage
            and isinstance(other, Trees)
            and not isinstance(other, Rollouts)
            and place
            and key in other.forest
        ):
            found.append({"stage": name, "key": key, "title": f"{place[0].title}: {place[1]}"})
    return found


def _commands(run: Run, stage: str, key: str) -> list[dict[str, str]]:
    where = f"{shlex.quote(str(run.path))} --stage {stage} --tree {shlex.quote(key)}"
    return [
        {"title": "act in this state yourself", "command": f"agentr envs play --run {where} --turn NODE"},
        {"title": "search on from this state", "command": f"agentr search --run {where} --turn NODE --policy POLICY"},
        {"title": "which rows this turn went into", "command": f"agentr report {where} --node NODE"},
        {"title": "this tree as a file to send", "command": f"agentr report {where}"},
    ]


def _facts(tree: Tree) -> dict[str, float]:
    spent = {"policy_s": sum(s.policy_s for s in tree.spent), "env_s": sum(s.env_s for s in tree.spent)}
    return {name: value for name, value in {**asdict(tree.cost), **tree.events, **spent}.items() if value}


def _coded(values: Iterable[str]) -> tuple[list[str], list[int]]:
    """Returns the distinct values, and for each its place among them; -1 for an empty one."""
    names: dict[str, int] = {}
    codes = [names.setdefault(value, len(names)) if value else -1 for value in values]
    return list(names), codes


def _label(node: Node) -> str:
    said = " ".join((node.action or node.text).split())
    return said if len(said) <= LABEL else said[: LABEL - 1] + "…"


def _round(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 4)
