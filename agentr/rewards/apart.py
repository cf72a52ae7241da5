"""A user's reward in a process of its own, so that its deadline holds: in this one, code that never lets go of the
interpreter (a regular expression, a loop in C) would stop every thread, the one that watches included.

The process imports the reward once, with this one's ``sys.path``, and answers one group after another. It ends when its
socket does.
"""

import socket
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from agentr.errors import AgentrError, DataError
from agentr.rewards.group import Group

#: Deadline for the import of the module.
START_S = 60.0
#: Why the rollouts of a group are dropped of which a reward is lost.
NO_REWARD = "a reward gave no answer"


class RewardLost(DataError):
    """A reward gave no answer: it took too long, or its process died.
    Its process is gone; the next group gets another one."""


class Apart:
    """A reward that is asked in another process.

    Args:
        name: What it is called in errors.
        make: Makes the reward, in the other process; it must be picklable, as its arguments.
        timeout_s: Deadline of an answer.
    """

    def __init__(self, name: str, make: Callable[..., Any], argument: Any, timeout_s: float) -> None:
        self._name, self._made_of, self._timeout_s = name, (make, argument), timeout_s
        self._connection: Connection | None = None
        self._end: Callable[[], Any] = lambda: None

    def __call__(self, group: Group) -> Sequence[Any]:
        """Returns what the reward says of a group.

        Raises:
            RewardLost: It said nothing.
            DataError: It raised.
        """
        connection = self._connection or self._start()
        connection.send(group)
        return self._received(connection, self._timeout_s, "Raise the reward's timeout_s, or make it faster.")

    def _start(self) -> Connection:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-c", f"from agentr.rewards.apart import serve; serve({theirs.fileno()})"]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        connection = self._connection = Connection(ours.detach())
        self._end = weakref.finalize(self, _end, process, connection)
        connection.send(sys.path)
        connection.send(self._made_of)
        self._received(connection, START_S, "Does its module wait for something when it is imported?")
        return connection

    def _received(self, connection: Connection, timeout_s: float, hint: str) -> Any:
        try:
            if not connection.poll(timeout_s):
                self._lost(f"gave no answer within {timeout_s:g} s", hint)
            answer, error = connection.recv()
        except (EOFError, ConnectionError) as gone:
            self._lost("lost its process", "Perhaps it used up the machine's memory; what it printed is above.", gone)
        if error is not None:
            raise error if isinstance(error, AgentrError) else DataError(f"the reward {self._name} failed: {error}")
        return answer

    def _lost(self, what: str, hint: str, cause: BaseException | None = None) -> None:
        self._connection = None
        self._end()
        raise RewardLost(f"the reward {self._name} {what}", hint=hint) from cause


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    connection.close()
    process.kill()
    process.wait()


def serve(descriptor: int) -> None:
    """Answers groups until the socket ends. The other side of `Apart`."""
    with Connection(descriptor) as connection:
        sys.path[:] = connection.recv()
        made: Any = None
        while True:
            try:
                asked = connection.recv()
            except EOFError:
                return
            try:
                if made is None:
                    make, argument = asked
                    made, answer = make(argument), None
                else:
                    answer = list(made(asked))
                connection.send((answer, None))
            except AgentrError as error:
                connection.send((None, error))
            except Exception as error:  # noqa: BLE001 - a user's code may raise anything
                traceback.print_exc()
                connection.send((None, f"{type(error).__name__}: {error}"))
