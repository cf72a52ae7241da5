"""How a process ends that a signal asks to."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Lets a signal to end (a stopped job, a time limit, a closed terminal) leave as an exception does, so that
    services are closed.

    The second one ends the process at once. One that the process was started to ignore (nohup) stays ignored.
    """
    asked: list[int] = []

    def leave(number: int, _: FrameType | None) -> NoReturn:
        if asked:
            os._exit(128 + number)
        asked.append(number)
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {
        number: signal.signal(number, leave)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        if asked:  # out of a call of Ray the exception comes with a status of Ray's
            raise SystemExit(128 + asked[0]) from None
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
