"""The driver of a run as a process of its own, which may be killed and is started again as a user would."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agentr.errors import RunError
from tests.tools.chaos.processes import job_of

#: Seconds that a driver has to end by itself when it is asked to.
END_S = 60.0


class Driver:
    """Runs a command of Python again and again until it succeeds.

    Args:
        command: Arguments of the interpreter.
        address: The Ray cluster to join.
        log: What it writes is appended here.
        starts: How often it may be started.
    """

    def __init__(self, command: Sequence[str], address: str, log: Path, starts: int) -> None:
        self.command = [sys.executable, *command]
        self.log = log
        self.left = starts
        #: How its lives ended that did not succeed, except by ``kill``.
        self.ended: list[str] = []
        self._environment = {**os.environ, "RAY_ADDRESS": address}
        self._process: subprocess.Popen[bytes] | None = None
        self._job = ""

    def start(self) -> None:
        """Starts it.

        Raises:
            RunError: It was started too often; quotes its log.
        """
        if not self.left:
            raise RunError(f"the run ended again and again: {'; '.join(self.ended[-3:])}", hint=f"See {self.log}.")
        self.left -= 1
        self._job = ""
        with self.log.open("ab") as file:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=self._environment
            )

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def job(self) -> str:
        """Id of its Ray job; empty as long as it has not joined."""
        if not self._job and self._process is not None:
            self._job = job_of(self._process.pid)
        return self._job

    def kill(self) -> None:
        """Kills it without warning."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def done(self) -> bool:
        """Looks whether it has succeeded; if it has failed it is started again.

        Raises:
            RunError: It was started too often.
        """
        assert self._process is not None
        status = self._process.poll()
        if status:
            said = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            self.ended.append(f"status {status}: {''.join(said)}")
            time.sleep(1.0)
            self.start()
        return status == 0

    def wait(self) -> None:
        """Waits until it has succeeded.

        Raises:
            RunError: It was started too often.
        """
        while not self.done():
            time.sleep(0.2)

    def end(self) -> None:
        """Ends it if it runs."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
