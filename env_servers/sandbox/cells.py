"""Runs a call's code in the process made for it."""

import ast
import atexit
import linecache
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Sequence
from typing import Any

#: Innermost frames that a traceback shows.
FRAMES = 8


def run_cells(cells: Sequence[str], output: int, mark: bytes) -> int:
    """Runs cells one after another in one ``__main__``; the exit status of the last.

    Only what the last cell writes goes to ``output``, and the value of its last line, as in a notebook. An exception in
    an earlier cell ends that cell. A cell ends as a program does: when its threads have ended and what it registered
    with `atexit` was called.

    Args:
        output: Descriptor for the last cell's standard output and error.
        mark: Is written there when the last cell begins: an earlier one may have found the descriptor, and what it
            wrote does not count.
    """
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv = [""]
    atexit._clear()  # what packages registered in the process that this one was forked from
    _seed_everything()
    code = 0
    for number, cell in enumerate(cells, 1):
        shown = number == len(cells)
        if shown:
            os.write(output, mark)
        _redirect(output if shown else os.open(os.devnull, os.O_WRONLY))
        code = _run(cell, f"<cell {number}>", main, shown)
        _finish(last=shown)
    return code


def _seed_everything() -> None:
    """Has what draws by chance draw the same in every call: earlier cells run again before each later one, in any
    server.

    ``uuid``, ``secrets``, ``SystemRandom``, generators without a seed and numpy's all come to ``os.urandom`` or
    `random.Random.seed`. The time, and what reads ``/dev/urandom`` itself, cannot be had the same.
    """
    stream = random.Random(0)
    seed = random.Random.seed

    def urandom(size: int, /) -> bytes:
        return stream.randbytes(size)

    def seeded(generator: random.Random, a: Any = None, version: int = 2) -> None:
        seed(generator, stream.getrandbits(64) if a is None and generator is not stream else a, version)

    os.urandom = random._urandom = urandom  # type: ignore[attr-defined]
    random.Random.seed = seeded  # type: ignore[method-assign]
    random.seed(0)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(0)


def _redirect(descriptor: int) -> None:
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout, sys.stderr = (
        os.fdopen(n, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False) for n in (1, 2)
    )


def _run(cell: str, name: str, main: types.ModuleType, shown: bool) -> int:
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    code = 0
    try:
        tree = ast.parse(cell, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), main.__dict__)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), main.__dict__)
            if shown and value is not None:
                print(repr(value))
    except SystemExit as error:  # as Python ends a program: a text is an error's
        code = int(error.code not in (None, 0))
        if not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt, too, is the cell's
        code = 1
        own = error.__traceback__.tb_next if error.__traceback__ else None  # without this frame
        sys.stderr.write("".join(traceback.format_exception(type(error), error, own, limit=-FRAMES)))
    return code


def _finish(last: bool) -> None:
    """Waits for a cell's threads; for those of an executor after the ``last`` one only: until then they wait for work
    of later cells."""
    pools: Any = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", ())
    while left := [
        t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon and t not in pools
    ]:
        left[0].join()
    if last:
        threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
