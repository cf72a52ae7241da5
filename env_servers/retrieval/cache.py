"""A cache of answers that cost something, on disk, shared by threads and processes; also a recording that a run can be
replayed from."""

import json
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from env_servers.retrieval.base import Passage, RetrievalFailure, Retriever

#: Longest wait for another process that writes, in seconds.
LOCK_S = 20.0
HELD = "SELECT answer FROM answers WHERE source = ? AND question = ?"


class Mode(StrEnum):
    """The way in which a cache answers a question."""

    #: Answers what it holds, asks for the rest and keeps the answers.
    RECORD = "record"
    #: Answers what it holds and refuses the rest: nothing is called.
    REPLAY = "replay"


class Cache:
    """Answers by source and question in one SQLite file.

    The first answer to a question stays: if two callers ask at the same time, both get the one that was written first.
    An answer is written in one transaction, so that a process that dies leaves the file as it was.

    Args:
        path: The file; made when recording, expected when replaying.

    Raises:
        ValueError: There is nothing to replay, or the file is no cache.
    """

    def __init__(self, path: str, mode: str = Mode.RECORD) -> None:
        self.mode = Mode(mode)
        self.path = Path(path).expanduser()
        if self.mode is Mode.REPLAY and not self.path.is_file():
            raise ValueError(f"there is no recording {self.path} to replay; make one with the mode 'record'")
        # Not in WAL mode, which would be faster and does not work on network file systems; a replay needs no right to
        # write.
        uri = f"{self.path.absolute().as_uri()}?mode={'ro' if self.mode is Mode.REPLAY else 'rwc'}"
        self._using = threading.Lock()
        try:
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=LOCK_S, isolation_level=None, check_same_thread=False
            )
            if self.mode is Mode.RECORD:
                self._connection.execute(
                    "CREATE TABLE IF NOT EXISTS answers (source TEXT, question TEXT, answer TEXT NOT NULL, PRIMARY KEY "
                    "(source, question))"
                )
            self._connection.execute("SELECT source, question, answer FROM answers LIMIT 1")
        except sqlite3.Error as error:
            raise ValueError(f"{self.path} cannot be used as a cache: {error}") from error

    def __len__(self) -> int:
        return self._execute("SELECT count(*) FROM answers")[0]

    def get(self, source: str, question: str, ask: Callable[[], Any]) -> Any:
        """The answer to ``question``: the one held, or ``ask()``, which must be JSON data.

        Args:
            source: Who answers; answers are held for each source apart.

        Raises:
            RetrievalFailure: The recording does not hold the answer, when replaying; or the file cannot be read or
                written; else as ``ask``.
        """
        if (held := self._execute(HELD, source, question)) is not None:
            return json.loads(held[0])
        if self.mode is Mode.REPLAY:
            raise RetrievalFailure(
                f"the recording {self.path} holds no answer of {source} to {question!r}: it was made with other "
                "settings or another agent; record it with the mode 'record'"
            )
        self._execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?)", source, question, json.dumps(ask()))
        return json.loads(self._execute(HELD, source, question)[0])

    def _execute(self, statement: str, *values: str) -> Any:
        """The first row, or None."""
        try:
            with self._using:
                return self._connection.execute(statement, values).fetchone()
        except sqlite3.Error as error:
            raise RetrievalFailure(f"the cache {self.path} failed: {error}") from error


class Cached(Retriever):
    """A retriever whose answers are kept. Queries that differ in letter case or spaces only are one question."""

    def __init__(self, inner: Retriever, cache: Cache) -> None:
        self.name = inner.name
        self._inner = inner
        self._cache = cache

    def search(self, query: str, k: int) -> list[Passage]:
        # SQLite refuses lone surrogates
        question = f"{k} {' '.join(query.casefold().split())}".encode("utf-8", "replace").decode()
        found = self._cache.get(
            self.name, question, lambda: [asdict(passage) for passage in self._inner.search(query, k)]
        )
        return [Passage(**passage) for passage in found]
