"""Gymnasium: any registered environment whose actions and observations are text, or can be said in words.

``id`` names it (``FrozenLake-v1``), with a module to import before the colon where a package has to register it first
(``my_package:MyGame-v0``), as ``gymnasium.make`` does; several ids make one environment of several games. The package
must be installed for the interpreter that serves (``env.python``).

- *Actions* are the agent's text where the space is ``Text``. Where it is ``Discrete``, ``actions`` names its numbers.
- *Observations* are texts as they are. Of a dictionary, ``observation`` says which entries are read; ``render`` reads
  the picture that the environment draws for a terminal, with its colours as marks, which is the default where it draws
  one and returns no text.
- *Tasks* are a game and a seed, ``FrozenLake-v1@17``; ``train``, ``dev`` and ``test`` are ranges of seeds. Many
  environments begin alike for many seeds: with ``distinct`` each opening is in one split only, and there once. All
  tasks are then opened once.
- *Rewards* are added up over an episode (``returns: sum``), or the last one counts (``returns: last``). ``low`` and
  ``high`` are what an episode can earn, ``success`` is the share of it from which it counts as solved.

A state is its seed and its actions. Copies are made by playing them again, and every observation must come again, to
the letter: Gymnasium has no copies, and Python's deep copies of a foreign object need not be whole. ``live``
environments are kept open.
"""

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from env_servers.base import Environment, Observation, Requirement, TaskInfo, UnknownTask
from env_servers.gym.live import Live
from env_servers.gym.words import RENDER, Words, words_of
from env_servers.observation import CallStatus
from env_servers.protocol import EnvironmentSpec, RewardScale
from env_servers.seeds import seed_ranges, seed_splits

#: Actions of an episode where neither the options nor Gymnasium say how many it may take.
STEP_LIMIT = 30


@dataclass
class GymState:
    """Where an episode is.

    Attributes:
        steps: The actions so far, each with the observation that came.
        reward: What the episode has earned so far, or what the last step has (option ``returns``).
        suggested: Actions that the environment listed with its last answer.
    """

    game: str
    seed: int
    opening: str
    steps: tuple[tuple[str, str], ...] = ()
    reward: float = 0.0
    done: bool = False
    suggested: tuple[str, ...] = ()


class Gym(Environment[GymState]):
    """The environment.

    Args:
        id: Id of the environment, or several.
        kwargs: Arguments for ``gymnasium.make``.
        actions: Names of the actions of a ``Discrete`` space, by their numbers; numbers if not given.
        observation: ``render``, or the keys of an observation that is a dictionary.
        suggestions: Key of ``info`` with a list of actions that make sense now (TextWorld: ``admissible_commands``).
        instruction: Replaces the instruction of ``spec.yaml``, and what it says about the actions.
        step_limit: Actions of an episode; 0 for Gymnasium's own limit.

    Raises:
        RuntimeError: Gymnasium is not installed.
        ValueError: An option that does not fit.
    """

    folder = Path(__file__).parent

    def __init__(
        self,
        id: str | Sequence[str] = ("FrozenLake-v1", "FrozenLake8x8-v1"),
        kwargs: Mapping[str, Any] | None = None,
        actions: Sequence[Any] = (),
        observation: str | Sequence[str] = "",
        suggestions: str = "",
        train: Sequence[int] = (0, 800),
        dev: Sequence[int] = (800, 900),
        test: Sequence[int] = (900, 1000),
        distinct: bool = False,
        returns: str = "sum",
        low: float = 0.0,
        high: float = 1.0,
        success: float = 1.0,
        instruction: str = "",
        step_limit: int = 0,
        live: int = 256,
    ) -> None:
        _require_gymnasium()
        self.games = (id,) if isinstance(id, str) else tuple(id)
        if not self.games:
            raise ValueError("id is empty: name an environment, or several")
        if returns not in ("sum", "last"):
            raise ValueError(f"returns is {returns!r}, and must be sum or last")
        if not low < high or not 0 <= success <= 1:
            raise ValueError(f"low = {low:g} must be below high = {high:g}, and success = {success:g} from 0 to 1")
        if live < 1 or step_limit < 0:
            raise ValueError(f"live = {live} must be at least 1, and step_limit = {step_limit} at least 0")
        self._kwargs, self._suggestions, self._adds, self._distinct = (
            dict(kwargs or {}),
            suggestions,
            returns == "sum",
            distinct,
        )
        self._seeds = seed_ranges(train, dev, test)
        self._ansi: set[str] = set()
        looked = {game: self._look(game, actions, observation) for game in self.games}
        self._words = {game: words for game, (words, _) in looked.items()}
        self._reward = RewardScale(low=low, high=high, success=success)
        self._instruction = instruction
        self._step_limit = step_limit or max(limit for _, limit in looked.values()) or STEP_LIMIT
        self._live = Live(live)

    @classmethod
    def requirements(cls) -> list[Requirement]:
        present = importlib.util.find_spec("gymnasium") is not None
        return [
            Requirement(
                "gymnasium, beside the package that registers the environment", present, "pip install gymnasium"
            )
        ]

    @cached_property
    def spec(self) -> EnvironmentSpec:
        published = super().spec
        texts = {game: words.described() for game, words in self._words.items()}
        about = texts.values() if len(set(texts.values())) == 1 else (f"{game}: {text}" for game, text in texts.items())
        changed = {
            "instruction": self._instruction or "\n".join([published.instruction, *dict.fromkeys(about)]),
            "splits": seed_splits(self._seeds),
            "reward": self._reward,
            "strata": published.strata if len(self.games) > 1 else [],
            "step_limit": self._step_limit,
        }
        return published.model_copy(update=changed)

    # tasks ------------------------------------------------------------------------------------------------------------

    def split(self, name: str) -> list[TaskInfo]:
        if name not in self._seeds:
            raise UnknownTask(f"gym has no split {name!r}; it has {', '.join(self._seeds)}")
        return list(self._distinct_tasks[name] if self._distinct else self._tasks(name))

    def _tasks(self, name: str) -> list[TaskInfo]:
        return [
            TaskInfo(f"{game}@{seed}", {"game": game, "seed": seed})
            for seed in self._seeds[name]
            for game in self.games
        ]

    @cached_property
    def _distinct_tasks(self) -> dict[str, list[TaskInfo]]:
        """The tasks with each opening once: in the first split of test, dev, train that has it."""
        seen: set[tuple[str, str]] = set()
        found: dict[str, list[TaskInfo]] = {}
        for name in ("test", "dev", "train"):
            found[name] = []
            for task in self._tasks(name):
                state, observed = self.reset(task.id)
                self.close(state)
                if (state.game, observed.observation) not in seen:
                    seen.add((state.game, observed.observation))
                    found[name].append(task)
        return found

    def _parse(self, task_id: str) -> tuple[str, int]:
        game, _, seed = task_id.rpartition("@")
        if game not in self.games or re.fullmatch("[0-9]{1,9}", seed) is None:
            raise UnknownTask(f"gym has no task {task_id!r}; ids look like '{self.games[0]}@17'")
        return game, int(seed)

    # the state machine ------------------------------------------------------------------------------------------------

    def reset(self, task_id: str) -> tuple[GymState, Observation]:
        state, env = self._begin(*self._parse(task_id))
        self._live.keep(state, env)
        return state, Observation(state.opening)

    def step(self, state: GymState, action: str) -> Observation:
        if state.done:
            return Observation.failed("The episode has ended.", state.reward, done=True)
        words = self._words[state.game]
        if words.parse(action) is None:
            return Observation.failed(words.refusal(), state.reward)
        env = self._live.take(state) or self._again(state)
        try:
            text = self._move(state, env, action.strip())
        except BaseException:  # whatever it raises, nobody else knows of it to close it
            env.close()
            raise
        self._put_back(state, env)
        return Observation(text, state.reward, state.done, status=CallStatus.ok if text.strip() else CallStatus.empty)

    def expert(self, task_id: str) -> None:
        self._parse(task_id)  # Gymnasium knows no experts

    def actions(self, state: GymState) -> list[str]:
        if state.done:
            return []
        return list(self._words[state.game].actions or state.suggested)

    # copies -----------------------------------------------------------------------------------------------------------

    def fork(self, state: GymState) -> GymState:
        return replace(state)

    def snapshot(self, state: GymState) -> dict[str, Any]:
        return {
            "task": f"{state.game}@{state.seed}",
            "opening": state.opening,
            "steps": [list(step) for step in state.steps],
        }

    def restore(self, data: dict[str, Any]) -> GymState:
        try:
            game, seed = self._parse(data["task"])
            steps = tuple((action, text) for action, text in data["steps"])
            if any(self._words[game].parse(action) is None for action, _ in steps):
                raise ValueError("an action that there is not")
            state = GymState(game, seed, data["opening"], steps)
            env = self._again(state)
        except (AttributeError, KeyError, TypeError, ValueError, DidNotRepeat) as error:
            raise ValueError(f"not a snapshot of {', '.join(self.games)}: {error}") from error
        self._put_back(state, env)
        return state

    def close(self, state: GymState) -> None:
        env = self._live.take(state)
        if env is not None:
            env.close()

    def _put_back(self, state: GymState, env: Any) -> None:
        if state.done:
            env.close()
        else:
            self._live.keep(state, env)

    # Gymnasium --------------------------------------------------------------------------------------------------------

    def _look(self, game: str, actions: Sequence[Any], observation: str | Sequence[str]) -> tuple[Words, int]:
        """The words of a game, and Gymnasium's limit of its steps; 0 for none."""
        env = self._make(game)
        try:
            if (
                observation in ("", RENDER)
                and "ansi" in (env.metadata.get("render_modes") or ())
                and "render_mode" not in self._kwargs
            ):
                env.close()
                self._ansi.add(game)
                env = self._make(game)
            return words_of(game, env, actions, observation), env.spec.max_episode_steps or 0
        finally:
            env.close()

    def _make(self, game: str) -> Any:
        import gymnasium

        kwargs = {**({"render_mode": "ansi"} if game in self._ansi else {}), **self._kwargs}
        try:
            return gymnasium.make(game, disable_env_checker=True, **kwargs)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise ValueError(f"Gymnasium does not make {game!r}: {error}") from error

    def _begin(self, game: str, seed: int) -> tuple[GymState, Any]:
        """A new episode, and the environment that it is played in."""
        env = self._make(game)
        try:
            observation, info = env.reset(seed=seed)
            return GymState(game, seed, self._words[game].text(env, observation), suggested=self._suggested(info)), env
        except BaseException:  # whatever it raises, nobody else knows of it to close it
            env.close()
            raise

    def _move(self, state: GymState, env: Any, action: str) -> str:
        words = self._words[state.game]
        observation, reward, terminated, truncated, info = env.step(words.parse(action))
        text = words.text(env, observation)
        state.reward = (state.reward if self._adds else 0.0) + float(reward)
        state.done = bool(terminated or truncated)
        state.steps, state.suggested = (*state.steps, (action, text)), self._suggested(info)
        return text

    def _again(self, state: GymState) -> Any:
        """An environment in which a state was played again. What follows from its steps is set in the state, too.

        Raises:
            DidNotRepeat: An observation is another than the recorded one.
        """
        again, env = self._begin(state.game, state.seed)
        try:
            _same(state, 0, state.opening, again.opening)
            for number, (action, recorded) in enumerate(state.steps, start=1):
                if again.done:
                    raise DidNotRepeat(
                        f"{state.game}@{state.seed} ended after {number - 1} steps, and {len(state.steps)} are recorded"
                    )
                _same(state, number, recorded, self._move(again, env, action))
        except BaseException:  # whatever it raises, nobody else knows of it to close it
            env.close()
            raise
        state.reward, state.done, state.suggested = again.reward, again.done, again.suggested
        return env

    def _suggested(self, info: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(str, info.get(self._suggestions) or ()))) if self._suggestions else ()


class DidNotRepeat(Exception):
    """The same seed and actions led to other observations: the environment is not deterministic."""


def _same(state: GymState, number: int, recorded: str, now: str) -> None:
    if recorded != now:
        raise DidNotRepeat(
            f"{state.game}@{state.seed} did not repeat itself: action {number}, recorded {recorded!r}, now {now!r}"
        )


def _require_gymnasium() -> None:
    if importlib.util.find_spec("gymnasium") is None:
        raise RuntimeError("gymnasium is not installed: pip install gymnasium")
