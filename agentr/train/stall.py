"""Watches the steps of a worker: one that takes long says where it is, and one that takes too long ends its process."""

import faulthandler
import os
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist

from agentr.errors import AgentrError
from agentr.store.files import write_json
from agentr.train.job import TrainJob

#: Innermost calls of a stack that are kept.
_DEPTH = 8


class _Watch:
    """A thread beside the training, which writes down the stack of the thread that trains.
    Library code that hangs lets it run, unless it holds the interpreter's lock; then only the process ends, after
    ``stall_s``.

    Attributes:
        written: What was written of the step in progress.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._job: TrainJob | None = None
        self._trains, self._began, self._said = 0, 0.0, 0.0
        self.written: Path | None = None
        threading.Thread(target=self._run, name="stall-watch", daemon=True).start()

    def expect(self, job: TrainJob | None) -> None:
        """Begins another step; None ends the watch."""
        with self._lock:
            self._job, self._trains = job, threading.get_ident()
            self._began = self._said = time.monotonic()
            if self.written is not None:
                self.written.unlink(missing_ok=True)
                self.written = None

    def _run(self) -> None:
        while True:
            time.sleep(0.5)
            with self._lock, suppress(OSError, AgentrError):
                if self._job is not None and time.monotonic() - self._said > self._job.watch_s:
                    self._notify(self._job)

    def _notify(self, job: TrainJob) -> None:
        first, self._said = self.written is None, time.monotonic()
        frame = sys._current_frames().get(self._trains)
        calls = reversed(traceback.extract_stack(frame)[-_DEPTH:]) if frame is not None else ()
        said = {
            "rank": dist.get_rank(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "seconds": round(time.monotonic() - self._began, 1),
            "stack": [f"{call.name} ({Path(call.filename).name}:{call.lineno})" for call in calls],
        }
        path = job.stalled(said["rank"])
        write_json(path, said)
        self.written = path
        if first:
            faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)


_watch: _Watch | None = None


def expect_progress(job: TrainJob) -> None:
    """Begins a step. Unless called again within the job's ``watch_s``, the worker says where it is
    (``TrainJob.stalled``), with all stacks in its log; unless within ``stall_s``, its process ends, with all stacks in
    its log."""
    global _watch
    faulthandler.dump_traceback_later(job.stall_s, exit=True, file=sys.__stderr__ or sys.stderr)
    _watch = _watch or _Watch()
    _watch.expect(job)


def expect_no_more() -> None:
    """Ends the watch."""
    faulthandler.cancel_dump_traceback_later()
    if _watch is not None:
        _watch.expect(None)
