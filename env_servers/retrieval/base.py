"""The interface of retrievers, and the passages that they return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace


class RetrievalFailure(RuntimeError):
    """A search or a summary could not be had: a service did not answer, refused, or a recording does not hold it.

    It says nothing about the agent, so it must never become an observation or a reward.
    """


@dataclass(frozen=True)
class Passage:
    """A piece of text that can be found.

    Attributes:
        score: How well it fits the query it was found for; comparable within one search only.
    """

    id: str
    title: str
    text: str
    score: float = 0.0

    @property
    def contents(self) -> str:
        """Title and text as the common corpora write them: the first line is the title."""
        return f"{self.title}\n{self.text}" if self.title else self.text

    @staticmethod
    def of_contents(id: str, contents: str, score: float = 0.0) -> Passage:
        """The inverse of ``contents``; a text of one line has no title."""
        title, newline, text = contents.partition("\n")
        return Passage(id, title.strip('"'), text, score) if newline else Passage(id, "", contents, score)

    def scored(self, score: float) -> Passage:
        """The same passage with another score."""
        return replace(self, score=score)


class Retriever(ABC):
    """Finds passages. Shared by all threads of a server: ``search`` must be safe to call from several at a time.

    Attributes:
        name: Says what answers (kind, corpus, settings): results recorded under one name are replayed for it only.
        fast: Whether a search takes well under a millisecond.
    """

    name: str
    fast: bool = False

    def check(self) -> None:  # noqa: B027 most can always search
        """Checks that searches are possible with the present keys and files.

        Raises:
            RetrievalFailure: It cannot; says what is missing.
        """

    @abstractmethod
    def search(self, query: str, k: int) -> list[Passage]:
        """At most ``k`` passages, best first; fewer where no more fit.

        Raises:
            RetrievalFailure: The search could not be carried out.
        """

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query; overridden where a batch is cheaper."""
        return [self.search(query, k) for query in queries]
