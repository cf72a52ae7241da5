"""What holds for every strategy: the promises of ``Strategy`` on which collecting and resuming rest."""

import pickle

import pytest

from agentr.methods.dense_policy.dense import Dense, DenseConfig
from agentr.methods.dense_policy.siblings import SiblingRule
from agentr.methods.tree_grpo.branch import Branch, Select
from agentr.search import UCT, Origin, Sample, Stepwise, Strategy, Tree, UCTConfig
from agentr.search.stored import from_bytes, to_bytes, to_json
from agentr.search.uct import Dedupe
from tests.trees import new_tree, retell, run_search, toy_answers, tree_of

#: Texts of so few kinds that siblings are often the same.
ANSWERS = toy_answers(0.2, words=6)

STRATEGIES = {
    "uct": UCT(UCTConfig(iterations=4, max_depth=4, width=3)),
    "uct_by_text": UCT(
        UCTConfig(
            iterations=3, max_depth=4, width=3, dedupe=Dedupe.text, stop_simulation_at_success=False, enough_good=0
        )
    ),
    "uct_without_dedupe": UCT(
        UCTConfig(iterations=2, max_depth=3, width=4, dedupe=Dedupe.none, enough_good=1, enough_bad=0)
    ),
    "sample": Sample(episodes=4, max_steps=5, max_invalid=2),
    "branch": Branch(leaves=7, initial=2, at_once=2, max_steps=5, max_invalid=2),
    "branch_where_unsure": Branch(leaves=6, initial=3, at_once=3, max_steps=4, select=Select.unsure),
    "stepwise": Stepwise(episodes=2, max_steps=5),
    "dense": Dense(DenseConfig(base=4, max_depth=4, window=3, stop_rollouts=14), SiblingRule(min_gap=0.3)),
    "dense_with_pairs": Dense(
        DenseConfig(base=5, max_depth=3, window=4, greedy_branch=False, stop_pairs=4), SiblingRule(max_visits=1)
    ),
}

every = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
seeds = pytest.mark.parametrize("seed", range(4))


def begun(strategy: Strategy, seed: int) -> Tree:
    """A tree that the strategy has not seen: only its root, or an expert's path for the strategy that goes on from
    one."""
    tree = new_tree(seed)
    return tree_of("e1 / e2 / e3: 1.0", into=tree, origin=Origin.PREFIX) if isinstance(strategy, Stepwise) else tree


@every
@seeds
def test_every_turn_is_answered_for_and_telling_twice_changes_nothing(strategy: Strategy, seed: int) -> None:
    tree, answered, drawn = begun(strategy, seed), set(), 0
    given = len(tree.nodes)
    while asked := strategy.ask(tree):
        before = to_json(tree)
        assert strategy.ask(tree) == asked
        assert to_json(tree) == before, "asking changed the tree"
        for expansion in asked:
            children, first = ANSWERS(expansion), len(tree.nodes)
            nodes = strategy.tell(tree, expansion, children)
            assert len(nodes) == len(children) == expansion.n
            assert [node for node in nodes if node is not None] == tree.nodes[first:]
            for node, child in zip(nodes, children, strict=True):
                assert node is None or (node.parent, node.text, node.observation) == (
                    expansion.node,
                    child.text,
                    child.observation,
                )
            told = to_json(tree)
            assert strategy.tell(tree, expansion, children) == []
            assert to_json(tree) == told
            answered.add((expansion.node, expansion.attempt))
            drawn += expansion.n
    assert len(answered) == sum(node.expansions for node in tree.nodes)
    assert len(tree.nodes) - given == drawn - tree.events.get("duplicates", 0)
    assert len(tree.nodes) > given + 5, "the search did too little to say anything"


@every
@seeds
def test_no_tree_draws_more_than_it_says(strategy: Strategy, seed: int) -> None:
    """Neither if paths go on to the limit nor if they end on the way."""
    for end_probability in (0.0, 0.1, 0.4):
        told = run_search(strategy, tree := begun(strategy, seed), toy_answers(end_probability))
        assert 0 < sum(expansion.n for expansion in told) <= strategy.max_completions
        assert strategy.ask(tree) == []


@every
def test_a_strategy_travels_by_pickle_and_grows_the_same_tree(strategy: Strategy) -> None:
    again = pickle.loads(pickle.dumps(strategy))
    assert again == strategy
    assert again.max_completions == strategy.max_completions
    here, there = begun(strategy, 1), begun(strategy, 1)
    run_search(strategy, here, ANSWERS)
    run_search(again, there, ANSWERS)
    assert to_json(there) == to_json(here)


def test_strategies_of_other_settings_are_not_equal() -> None:
    every_one = list(STRATEGIES.values())
    assert all((one == other) == (one is other) for one in every_one for other in every_one)


@every
@seeds
def test_a_tree_goes_on_from_its_journal_wherever_it_was_interrupted(strategy: Strategy, seed: int) -> None:
    journal: list[str] = []
    whole = begun(strategy, seed)
    run_search(strategy, whole, ANSWERS, journal=journal)
    for told in range(len(journal) + 1):
        half = begun(strategy, seed)
        retell(strategy, half, journal[:told])
        stored = from_bytes(to_bytes(half))
        assert stored == half
        for resumed in (half, stored):
            rest = run_search(strategy, resumed, ANSWERS)
            assert len(rest) == len(journal) - told, "an expansion was drawn twice, or left out"
            assert to_json(resumed) == to_json(whole)
