"""An action that the environment did not carry out is not made again in the same state: other turns are drawn, and the
commonest of them is taken."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from agentr.collect.sampler import Sampler
from agentr.config.turns import RepeatRefused, TurnsConfig
from agentr.policy.base import GenerateRequest
from agentr.search import Tree
from agentr.seeds import derived_seed
from agentr.types import Completion, Cost


def refused_since(tree: Tree, node: int, turns: TurnsConfig) -> set[str]:
    """Returns the actions on the path to ``node`` that were not carried out, after the last one that was; none where
    they may be made again."""
    found = set[str]()
    if turns.repeat_refused is RepeatRefused.allow:
        return found
    for turn in reversed(tree.path(node)):
        if turn.valid:
            break
        found.add(turn.action)
    return found - {""}


async def drawn_again(
    sampler: Sampler,
    request: GenerateRequest,
    completions: Sequence[Completion],
    refused: set[str],
    action_of: Callable[[Completion], str | None],
    turns: TurnsConfig,
) -> tuple[list[Completion], Cost, float, int]:
    """Returns the turns of a request, where those that repeat a refused action are chosen anew; what that took; and how
    many they are.

    A turn that was chosen so was not drawn by the policy: it has no log-probability, and is no target of methods that
    need one.

    Args:
        request: What they were drawn by. Other turns are drawn at its temperature, or at 1 where that is 0.
        refused: The actions that are not to be made again.
        action_of: Reads a turn's action; None if it has none.
    """
    found, cost, seconds, count = list(completions), Cost(), 0.0, 0
    for place, completion in enumerate(completions):
        if action_of(completion) not in refused:
            continue
        temperature = request.sampling.temperature or 1.0
        seed = derived_seed(request.sampling.seed, "again", place)
        sampling = replace(request.sampling, temperature=temperature, seed=seed)
        others, more, took = await sampler.draw(replace(request, n=turns.redraws, sampling=sampling))
        cost, seconds, count = cost + more, seconds + took, count + 1
        left_out = refused if turns.repeat_refused is RepeatRefused.redraw else set[str]()
        actions = [action for other in others if (action := action_of(other)) is not None and action not in left_out]
        if actions:
            commonest = Counter(actions).most_common(1)[0][0]  # among equals the one that was drawn first
            completion = next(other for other in others if action_of(other) == commonest)
        found[place] = replace(completion, logprobs=())
    return found, cost, round(seconds, 4), count
