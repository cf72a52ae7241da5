"""BabyAI: rooms, doors, keys, balls and boxes on a grid, and a mission in words.

minigrid generates the levels; the text, the actions and their expansion into primitive moves follow AgentGym's. An
episode ends when the mission is accomplished, with the level's own reward 1 - 0.9 * moves / max_moves (moves are
primitive: a turn, a step, ...), when it has failed, or after the level's ``max_moves``, both with 0.

Tasks are a level (`levels.LEVELS`) and a seed of minigrid's generator:

- ``agentgym/N``: AgentGym's numbering, level N mod 40 + 1 with seed N div 40.
- ``LEVEL@SEED``: ours, such as ``GoToRedBall@1000``. The seeds of ``train``, ``dev`` and ``test`` are disjoint, and
  none of them is one of AgentGym's.

Both kinds carry the label ``problem``. Three levels are so small that two seeds may pose the same problem; there the
label distinguishes the problems and not the seeds, and our splits have each problem once.

Faults of AgentGym's server that are not repeated: an end with a reward of at most 0.5 is undone and the score adds up
over steps; the level's move limit is ignored; an action goes on after the move that ended the episode; "then" and
"after you" in a mission read "and"; pick-up numbers skip what cannot be reached and so name another object than the
text; ways lead through closed doors; "move forward" and "drop" are offered where they cannot work, "toggle" not in
front of a box, so that KeyInBox cannot be solved.
"""

import importlib.util
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from env_servers.babyai import levels
from env_servers.babyai.expert import demonstrate
from env_servers.babyai.levels import BY_NAME, LEVELS, LevelSpec
from env_servers.babyai.redraw import another
from env_servers.babyai.scene import Scene, normalise, refusal
from env_servers.babyai.world import World
from env_servers.base import Environment, ExpertStep, Observation, Requirement, TaskInfo, UnknownTask

#: First seed and number of seeds for each level; a problem that comes twice is left to the split that is first here.
#: AgentGym's seeds end at 50.
SEEDS = {"test": (3000, 5), "dev": (2000, 5), "train": (1000, 40)}
#: AgentGym's tasks are of these levels (its numbers, from 1), as third-party code that uses its lists states.
AGENTGYM_LEVELS = frozenset({*range(1, 12), 19, 20, 21, 30, 31, 33, 36})
#: data_idx of AgentGym's tasks. The lists themselves are not at hand: these ranges give exactly the published 810 and
#: 90 tasks.
AGENTGYM_RANGES = {"agentgym_train": range(1800), "agentgym_test": range(1804, 2004)}


@dataclass
class BabyAIState:
    """``scene`` is what the agent sees in ``world``; it is derived, and shared by forks.

    Attributes:
        actions: Those that were carried out.
        drawn: The numbers that the level's generator draws, where they are not those of the task's own seed.
    """

    task: str
    world: World
    scene: Scene
    actions: tuple[str, ...] = ()
    drawn: tuple[float, ...] = ()


class BabyAI(Environment[BabyAIState]):
    """The environment.
    Not ``fast``: to generate a level takes 2 ms on average and now and then ten times that; all else is.

    Raises:
        RuntimeError: minigrid is not installed.
    """

    folder = Path(__file__).parent

    def __init__(self) -> None:
        levels.require_minigrid()

    @classmethod
    def requirements(cls) -> list[Requirement]:
        present = all(importlib.util.find_spec(package) for package in ("minigrid", "gymnasium", "pygame"))
        return [Requirement("minigrid, the level generator", present, "pip install minigrid==3.2.0")]

    # tasks ------------------------------------------------------------------------------------------------------------

    def split(self, name: str) -> list[TaskInfo]:
        if name in AGENTGYM_RANGES:
            indices = [i for i in AGENTGYM_RANGES[name] if i % len(LEVELS) + 1 in AGENTGYM_LEVELS]
            return [TaskInfo(f"agentgym/{i}", _labels(*_agentgym(i))) for i in indices]
        if name in SEEDS:
            return list(self._own_splits[name])
        raise UnknownTask(f"BabyAI has no split {name!r}; it has {', '.join(self.spec.splits)}")

    @cached_property
    def _own_splits(self) -> dict[str, list[TaskInfo]]:
        seen: set[int | float | str] = set()
        found: dict[str, list[TaskInfo]] = {name: [] for name in SEEDS}
        for name, (first, count) in SEEDS.items():
            for seed in range(first, first + count):
                for level in LEVELS:
                    labels = _labels(level, seed)
                    if labels["problem"] not in seen:
                        seen.add(labels["problem"])
                        found[name].append(TaskInfo(f"{level.name}@{seed}", labels))
        return found

    def _parse(self, task_id: str) -> tuple[str, int]:
        """Level and seed of a task."""
        if match := re.fullmatch(r"agentgym/([0-9]{1,9})", task_id):
            level, seed = _agentgym(int(match[1]))
            return level.name, seed
        if (match := re.fullmatch(r"(\w+)@([0-9]{1,9})", task_id)) and match[1] in BY_NAME:
            return match[1], int(match[2])
        raise UnknownTask(
            f"BabyAI has no task {task_id!r}; ids look like 'GoToRedBall@1000' or 'agentgym/17' (see /splits)"
        )

    # the state machine ------------------------------------------------------------------------------------------------

    def reset(self, task_id: str) -> tuple[BabyAIState, Observation]:
        state = self._begun(task_id)
        return state, Observation(_opening(state))

    def _begun(self, task_id: str, drawn: tuple[float, ...] = ()) -> BabyAIState:
        name, seed = self._parse(task_id)
        world = World.start(levels.level(name, drawn or seed))
        return BabyAIState(task_id, world, Scene.of(world), drawn=drawn)

    def step(self, state: BabyAIState, action: str) -> Observation:
        world = state.world
        if world.done:
            return Observation.failed("The episode has ended.", done=True)
        name = normalise(action)
        moves = state.scene.actions.get(name)
        if moves is None:
            return Observation.failed(f"{refusal(state.scene, world, name)}\n{_available(state.scene)}")
        reward = 0.0
        for move in moves:
            reward = world.move(move)
            if world.done:
                break
        state.scene, state.actions = Scene.of(world), (*state.actions, name)
        if not world.done:
            return Observation(_observation(state))
        if reward > 0:
            end = "The task is completed."
        elif len(world.moves) >= world.env.max_steps:
            end = "You have run out of moves."
        else:
            end = "The task has failed."
        return Observation(f"{state.scene.describe(world)}\n{end}", reward=reward, done=True)

    def actions(self, state: BabyAIState) -> list[str]:
        return [] if state.world.done else list(state.scene.actions)

    # copies -----------------------------------------------------------------------------------------------------------

    def fork(self, state: BabyAIState) -> BabyAIState:
        return replace(state, world=state.world.copy())

    def snapshot(self, state: BabyAIState) -> dict[str, Any]:
        return {"task": state.task, "actions": list(state.actions), "drawn": list(state.drawn)}

    def restore(self, data: dict[str, Any]) -> BabyAIState:
        try:
            state = self._begun(data["task"], tuple(data["drawn"]))
            for action in data["actions"]:
                if action not in state.scene.actions or state.world.done:
                    raise ValueError(f"{action!r} is no action there")
                self.step(state, action)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a BabyAI snapshot: {error}") from error
        return state

    def redraw(self, state: BabyAIState, seed: int) -> BabyAIState:
        name, own = self._parse(state.task)
        texts = list(self._played(self._begun(state.task, state.drawn), state.actions))

        def fits(environment: Any) -> bool:
            world = World(environment)
            begun = BabyAIState(state.task, world, Scene.of(world))
            return all(a == b for a, b in zip(texts, self._played(begun, state.actions), strict=True))

        drawn = another(name, state.drawn or own, fits, random.Random(f"{state.task}/{state.actions}/{seed}"))
        return self.restore({**self.snapshot(state), "drawn": drawn})

    def _played(self, state: BabyAIState, actions: Sequence[str]) -> Iterator[str]:
        """Yields what is observed in an episode, from its opening on."""
        yield _opening(state)
        for action in actions:
            yield self.step(state, action).observation

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        return demonstrate(*self._parse(task_id))

    def expert_from(self, state: BabyAIState) -> list[ExpertStep] | None:
        name, seed = self._parse(state.task)
        return demonstrate(name, state.drawn or seed, state.world.moves)


def _agentgym(index: int) -> tuple[LevelSpec, int]:
    seed, level = divmod(index, len(LEVELS))
    return LEVELS[level], seed


def _labels(level: LevelSpec, seed: int) -> dict[str, int | float | str]:
    return {
        "level": level.name,
        "family": level.family,
        "rooms": level.rooms,
        "expert_actions": level.expert_actions,
        "problem": levels.problem(level, seed),
    }


def _opening(state: BabyAIState) -> str:
    return f"Your goal: {state.world.env.mission}\n{_observation(state)}"


def _observation(state: BabyAIState) -> str:
    return f"{state.scene.describe(state.world)}\n{_available(state.scene)}"


def _available(scene: Scene) -> str:
    return "Available actions: [" + ", ".join(f'"{action}"' for action in scene.actions) + "]"
