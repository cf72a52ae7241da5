"""The Java virtual machine that the simulator runs in, and the games in it.

One machine holds many games. What the package's own wrapper does is not used: it starts a machine for each game, and
computes the list of valid actions (some thousand strings) in every step. The Java side is ``java/agentr/sciworld``.
"""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_servers.base import Unavailable

log = logging.getLogger(__name__)
# py4j raises what goes wrong, and besides logs a traceback for each object that is freed after its machine has ended.
logging.getLogger("py4j").setLevel(logging.CRITICAL)

#: Folder of our Java classes: sources, and beside them what they compile to.
CLASSES = Path(__file__).parent / "java"
#: Constant identity hashes make the simulator repeat itself (see ``Simulator.java``). Other makers' machines ignore
#: what they do not know.
OPTIONS = ("-XX:+UseSerialGC", "-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2")
#: How the error of a machine without room for another game begins.
FULL = "agentr.sciworld.Room$Full: "


@dataclass(frozen=True)
class Answer:
    """The simulator's answer to an action.

    Attributes:
        score: Share of the task that is done, 0 to 1; negative once the task has failed.
        completed: The task is solved.
        broken: The simulator met an error of its own and does not go on.
    """

    text: str
    score: float
    completed: bool
    broken: bool


class Machine:
    """A running virtual machine.

    Args:
        heap: Most memory for its objects, as Java writes it ("1g").

    Raises:
        RuntimeError: The package or Java is missing, or the machine did not start.
    """

    def __init__(self, heap: str) -> None:
        try:
            import scienceworld.constants as package
            from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
            from py4j.protocol import Py4JError
        except ImportError as error:
            raise RuntimeError(
                f"the package scienceworld is missing ({error}): pip install scienceworld==1.2.3"
            ) from error
        # The simulator writes a table of its objects into its working directory.
        folder = tempfile.TemporaryDirectory(prefix="agentr-sciworld-")
        try:
            launched: Any = launch_gateway(
                classpath=os.pathsep.join((package.JAR_PATH, str(CLASSES))),
                javaopts=[f"-Xmx{heap}", *OPTIONS],
                die_on_exit=True,
                return_proc=True,
                enable_auth=True,
                cwd=folder.name,
            )
            port, token, self._process = launched
            self._gateway: Any = JavaGateway(
                gateway_parameters=GatewayParameters(port=port, auth_token=token), java_process=self._process
            )
            self._simulators = self._gateway.jvm.agentr.sciworld.Simulator
            self.exact: bool = self._simulators.isExact()
        except FileNotFoundError as error:
            raise RuntimeError(
                "java is not on the PATH: install Java 11 or later, e.g. apt-get install openjdk-17-jre-headless"
            ) from error
        except (Py4JError, OSError, ValueError, TypeError) as error:
            raise RuntimeError(
                f"the ScienceWorld simulator did not start with heap={heap!r} (Java 11 or later is needed): {error}"
            ) from error
        weakref.finalize(self, _stop, self._process, folder, self._gateway._gateway_client)
        if self.exact and not self._repeats_itself():
            log.warning(
                "copies of ScienceWorld's games go another way than the originals on this Java; actions are replayed "
                "instead"
            )
            self.exact = False

    @property
    def alive(self) -> bool:
        """Whether the machine's process still runs."""
        return self._process.poll() is None

    def load(self, task: str, variation: int, simplifications: str) -> Game:
        """A fresh game."""
        return Game(self, self.call(self._simulators.load, task, variation, simplifications))

    def call(self, method: Any, *arguments: Any) -> Any:
        """A call into the machine.

        Raises:
            Unavailable: The machine has no room for another game.
            RuntimeError: The machine ended, is out of memory, or the simulator failed.
        """
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            return method(*arguments)
        except Py4JJavaError as error:
            cause = str(error.java_exception.toString())
            if cause.startswith(FULL):
                hint = "Close sessions, give the environment a larger `heap`, or run more servers."
                raise Unavailable(f"ScienceWorld takes no more games: {cause.removeprefix(FULL)}", hint) from error
            hint = "; close sessions or give the environment a larger `heap`" if "OutOfMemory" in cause else ""
            raise RuntimeError(f"the ScienceWorld simulator failed: {cause}{hint}") from error
        except Py4JError as error:
            raise RuntimeError(
                f"the ScienceWorld simulator's virtual machine ended (exit status {self._process.poll()})"
            ) from error

    def release(self, handle: Any) -> None:
        """Lets the machine free an object; harmless where the machine has ended."""
        if self.alive:
            self._gateway.detach(handle)

    def _repeats_itself(self) -> bool:
        """Checks that a copy of a game and a second load of it go the same way, in a task that shows both chance and
        order."""
        actions = [
            "look around",
            "open door to kitchen",
            "go to kitchen",
            "look around",
            "open cupboard",
            "wait",
            "look around",
        ]
        first, second = self.load("find-animal", 0, ""), self.load("find-animal", 0, "")
        answers = [first.step(action) for action in actions[:3]]
        copy = first.copy()
        answers += [first.step(action) for action in actions[3:]]
        same = [copy.step(action) for action in actions[3:]] == answers[3:] and [
            second.step(action) for action in actions
        ] == answers
        for game in (first, second, copy):
            game.free()
        return same


class MachineSupply:
    """A machine that is started when it is first needed, and another one after it has ended.

    Args:
        heap: See `Machine`.
    """

    def __init__(self, heap: str) -> None:
        self._heap = heap
        self._machine: Machine | None = None
        self._lock = threading.Lock()

    def get(self) -> Machine:
        """The machine; see `Machine` for errors."""
        with self._lock:
            if self._machine is None or not self._machine.alive:
                if self._machine is not None:
                    log.warning(
                        "the ScienceWorld simulator's virtual machine ended; its games are lost, and another one is "
                        "started"
                    )
                self._machine = Machine(self._heap)
            return self._machine


class Game:
    """A game in a machine. Not for several threads at once; games of one machine take turns."""

    def __init__(self, machine: Machine, handle: Any) -> None:
        self.machine = machine
        self._handle = handle

    def step(self, action: str) -> Answer:
        head, text = self.machine.call(self._handle.step, action).split("\n", 1)
        score, completed, broken = head.split()
        return Answer(text, float(score), completed == "true", broken == "true")

    def copy(self) -> Game:
        return Game(self.machine, self.machine.call(self._handle.copy))

    def description(self) -> str:
        """The task in words."""
        return self.machine.call(self._handle.description)

    def actions(self) -> list[str]:
        """The actions that the simulator lists as valid; takes 20 to 200 ms."""
        return self.machine.call(self._handle.actions).splitlines()

    def help(self, objects: bool) -> str:
        """The kinds of actions, or what can be referred to, one a line."""
        return self.machine.call(self._handle.help, objects)

    def solve(self, task: str, variation: int, simplifications: str, seed: int, limit: int) -> list[str]:
        """Plays on to the end, and says with which actions; empty if the simulator's solver did not get there with
        ``limit``."""
        return self.machine.call(self._handle.solve, task, variation, simplifications, seed, limit).splitlines()

    def free(self) -> None:
        """Gives the game's memory back."""
        self.machine.release(self._handle)


def _stop(process: subprocess.Popen, folder: tempfile.TemporaryDirectory, client: Any) -> None:
    # else py4j asks the ended machine to free each object that is left, and logs that it cannot
    client.is_connected = False
    process.kill()
    process.wait()
    folder.cleanup()
