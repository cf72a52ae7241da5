"""Builds Agent-R's rows: revision trajectories and good trajectories, as queries over revised trees (arXiv 2501.11425,
3.1-3.3).

Three splices of a bad prefix and a good end:

- ``executed``: the branch that was run in the environment, if it earned the good path's return. The bad prefix is
  context; all turns from the one with the reflection on are trained on.
- ``paper``: texts. Bad prefix, then a turn with the reflection and ``Action: wait`` that is answered "ok.", then the
  good path after the last common node of both paths. The environment never saw this conversation.
- ``direct``: the same with the whole bad path as prefix (the Direct-Revision baseline).
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from agentr.policy.chat import ChatCodec
from agentr.rows.sequences import Turn, dropped, inserted, make_rows, recorded
from agentr.rows.targets import Targets
from agentr.search.pairs import by_luck
from agentr.search.revision import Revision, Splice
from agentr.search.tree import Node, Origin, Tree
from agentr.store.rows import Dropped, Row
from agentr.tasks.formats import ActionFormat, written
from agentr.types import Outcome

#: Names of what `count_luck` counts.
TRIED, LUCKY = "turns tried in other worlds", "of them luck"


def revision_rows(
    tree: Tree,
    splice: Splice,
    codec: ChatCodec,
    action_format: ActionFormat,
    *,
    limit: int,
    targets: Targets,
    dedupe: bool = True,
) -> Iterator[Row | Dropped]:
    """Yields the revision trajectories of one tree.

    Args:
        limit: Most trajectories; 0 means all.
        targets: Which turns are learnt, of executed splices, and whether their reasoning is.
        dedupe: Equal trajectories are one.
    """
    seen: set[tuple[tuple[int, ...], ...]] = set()
    made = 0
    # The good path's own actions first: if the policy went on by itself, its turns are less certain.
    for revision in sorted(tree.revisions, key=lambda r: r.continued):
        places = (revision.transition, revision.good)
        if made >= limit > 0:
            yield dropped(tree, "revisions over the cap", places)
            continue
        context = Counter[str]()
        if splice is Splice.executed:
            if revision.end < 0:
                yield dropped(tree, "executed revision earned less than the good path", places)
                continue
            turns, context = targets.turns(tree.path(revision.end), tree.nodes[revision.transition].depth)
        elif (begun := written(action_format, revision.reflection)) is None:
            yield dropped(tree, "reflection that the format cannot hold", places)
            continue
        else:  # where ``wait`` is no action of the format it stands there as text: nothing carries it out
            wait = written(action_format, revision.reflection, "wait") or f"{begun}\nwait".strip()
            turns = _spliced(tree, revision, inserted(codec, wait, "ok.", True, targets.reasoning), targets.reasoning)
        rows = make_rows(
            tree,
            turns,
            "revision",
            splice=splice.value,
            bad_return=tree.nodes[revision.bad].reward,
            good_return=tree.nodes[revision.good].reward,
            ancestor_depth=tree.nodes[revision.ancestor].depth,
            transition_depth=tree.nodes[revision.transition].depth,
            continued=int(revision.continued),
            reflection=revision.reflection,
            context=context,
        )
        ids = tuple(row.input_ids for row in rows)
        if not rows or (dedupe and ids in seen):
            yield dropped(
                tree,
                "revision made twice" if rows else "revision with nothing to train on",
                [turn.node for turn in turns],
            )
            continue
        seen.add(ids)
        made += 1
        yield from rows


def count_splices(trees: Iterable[Tree]) -> dict[str, int]:
    """Counts the revisions that were tried, those whose text splice would fail, and those that were kept after
    execution."""
    revisions = [revision for tree in trees for revision in tree.revisions]
    if not revisions:
        return {}
    return {
        "tried": len(revisions),
        "text splice would fail": sum(not revision.spliced for revision in revisions),
        "kept after execution": sum(revision.end >= 0 for revision in revisions),
    }


def count_luck(trees: Iterable[Tree]) -> dict[str, int]:
    """Counts the turns that were tried in other worlds, and those of them that were luck."""
    found = [luck for tree in trees for luck in lucky(tree).values()]
    return {TRIED: len(found), LUCKY: sum(found)}


def lucky(tree: Tree) -> dict[int, bool]:
    """Returns, of the turns of a tree that were tried in other worlds, whether they were luck."""
    paths = [tree.path(leaf.id) for leaf in tree.ended()]
    return {node.id: by_luck(path, turn) for path in paths for turn, node in enumerate(path) if node.worlds}


def _rank(path: list[Node]) -> tuple[int, int, float, int]:
    return sum(not n.valid for n in path), len(path), -sum(sum(n.logprobs) for n in path), path[-1].id


def _spliced(tree: Tree, revision: Revision, wait: Turn, on_reasoning: bool) -> list[Turn]:
    bad = tree.path(revision.transition)
    # A transition inside the shared prefix continues after itself: the state is the same there.
    good = tree.path(revision.good)[min(tree.nodes[revision.ancestor].depth, len(bad)) :]
    return [*recorded(bad, trained=False), wait, *recorded(good, trained=True, on_reasoning=on_reasoning)]


def best_paths(tree: Tree, min_return: float, limit: int, *, inclusive: bool = True) -> list[list[Node]]:
    """Returns the trajectories that `good_rows` begins with, one for each sequence of actions."""
    leaves = [n for n in tree.ended() if n.origin is Origin.POLICY]
    good = [n for n in leaves if n.reward > min_return or (inclusive and n.reward == min_return)]
    paths: dict[tuple[str, ...], list[Node]] = {}
    for path in sorted((tree.path(leaf.id) for leaf in good), key=_rank):
        paths.setdefault(tuple(n.action for n in path), path)
    return list(paths.values())[:limit]


def good_rows(
    tree: Tree, min_return: float, *, limit: int, targets: Targets, inclusive: bool = True, dedupe: bool = True
) -> Iterator[Row | Dropped]:
    """Yields the policy's trajectories with a return of at least ``min_return``, then the others.

    Trajectories with the fewest invalid turns come first, then the shortest, then the most likely: of equal actions,
    the thoughts that the policy finds most likely are learnt.

    Args:
        limit: Most trajectories.
        targets: Which turns are learnt.
        inclusive: A return of ``min_return`` itself is enough.
        dedupe: Trajectories with the same actions are one.
    """
    leaves = [n for n in tree.ended() if n.origin is Origin.POLICY]
    good = [n for n in leaves if n.reward > min_return or (inclusive and n.reward == min_return)]
    enough = {n.id for n in good}
    made = 0
    for candidate in _whole(tree, good, targets, "good", dedupe):
        if isinstance(candidate, Dropped):
            yield candidate
        elif made == limit:
            *_, whole = candidate  # the last row has all turns
            yield Dropped(whole.provenance, "trajectories over the cap")
        else:
            made += 1
            yield from candidate
    yield from (_left_out(tree, n, "trajectory with too low a return") for n in leaves if n.id not in enough)


def instead(candidates: Iterable[Row | Dropped]) -> Iterator[Row | Dropped]:
    """Yields whole demonstrations in place of revisions, as long as they have no more trained tokens than the revisions
    before them."""
    owed = 0
    for candidate in candidates:
        if isinstance(candidate, Dropped):
            yield candidate
            continue
        tokens = sum(candidate.loss_mask)
        if candidate.provenance.kind == "revision":
            owed += tokens
            yield Dropped(candidate.provenance, "revision whose tokens are those of whole episodes")
        elif tokens > owed:
            yield Dropped(candidate.provenance, "whole episode over the tokens of the revisions")
        else:
            owed -= tokens
            yield candidate


def demonstrated_rows(tree: Tree, targets: Targets) -> Iterator[Row | Dropped]:
    """Yields the expert's trajectories that succeeded, by the environment's own threshold, then the others.

    In BabyAI even the fastest success earns less than 1.
    """
    leaves = [n for n in tree.ended() if n.origin is Origin.EXPERT]
    successes = [n for n in leaves if n.outcome is Outcome.SUCCESS]
    for candidate in _whole(tree, successes, targets, "demonstration"):
        yield from [candidate] if isinstance(candidate, Dropped) else candidate
    yield from (
        _left_out(tree, n, "demonstration without a success") for n in leaves if n.outcome is not Outcome.SUCCESS
    )


def _whole(
    tree: Tree, leaves: list[Node], targets: Targets, kind: str, dedupe: bool = True
) -> Iterator[list[Row] | Dropped]:
    """Yields the rows of each trajectory: one, unless the policy did not see the reasoning of earlier turns."""
    seen: set[tuple[str, ...]] = set()
    for path in sorted((tree.path(leaf.id) for leaf in leaves), key=_rank):
        actions = tuple(n.action for n in path)
        if dedupe and actions in seen:
            yield _left_out(tree, path[-1], "trajectory with the same actions as another")
            continue
        seen.add(actions)
        turns, context = targets.turns(path)
        rows = make_rows(tree, turns, kind, context=context, good_return=path[-1].reward)
        yield rows or _left_out(tree, path[-1], "trajectory with nothing to train on")


def _left_out(tree: Tree, leaf: Node, reason: str) -> Dropped:
    return dropped(tree, reason, [node.id for node in tree.path(leaf.id)])
