"""One ALFWorld game in a process of its own: a script, run under the interpreter that has the package ``alfworld``.

``engine.py FD`` talks over the Unix socket FD: one line of JSON for each request, one for each answer, in turn. It
begins with an answer, once alfworld is imported. Requests:

- ``{"load": path}``: a game from its start.
- ``{"step": action}``: an action.
- ``{"fork": true}``, with a socket: a copy of this process that talks over that socket. The engine's state lives in a C
  library that cannot copy it; the operating system can.

Answers have ``observation``, ``won`` and ``admissible``; that of a fork ``pid``; a failure ``error``. The process ends
when its socket is closed. It has one thread, without which a fork would not be safe. Nothing of this repository is
imported: the interpreter need not have it.
"""

from __future__ import annotations  # ALFWorld may have an older Python

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36


def receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message and the descriptors that came with it.

    Raises:
        EOFError: The other side is gone.
    """
    data, descriptors = b"", []
    while not data.endswith(b"\n"):
        chunk, more, _, _ = socket.recv_fds(channel, 1 << 16, 1)
        if not chunk:
            raise EOFError
        data += chunk
        descriptors += more
    return json.loads(data), descriptors


def send(channel: socket.socket, message: dict[str, Any], *descriptors: int) -> None:
    """Sends a message, with descriptors if there are any."""
    data = json.dumps(message).encode() + b"\n"
    sent = socket.send_fds(channel, [data], descriptors) if descriptors else 0
    channel.sendall(data[sent:])


def serve(channel: socket.socket) -> None:
    """Answers requests until the other side is gone."""
    try:
        import textworld  # pyright: ignore[reportMissingImports]
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        return send(channel, {"error": str(error)})

    def answer(state: Any) -> dict[str, Any]:
        return {
            "observation": state.feedback,
            "won": bool(state["won"]),
            "admissible": list(state["admissible_commands"]),
        }

    send(channel, {})
    game: Any = None
    while True:
        request, descriptors = receive(channel)
        if "fork" in request:
            pid = os.fork()
            if pid == 0:
                channel.close()
                channel = socket.socket(fileno=descriptors[0])
            else:
                os.close(descriptors[0])
                send(channel, {"pid": pid})
            continue
        try:
            if "load" in request:
                infos = textworld.EnvInfos(won=True, admissible_commands=True)
                game = textworld.start(request["load"], request_infos=infos, wrappers=[AlfredDemangler])
                reply = answer(game.reset())
            else:
                reply = answer(game.step(request["step"])[0])
        except Exception as error:  # noqa: BLE001  whatever a game file does, the caller gets an answer
            reply = {"error": f"{type(error).__name__}: {error}"}
        send(channel, reply)


if __name__ == "__main__":
    # Nobody waits for copies: they must not stay as zombies, nor pass to a first process that does not collect them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with contextlib.suppress(EOFError, ConnectionError):
        serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
