"""From options to a retriever: the same options for the environment and for the service."""

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from env_servers.base import Requirement
from env_servers.classes import find_class
from env_servers.retrieval.base import Retriever
from env_servers.retrieval.bm25 import BM25
from env_servers.retrieval.cache import Cache, Cached, Mode
from env_servers.retrieval.corpus import WIKIPEDIA, load_corpus
from env_servers.retrieval.dense import Dense
from env_servers.retrieval.web import Remote, Web

#: Retrievers by name; those whose first argument is called ``passages`` are given the corpus.
RETRIEVERS: dict[str, type[Retriever]] = {"bm25": BM25, "dense": Dense, "web": Web, "remote": Remote}


def build(
    retriever: str = "bm25",
    settings: Mapping[str, Any] | None = None,
    corpus: str | None = None,
    cache: Cache | None = None,
) -> Retriever:
    """A retriever.

    Args:
        retriever: A name of ``RETRIEVERS``, or ``module:class`` for one that lives elsewhere.
        settings: Arguments of its class.
        corpus: File of passages (`corpus.py`); the fictional world without one. Only for retrievers that search
            passages of ours.
        cache: Where its answers are kept.

    Raises:
        ValueError: Unknown retriever, or settings or a corpus that it does not take.
        RuntimeError: A package, a file or a key that it needs is missing.
    """
    cls = _find(retriever)
    known = set(inspect.signature(cls).parameters)
    settings = dict(settings or {})
    if unknown := sorted(settings.keys() - (known - {"passages"})):
        raise ValueError(
            f"retriever {retriever} has no setting {', '.join(unknown)}; it has "
            f"{', '.join(sorted(known - {'passages'}))}"
        )
    if "passages" in known:
        settings["passages"] = load_corpus(corpus)
    elif corpus is not None:
        raise ValueError(f"retriever {retriever} does not search a corpus of ours: leave out {corpus}")
    try:
        made = cls(**settings)
    except TypeError as error:
        raise ValueError(f"retriever {retriever}: {error}") from error
    if cache is None or cache.mode is not Mode.REPLAY:
        made.check()
    return made if cache is None else Cached(made, cache)


def takes_corpus(retriever: str) -> bool:
    """Whether a retriever searches a corpus of ours; see `build` for its name and the errors."""
    return "passages" in inspect.signature(_find(retriever)).parameters


def requirements() -> list[Requirement]:
    """Lists what retrieval needs, or can use, from outside."""
    return [
        _packages(
            "BM25 search (bm25s, PyStemmer)", ("bm25s", "Stemmer"), "pip install 'agentr[searchqa]'", optional=False
        ),
        _packages(
            "dense retrieval (torch, transformers)",
            ("torch", "transformers"),
            "pip install torch transformers",
            optional=True,
        ),
        Requirement(
            "a corpus of your own", False, f"{WIKIPEDIA}; its path goes into the option 'corpus'", optional=True
        ),
    ]


def _packages(name: str, modules: tuple[str, ...], how: str, optional: bool) -> Requirement:
    return Requirement(name, all(importlib.util.find_spec(module) is not None for module in modules), how, optional)


def _find(retriever: str) -> Callable[..., Retriever]:
    return RETRIEVERS.get(retriever) or find_class(retriever, Retriever, RETRIEVERS)
