"""Pure search over trees: no Ray, no torch, no HTTP. A strategy is asked what to expand and told what came of it."""

from agentr.search.sample import Sample
from agentr.search.stepwise import Stepwise
from agentr.search.strategy import Expansion, Strategy
from agentr.search.tree import Child, Node, Origin, Tree
from agentr.search.uct import UCT, UCTConfig

__all__ = ["UCT", "Child", "Expansion", "Node", "Origin", "Sample", "Stepwise", "Strategy", "Tree", "UCTConfig"]
