"""Online reinforcement learning: advantages, branching, ARPO's reward."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentr.collect.grow import Grow
from agentr.methods import method_of
from agentr.rewards import Rewards
from agentr.rewards.group import group_of
from agentr.rows.advantages import advantages as advantages_of
from agentr.rows.advantages import differ
from agentr.search import Strategy
from agentr.search.written import Turns, named, names, searched, tree_of


def rewards_of(method: Any) -> Rewards:
    return Rewards.of(method.rewards, method.gate)


def strategy(method: Any) -> Strategy:
    """Returns the strategy of a method's rollouts."""
    work = method_of(method).exploration(1)["rollouts"]
    assert isinstance(work, Grow)
    return work.strategy


def advantages(method: Any, paths: Sequence[str]) -> list[list[float]]:
    """The advantage of each turn of each rollout."""
    episodes = group_of(tree_of(paths)).episodes
    return advantages_of(episodes, [episode.earned for episode in episodes], method.advantages, method.trees)


def telling(rewards: Sequence[Sequence[float]]) -> list[bool]:
    return [differ(group) for group in rewards]


def probability(method: Any, path: str, logprobs: Mapping[str, Sequence[float]]) -> float:
    """How likely a branch is that the last turn of a path decides."""
    turns = {name: {"logprobs": list(values), "tokens": len(values)} for name, values in logprobs.items()}
    tree = tree_of([path], turns)
    return cast(Any, strategy(method)).probability(tree, tree.nodes[-1])


def branch_probability(method: Any, paths: Sequence[str], logprobs: Mapping[str, Sequence[float]], at: str) -> float:
    """How likely a branch is that the turn ``at`` decides.
    The first path through a turn is the rollout, later ones branched off it."""
    turns = {name: {"logprobs": list(values), "tokens": len(values)} for name, values in logprobs.items()}
    tree = tree_of(paths, turns)
    return cast(Any, strategy(method)).probability(tree, named(tree, at))


def leaves(method: Any, answers: Mapping[str, Sequence[str]], turns: Turns | None = None) -> list[str]:
    """The turns at which rollouts end."""
    tree, _ = searched(strategy(method).bounded(10), answers, turns)
    return names(tree.ended())


def drawn(method: Any, answers: Mapping[str, Sequence[str]], turns: Turns | None = None) -> list[list[list[Any]]]:
    """How many turns are drawn after which turn, together."""
    return searched(strategy(method).bounded(10), answers, turns)[1]


def asked(method: Any, answers: Mapping[str, Sequence[str]]) -> list[int]:
    """How many rollouts begin at the opening, each time that some do."""
    _, drawn = searched(strategy(method).bounded(10), answers)
    return [turns for ask in drawn for at, turns in ask if not at]


def branched(method: Any, steps: int) -> list[int]:
    """How many rollouts begin together each time that some do, those at the opening first; each has so many steps."""
    begun, known = list[int](), {""}
    for ask in searched(strategy(method).bounded(steps), {})[1]:
        if any(at in known for at, _ in ask):
            begun.append(sum(turns for _, turns in ask))
        known |= {at for at, _ in ask}
    return begun


def rollouts(method: Any, answers: Mapping[str, Sequence[str]]) -> int:
    """How many rollouts a tree has in the end."""
    return len(leaves(method, answers))


def rewards(method: Any, paths: Sequence[str], turns: Turns | None = None, prefix: str = "") -> list[float]:
    return [entry["total"] for entry in components(method, paths, turns, prefix)]


def components(
    method: Any, paths: Sequence[str], turns: Turns | None = None, prefix: str = ""
) -> list[dict[str, float]]:
    """What each rollout is worth, in all and by component."""
    return [
        {"total": reward.total, **reward.parts}
        for reward in rewards_of(method)(group_of(tree_of(paths, turns), prefix))
    ]
