"""The interface of an environment: a state machine over tasks, with a published specification.

Adding an environment means one folder beside this file with an ``Environment`` subclass, its ``spec.yaml`` and, where
there is one, its expert. Nothing in here knows about HTTP (`app.py`) or about agents and training.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import yaml

from env_servers.observation import Observation
from env_servers.protocol import EnvironmentSpec

State = TypeVar("State")


class UnknownTask(KeyError):
    """The task id names no task of this environment."""

    def __str__(self) -> str:
        return str(self.args[0])


class Unavailable(Exception):
    """The environment cannot answer now, but may later: it has no room, or a service that it needs is down.

    Not for what the agent did wrong, which is an observation, and not for what will never work. The state that the call
    was given must be unchanged: the client waits and asks again, and no session is lost.

    Args:
        reason: What is missing now.
        hint: What to do about it.
    """

    def __init__(self, reason: str, hint: str = "Try again later.") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Failed(Exception):
    """The call cannot be carried out, and will not be later: what an environment runs has failed.

    Not for what the agent did wrong. The session is closed.

    Args:
        reason: What happened, for people.
        hint: What to do about it.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True)
class TaskInfo:
    """One task of a split: its id and what one may select or stratify by (for TextCraft: depth, plan length)."""

    id: str
    labels: dict[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExpertStep:
    """One step of a demonstration."""

    thought: str
    action: str


@dataclass(frozen=True)
class Requirement:
    """Something that an environment needs, or can use, from outside this repository.

    Attributes:
        name: What it is ("Java 17 or later", "the official product files").
        present: Whether it was found here.
        how: How to get it: a command, or an address and where to put the files.
        optional: The environment works without it, with less (a default catalogue in place of the official one).
    """

    name: str
    present: bool
    how: str
    optional: bool = False


class Environment(ABC, Generic[State]):
    """A family of tasks with one state machine.

    Instances are shared by all sessions of a server: they hold read-only data; everything that changes is in ``State``.
    Importing an environment's package must be cheap and never fail: what is not in agentr's core dependencies is
    imported when an instance is made, and what is missing then is a RuntimeError whose text says how to get it.
    """

    #: Folder that holds ``spec.yaml``; set by each subclass.
    folder: Path
    #: Whether reset, step, fork and snapshot take well under a millisecond. They then run in the server's event loop,
    #: without a deadline; those of other environments run in threads, each within the server's deadline for a step.
    fast: bool = False
    #: Splits beside those in ``spec.yaml`` that need options or files, each with whether it may be trained on.
    optional_splits: ClassVar[Mapping[str, bool]] = {}
    #: Options that name files, as texts or as mappings to texts; a configuration file gives them relative to itself.
    #: Only of environments that come along: those of others are not imported to read a configuration.
    paths: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def spec(self) -> EnvironmentSpec:
        """The published specification, read from ``spec.yaml`` in the environment's folder."""
        return read_spec(self.folder)

    @classmethod
    def requirements(cls) -> list[Requirement]:
        """Lists the needs beyond the core dependencies, each with whether it is met; must be fast and must not
        raise."""
        return []

    @abstractmethod
    def split(self, name: str) -> list[TaskInfo]:
        """The tasks of a split named in the spec, always in the same order.

        Raises:
            UnknownTask: There is no such split.
        """

    @abstractmethod
    def reset(self, task_id: str) -> tuple[State, Observation]:
        """A fresh state of the task and its first observation.

        Raises:
            UnknownTask: There is no such task.
            Unavailable: Not now; this holds for all methods that follow too.
        """

    @abstractmethod
    def step(self, state: State, action: str) -> Observation:
        """Carries out ``action`` in place. Any text is a legal argument; what cannot be done is an observation."""

    def fork(self, state: State) -> State:
        """An independent copy: steps on either side are not seen by the other."""
        return copy.deepcopy(state)

    @abstractmethod
    def snapshot(self, state: State) -> dict[str, Any]:
        """The state as JSON-serialisable data, enough for ``restore`` in another process."""

    @abstractmethod
    def restore(self, data: dict[str, Any]) -> State:
        """The inverse of ``snapshot``.

        Raises:
            ValueError: The data is not a snapshot of this environment.
        """

    def close(self, state: State) -> None:
        """Frees what the state holds outside Python's heap; most states are plain data and need nothing."""

    def stop(self) -> None:
        """Frees what the environment itself holds outside Python's heap, when its server ends; its states are closed
        before."""

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        """A demonstration that earns the full reward, or None where the environment has no expert for the task."""
        return None

    def expert_from(self, state: State) -> list[ExpertStep] | None:
        """How the expert goes on from a state, to an end that counts as a success; None where it cannot.

        The state is left as it is. An environment that has it says ``guides: true`` in its specification.
        """
        return None

    def redraw(self, state: State, seed: int) -> State:
        """A state in a world that is drawn from the environment's own distribution, given all that was observed on the
        way to ``state``: the same actions would have been answered in the same words there.

        The same state and seed give the same world, and the state is left as it is. An environment that has it says
        ``redraws: true`` in its specification; no other is asked.
        """
        raise NotImplementedError(f"{type(self).__name__} draws no worlds")

    def actions(self, state: State) -> list[str]:
        """Some actions that make sense in this state, in a fixed order: what a person may choose from, and what random
        play draws.

        Need not be complete; empty where an environment has no notion of it.
        """
        return []


def read_spec(folder: Path) -> EnvironmentSpec:
    """The specification in an environment's folder."""
    with (folder / "spec.yaml").open(encoding="utf-8") as file:
        return EnvironmentSpec.model_validate(yaml.safe_load(file))
