"""ALFWorld: the real text games (packages ``alfworld`` 0.4 and ``textworld``), played from the user's copy of the
games.

Ids are paths under the games' folder,
``valid_unseen/pick_cool_then_place_in_recep-Apple-None-Microwave-10/trial_T2019..``; the splits are ALFWorld's own,
3,553 / 140 / 134 games. With AgentGym's mapping files there are ``agentgym/N`` too, in splits of their own. (AgentGym's
200 evaluation games come from the folder ``valid_train``; whether one of them is a training game too, the label
``game`` tells.)

The engine is heavy (100 MB, 25-150 ms a step, 0.5-3 s to load a game) and needs its own packages, so it runs in
processes of its own, under an interpreter of the user's choice (`engine`, `engines`); this package needs nothing beyond
the core. A state is data: the actions taken. A fork costs nothing itself; the next step of either side forks an engine
process (4-40 ms), or replays the actions if none is kept there. For search on many states at once use
`env_servers.household`, which plays the same files ten thousand times faster.
"""

import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from env_servers.alfred.expert import Turn, demonstrate
from env_servers.alfworld.engines import EngineFailed, Engines
from env_servers.alfworld.games import AGENTGYM_FOLDERS, DOWNLOAD, FOLDERS, Games, default_data, games_folder
from env_servers.base import Environment, ExpertStep, Observation, Requirement, TaskInfo, UnknownTask
from env_servers.protocol import EnvironmentSpec, Split

PYTHON_ENV = "ALFWORLD_PYTHON"
INSTALL = (
    "python -m venv FOLDER && FOLDER/bin/pip install alfworld==0.4.2 (builds for some minutes), and name "
    f"FOLDER/bin/python in {PYTHON_ENV}"
)
NOTHING_HAPPENS = "Nothing happens."
#: Longest demonstration that the expert tries; the search of a large kitchen can be long.
EXPERT_LIMIT = 100
_BANNER = re.compile(r"^-= .* =-\s+")
_PUT = re.compile(r"(?:put|move) (.+) (?:in/on|to) (.+)")


@dataclass
class AlfworldState:
    """A position in a game: the actions so far, and the engine's last answer.

    Attributes:
        actions: Those that did something; the others change nothing.
        digest: Of all observations so far; a replay has to repeat them.
        admissible: What can be done now.
        won: Whether the goal is reached. The engine ends a game only after an action.
    """

    task: str
    actions: tuple[str, ...]
    digest: str
    admissible: tuple[str, ...]
    won: bool


class Alfworld(Environment[AlfworldState]):
    """The environment.

    Args:
        data: Folder of ``alfworld-download``; by default that of ``ALFWORLD_DATA``, or ``~/.cache/alfworld``.
        python: Interpreter that has alfworld; by default that of ``ALFWORLD_PYTHON``, or this one.
        agentgym: Folder of AgentGym's ``mappings_train.json`` and ``mappings_test.json``.
        engines: Most engine processes that are kept; beyond the first, each takes some 7 MB of its own.
        show_actions: Every observation ends with the actions that can be done next.

    Raises:
        RuntimeError: The package or the games are not there; says how to get them.
    """

    folder = Path(__file__).parent
    optional_splits = MappingProxyType({name: name == "agentgym_train" for name in AGENTGYM_FOLDERS})

    def __init__(
        self,
        data: str | None = None,
        python: str | None = None,
        agentgym: str | None = None,
        engines: int = 32,
        show_actions: bool = False,
    ) -> None:
        if engines < 1:
            raise ValueError(f"engines must be positive, got {engines}")
        root = default_data() if data is None else Path(data).expanduser().absolute()
        self.games = Games(root, None if agentgym is None else Path(agentgym).expanduser())
        self.show_actions = show_actions
        try:
            self.engines = Engines(python or _default_python(), root, engines)
        except EngineFailed as error:
            raise RuntimeError(f"{error}. To install it: {INSTALL}") from error

    @classmethod
    def requirements(cls) -> list[Requirement]:
        folder = games_folder(default_data())
        has_games = any((folder / name).is_dir() for name in FOLDERS.values())
        return [
            Requirement(f"the package alfworld in {_default_python()}", _has_alfworld(), INSTALL),
            Requirement(f"ALFWorld's games in {folder}", has_games, DOWNLOAD),
        ]

    @cached_property
    def spec(self) -> EnvironmentSpec:
        spec = super().spec
        added = {
            name: Split(about=f"AgentGym's games, from {folder}", train=self.optional_splits[name])
            for name, folder in AGENTGYM_FOLDERS.items()
            if name in self.games.splits
        }
        return spec.model_copy(update={"splits": {**spec.splits, **added}})

    def split(self, name: str) -> list[TaskInfo]:
        if name not in self.games.splits:
            raise UnknownTask(f"ALFWorld has no split {name!r}; it has {', '.join(self.games.splits)}")
        return list(self.games.split(name))

    def _game(self, task_id: str) -> Path:
        game = self.games.file(task_id)
        if game is None:
            raise UnknownTask(f"ALFWorld has no game {task_id!r} in {self.games.folder} (see /splits)")
        return game

    # the state machine ------------------------------------------------------------------------------------------------

    def reset(self, task_id: str) -> tuple[AlfworldState, Observation]:
        answer = self.engines.start(self._game(task_id))
        state = AlfworldState(task_id, (), answer.digest, answer.admissible, answer.won)
        return state, Observation(self._shown(state, _BANNER.sub("", answer.observation)))

    def step(self, state: AlfworldState, action: str) -> Observation:
        found = _worded(action, state.admissible)
        if found is None:  # the engine would say so too, but later
            return Observation.failed(self._shown(state, NOTHING_HAPPENS), float(state.won), state.won)
        answer = self.engines.step(self._game(state.task), state.actions, state.digest, found)
        state.actions, state.digest = (*state.actions, found), answer.digest
        state.admissible, state.won = answer.admissible, answer.won
        return Observation(self._shown(state, answer.observation), float(answer.won), answer.won)

    def actions(self, state: AlfworldState) -> list[str]:
        return list(state.admissible)

    def _shown(self, state: AlfworldState, text: str) -> str:
        return f"{text}\nAVAILABLE ACTIONS: {', '.join(state.admissible)}" if self.show_actions else text

    # copies -----------------------------------------------------------------------------------------------------------

    def fork(self, state: AlfworldState) -> AlfworldState:
        return AlfworldState(**vars(state))

    def snapshot(self, state: AlfworldState) -> dict[str, Any]:
        return {**vars(state), "actions": list(state.actions), "admissible": list(state.admissible)}

    def restore(self, data: dict[str, Any]) -> AlfworldState:
        """As in `Environment`. Whether the actions lead there is seen at the next step, which replays them."""
        try:
            return self._restored(**data)
        except (TypeError, UnknownTask) as error:
            raise ValueError(f"not an ALFWorld snapshot: {error}") from error

    def _restored(self, task: str, actions: list[str], digest: str, admissible: list[str], won: bool) -> AlfworldState:
        self._game(task)
        texts = [digest, *actions, *admissible]
        if not (isinstance(actions, list) and isinstance(admissible, list) and isinstance(won, bool)):
            raise TypeError("actions and admissible must be lists, won a truth value")
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("digest, actions and admissible must be texts")
        return AlfworldState(task, tuple(actions), digest, tuple(admissible), won)

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        """The household's expert, which reads the same texts; takes as long as the game does."""
        state, first = self.reset(task_id)

        def carry_out(action: str) -> Turn:
            observed = self.step(state, action)
            return Turn(observed.observation, lambda: state.admissible, observed.done)

        return demonstrate(Turn(first.observation, lambda: state.admissible), carry_out, EXPERT_LIMIT)


def _worded(action: str, admissible: tuple[str, ...]) -> str | None:
    """The admissible action that is meant.
    Games made before 0.4 say ``put X in/on Y`` where later ones say ``move X to Y``."""
    action = " ".join(action.lower().split())
    if match := _PUT.fullmatch(action):
        wordings = (f"move {match[1]} to {match[2]}", f"put {match[1]} in/on {match[2]}")
        return next((wording for wording in wordings if wording in admissible), None)
    return action if action in admissible else None


def _default_python() -> str:
    return os.environ.get(PYTHON_ENV) or sys.executable


def _has_alfworld() -> bool:
    """Checks whether the default interpreter has alfworld installed, without starting it."""
    python = Path(_default_python())
    if str(python) == sys.executable:
        return importlib.util.find_spec("alfworld") is not None
    return any(python.parent.parent.glob("lib/python*/site-packages/alfworld"))
