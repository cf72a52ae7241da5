"""The ideal that excess prefill is measured against, by hand."""

from agentr.observe.cost import ideal_prefill
from agentr.search import UCT, Tree, UCTConfig
from agentr.types import Message, Task
from tests.trees import child


def test_each_distinct_block_is_computed_once() -> None:
    tree = Tree.start(Task("toy", "t", "train"), (Message("user", "go"),), tuple(range(10)), 0)
    strategy = UCT(UCTConfig(width=1, enough_good=0))
    strategy.tell(tree, strategy.ask(tree)[0], [child("a", token_ids=(50, 51, 52), bridge_ids=(60, 61))])
    strategy.tell(tree, strategy.ask(tree)[0], [child("b", token_ids=(70,), bridge_ids=(80,))])
    # Root: 10 tokens. Then the prompt of node 1 has 15; of 10 + 2 decoded tokens three blocks of 4 are cached: 15 - 12
    # = 3.
    assert ideal_prefill([tree], block=4) == 10 + 3
    # A second sequence from the same prompt shares whole blocks only: 10 - 8 and 15 - 12.
    assert ideal_prefill([tree], block=4, samples=2) == 10 + 2 + 3 + 3
    # The same prompt again, in another tree: two blocks of the first are there, the rest is less than a block.
    again = Tree.start(Task("toy", "u", "train"), (Message("user", "go"),), tuple(range(10)), 0)
    again.root.expansions = 1
    assert ideal_prefill([tree, again], block=4) == 13 + 2
