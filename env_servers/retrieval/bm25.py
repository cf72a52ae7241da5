"""BM25 in this process (bm25s), with English stems (PyStemmer)."""

import hashlib
import re
import threading
from collections.abc import Sequence

import numpy as np

from env_servers.retrieval.base import Passage, Retriever

#: Most passages for which a search was measured to stay well under a millisecond.
FAST_PASSAGES = 20_000


class BM25(Retriever):
    """Lucene's variant of BM25 over titles and texts.
    Passages that share no word with the query are never returned; equal scores keep the order of the corpus, so that a
    search gives the same answer on every machine.

    Args:
        k1: How soon further occurrences of a word stop counting.
        b: How much long passages are discounted.

    Raises:
        RuntimeError: bm25s or PyStemmer is not installed.
    """

    def __init__(self, passages: Sequence[Passage], *, k1: float = 1.5, b: float = 0.75) -> None:
        try:
            import bm25s
            import Stemmer
        except ImportError as error:
            raise RuntimeError(
                f"BM25 search needs the packages bm25s and PyStemmer: pip install 'agentr[searchqa]' ({error})"
            ) from error
        self._passages = tuple(passages)
        self._stemmer = Stemmer.Stemmer("english")
        self._stemming = threading.Lock()  # a PyStemmer object must not be used by two threads at a time
        self._stopwords = frozenset(bm25s.stopwords.STOPWORDS_EN)
        self._index = bm25s.BM25(k1=k1, b=b, method="lucene")
        self._index.index([self._tokens(passage.contents) for passage in self._passages], show_progress=False)
        self.name = f"bm25(k1={k1:g}, b={b:g}, corpus={fingerprint(self._passages)})"
        self.fast = len(self._passages) <= FAST_PASSAGES

    def search(self, query: str, k: int) -> list[Passage]:
        # sorted: floating-point sums depend on the order of the words, and so would the order of near-ties
        known = sorted(token for token in self._tokens(query) if token in self._index.vocab_dict)
        if not known or k < 1:
            return []
        scores = self._index.get_scores(known)
        return [self._passages[i].scored(round(float(scores[i]), 6)) for i in best(scores, k) if scores[i] > 0]

    def _tokens(self, text: str) -> list[str]:
        words = [word for word in re.findall(r"\w+", text.lower()) if word not in self._stopwords]
        with self._stemming:
            return self._stemmer.stemWords(words)


def best(scores: np.ndarray, k: int) -> list[int]:
    """Indices of the ``k`` highest of ``scores`` [N], best first, equal ones in index order."""
    if k < len(scores):
        threshold = np.partition(scores, -k)[-k]
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    return candidates[np.argsort(-scores[candidates], kind="stable")][:k].tolist()


def fingerprint(passages: Sequence[Passage]) -> str:
    """Ten characters that change with any change of the passages."""
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(f"{passage.id}\0{passage.contents}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:10]
