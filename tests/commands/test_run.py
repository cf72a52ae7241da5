"""How a run ends that is told to: at once, with the status that a shell expects, and with the way on."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentr.store.files import read_lines
from agentr.store.run import RunStore

#: The command line, with a stage that takes long, and perhaps services that take long to end.
LONG = """
import faulthandler, signal, sys, time
faulthandler.dump_traceback_later(120, exit=True)  # where it hangs, should it not end
signal.signal(signal.SIGINT, signal.default_int_handler)  # what started the tests may ignore signals, which is \
inherited
signal.signal(signal.SIGHUP, signal.SIG_DFL)
import agentr.commands.run as run
from agentr.cli import main
from agentr.rounds.services import Services
from agentr.store.summaries import TrainSummary

def work(folder):
    print("running", flush=True)
    time.sleep(600)

sys.argv[0] = "agentr"
seconds = sys.argv.pop()
Services.close = lambda services: (print("closing", flush=True), time.sleep(float(seconds)))
run.run_rounds = lambda experiment, method, only: experiment.store.stages.run("rounds/01/train", TrainSummary, work)
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "status"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)],
    ids=["terminate", "hang up", "interrupt"],
)
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_a_signal_ends_a_run_and_the_second_one_at_once(
    tmp_path: Path, sent: signal.Signals, status: int, twice: bool
) -> None:
    root = tmp_path / "run"
    command = [sys.executable, "-c", LONG, "run", "configs/smoke.yaml", f"run.dir={root}", "600" if twice else "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines = process.stdout
        assert lines is not None

        def said(word: str) -> None:
            while (line := lines.readline()) != f"{word}\n":
                assert line, process.communicate()

        said("running")
        started = time.monotonic()
        process.send_signal(sent)
        if twice:
            said("closing")
            process.send_signal(sent)
        told, wrong = process.communicate(timeout=150)
        assert process.returncode == status and "Traceback" not in told + wrong, wrong
        assert time.monotonic() - started < 10
    events = read_lines(root / "events.jsonl")
    assert [event["event"] for event in events][-2:] == ["stage_started", "stage_stopped"] and events[-1][
        "error"
    ] == "asked to end"
    assert RunStore(root).owner() == ""
    if not twice:
        assert f"stopped; what is finished is kept. Go on with: agentr resume {root}" in told


def test_a_command_that_is_told_to_end_leaves_no_part_behind(tmp_path: Path) -> None:
    """Of a file that it was writing, such as an archive."""
    code = (
        "import sys, time\nfrom pathlib import Path\nimport agentr.cli as cli\nfrom agentr.store.files import writing\n"
        "def app():\n with writing(Path(sys.argv[1])) as file:\n  print('writing', flush=True)\n  time.sleep(600)\n"
        "cli.main(app)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "a.tar.zst"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "starting",
    [
        "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)",  # native code that heeds no signal
        # a handler as Ray's
        (
            "(signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number)), print('again', flush=True), "
            "time.sleep(600))"
        ),
        "time.sleep(600)",
    ],
)
def test_a_start_of_ray_ends_when_it_is_told_to(starting: str) -> None:
    code = (
        "import hashlib, signal, sys, time\nfrom agentr.cluster.connect import _own_signals\n"
        "from agentr.signals import ending_cleanly\n"
        f"with ending_cleanly(), _own_signals():\n print('starting', flush=True)\n {starting}\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert (
            process.stdout is not None
            and process.stdout.readline()
            and ("again" not in starting or process.stdout.readline())
        )
        time.sleep(0.5)  # what was announced has begun
        process.send_signal(signal.SIGTERM)
        _, wrong = process.communicate(timeout=60)
        assert process.returncode == 143 and "Traceback" not in wrong
        assert ("stopped while Ray started" in wrong) == ("hashlib" in starting)
