"""Trees that tests share: turns, trees written as paths, toy answers, and searches that are run to their end."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

from agentr.policy.chat import ChatCodec
from agentr.search import Child, Expansion, Node, Origin, Strategy, Tree
from agentr.search.revision import Revision
from agentr.search.stored import read_child, stored_child
from agentr.tasks.formats import ReAct
from agentr.types import FinishReason, Message, Outcome, Task
from tests.support import tiny_tokenizer

#: Makes a turn of a tree from its text, its return and why the episode ends there.
MakeTurn = Callable[[Tree, str, float, Outcome | None], Child]

#: Gives what a policy draws and an environment answers for an expansion.
Answer = Callable[[Expansion], list[Child]]

# turns ----------------------------------------------------------------------------------------------------------------


def child(text: str, reward: float = 0.0, outcome: Outcome | None = None, valid: bool = True, **more: Any) -> Child:
    """A turn of one token whose action is its text, with a bridge of one token; ``more`` replaces what else it has."""
    made: dict[str, Any] = {
        "token_ids": (7,),
        "bridge_ids": (8,),
        "logprobs": (-0.5,),
        "finish": FinishReason.STOP,
        "action": text,
        "observation": f"saw {text}",
    }
    return Child(text=text, reward=reward, outcome=outcome, valid=valid, **{**made, **more})


@cache
def codec() -> ChatCodec:
    return ChatCodec(tiny_tokenizer())


def spoken(text: str, reward: float = 0.0, outcome: Outcome | None = None, valid: bool = True, **more: Any) -> Child:
    """As ``child``, with the tokens that a model would have said and read."""
    seen = more.pop("observation", f"saw {text}")
    ids = {"token_ids": tuple(codec().turn(text)), "bridge_ids": tuple(codec().bridge(seen)), "logprobs": ()}
    return child(text, reward, outcome, valid, **{**ids, "observation": seen, **more})


def reasoned(
    action: str, reward: float = 0.0, outcome: Outcome | None = None, valid: bool = True, **more: Any
) -> Child:
    """As ``spoken``, with a thought before the action."""
    return spoken(
        ReAct().compose(f"on {action}", action),
        reward,
        outcome,
        valid,
        **{"action": action, "observation": "ok", **more},
    )


def add(tree: Tree, parent: int, turn: Child, origin: Origin = Origin.POLICY) -> Node:
    """Adds a turn, and backs it up if it ended an episode of the policy's for a reason of its own."""
    node = tree.add(parent, turn, origin)
    if origin is Origin.POLICY and turn.outcome not in (None, Outcome.INFRA):
        tree.back_up(node.id)
    return node


# trees ----------------------------------------------------------------------------------------------------------------


def new_tree(seed: int = 0, name: str = "t") -> Tree:
    """A tree whose prompt has three tokens."""
    return Tree.start(Task("toy", name, "train"), (Message("user", "go"),), (1, 2, 3), seed)


def conversed(*opening: Message, name: str = "door", seed: int = 3) -> Tree:
    """A tree whose prompt is these messages as a model would read them."""
    return Tree.start(Task("toy", name, "train"), opening, tuple(codec().prompt(opening)), seed)


def numbered(tree: Tree, text: str, reward: float, outcome: Outcome | None) -> Child:
    """A turn whose only token is 100 and the number of its node."""
    return child(text, reward, outcome, token_ids=(100 + len(tree.nodes),), bridge_ids=(9,))


def tree_of(
    *paths: str, into: Tree | None = None, at: int = 0, make: MakeTurn = numbered, origin: Origin = Origin.POLICY
) -> Tree:
    """A tree from its paths, such as ``tree_of("open / take key: 1.0", "open / wait / sleep: 0.0")``.

    What a path has in common with an earlier one from its first turn on is the same nodes, so nodes are numbered in the
    order in which they are first named. A path that closes with a return is ended by it: in success if that is 1, else
    in failure, unless an outcome stands behind it (``wait: 0.0 step_limit``).

    Args:
        into: A tree to add the paths to.
        at: Its node that they begin after.
    """
    tree = into or new_tree(name="door")
    for path in paths:
        *before, last = path.split(" / ")
        end = re.fullmatch(r"(.+?)(?:: ([\d.]+)(?: (\w+))?)?", last)
        assert end is not None, path
        node = at
        for text in before:
            known = next((c for c in tree.nodes[node].children if tree.nodes[c].action == text), None)
            node = add(tree, node, make(tree, text, 0.0, None), origin).id if known is None else known
        reward = float(end[2] or 0)
        outcome = Outcome(end[3] or ("success" if reward == 1 else "failure")) if end[2] else None
        add(tree, node, make(tree, end[1], reward, outcome), origin)
    return tree


_SEEN = {
    "open": "It is locked.",
    "take key": "Taken.",
    "unlock": "It opens.",
    "wait": "Time passes.",
    "sleep": "You sleep.",
    "give up": "You leave.",
}


def door() -> Tree:
    """root - open(1) - take key(2) - unlock(3): success 1.0
              \\ wait(4) - sleep(5): failure 0.0 ; with a revision below 4: take key(7), unlock(8)
    \\ give up(6): failure 0.2
    """

    def make(tree: Tree, action: str, reward: float, outcome: Outcome | None) -> Child:
        return reasoned(action, reward, outcome, observation=_SEEN[action])

    tree = conversed(Message("user", "Open the door."))
    tree_of("open / take key / unlock: 1.0", "open / wait / sleep: 0.0", "give up: 0.2", into=tree, make=make)
    tree_of("take key / unlock: 1.0", into=tree, at=4, make=make, origin=Origin.REVISION)
    tree.revisions = [
        Revision(bad=5, good=3, ancestor=1, transition=4, reflection="That was wrong.", spliced=True, end=8),
        Revision(bad=6, good=3, ancestor=0, transition=6, reflection="That was wrong."),
    ]
    return tree


def episode(
    key: str, actions: list[str], reward: float, outcome: Outcome, depth: int, invalid: tuple[int, ...] = ()
) -> Tree:
    """A tree of one branch.

    Args:
        depth: Label of the task.
        invalid: Positions of the actions that were not understood.
    """
    tree = Tree.start(Task("toy", key, "test", {"depth": depth}), (Message("user", "x"),), (1,), 0)
    for number, action in enumerate(actions):
        last = number == len(actions) - 1
        add(
            tree,
            number,
            reasoned(action, reward if last else 0.0, outcome if last else None, valid=number not in invalid),
        )
    return tree


# runs of a task and an expert's, for pairs ----------------------------------------------------------------------------

OPENING = (Message("user", "You play a game."), Message("assistant", "OK"), Message("user", "Open the door."))


def play(
    tree: Tree,
    actions: str,
    earned: float,
    outcome: Outcome | None = None,
    origin: Origin = Origin.POLICY,
    parent: int = 0,
) -> int:
    """Adds a chain of one-word turns that ends with a return, and gives its last node. ``?`` is not understood."""
    words = actions.split()
    for number, word in enumerate(words, 1):
        last = number == len(words)
        ending = outcome or (Outcome.SUCCESS if earned == 1 else Outcome.FAILURE)
        turn = spoken(word, earned if last else 0.0, ending if last else None, valid=word != "?")
        parent = add(tree, parent, turn, origin).id
    return parent


def expert(actions: str = "take unlock", earned: float = 1.0, **more: Any) -> Tree:
    tree = conversed(*more.pop("opening", OPENING))
    play(tree, actions, earned, origin=Origin.EXPERT, **more)
    return tree


def explored(*runs: tuple[Any, ...]) -> Tree:
    tree = conversed(*OPENING)
    for run in runs:
        play(tree, *run)
    return tree


# searches -------------------------------------------------------------------------------------------------------------


def toy_answers(end_probability: float = 0.0, words: int = 1000) -> Answer:
    """Turns drawn from the expansion's seed alone, as a seeded policy and a deterministic environment would give."""

    def answer(expansion: Expansion) -> list[Child]:
        rng = random.Random(expansion.seed)
        answers = []
        for _ in range(expansion.n):
            text = f"a{rng.randrange(words)}"
            ended = rng.random() < end_probability
            reward = float(rng.random() < 0.4) if ended else 0.0
            answers.append(child(text, reward, (Outcome.SUCCESS if reward else Outcome.FAILURE) if ended else None))
        return answers

    return answer


def run_search(
    strategy: Strategy,
    tree: Tree,
    answer: Answer,
    *,
    journal: list[str] | None = None,
    tells: int | None = None,
    batch: int | None = None,
) -> list[Expansion]:
    """Runs a search to its end, or until ``tells`` expansions were told, and returns those that were, in order.

    Args:
        journal: Gets a line for each.
        batch: Most expansions of one ask that are told before the next ask.
    """
    told: list[Expansion] = []
    while expansions := strategy.ask(tree)[:batch]:
        for expansion in expansions:
            if len(told) == tells:
                return told
            children = answer(expansion)
            strategy.tell(tree, expansion, children)
            told.append(expansion)
            if journal is not None:
                journal.append(json.dumps([asdict(expansion), [stored_child(c) for c in children]]))
    return told


def retell(strategy: Strategy, tree: Tree, journal: list[str]) -> None:
    """Tells what stands in a journal."""
    for line in journal:
        expansion, children = json.loads(line)
        strategy.tell(tree, Expansion(**expansion), [read_child(c) for c in children])
