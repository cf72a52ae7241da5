"""Engine processes, kept at the positions where they are likely to be needed again.

A *position* is a game and the actions taken in it. A step from a position forks the engine that is kept there (4-40 ms)
and moves the copy, which is then kept at the new position. Without an engine there, the nearest one before it is forked
and the missing actions are replayed, each observation checked; without any, the game is loaded (0.5-3 s). The least
recently used engines are ended, so their number is bounded and no state is ever lost: sessions are data.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from env_servers.alfworld.engine import receive, send

#: Seconds for an interpreter to import alfworld, and for one request; both are far more than needed.
START_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 50.0


class EngineFailed(RuntimeError):
    """An engine ended, did not answer in time, could not load a game, or played it differently from before."""


@dataclass(frozen=True)
class Answer:
    """An answer of the engine. ``digest`` identifies this observation and all before it."""

    observation: str
    won: bool
    admissible: tuple[str, ...]
    digest: str


class Engine:
    """The near end of an engine process. One thread at a time."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self._channel = channel
        self._pid = pid

    @classmethod
    def start(cls, python: str, data: Path) -> Engine:
        """A process without a game.

        Raises:
            EngineFailed: The interpreter cannot be run, or cannot import alfworld.
        """
        near, far = socket.socketpair()
        command = [python, "-I", str(Path(__file__).with_name("engine.py")), str(far.fileno())]
        environ = {**os.environ, "ALFWORLD_DATA": str(data)}
        with far:
            try:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environ, pass_fds=[far.fileno()]
                )
            except OSError as error:
                near.close()
                raise EngineFailed(f"{python} cannot be run: {error}") from error
        engine = cls(near, child.pid)
        engine._receive("the import of alfworld", START_TIMEOUT_S)
        return engine

    def fork(self) -> Engine:
        """A copy at the same position."""
        near, far = socket.socketpair()
        with far:
            reply = self._ask({"fork": True}, far.fileno())
        return Engine(near, reply["pid"])

    def load(self, game: Path) -> Answer:
        return _answer(self._ask({"load": str(game)}), "")

    def step(self, action: str, digest: str) -> Answer:
        """Carries out an action after observations with ``digest``."""
        return _answer(self._ask({"step": action}), digest)

    def close(self) -> None:
        """Ends the process: it sees the end of its socket."""
        self._channel.close()

    def _ask(self, request: dict, *descriptors: int) -> dict:
        with contextlib.suppress(OSError):  # its end is noticed below
            send(self._channel, request, *descriptors)
        return self._receive(str(request), REQUEST_TIMEOUT_S)

    def _receive(self, what: str, timeout_s: float) -> dict:
        self._channel.settimeout(timeout_s)
        try:
            reply, _ = receive(self._channel)
        except (EOFError, OSError) as error:
            self.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            raise EngineFailed(f"an ALFWorld engine ended or hung at {what}: {error!r}") from error
        if "error" in reply:
            self.close()
            raise EngineFailed(f"ALFWorld failed at {what}: {reply['error']}")
        return reply


def _answer(reply: dict, before: str) -> Answer:
    observation = reply["observation"]
    return Answer(observation, reply["won"], tuple(reply["admissible"]), _digest(before, observation))


def _digest(before: str, observation: str) -> str:
    return hashlib.sha256(f"{before}{observation}".encode()).hexdigest()[:16]


Position = tuple[Path, tuple[str, ...]]


class Engines:
    """The engines of a server; all methods may be called by several threads.

    Args:
        python: Interpreter that has alfworld.
        data: Folder that alfworld takes for its own.
        kept: Most engines kept.

    Raises:
        EngineFailed: The interpreter cannot be run, or cannot import alfworld.
    """

    def __init__(self, python: str, data: Path, kept: int) -> None:
        self._start_root = partial(Engine.start, python, data)
        self._root = self._start_root()  # without a game: copies of it load games without importing anything again
        self._kept: OrderedDict[Position, tuple[Engine, Answer]] = OrderedDict()
        self._size = kept
        self._lock = threading.Lock()

    def start(self, game: Path) -> Answer:
        """Loads a game; returns its first answer."""
        return self._known((game, ())) or self._load(game)

    def step(self, game: Path, actions: tuple[str, ...], digest: str, action: str) -> Answer:
        """Carries out ``action`` after ``actions``, whose observations had ``digest``.

        Raises:
            EngineFailed: The engine does, or it does not repeat those observations.
        """
        after = (game, (*actions, action))
        known = self._known(after)
        if known is not None and known.digest == _digest(digest, known.observation):
            return known
        engine, before = self._reach(game, actions)
        if before.digest != digest:
            engine.close()
            raise EngineFailed(
                f"{game}: a replay of {len(actions)} actions differs from before; another game file, or another "
                "version?"
            )
        answer = engine.step(action, digest)
        self._keep(after, engine, answer)
        return answer

    def close(self) -> None:
        """Ends all engines."""
        with self._lock:
            for engine, _ in self._kept.values():
                engine.close()
            self._kept.clear()
            self._root.close()

    def _known(self, position: Position) -> Answer | None:
        with self._lock:
            if position not in self._kept:
                return None
            self._kept.move_to_end(position)
            return self._kept[position][1]

    def _load(self, game: Path) -> Answer:
        with self._lock:
            try:
                engine = self._root.fork()
            except EngineFailed:  # killed from outside
                self._root = self._start_root()
                engine = self._root.fork()
        answer = engine.load(game)
        self._keep((game, ()), engine, answer)
        return answer

    def _reach(self, game: Path, actions: tuple[str, ...]) -> tuple[Engine, Answer]:
        """An engine of the caller's own at a position, where another is now kept."""
        while (nearest := self._nearest(game, actions)) is None:
            self._load(game)
        engine, answer, done = nearest
        if done == len(actions):
            return engine, answer
        for action in actions[done:]:
            answer = engine.step(action, answer.digest)
        copy = engine.fork()
        self._keep((game, actions), engine, answer)
        return copy, answer

    def _nearest(self, game: Path, actions: tuple[str, ...]) -> tuple[Engine, Answer, int] | None:
        """A copy of the engine nearest before a position, its last answer, and how many of the actions it has taken."""
        with self._lock:
            for done in range(len(actions), -1, -1):
                position = (game, actions[:done])
                if position not in self._kept:
                    continue
                engine, answer = self._kept[position]
                self._kept.move_to_end(position)
                try:
                    return engine.fork(), answer, done
                except EngineFailed:  # killed from outside: look further back
                    del self._kept[position]
            return None

    def _keep(self, position: Position, engine: Engine, answer: Answer) -> None:
        with self._lock:
            if position in self._kept:
                engine.close()
                return
            self._kept[position] = (engine, answer)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)[1][0].close()
