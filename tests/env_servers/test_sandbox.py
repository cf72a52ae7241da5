"""The sandbox against code that means harm; everything here really runs."""

import contextlib
import dataclasses
import itertools
import os
import random
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from env_servers.sandbox import Limits, Outcome, Sandbox, SandboxFailure, SandboxUnavailable, Status, launch
from tests.env_servers.support import wait_until

LIMITS = Limits(wall_s=30, memory_mb=128, processes=8, files_mb=4, open_files=32, output_kb=16)

pytestmark = pytest.mark.skipif(not launch.available(), reason="; ".join(map(launch.failure_of, launch.ISOLATIONS)))


@contextlib.contextmanager
def bare(isolation: str, limits: Limits) -> Iterator[Sandbox]:
    """A sandbox without packages."""
    if reason := launch.failure_of(isolation):
        pytest.skip(reason)
    sandbox = Sandbox(packages=(), setup="", limits=limits, isolation=isolation)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module", params=launch.ISOLATIONS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """One by each way to isolate, in a process that has a secret."""
    os.environ["SECRET_OF_THE_TESTS"] = "hidden"
    with bare(request.param, LIMITS) as sandbox:
        yield sandbox
    del os.environ["SECRET_OF_THE_TESTS"]


@pytest.fixture(scope="module", params=launch.ISOLATIONS)
def impatient(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """One for what runs until it is stopped."""
    with bare(request.param, dataclasses.replace(LIMITS, wall_s=1.5)) as sandbox:
        yield sandbox


def refused(outcome: Outcome) -> bool:
    """The code ran into an OSError, which is what the kernel's refusals become."""
    return outcome.status is Status.ERROR and "Error: [Errno " in outcome.output


# what one may do ------------------------------------------------------------------------------------------------------


def test_output_errors_and_the_value_of_the_last_line(sandbox: Sandbox):
    assert sandbox.run("import sys\nprint('é')\nprint('b', file=sys.stderr)\n6 * 7") == Outcome(Status.OK, "é\nb\n42\n")
    assert sandbox.run("x = 1\nNone") == Outcome(Status.OK, "")
    assert sandbox.run() == Outcome(Status.OK, "")
    failed = sandbox.run("def f(n):\n    return 1 / n\n\nf(0)")
    assert failed.status is Status.ERROR
    assert failed.output.startswith(
        'Traceback (most recent call last):\n  File "<cell 1>", line 4, in <module>\n    f(0)\n'
    )
    assert failed.output.endswith("ZeroDivisionError: division by zero\n")
    assert "SyntaxError" in sandbox.run("x =").output
    assert sandbox.run("input()").output.endswith("EOFError: EOF when reading a line\n")
    assert sandbox.run("print('a')\nexit()") == Outcome(Status.OK, "a\n")
    assert sandbox.run("import os; print('a'); os._exit(3)") == Outcome(Status.ERROR, "a\n")


LATE = (
    "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\nprint('main')"
)
POOL = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\n"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        (LATE, "main\nlate\n"),
        (f"def f():\n    {LATE.splitlines()[1]}\n{LATE.splitlines()[0]}\nthreading.Thread(target=f).start()", "late\n"),
        ("import threading\nthreading.Timer(0.1, print, ('rang',)).start()", "rang\n"),
        ("import atexit\natexit.register(print, 'bye')\nprint('main')", "main\nbye\n"),
        (f"{POOL}job = pool.submit(print, 'pooled')", "pooled\n"),
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
            "print('main')",
            "main\n",
        ),
    ],
)
def test_what_ends_after_the_last_line_is_heard(sandbox: Sandbox, code: str, printed: str):
    """As of any program: threads, timers, executors and `atexit`; no daemon is waited for."""
    assert sandbox.run(code) == Outcome(Status.OK, printed)


def test_what_an_earlier_cell_left_to_be_done_is_not_heard_in_a_later_one(sandbox: Sandbox):
    before = f"{LATE}\nimport atexit\natexit.register(print, 'bye')\n{POOL}"
    assert sandbox.run(before, "print(pool.submit(lambda: 42).result())") == Outcome(Status.OK, "42\n")


@pytest.mark.parametrize("end", ["raise SystemExit({})", "import sys\nsys.exit({})", "exit({})"])
@pytest.mark.parametrize(
    ("why", "said"), [("'no solution'", "no solution\n"), ("['a']", "['a']\n"), ("3", ""), ("0", None), ("", None)]
)
def test_why_code_ends_itself_is_said(sandbox: Sandbox, end: str, why: str, said: str | None):
    failed = Outcome(Status.ERROR, f"main\n{said}")
    assert sandbox.run(f"print('main')\n{end.format(why)}") == (
        Outcome(Status.OK, "main\n") if said is None else failed
    )


def test_a_long_traceback_is_short(sandbox: Sandbox):
    outcome = sandbox.run("def f(n):\n    return g(n - 1) if n else 1 / 0\ndef g(n):\n    return f(n)\nf(400)")
    assert outcome.output.endswith("ZeroDivisionError: division by zero\n") and len(outcome.output) < 1000


def test_only_the_last_cell_is_heard(sandbox: Sandbox):
    outcome = sandbox.run(
        "import os\nx = 20\nprint('loud')\nos.write(1, b'loud')", "x += 1\n1 / 0\nx += 100", "print(x * 2)"
    )
    assert outcome == Outcome(Status.OK, "42\n")


def test_the_same_code_gives_the_same_output(sandbox: Sandbox):
    code = "import random\nrandom.random(), hash('a'), list({'x', 'y', 'z'})"
    assert sandbox.run(code) == sandbox.run(code)


CHANCE = """
import os, random, secrets, tempfile, uuid
def f(): pass
drawn = (str(f), id(f), uuid.uuid4(), os.urandom(4), secrets.token_hex(4), random.SystemRandom().random(), \
random.Random().random())
drawn += (random.random(), random.Random(1).random(), next(tempfile._get_candidate_names()))
"""


def test_chance_and_addresses_are_the_same_everywhere(sandbox: Sandbox):
    first = sandbox.run(CHANCE + "print(drawn)")
    assert first.status is Status.OK and "0x7" in first.output
    assert sandbox.run(CHANCE, "print(drawn)").output.split("UUID")[1] == first.output.split("UUID")[1], (
        "an earlier cell drew the same"
    )
    with bare(sandbox.isolation, LIMITS) as other:
        other.run("1")
        assert other.run(CHANCE + "print(drawn)") == first
    assert sandbox.run("import random\nprint(random.Random(1).random())").output == f"{random.Random(1).random()}\n"


def test_files_threads_and_processes_of_its_own(sandbox: Sandbox):
    code = """
import multiprocessing, threading, pathlib
pathlib.Path("note").write_text("kept for this call")
found = []
thread = threading.Thread(target=lambda: found.append(pathlib.Path("/tmp/note").read_text()))
thread.start(); thread.join()
child = multiprocessing.Process(target=lambda: print(found, flush=True))
child.start(); child.join()
"""
    assert sandbox.run(code) == Outcome(Status.OK, "['kept for this call']\n")
    assert refused(sandbox.run("open('/tmp/note').read()")), "a file outlived its call"


@pytest.mark.parametrize(
    "text",
    ["print('\\udc80')", "import os; os.write(1, b'\\xff\\x00')", "print('\udc80')", "\0", "x" * 100_000, "(" * 5000],
)
def test_odd_text(sandbox: Sandbox, text: str):
    sandbox.run(text).output.encode()
    assert sandbox.run("1").output == "1\n"


# what one may not -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/1/environ", "/proc/self/maps", "/sys/kernel", __file__])
def test_files_of_the_machine_are_not_there(sandbox: Sandbox, path: str):
    assert refused(sandbox.run(f"open({path!r}).read()"))


def test_neither_are_its_environment_processes_and_packages(sandbox: Sandbox):
    assert "hidden" not in sandbox.run("import os; print(os.environ)").output
    assert sandbox.run("import os; os.listdir('/proc'), os.getpid(), os.getppid()").output == "([], 2, 1)\n"
    assert sandbox.run("import os; print(*sorted(os.listdir('/dev')))").output == "full null random urandom zero\n"
    assert sandbox.run("import platform; platform.node()").output == "'sandbox'\n"
    assert sandbox.run("import env_servers").output.endswith("No module named 'env_servers'\n")
    assert sandbox.run("import pytest").output.endswith("No module named 'pytest'\n")
    for folder in Path(sysconfig.get_path("stdlib")).glob("*-packages"):
        assert sandbox.run(f"import os; os.listdir({str(folder)!r})").output == "[]\n"


@pytest.mark.parametrize(
    "folder", ["/", "/usr/lib", "/own", "/dev", "/proc", sys.base_prefix, str(Path(__file__).parent), "/dev/shm"]
)
def test_nothing_outside_tmp_can_be_written(sandbox: Sandbox, folder: str):
    assert refused(sandbox.run(f"open({folder!r} + '/left_by_the_test', 'w')"))
    assert not Path(folder, "left_by_the_test").exists()


def test_no_network(sandbox: Sandbox):
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind("\0of the tests")
        local.listen()
        assert refused(sandbox.run(f"import socket; socket.create_connection({tcp.getsockname()!r}, timeout=1)"))
        assert refused(sandbox.run("import socket; socket.socket(socket.AF_UNIX).connect('\\0of the tests')"))
        assert refused(sandbox.run("import socket; socket.socket(socket.AF_VSOCK)"))


@pytest.mark.parametrize(
    "code",
    [
        "os.setuid(0)",
        "os.chroot('/tmp')",
        "check(libc.unshare(0x10000000))",
        "check(libc.unshare(0x00020000))",
        "check(libc.mount(b'proc', b'/tmp', b'proc', 0, None))",
        "check(libc.umount2(b'/proc', 2))",
        "check(libc.ptrace(16, 1, 0, 0))",
        "check(libc.memfd_create(b'x', 0))",
        "check(libc.shmget(0, 4096, 0o1600))",
        "resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))",
        "resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)",
    ],
)
def test_no_way_to_more_rights(sandbox: Sandbox, code: str):
    prepare = "import ctypes, os, resource\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    prepare += "def check(result):\n    if result < 0: raise OSError(ctypes.get_errno(), '')"
    outcome = sandbox.run(prepare, code)
    assert refused(outcome) or "ValueError: not allowed to raise maximum limit" in outcome.output


def test_the_sandboxs_own_descriptors_are_closed(sandbox: Sandbox):
    code = (
        "import contextlib, os\nfor fd in range(3, 4096):\n    with contextlib.suppress(OSError):\n        "
        "print(os.write(fd, bytes(4)))"
    )
    assert sandbox.run(code) == Outcome(Status.OK, "")


def test_an_earlier_cell_cannot_write_a_later_ones_answer(sandbox: Sandbox):
    everywhere = (
        "import contextlib, os\nfor fd in range(64):\n    with contextlib.suppress(OSError):\n        os.write(fd, {})"
    )
    assert sandbox.run(everywhere.format("b'made up'"), "print('real')") == Outcome(Status.OK, "real\n")
    assert sandbox.run(everywhere.format("b'made up'"), "x = 1") == Outcome(Status.OK, "")
    assert sandbox.run("1", everywhere.format("b'a' * (1 << 14)"), "print('real')").status in (Status.OK, Status.OUTPUT)
    assert sandbox.run(everywhere.format("b'made up'") + "\nos._exit(0)", "print('real')") == Outcome(Status.OK, "")


def test_it_cannot_kill_what_runs_it(sandbox: Sandbox):
    sandbox.run("1")
    zygote = sandbox._zygote
    assert zygote is not None
    code = "import os\nfor pid in (1, os.getppid(), {}):\n    try: os.kill(pid, 9)\n    except OSError: pass\nprint(1)"
    assert sandbox.run(code.format("-1")) == Outcome(Status.OK, "1\n")
    assert sandbox.run(code.format("0")) == Outcome(Status.CRASH, "")  # its own process group
    assert sandbox.run("1").output == "1\n" and sandbox._zygote is zygote and zygote._process.poll() is None


# limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["while True: pass", "time.sleep(60)", "os.close(1); os.close(2); time.sleep(60)"])
def test_time(impatient: Sandbox, code: str):
    start = time.monotonic()
    outcome = impatient.run(f"import os, time\nprint('before')\n{code}")
    assert outcome == Outcome(Status.TIMEOUT, "before\n") and time.monotonic() - start < 10


def test_cpu_time():
    with bare(launch.isolation(), dataclasses.replace(LIMITS, cpu_s=1)) as sandbox:
        assert sandbox.run("while True: pass").status is Status.TIMEOUT


def test_memory(sandbox: Sandbox):
    assert sandbox.run("x = bytearray(1 << 30)").output.endswith("MemoryError\n")
    assert sandbox.run("x = []\nwhile True: x.append(bytes(1 << 20))").output.endswith("MemoryError\n")
    assert sandbox.run("len(bytearray(64 << 20))") == Outcome(Status.OK, f"{64 << 20}\n")


def test_files(sandbox: Sandbox):
    assert sandbox.run("open('a', 'wb').write(bytes(8 << 20))").status in (Status.ERROR, Status.CRASH)
    many = "import os\nfor i in range(8):\n    open(str(i), 'wb').write(bytes(1 << 20))"
    assert "No space left on device" in sandbox.run(many).output
    assert "Too many open files" in sandbox.run("x = [open('/dev/null') for _ in range(100)]").output


def test_output(sandbox: Sandbox):
    outcome = sandbox.run("while True: print('x' * 100)")
    assert (outcome.status, len(outcome.output)) == (Status.OUTPUT, LIMITS.output_kb << 10)


def test_processes(sandbox: Sandbox):
    count = (
        "import os, time\nn = 0\ntry:\n    while os.fork(): n += 1\n    time.sleep(60)\n"
        "except BlockingIOError:\n    print(n)"
    )
    assert sandbox.run(count) == Outcome(Status.OK, f"{LIMITS.processes - 1}\n")


def test_a_fork_bomb(impatient: Sandbox):
    bomb = "import contextlib, os\nwhile True:\n    with contextlib.suppress(OSError):\n        os.fork()"
    assert impatient.run(bomb).status is Status.TIMEOUT
    wait_until(lambda: impatient.run("1") == Outcome(Status.OK, "1\n"), "a call after the fork bomb")


def test_nothing_stays_behind(sandbox: Sandbox):
    def running() -> int:
        """Live processes below the one that holds the zygote."""
        assert sandbox._zygote is not None
        found = psutil.Process(sandbox._zygote._process.pid).children(recursive=True)
        return sum(process.status() != psutil.STATUS_ZOMBIE for process in found)

    sandbox.run("1")
    assert running() == 1
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.fork()\n    time.sleep(60)\nprint('gone')"
    start = time.monotonic()
    assert sandbox.run(daemon) == Outcome(Status.OK, "gone\n")
    assert time.monotonic() - start < 20 and running() == 1


@pytest.mark.parametrize(
    "code",
    [
        "import ctypes; ctypes.string_at(0)",
        "import os; os.abort()",
        pytest.param(
            "import sys; sys.setrecursionlimit(10**9)\ndef f(x): return sorted([x], key=f)\nf(1)",
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="3.12 bounds recursion through C by itself"),
        ),
    ],
)
def test_a_crash_is_its_own(sandbox: Sandbox, code: str):
    assert sandbox.run(code).status is Status.CRASH
    assert sandbox.run("1").output == "1\n"


# the sandbox itself ---------------------------------------------------------------------------------------------------


def test_calls_run_at_the_same_time(sandbox: Sandbox):
    """By the clock that they share: however slow the machine, calls one after another would not overlap."""
    outcomes: dict[int, Outcome] = {}

    def call(i: int) -> None:
        outcomes[i] = sandbox.run(
            "import time\nbegan = time.monotonic()\ntime.sleep(0.5)\nprint(began, time.monotonic())"
        )

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {outcome.status for outcome in outcomes.values()} == {Status.OK} and len(outcomes) == 8
    times = sorted(tuple(map(float, outcome.output.split())) for outcome in outcomes.values())
    assert any(began < ended for (_, ended), (began, _) in itertools.pairwise(times))


def test_a_dead_zygote_is_replaced(sandbox: Sandbox):
    sandbox.run("1")
    first = sandbox._zygote
    assert first is not None
    signal.pidfd_send_signal(first._handle, signal.SIGKILL)
    assert sandbox.run("2") == Outcome(Status.OK, "2\n")
    assert sandbox._zygote is not first
    sandbox.close()
    assert sandbox.run("3") == Outcome(Status.OK, "3\n")


def test_what_does_not_start_says_why():
    with pytest.raises(SandboxFailure, match="no_such_module"):
        Sandbox(packages=(), setup="import no_such_module").run("1")
    with pytest.raises(SandboxUnavailable, match="no-such-package"):
        Sandbox(packages=("no-such-package",))


@pytest.mark.slow
def test_numpy_and_sympy():
    sandbox = Sandbox()
    code = (
        "import numpy, sympy\nprint(numpy.linalg.det(numpy.eye(3)), numpy.random.random() == "
        "numpy.random.RandomState(0).random())"
    )
    assert sandbox.run(code) == Outcome(Status.OK, "1.0 True\n")
    unseeded = "print(numpy.random.default_rng().random(), numpy.random.RandomState().random(), numpy.random.random())"
    other = Sandbox()
    assert (
        sandbox.run("import numpy\n" + unseeded)
        == other.run("import numpy", unseeded)
        == sandbox.run("import numpy\n" + unseeded)
    )
    other.close()
    assert sandbox.run(code, "sympy.solve(sympy.Symbol('x')**2 - 4)") == Outcome(Status.OK, "[-2, 2]\n")
    sandbox.close()
