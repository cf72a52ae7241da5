"""Measures the prefill of growing trees against its lower bound.

The unit of prefill is the prompt token that an engine has to compute. With an unlimited prefix cache that
holds whole blocks, each distinct block is computed once; the tokens computed then are the ideal.
``excess_prefill`` is computed tokens over the ideal: 1.0 is perfect, and unlike a hit rate it does not look
good merely because prompts are long.
"""

from collections.abc import Iterable, Sequence

from agentr.search.tree import Tree


def ideal_prefill(trees: Iterable[Tree], block: int, samples: int = 1) -> int:
    """Counts the prompt tokens that an engine with an unlimited prefix cache in blocks of ``block`` tokens computes for
    all expansions.

    Blocks are shared between nodes and between trees; decoded tokens are in the cache, too; at least one token of a
    prompt is always computed. The trees are taken one after the other. If trees grow together, one may decode tokens
    that another would prefill, and an engine can be up to a percent or so below this bound.

    Args:
        samples: Sequences that are decoded from each prompt. Only whole blocks can be shared, so each further sequence
            computes the prompt's last, partial block again. With 1, that is left out: the bound that no engine with
            blocks can reach.
    """
    cache = _BlockCache(block)
    total = 0
    for tree in trees:
        for node in tree.nodes:
            if not node.expansions:
                continue
            prompt = tree.prompt(node.id, max((tree.nodes[child].forgotten for child in node.children), default=0))
            total += len(prompt) - cache.hit(prompt)
            cache.add(prompt)
            total += (samples - 1) * (len(prompt) - cache.hit(prompt))
            for child in node.children:
                # The last decoded token is not computed before something follows it.
                cache.add([*prompt, *tree.nodes[child].token_ids[:-1]])
    return total


class _BlockCache:
    """A set of cached blocks, each named by the hash of the whole prefix that it ends, as in engines."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._known: set[int] = set()

    def hit(self, ids: Sequence[int]) -> int:
        """Counts the cached tokens of ``ids``, in whole blocks; at least one token of ``ids`` counts as not cached."""
        found = 0
        for key in self._keys(ids[: len(ids) - 1]):
            if key not in self._known:
                break
            found += self._block
        return found

    def add(self, ids: Sequence[int]) -> None:
        self._known.update(self._keys(ids))

    def _keys(self, ids: Sequence[int]) -> Iterable[int]:
        key = 0
        for start in range(0, len(ids) - self._block + 1, self._block):
            key = hash((key, tuple(ids[start : start + self._block])))
            yield key
