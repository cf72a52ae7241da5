"""Trees written as text, for vectors: paths whose turns have names, and searches whose turns are scripted."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentr.search import Child, Node, Origin, Strategy, Tree
from agentr.types import CallStatus, FinishReason, Message, Outcome, Task

#: What is said of turns that differ from the plain one, by their names: text, action, valid, status, tokens (how many),
#: id (that of each), seen, logprobs.
Turns = Mapping[str, Mapping[str, Any]]

_END = re.compile(r"(.+?)(?:: ([\d.]+)(?: (\w+))?)?")
#: Ids of a tree's opening.
PROMPT = (1, 2, 3)


def new_tree(name: str = "toy") -> Tree:
    """Returns a tree that has only its root."""
    return Tree.start(Task("toy", name, "train"), (Message("user", "Open the door."),), PROMPT, 0)


def tree_of(
    paths: Sequence[str], turns: Turns | None = None, *, origin: Origin = Origin.POLICY, into: Tree | None = None
) -> Tree:
    """Makes a tree of its paths, such as ``["open / take key: 1.0", "open / wait: 0.0 step_limit"]``.

    What a path has in common with an earlier one is the same nodes. A return ends a path: in success if it is 1, else
    in failure, or as the outcome behind it says. The n-th node's tokens are all 100 + n, or 300 + n if the policy did
    not take it; those of what is observed after it are 400 more.

    Args:
        origin: Who took the turns. Those of the policy are backed up.
        into: A tree to add the paths to.
    """
    tree = into or new_tree()
    for path in paths:
        at = 0
        for spec in path.split(" / "):
            named = _END.fullmatch(spec)
            assert named is not None, spec
            known = next((c for c in tree.nodes[at].children if name_of(tree.nodes[c]) == named[1]), None)
            if known is None or named[2]:
                number = len(tree.nodes) + (0 if origin is Origin.POLICY else 200)
                node = tree.add(at, child_of(spec, number, turns), origin)
                known = node.id
                if node.outcome is not None and origin is Origin.POLICY:
                    tree.back_up(node.id)
            at = known
    return tree


def child_of(spec: str, number: int, turns: Turns | None = None) -> Child:
    """Makes a turn of its name, its return and its outcome: ``take key: 0.5 step_limit``."""
    named = _END.fullmatch(spec)
    assert named is not None, spec
    name, earned = named[1], float(named[2] or 0)
    about = dict((turns or {}).get(name, {}))
    action = about.get("action", name)
    return Child(
        text=about.get("text", action),
        token_ids=(about.get("id", 100 + number),) * about.get("tokens", 1),
        bridge_ids=(500 + number,) * about.get("seen", 1),
        logprobs=tuple(about.get("logprobs", (-0.5,) * about.get("tokens", 1))),
        finish=FinishReason.STOP,
        action=action,
        observation=name,
        reward=earned,
        valid=about.get("valid", True),
        outcome=Outcome(named[3] or ("success" if earned == 1 else "failure")) if named[2] else None,
        status=CallStatus(about.get("status", "ok")),
    )


def name_of(node: Node) -> str:
    """Returns a turn's name; of the root, an empty one."""
    return node.observation if node.id else ""


def named(tree: Tree, name: str) -> Node:
    """Returns the turn of a name."""
    return next(node for node in tree.nodes if name_of(node) == name)


def names(nodes: Iterable[Node]) -> list[str]:
    """Returns the names of turns."""
    return [name_of(node) for node in nodes]


def spoken(tree: Tree, ids: Sequence[int], mask: Sequence[int]) -> list[list[Any]]:
    """Returns token ids as the turns that they are of and whether those are trained on: a turn, then what is seen after
    it, and so on."""
    found: list[list[Any]] = []
    for token, trained in zip(ids, mask, strict=True):
        seen, number = divmod(token - 100, 400)
        entry = ["(opening)" if token < 100 else f"{'see ' * seen}{name_of(tree.nodes[number % 200])}", bool(trained)]
        if not found or found[-1] != entry:
            found.append(entry)
    return found


def searched(
    strategy: Strategy, answers: Mapping[str, Sequence[str]], turns: Turns | None = None, most: int = 500
) -> tuple[Tree, list[list[list[Any]]]]:
    """Runs a search to its end and returns its tree, and how many turns were drawn after which turn, of each ask a
    list.

    Args:
        answers: The turns after a turn, by its name; after others, each has a new name and goes on. Draws beyond the
            last begin anew.
        most: Turns after which it is stopped.
    """
    tree, drawn, fresh = new_tree(), list[list[list[Any]]](), itertools.count()
    taken: dict[str, int] = {}
    seeds: set[int] = set()
    while expansions := strategy.ask(tree):
        drawn.append([])
        for expansion in expansions:
            at = name_of(tree.nodes[expansion.node])
            assert expansion.seed not in seeds, "two draws would be the same"
            seeds.add(expansion.seed)
            specs = []
            for _ in range(expansion.n):
                place = taken[at] = taken.get(at, -1) + 1
                specs.append(answers[at][place % len(answers[at])] if at in answers else f"turn {next(fresh)}")
            drawn[-1].append([at, expansion.n])
            strategy.tell(tree, expansion, [child_of(spec, len(tree.nodes) + i, turns) for i, spec in enumerate(specs)])
            assert len(drawn) <= most, "the search does not end"
    return tree, drawn
