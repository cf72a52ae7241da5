"""Builds ET-Agent's rows for fine-tuning: of all episodes of a task, found or evolved, those that are right, well
formed and economical (arXiv 2601.06860, section 3.2)."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import fmean

from pydantic import NonNegativeInt

from agentr.config.checks import Proportion, Section
from agentr.rows.sequences import dropped, make_rows
from agentr.rows.targets import Targets
from agentr.search.episode import EVOLVED, Episode, episodes
from agentr.search.evolution import Evolution
from agentr.search.revision import Rating
from agentr.search.tree import Tree
from agentr.store.rows import Dropped, Row
from agentr.types import CallStatus


@dataclass
class FilterConfig(Section):
    """Which episodes are imitated."""

    min_return: list[Proportion] = field(default_factory=lambda: [1.0])
    """Least return, by round; the last value holds for later rounds."""
    failed_calls: NonNegativeInt = 0
    """Most calls that the environment did not understand or could not carry out, malformed turns included (ET-Agent:
    none)."""
    without: list[CallStatus] = field(default_factory=list)
    """Statuses of an action that leave its episode out, whatever `failed_calls` allows: of empty, error (malformed
    turns included), timeout and limit."""
    fewest_calls: bool = True
    """Only episodes with as few calls as the most economical right one of their task (ET-Agent: all that are right)."""
    judged: bool = False
    """Leave out episodes that the judge finds bad (method.evolve.judge)."""
    per_task: NonNegativeInt = 4
    """Most episodes of a task, those with the fewest calls first; 0 means all (ET-Agent)."""
    train_on_flawed: bool = False
    """Also learn the turns that an operator found to be wrong and went on after (ET-Agent does)."""
    train_on_observations: bool = False
    """Also learn what the environment answers (the released code of ET-Agent does)."""


def evolved_rows(
    tree: Tree, config: FilterConfig, min_return: float, answer_prefix: str, targets: Targets
) -> Iterator[Row | Dropped]:
    """Yields the episodes of a tree that pass the filter, each sequence of actions once, then the others.

    Args:
        targets: Which turns are learnt, of those that the filter lets be learnt.
    """
    made_by = {made.end: made for made in tree.evolutions if made.end >= 0}
    flawed = {} if config.train_on_flawed else _flawed(tree)
    seen: set[tuple[str, ...]] = set()
    rows, fewest = 0, None
    for episode in sorted(episodes(tree, answer_prefix, EVOLVED), key=_rank):
        nodes = [node.id for node in episode.path]
        actions = tuple(node.action for node in episode.path)
        if episode.earned < min_return:
            yield dropped(tree, "episode with too low a return", nodes)
        elif episode.failed_calls + episode.malformed > config.failed_calls:
            yield dropped(tree, "episode with a failed call or a malformed turn", nodes)
        elif status := next((node.status for node in episode.path if node.status in config.without), None):
            yield dropped(tree, f"episode with an action that came out as {status}", nodes)
        elif config.judged and episode.leaf.verdict is not None and episode.leaf.verdict.rating is Rating.BAD:
            yield dropped(tree, "episode that the judge finds bad", nodes)
        elif config.fewest_calls and fewest is not None and episode.calls > fewest:
            yield dropped(tree, "episode with more calls than another of its task", nodes)
        elif actions in seen:
            yield dropped(tree, "episode with the same actions as another", nodes)
        elif rows == config.per_task > 0:
            yield dropped(tree, "episodes over the cap", nodes)
        else:
            seen.add(actions)
            fewest = episode.calls
            made = made_by.get(episode.leaf.id)
            hidden = max(flawed.get(node, 0) for node in nodes)
            turns, context = targets.turns(episode.path, hidden)
            kind, operator = ("evolved", made.operator) if made else ("good", "")
            found = make_rows(
                tree, turns, kind, config.train_on_observations, context, operator=operator, calls=episode.calls
            )
            rows += bool(found)
            yield from found or [dropped(tree, "episode with nothing to train on", nodes)]


def _flawed(tree: Tree) -> dict[int, int]:
    """The turns that operators found to be wrong and went on after, and how many turns of their path end with them."""
    went_on = [made for made in tree.evolutions if made.end >= 0 and 0 < made.kept == made.turn]
    return {tree.path(made.end)[made.kept - 1].id: made.kept for made in went_on}


def _rank(episode: Episode) -> tuple[int, int, int, int]:
    return episode.calls, len(episode.path), episode.tokens, episode.leaf.id


@dataclass
class Operated:
    """What came of an operator, over all tasks.

    Attributes:
        tried: Times that it was applied.
        made: Times that an episode came of it.
        right_before: Of those, episodes that it started from that were right.
        right_after: Episodes that came of it that are right.
        calls_before: Mean calls of the episodes that it started from, where one came of it.
        calls_after: Mean calls of those that came of it.
        completions: Turns that the policy drew for it, over all tasks.
        env_steps: Actions that the environment carried out for it.
        asked: Requests to a teacher.
        reasons: How often nothing came of it, by reason.
    """

    tried: int = 0
    made: int = 0
    right_before: int = 0
    right_after: int = 0
    calls_before: float = 0.0
    calls_after: float = 0.0
    completions: int = 0
    env_steps: int = 0
    asked: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


def count_operators(trees: Iterable[Tree], answer_prefix: str) -> dict[str, Operated]:
    """Counts what came of each operator, in the order of their names."""
    found: dict[str, list[tuple[Evolution, Episode, Episode | None]]] = {}
    for tree in trees:
        for made in tree.evolutions:
            before = Episode(tree, tuple(tree.path(made.parent)), answer_prefix)
            after = Episode(tree, tuple(tree.path(made.end)), answer_prefix) if made.end >= 0 else None
            found.setdefault(made.operator, []).append((made, before, after))
    return {operator: _operated(attempts) for operator, attempts in sorted(found.items())}


#: Operators that name a turn by execution, and those that ask a teacher for the same.
RIVALS = {"redundant": ("drop_redundant", "refine_redundant"), "flawed": ("correct_flawed", "correct_step")}


def count_agreement(trees: Iterable[Tree]) -> dict[str, dict[str, int]]:
    """Counts, where execution and a teacher were both to find the redundant or the flawed turn of an episode, how often
    they agree.

    Returns:
        By question: ``both`` (episodes of which both were asked), ``whether`` (they agree that there is such a turn, or
        that there is
        none) and ``which`` (they name the same one).
    """
    found: dict[str, dict[str, int]] = {}
    for tree in trees:
        named = {(made.parent, made.operator): made.turn for made in tree.evolutions}
        for question, (executed, asked) in RIVALS.items():
            for (parent, operator), turn in named.items():
                other = named.get((parent, asked))
                if operator == executed and other is not None:
                    counts = found.setdefault(question, {"both": 0, "whether": 0, "which": 0})
                    counts["both"] += 1
                    counts["whether"] += bool(turn) == bool(other)
                    counts["which"] += turn == other
    return found


def count_verdicts(trees: Iterable[Tree], answer_prefix: str) -> dict[str, dict[str, int]]:
    """Counts what a judge said of episodes, by what the environment says of them.

    Returns:
        Of those that are ``right`` and ``wrong``: how many it finds ``good``, ``bad`` and ``uncertain``; nothing if
        there is no verdict.
    """
    found: dict[str, Counter[str]] = {"right": Counter(), "wrong": Counter()}
    for tree in trees:
        for episode in episodes(tree, answer_prefix, EVOLVED):
            if episode.leaf.verdict is not None:
                found["right" if episode.succeeded else "wrong"][episode.leaf.verdict.rating.value] += 1
    return (
        {known: {rating.value: said[rating.value] for rating in Rating} for known, said in found.items()}
        if any(found.values())
        else {}
    )


def _operated(attempts: list[tuple[Evolution, Episode, Episode | None]]) -> Operated:
    pairs = [(before, after) for _, before, after in attempts if after is not None]
    return Operated(
        tried=len(attempts),
        made=len(pairs),
        right_before=sum(before.succeeded for before, _ in pairs),
        right_after=sum(after.succeeded for _, after in pairs),
        calls_before=round(fmean(before.calls for before, _ in pairs), 4) if pairs else 0.0,
        calls_after=round(fmean(after.calls for _, after in pairs), 4) if pairs else 0.0,
        completions=sum(made.completions for made, _, _ in attempts),
        env_steps=sum(made.env_steps for made, _, _ in attempts),
        asked=sum(made.asked for made, _, _ in attempts),
        reasons=dict(Counter(made.reason for made, _, after in attempts if after is None)),
    )
