"""Retrievers behind HTTP: a web search with a JSON interface, and another server of this package."""

from typing import Any
from urllib.parse import quote_plus

from env_servers.retrieval.base import Passage, Retriever
from env_servers.retrieval.http import Key, Service


class Web(Retriever):
    """A web search service that answers with JSON.
    The defaults are serper.dev's; others are described by the arguments, for instance Brave's:
    ``url="https://api.search.brave.com/res/v1/web/search?q={query}&count={k}"``, ``key_header="X-Subscription-Token"``,
    ``results="web.results"``, ``text="description"``, ``link="url"``.

    Args:
        url: With ``{query}`` and ``{k}`` in it the request is a GET of that address; without, a POST of
            ``{"q": query, "num": k}``.
        key_env: Environment variable with the key.
        key_header: Header that carries the key.
        results: Where the list of results is in the answer, names separated by dots.
        title, text, link: The fields of a result. The link becomes the passage's id.
    """

    def __init__(
        self,
        *,
        url: str = "https://google.serper.dev/search",
        key_env: str = "SERPER_API_KEY",
        key_header: str = "X-API-KEY",
        results: str = "organic",
        title: str = "title",
        text: str = "snippet",
        link: str = "link",
        deadline_s: float = 10.0,
        attempts: int = 4,
    ) -> None:
        key = Key(key_env, key_header, prefix="")
        self._service = Service(f"the web search at {url}", key, deadline_s=deadline_s, attempts=attempts)
        self._url = url
        self._results = results.split(".")
        self._fields = (title, text, link)
        self.name = f"web({url})"

    def check(self) -> None:
        self._service.check()

    def search(self, query: str, k: int) -> list[Passage]:
        if "{query}" in self._url:
            url = self._url.replace("{query}", quote_plus(query)).replace("{k}", str(k))
            return self._service.call("GET", url, self._read)[:k]
        return self._service.call("POST", self._url, self._read, json={"q": query, "num": k})[:k]

    def _read(self, answer: Any) -> list[Passage]:
        """The results; none where the list is absent, which is how these services say that nothing was found."""
        for name in self._results:
            answer = answer.get(name) or {}
        title, text, link = self._fields
        return [
            Passage(str(hit.get(link, rank)), str(hit.get(title, "")), str(hit[text]), round(1 / rank, 6))
            for rank, hit in enumerate(answer, 1)
            if hit.get(text)
        ]


class Remote(Retriever):
    """A server that speaks ET-Agent's protocol (`app.py`), for an index that several environment servers share.

    Args:
        url: Its base address.
        token_env: Environment variable with its bearer token; unset for a server without one.
    """

    def __init__(
        self, *, url: str, token_env: str = "AGENTR_RETRIEVAL_TOKEN", deadline_s: float = 10.0, attempts: int = 4
    ) -> None:
        key = Key(token_env, required=False)
        self._service = Service(f"the retrieval server at {url}", key, deadline_s=deadline_s, attempts=attempts)
        self._url = url.rstrip("/")
        self.name = f"remote({self._url})"

    def search(self, query: str, k: int) -> list[Passage]:
        body = {"query": query, "top_n": k, "return_score": True}
        return self._service.call("POST", f"{self._url}/search", lambda answer: _passages(*answer), json=body)

    def search_many(self, queries: Any, k: int) -> list[list[Passage]]:
        body = {"query": list(queries), "top_n": k, "return_score": True}

        def read(answer: Any) -> list[list[Passage]]:
            return [_passages(documents, scores) for documents, scores in zip(*answer, strict=True)]

        return self._service.call("POST", f"{self._url}/batch_search", read, json=body)


def _passages(documents: Any, scores: Any) -> list[Passage]:
    return [
        Passage.of_contents(str(document["id"]), document["contents"], float(score))
        for document, score in zip(documents, scores, strict=True)
    ]
