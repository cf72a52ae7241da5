"""Operators of the flywheel: each makes of an episode another one, or says why not (ET-Agent, arXiv 2601.06860, section
3.2).

Where the original asks a larger model which step was redundant or wrong, ``drop_redundant`` and ``correct_flawed`` find
out: a step is redundant if the episode earns as much without it, and wrong if the policy still succeeds from before it
and no more from after it. An answer is no proof by itself, for it may repeat what the step left out had found: it is
drawn anew. The operators that ask are in ``agentr.collect.teacher_operators``.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from agentr.collect.evolver import EvolveConfig, Evolver, above
from agentr.collect.teacher_operators import correct_step, refine_redundant, rewrite_thoughts
from agentr.config.checks import Problem
from agentr.config.named import imported
from agentr.config.policy import Who
from agentr.errors import ConfigError
from agentr.search.episode import Episode
from agentr.search.evolution import Evolution


class Needs(StrEnum):
    """Which episodes an operator takes."""

    right = "right"
    wrong = "wrong"


async def rollout(evolver: Evolver, episode: Episode) -> Evolution:
    """Another episode from the beginning."""
    return Evolution(parent=episode.leaf.id, end=await evolver.go_on(0))


async def drop_redundant(evolver: Evolver, episode: Episode) -> Evolution:
    """The same episode without its redundant turns: each turn but the last is left out in turn, from the end, and stays
    out if the rest, carried out again, earns as much. Where episodes end with an answer, the policy gives it anew, in
    one of ``samples`` attempts."""
    made = Evolution(parent=episode.leaf.id)
    shortest = episode
    for turn in range(len(episode.path) - 1, 0, -1):
        shorter = await _without(evolver, shortest, turn)
        if shorter is not None:
            shortest, made.turn, made.kept, made.end = shorter, turn, turn - 1, shorter.leaf.id
    if made.end < 0:
        made.reason = "every turn was needed"
    return made


async def _without(evolver: Evolver, episode: Episode, turn: int) -> Episode | None:
    """Returns the episode without a turn if it earns as much then, with fewer turns."""
    tree, prefix, size = evolver.tree, episode.answer_prefix, len(evolver.tree.nodes)
    answers = bool(prefix) and episode.leaf.action.startswith(prefix)
    node = await evolver.replay(above(episode, turn), episode.path[turn : -1 if answers else None])
    replayed = len(tree.nodes)
    for _ in range(evolver.config.samples):  # without an answer to give anew all attempts are the same
        end = await evolver.go_on(node) if answers and tree.nodes[node].outcome is None else node
        shorter = Episode(tree, tuple(tree.path(end)), prefix)
        if (
            shorter.leaf.outcome is not None
            and shorter.earned >= episode.earned
            and len(shorter.path) < len(episode.path)
        ):
            return shorter
        evolver.sessions.cut(replayed)
    evolver.sessions.cut(size)
    return None


async def correct_flawed(evolver: Evolver, episode: Episode) -> Evolution:
    """The episode up to the turn that was wrong, and a success of the policy from there."""
    turn, end = await evolver.flaw(episode)
    reason = "" if end >= 0 else "the policy succeeds from no state of the episode"
    return Evolution(parent=episode.leaf.id, turn=turn, kept=turn - 1, end=end, reason=reason)


async def hint_step(evolver: Evolver, episode: Episode) -> Evolution:
    """The episode up to and including the turn that was wrong, a hint, and the policy from there."""
    before_last = len(episode.path) - 1
    return await _hinted(evolver, episode, min((await evolver.flaw(episode))[0], before_last) if before_last else 0)


async def hint_end(evolver: Evolver, episode: Episode) -> Evolution:
    """The episode without its last turn, a hint, and the policy from there."""
    return await _hinted(evolver, episode, len(episode.path) - 1)


async def _hinted(evolver: Evolver, episode: Episode, kept: int) -> Evolution:
    """Goes on with a hint after so many turns, less than all."""
    made = Evolution(parent=episode.leaf.id, turn=kept, kept=kept)
    made.end = await evolver.go_on(episode.path[kept].parent, evolver.hint())
    if made.end < 0:
        made.reason = "there is no room for a hint in the context, or in the format"
    return made


@dataclass(frozen=True)
class Operator:
    """An operator.

    Attributes:
        needs: Which episodes it takes.
        most: Most completions that it draws, given the configuration and the longest episode.
        asks: Whether it asks a teacher.
    """

    run: Callable[[Evolver, Episode], Awaitable[Evolution]]
    needs: tuple[Needs, ...]
    most: Callable[[EvolveConfig, int], int]
    asks: bool = False


OPERATORS = {
    "rollout": Operator(rollout, (Needs.right, Needs.wrong), lambda config, steps: steps),
    "drop_redundant": Operator(drop_redundant, (Needs.right,), lambda config, steps: config.samples * steps * steps),
    "correct_flawed": Operator(correct_flawed, (Needs.wrong,), lambda config, steps: config.samples * steps * steps),
    "hint_step": Operator(hint_step, (Needs.wrong,), lambda config, steps: config.samples * steps * steps + steps),
    "hint_end": Operator(hint_end, (Needs.wrong,), lambda config, steps: steps),
    "refine_redundant": Operator(refine_redundant, (Needs.right,), lambda config, steps: steps, asks=True),
    "rewrite_thoughts": Operator(rewrite_thoughts, (Needs.right,), lambda config, steps: 0, asks=True),
    "correct_step": Operator(correct_step, (Needs.wrong,), lambda config, steps: steps, asks=True),
}


def operator_named(name: str) -> Operator:
    """Returns an operator by its name, or one of a user's own by ``module:name``.

    Raises:
        ConfigError: There is none, or what is there is no ``Operator``.
    """
    found = OPERATORS.get(name) or imported(name, "operator", OPERATORS)
    if not isinstance(found, Operator):
        raise ConfigError(
            f"{name!r} is no operator", hint="It has to be an agentr.collect.operators.Operator (docs/et_agent.md)."
        )
    return found


async def apply(name: str, evolver: Evolver, episode: Episode) -> Evolution:
    """Applies an operator to an episode, and records in the tree what came of it and what it took."""
    tree = evolver.tree
    before, size = tree.cost, len(tree.nodes)
    made = await operator_named(name).run(evolver, episode)
    made.operator = name
    for leaf in [node for node in tree.nodes[size:] if node.outcome is not None]:
        tree.back_up(leaf.id)
    spent = tree.cost - before
    made.completions, made.env_steps, made.asked = spent.completions, spent.env_steps, spent.judge_calls
    tree.evolutions.append(made)
    return made


def operator_problems(config: EvolveConfig) -> Iterator[Problem]:
    """Yields what is wrong with the operators that a configuration names."""
    for key, needs in (("right", Needs.right), ("wrong", Needs.wrong)):
        fit = [name for name, operator in OPERATORS.items() if needs in operator.needs]
        for name in getattr(config, key):
            try:
                operator = operator_named(name)
            except ConfigError as error:
                yield Problem(key, error.message.rstrip("."), error.hint)
            else:
                if needs not in operator.needs:
                    yield Problem(
                        key, f"{name!r} is no operator for an episode that is {needs}", f"There are {', '.join(fit)}."
                    )
                elif operator.asks and config.teacher.who is Who.nobody:
                    yield Problem(
                        "teacher.who",
                        f"nobody is asked, and {name} asks",
                        f"Set it to policy or openai, or leave {name} out.",
                    )
    if not config.hints and {"hint_step", "hint_end"} & set(config.wrong):
        yield Problem("hints", "the list is empty", "Give at least one sentence.")
