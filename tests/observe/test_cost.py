"""The ideal that excess prefill is measured against, by hand."""

from __future__ import annotations

from agentr.config.methods import SearchConfig

from agentr.observe.cost import ideal_prefill
from agentr.search import UCT, Child, Tree
from agentr.types import FinishReason, Message, Task


def test_each_distinct_block_is_computed_once() -> None:
    tree = Tree.start(Task("toy", "t", "train"), (Message("user", "go"),), tuple(range(10)), 0)
    strategy = UCT(SearchConfig(width=1, enough_good=0))
    strategy.tell(tree, strategy.ask(tree)[0], [Child("a", (50, 51, 52), (60, 61), (), FinishReason.STOP, "a", "o", 0.0, True)])
    strategy.tell(tree, strategy.ask(tree)[0], [Child("b", (70,), (80,), (), FinishReason.STOP, "b", "o", 0.0, True)])
    # Root: 10 tokens. Then the prompt of node 1 has 15; of 10 + 2 decoded tokens three blocks of 4 are cached: 15 - 12 = 3.
    assert ideal_prefill([tree], block=4) == 10 + 3
    # A second sequence from the same prompt shares whole blocks only: 10 - 8 and 15 - 12.
    assert ideal_prefill([tree], block=4, samples=2) == 10 + 2 + 3 + 3
    # The same prompt again, in another tree: two blocks of the first are there, the rest is less than a block.
    again = Tree.start(Task("toy", "u", "train"), (Message("user", "go"),), tuple(range(10)), 0)
    again.root.expansions = 1
    assert ideal_prefill([tree, again], block=4) == 13 + 2
