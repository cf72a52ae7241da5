"""A small environment that does everything right, and others that each get one thing wrong: what the conformance suite
is tested on."""

import itertools
import random
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from env_servers.base import Environment, ExpertStep, Observation, TaskInfo, UnknownTask
from env_servers.observation import Again, CallStatus
from env_servers.protocol import EnvironmentSpec


@dataclass
class Position:
    goal: int
    at: int = 0
    moves: int = 0
    unseen: int = 0


class Walk(Environment[Position]):
    """A corridor: ``left`` and ``right`` move, the episode ends at the goal. Task ``train-5`` has its goal at 5.

    ``ahead`` is carried out as ``right``.
    """

    fast = True

    @cached_property
    def spec(self) -> EnvironmentSpec:
        splits = {"train": {"about": "near", "train": True}, "test": {"about": "far", "train": False}}
        about = {
            "name": "walk",
            "title": "Walk",
            "version": "1",
            "instruction": "Walk to the goal.",
            "source": "Made up.",
        }
        return EnvironmentSpec.model_validate(
            {**about, "splits": splits, "identity": "goal", "guides": True, "redraws": True}
        )

    def split(self, name: str) -> list[TaskInfo]:
        if name not in self.spec.splits:
            raise UnknownTask(f"no split {name!r}")
        return [
            TaskInfo(f"{name}-{goal}", {"goal": goal}) for goal in (range(3, 9) if name == "train" else range(9, 12))
        ]

    def reset(self, task_id: str) -> tuple[Position, Observation]:
        if task_id not in {task.id for name in self.spec.splits for task in self.split(name)}:
            raise UnknownTask(f"no task {task_id!r}")
        state = Position(int(task_id.partition("-")[2]))
        return state, Observation(f"You are at 0, the goal is at {state.goal}.")

    def step(self, state: Position, action: str) -> Observation:
        executed = "right" if action == "ahead" else ""
        action = executed or action
        if action not in ("left", "right"):
            return Observation.failed("You can only go left or right.")
        state.at += 1 if action == "right" else -1
        state.moves += 1
        reached = state.at == state.goal
        scores = {"shortest": float(state.moves == state.goal)} if reached else {}
        return Observation(
            f"You are at {state.at} after {state.moves} moves.",
            float(reached),
            reached,
            executed=executed,
            scores=scores,
        )

    def snapshot(self, state: Position) -> dict[str, Any]:
        return dict(vars(state))

    def restore(self, data: dict[str, Any]) -> Position:
        if set(data) != {"goal", "at", "moves", "unseen"} or not all(type(value) is int for value in data.values()):
            raise ValueError("not a position")
        return Position(**data)

    def expert(self, task_id: str) -> list[ExpertStep]:
        return [ExpertStep("The goal is to the right.", "right")] * self.reset(task_id)[0].goal

    def expert_from(self, state: Position) -> list[ExpertStep] | None:
        return [ExpertStep("The goal is to the right.", "right")] * (state.goal - state.at)

    def redraw(self, state: Position, seed: int) -> Position:
        return replace(state, unseen=seed)

    def actions(self, state: Position) -> list[str]:
        return ["left", "ahead"]


class BegunAgain(Walk):
    """Sound: what it took to get to an answer differs each time, and is not part of the answer."""

    def step(self, state: Position, action: str) -> Observation:
        return replace(super().step(state, action), again=Again(1, state.moves, random.random()))


class SharedFork(Walk):
    def fork(self, state: Position) -> Position:
        return state


class ForgetfulFork(Walk):
    def fork(self, state: Position) -> Position:
        return replace(state, moves=0)


class RandomReset(Walk):
    def reset(self, task_id: str) -> tuple[Position, Observation]:
        state, observed = super().reset(task_id)
        return state, replace(observed, observation=f"{observed.observation} The time is {random.random()}.")


class GlobalState(Walk):
    """Every session moves the same walker's count."""

    def __init__(self) -> None:
        self.moves = itertools.count(1)

    def step(self, state: Position, action: str) -> Observation:
        state.moves = next(self.moves)
        return super().step(state, action)


class LossySnapshot(Walk):
    def snapshot(self, state: Position) -> dict[str, Any]:
        return {**super().snapshot(state), "moves": 0}


class KeysInOrder(Walk):
    """Takes the order of a stored object's keys to mean something."""

    def restore(self, data: dict[str, Any]) -> Position:
        super().restore(data)
        return Position(*data.values())


class Misreporting(Walk):
    """Says that it did something else than it did."""

    def step(self, state: Position, action: str) -> Observation:
        observed = super().step(state, action)
        return replace(observed, executed="left") if observed.executed else observed


class TrustingRestore(Walk):
    def restore(self, data: dict[str, Any]) -> Position:
        return Position(data.get("goal", 0), data.get("at", 0), data.get("moves", 0))


class Copied(Position):
    pass


class OtherStatus(Walk):
    """In a copy, actions come out otherwise."""

    def fork(self, state: Position) -> Position:
        return Copied(**vars(state))

    def restore(self, data: dict[str, Any]) -> Position:
        return Copied(**vars(super().restore(data)))

    def step(self, state: Position, action: str) -> Observation:
        observed = super().step(state, action)
        return replace(observed, status=CallStatus.empty) if isinstance(state, Copied) else observed


class EarlyScores(Walk):
    def step(self, state: Position, action: str) -> Observation:
        return replace(super().step(state, action), scores={"near": 0.5})


class CredulousStep(Walk):
    def step(self, state: Position, action: str) -> Observation:
        return replace(super().step(state, action), valid=True)


class FragileStep(Walk):
    def step(self, state: Position, action: str) -> Observation:
        if len(action.split()) != 1:
            raise IndexError("list index out of range")
        return super().step(state, action)


class LazyExpert(Walk):
    def expert(self, task_id: str) -> list[ExpertStep]:
        return super().expert(task_id)[1:]


class ForgetfulGuide(Walk):
    def expert_from(self, state: Position) -> list[ExpertStep] | None:
        return super().expert_from(Position(state.goal))


class MeddlingGuide(Walk):
    """Tries what it says in the state itself."""

    def expert_from(self, state: Position) -> list[ExpertStep] | None:
        steps = super().expert_from(state)
        state.at += 1
        return steps


class SilentGuide(Walk):
    def expert_from(self, state: Position) -> list[ExpertStep] | None:
        return None


class SecretGuide(Walk):
    @cached_property
    def spec(self) -> EnvironmentSpec:
        return super().spec.model_copy(update={"guides": False})


class MeddlingRedraw(Walk):
    def redraw(self, state: Position, seed: int) -> Position:
        state.unseen = seed
        return replace(state)


class FickleRedraw(Walk):
    def redraw(self, state: Position, seed: int) -> Position:
        return replace(state, unseen=random.randrange(10**9))


class SameRedraw(Walk):
    def redraw(self, state: Position, seed: int) -> Position:
        return replace(state)


class ShuffledActions(Walk):
    def actions(self, state: Position) -> list[str]:
        return random.sample(["left", "right", "back", "forth", "up", "down"], 6)


class SwitchedActions(Walk):
    """What every session suggests depends on the task that was opened last."""

    def reset(self, task_id: str) -> tuple[Position, Observation]:
        self.far = task_id.startswith("test-")
        return super().reset(task_id)

    def actions(self, state: Position) -> list[str]:
        return [*super().actions(state), *(["right"] if self.far else [])]


class LeakySplits(Walk):
    def split(self, name: str) -> list[TaskInfo]:
        return [*super().split(name), TaskInfo(f"{name}-again", {"goal": 3})]

    def reset(self, task_id: str) -> tuple[Position, Observation]:
        return super().reset("train-3" if task_id.endswith("-again") else task_id)


class SameTaskTwice(Walk):
    def split(self, name: str) -> list[TaskInfo]:
        return [*super().split(name), *super().split("train")]


class SilentSpec(Walk):
    @cached_property
    def spec(self) -> EnvironmentSpec:
        return super().spec.model_copy(update={"instruction": " "})


class ErringUnknown(Walk):
    def reset(self, task_id: str) -> tuple[Position, Observation]:
        if not task_id.startswith(("train-", "test-")):
            raise KeyError(task_id)
        return super().reset(task_id)


#: Each fault with the checks that find it.
FAULTS: dict[type[Walk], set[str]] = {
    SharedFork: {"a fork plays on as a replay does", "expand is fork and step"},
    ForgetfulFork: {"a fork plays on as a replay does"},
    RandomReset: {"reset is deterministic", "sessions do not see each other"},
    GlobalState: {
        "what was carried out can be asked for",
        "a fork plays on as a replay does",
        "expand is fork and step",
        "a snapshot survives storage",
        "sessions do not see each other",
        "a repeated step is not carried out again",
    },
    LossySnapshot: {"a snapshot survives storage"},
    KeysInOrder: {"a snapshot survives storage"},
    Misreporting: {"what was carried out can be asked for"},
    TrustingRestore: {"a damaged snapshot is refused"},
    OtherStatus: {"a fork plays on as a replay does", "a snapshot survives storage"},
    EarlyScores: {"scores come with the end of an episode"},
    CredulousStep: {"nonsense is answered, not understood"},
    FragileStep: {"nonsense is answered, not understood"},
    LazyExpert: {"the expert earns the reward"},
    ForgetfulGuide: {"the expert goes on from any state"},
    MeddlingGuide: {"the expert goes on from any state"},
    SilentGuide: {"the expert goes on from any state"},
    SecretGuide: {"the expert goes on from any state"},
    MeddlingRedraw: {"another world fits what was observed"},
    FickleRedraw: {"another world fits what was observed"},
    SameRedraw: {"another world fits what was observed"},
    ShuffledActions: {"suggested actions are usable and in a fixed order"},
    SwitchedActions: {"suggested actions are usable and in a fixed order"},
    LeakySplits: {"training and held-out splits share no problem"},
    SameTaskTwice: {
        "splits list distinct tasks in a stable order",
        "training and held-out splits share no task",
        "training and held-out splits share no problem",
    },
    SilentSpec: {"the specification is complete"},
    ErringUnknown: {"unknown tasks and splits are refused"},
}
