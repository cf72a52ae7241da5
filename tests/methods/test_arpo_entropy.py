"""Branching by entropy (ARPO, arXiv 2507.19849): exactly so many leaves, and where branches begin with which
probability."""

from statistics import fmean
from typing import Any

import pytest

from agentr.methods.arpo.entropy import Decides, EntropyBranch
from agentr.search import Expansion, Tree
from agentr.search.tree import Child
from tests.trees import child, new_tree, run_search, toy_answers


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("decides", Decides)
def test_a_tree_has_exactly_so_many_leaves(decides: Decides, seed: int) -> None:
    for total, initial, beam in ((16, 8, 2), (8, 8, 2), (5, 1, 4), (3, 2, 2), (1, 1, 2), (2, 5, 3)):
        tree = new_tree(seed)
        told = run_search(EntropyBranch(total, initial, beam, decides=decides, max_steps=6), tree, toy_answers(0.25))
        leaves = [node for node in tree.nodes if node.outcome is not None]
        assert len(leaves) == tree.root.visits == total == tree.search["begun"]
        assert all(node.outcome is not None or node.children for node in tree.nodes)
        assert sum(expansion.n for expansion in told) == len(tree.nodes) - 1


def of(decides: Decides, entropies: tuple[float, ...], seed: int, **changes: Any) -> Tree:
    """Rollouts of so many turns, whose tokens have these entropies by depth."""
    tree = new_tree(seed)

    def answer(expansion: Expansion) -> list[Child]:
        entropy = entropies[tree.nodes[expansion.node].depth]
        return [child(f"{expansion.node}.{i}", logprobs=(-entropy / 2, -entropy / 2)) for i in range(expansion.n)]

    run_search(EntropyBranch(64, 1, 2, decides=decides, max_steps=len(entropies), **changes), tree, answer)
    return tree


def share(decides: Decides, entropies: tuple[float, ...], depth: int, **changes: Any) -> float:
    """How often the first rollout splits at a depth."""
    return fmean(len(of(decides, entropies, seed, **changes).nodes[depth].children) > 1 for seed in range(300))


def test_where_the_entropy_is_as_at_first_a_branch_is_a_fair_coin() -> None:
    """Released code: P = clip(tau + w (H - H0), 0, 1), and dH = 0 after the first turn."""
    assert share(Decides.before, (1.0, 1.0, 1.0), 1) == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_a_difference_of_one_adds_the_weight() -> None:
    """dH of +1 gives P = 0.5 + 0.2 = 0.7; of -5, 0; of +5, 1.
    What decides is the turn before the answer, or the one after it."""
    for decides, entropies in ((Decides.before, (1.0, 2.0, 0.0)), (Decides.after, (1.0, 0.0, 2.0))):
        assert share(decides, entropies, 2) == pytest.approx(0.7, abs=0.1)
    assert share(Decides.before, (5.0, 0.0, 0.0), 2) == 0.0
    assert share(Decides.after, (0.0, 5.0, 5.0), 1) == 1.0


@pytest.mark.slow
def test_the_sum_is_over_the_first_tokens_and_normalised() -> None:
    """H sums the entropies of the first tokens and is divided by the logarithm of the vocabulary's size."""
    assert share(Decides.before, (0.0, 2.0, 0.0), 2, scale=2.0) == pytest.approx(0.7, abs=0.1)
    assert share(Decides.before, (0.0, 2.0, 0.0), 2, tokens=1) == pytest.approx(0.7, abs=0.1)


@pytest.mark.parametrize("decides", Decides)
def test_a_branch_shares_what_came_before_it(decides: Decides) -> None:
    tree = of(decides, (1.0, 3.0, 3.0, 3.0), 3)
    split = [node for node in tree.nodes if node.id and len(node.children) > 1]
    assert split and len(tree.nodes) - 1 < 64 * 4
    for node in split:
        for turn in node.children:
            assert tree.path(turn)[:-1] == tree.path(node.id)


def test_what_is_drawn_beside_a_turn_does_not_split_again() -> None:
    for seed in range(50):
        tree = of(Decides.after, (0.0, 9.0, 9.0), seed)
        assert all(len(node.children) <= 2 for node in tree.nodes[1:])
