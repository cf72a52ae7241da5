"""Rollouts that branch: exactly so many leaves, beginnings that are shared, and where branches begin."""

import pytest

from agentr.methods.tree_grpo.branch import Branch, Select
from agentr.search import Expansion, Tree
from agentr.search.tree import Child
from tests.trees import child, new_tree, run_search, toy_answers, tree_of


def leaves(tree: Tree) -> list[int]:
    return [node.id for node in tree.nodes if node.outcome is not None]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("select", Select)
def test_a_tree_has_exactly_so_many_leaves(select: Select, seed: int) -> None:
    for total, initial, at_once in ((8, 2, 2), (8, 8, 1), (5, 1, 3), (3, 2, 7), (1, 1, 1), (2, 5, 1)):
        tree = new_tree(seed)
        run_search(Branch(total, initial, at_once, max_steps=6, select=select), tree, toy_answers(0.25))
        assert len(leaves(tree)) == tree.root.visits == total
        assert all(node.outcome is not None or node.children for node in tree.nodes)
        assert tree.root.value == sum(tree.nodes[leaf].reward for leaf in leaves(tree))


def test_branches_draw_fewer_turns_than_as_many_rollouts() -> None:
    """Eight leaves of six turns: two rollouts and six branches draw what comes after the branch alone."""
    drawn = []
    for initial in (8, 2):
        tree = new_tree(3)
        drawn.append(sum(e.n for e in run_search(Branch(8, initial, 2, max_steps=6), tree, toy_answers())))
        assert [len(tree.path(leaf)) for leaf in leaves(tree)] == [6] * 8
    assert drawn[0] == 48 and drawn[1] == len(tree.nodes) - 1 < 40


def test_a_branch_may_begin_anywhere_but_after_an_end() -> None:
    begun: set[int] = set()
    for seed in range(60):
        tree = tree_of("a / b: 1.0", "c / d: 0.0", into=new_tree(seed))
        for node in tree.nodes:
            node.expansions, node.terminal = int(node.outcome is None), node.outcome is not None
        (expansion,) = Branch(3, 2, 1, max_steps=4).ask(tree)
        begun.add(expansion.node)
    assert begun == {0, 1, 3}


def test_unsure_begins_where_the_drawn_tokens_were_least_likely() -> None:
    sure = {"a": -0.1, "b": -3.0, "c": -0.2}

    def answer(expansion: Expansion) -> list[Child]:
        text = "abc"[tree.nodes[expansion.node].depth] if tree.nodes[expansion.node].depth < 3 else "end"
        return [child(text, logprobs=(sure.get(text, -0.1),)) for _ in range(expansion.n)]

    tree = new_tree()
    told = run_search(Branch(4, 1, 1, max_steps=3, select=Select.unsure), tree, answer)
    branches = [e.node for e in told if e.attempt > 0]
    assert branches[0] == 1 and tree.nodes[1].action == "a", "b was drawn after a, and was the least likely"
    assert len(branches) == 3


def test_a_tree_that_cannot_begin_stays_without_leaves_of_its_own() -> None:
    tree = tree_of("x: 0.0")
    ended = new_tree()
    ended.root.outcome, ended.root.terminal = tree.nodes[1].outcome, True
    assert Branch(4, 2).ask(ended) == []


def test_a_failed_rollout_begins_again_before_its_first_refused_turn() -> None:
    tree = tree_of("a / b / c: 0.0", "a / d: 1.0", "e / f: 0.0", "g / h: 0.0")
    for node in tree.nodes:
        node.expansions, node.terminal = int(node.outcome is None), node.outcome is not None
        node.valid = node.action not in ("b", "e", "g")
    asked = Branch(8, 4, 4, max_steps=6, select=Select.mistake).ask(tree)
    after = {tree.nodes[one.node].action or "the opening": one.n for one in asked}
    assert after == {"a": 1, "the opening": 2}, "of the two that went wrong at once both begin again there"


def test_turns_at_random_make_up_for_rollouts_that_all_succeeded() -> None:
    tree = tree_of("a / b: 1.0", "c / d: 1.0")
    for node in tree.nodes:
        node.expansions, node.terminal = int(node.outcome is None), node.outcome is not None
    asked = Branch(4, 2, 2, max_steps=6, select=Select.mistake).ask(tree)
    assert sum(one.n for one in asked) == 2 and {one.node for one in asked} <= {0, 1, 3}
