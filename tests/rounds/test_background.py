"""A call that goes on beside its caller: its result and its error arrive where they are asked for."""

import threading

import pytest

from agentr.background import Beside


def test_the_result_is_waited_for() -> None:
    may_end = threading.Event()
    beside = Beside(lambda: may_end.wait(20) and 7)
    assert not beside.ended() and not beside.wait(0.01)
    may_end.set()
    assert beside.result() == 7
    assert beside.ended() and beside.wait()


def test_an_error_is_raised_where_it_is_asked_for_and_not_by_waiting() -> None:
    def fails() -> int:
        raise KeyboardInterrupt

    beside = Beside(fails)
    assert beside.wait(20)
    for ask in (beside.ended, beside.result):
        with pytest.raises(KeyboardInterrupt):
            ask()
