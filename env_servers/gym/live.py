"""The environments that are open: a bounded number, whatever the number of sessions."""

import threading
from typing import Any


class Live:
    """Open environments by the state that each is in. Safe for threads.

    One that is taken is out of reach for everybody else, so that none is closed while it steps.

    Args:
        most: Those that are kept; of more, the one that was idle longest is closed, and its state is played again when
            it is needed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._idle: dict[int, tuple[Any, Any]] = {}  # by id; the state is held, so that no other has its id meanwhile

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, state: Any) -> Any | None:
        """Returns the environment that is in this state; None if it is not open."""
        with self._lock:
            _, env = self._idle.pop(id(state), (None, None))
        return env

    def keep(self, state: Any, env: Any) -> None:
        """Keeps the environment of a state until it is taken."""
        with self._lock:
            self._idle[id(state)] = (state, env)
            closed = [self._idle.pop(next(iter(self._idle)))[1] for _ in range(len(self._idle) - self._most)]
        for each in closed:
            each.close()
