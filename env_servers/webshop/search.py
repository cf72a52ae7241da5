"""The shop's search: BM25 over product texts, with the text analysis and parameters of the original's Lucene index.

Twenty lines of numpy in place of a search library: at this size a library adds seconds to a server's start, and no
speed.
"""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

#: Most hits of a search, and how many a page shows.
MAX_HITS = 50
PAGE_SIZE = 10
#: BM25 parameters of Anserini, with which the original's index is searched.
K1 = 0.9
B = 0.4
#: Words of a query that count; the rest of an absurdly long one is ignored, which bounds the time of a step.
MAX_QUERY_WORDS = 64
#: Results that are remembered: turning pages, and the same search in other branches of a tree, cost nothing.
CACHED_QUERIES = 4096

_WORD = re.compile(r"\w+(?:[.'’]\w+)*")
#: Words that Lucene's English analyser leaves out.
STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)


class SearchEngine:
    """An index of documents, numbered from 0 in the order given. Thread-safe."""

    def __init__(self, documents: Iterable[str]) -> None:
        places: dict[str, array] = defaultdict(lambda: array("l"))
        counts: dict[str, array] = defaultdict(lambda: array("l"))
        lengths: list[int] = []
        for place, document in enumerate(documents):
            terms = analyse(document)
            lengths.append(len(terms))
            for term, count in Counter(terms).items():
                places[term].append(place)
                counts[term].append(count)
        norms = K1 * (1 - B + B * np.array(lengths) / np.mean(lengths))
        self._size = len(lengths)
        self._weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for term, where in places.items():
            docs, frequency = np.array(where, dtype=np.int32), np.array(counts[term])
            rarity = np.log(1 + (self._size - len(docs) + 0.5) / (len(docs) + 0.5))
            self._weights[term] = docs, (rarity * frequency / (frequency + norms[docs])).astype(np.float32)
        self.search = lru_cache(CACHED_QUERIES)(self._search)

    def _search(self, query: str) -> tuple[int, ...]:
        """Numbers of the best documents that hold at least one word of ``query``, best first; ties in document
        order."""
        scores = np.zeros(self._size, dtype=np.float32)
        for term in analyse(query)[:MAX_QUERY_WORDS]:
            if term in self._weights:
                docs, weights = self._weights[term]
                scores[docs] += weights
        found = np.flatnonzero(scores)
        best = found[np.argsort(-scores[found], kind="stable")[:MAX_HITS]]
        return tuple(best.tolist())


def analyse(text: str) -> list[str]:
    """The stems of a text's words, stop words left out."""
    import Stemmer  # here, not above: an optional package

    words = (word.replace("’", "'").removesuffix("'s") for word in _WORD.findall(text.lower()))
    return Stemmer.Stemmer("porter").stemWords([word for word in words if word not in STOP_WORDS])
