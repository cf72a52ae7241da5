"""Agent-R's rows: revision trajectories and good trajectories, as queries over revised trees (arXiv 2501.11425, sections 3.1-3.3).

Three splices of a bad prefix and a good end:

- ``executed``: the branch that `agentr.collect.revise` ran in the environment, if it paid. The bad prefix is context, everything from
  the reflecting turn on is trained on.
- ``paper``: texts. Bad prefix, then a turn with the reflection and ``Action: wait`` that is answered "ok.", then the good path after
  the point where both part. The environment never saw this conversation.
- ``direct``: the same with the whole bad path as prefix (the Direct-Revision baseline).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from agentr.build.sequences import Turn, inserted, make_row, recorded
from agentr.config.methods import BuildConfig, ReviseConfig, Splice
from agentr.policy.chat import ChatCodec
from agentr.search.tree import Node, Origin, Tree
from agentr.store.rows import Row
from agentr.tasks.formats import ActionFormat
from agentr.types import Outcome


def revision_rows(
    tree: Tree, config: ReviseConfig, build: BuildConfig, codec: ChatCodec, action_format: ActionFormat, dropped: Counter[str]
) -> Iterator[Row]:
    """Revision trajectories of one tree, at most ``revisions_per_task``, each sequence of actions once.

    Args:
        dropped: Counts, by reason, what was left out.
    """
    seen: set[tuple[int, ...]] = set()
    made = 0
    # The good path's own actions first: where the policy went on by itself, its turns are less certain.
    for revision in sorted(tree.search.get("revisions", ()), key=lambda r: r["continued"]):
        if made >= build.revisions_per_task > 0:
            dropped["revisions over the cap"] += 1
            continue
        if config.splice is Splice.executed:
            if revision["end"] < 0:
                dropped["executed revision did not pay"] += 1
                continue
            turns = _executed(tree, revision, build)
        else:
            turns = _spliced(tree, revision, codec, action_format)
        row = make_row(
            tree,
            turns,
            "revision",
            splice=config.splice.value,
            bad_return=tree.nodes[revision["bad"]].reward,
            good_return=tree.nodes[revision["good"]].reward,
            ancestor_depth=tree.nodes[revision["ancestor"]].depth,
            transition_depth=tree.nodes[revision["transition"]].depth,
            continued=int(revision["continued"]),
            reflection=revision["reflection"],
        )
        if row is None or row.input_ids in seen:
            dropped["revision made twice" if row else "revision with nothing to train on"] += 1
            continue
        seen.add(row.input_ids)
        made += 1
        yield row


def _rank(path: list[Node]) -> tuple[int, int, float, int]:
    return sum(not n.valid for n in path), len(path), -sum(sum(n.logprobs) for n in path), path[-1].id


def _executed(tree: Tree, revision: dict, build: BuildConfig) -> list[Turn]:
    path = tree.path(revision["end"])
    start = tree.nodes[revision["transition"]].depth
    return recorded(path[:start], trained=False) + recorded(path[start:], trained=True, on_invalid=build.train_on_invalid)


def _spliced(tree: Tree, revision: dict, codec: ChatCodec, action_format: ActionFormat) -> list[Turn]:
    bad = tree.path(revision["transition"])
    # A transition inside the shared prefix continues after itself: the state is the same there.
    good = tree.path(revision["good"])[min(tree.nodes[revision["ancestor"]].depth, len(bad)) :]
    wait = inserted(codec, action_format.compose(revision["reflection"], "wait"), "ok.", trained=True)
    return [*recorded(bad, trained=False), wait, *recorded(good, trained=True)]


def good_rows(tree: Tree, build: BuildConfig, alpha: float) -> Iterator[Row]:
    """The policy's trajectories with a return of at least ``alpha``, at most ``good_per_task``, each sequence of actions once.

    Those with the fewest invalid turns come first, then the shortest, then the most likely: among equal actions, a thought that the
    policy itself finds odd is not one to learn.
    """
    leaves = [n for n in tree.ended() if n.depth > 0 and n.reward >= alpha and n.origin is Origin.POLICY]
    return itertools.islice(_whole(tree, leaves, build, "good"), build.good_per_task)


def demonstrated_rows(tree: Tree, build: BuildConfig) -> Iterator[Row]:
    """The expert's trajectories that succeeded, by the environment's own threshold: BabyAI pays the fastest success less than 1."""
    leaves = [n for n in tree.ended() if n.depth > 0 and n.outcome is Outcome.SUCCESS and n.origin is Origin.EXPERT]
    return _whole(tree, leaves, build, "demonstration")


def _whole(tree: Tree, leaves: list[Node], build: BuildConfig, kind: str) -> Iterator[Row]:
    seen: set[tuple[str, ...]] = set()
    for path in sorted((tree.path(leaf.id) for leaf in leaves), key=_rank):
        actions = tuple(n.action for n in path)
        if actions in seen:
            continue
        seen.add(actions)
        row = make_row(tree, recorded(path, trained=True, on_invalid=build.train_on_invalid), kind, good_return=path[-1].reward)
        if row is not None:
            yield row
