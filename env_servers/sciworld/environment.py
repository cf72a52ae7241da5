"""ScienceWorld: science experiments in a simulated house, in the real simulator (package ``scienceworld``, on Java).

Ids name a task and a variation in several ways, all of them in `tasks`: ``boil/12``, ``agentgym/N``, ``agentr/N``. The
splits ``train``, ``dev`` and ``test`` are the package's own variations; their problems are disjoint.

Choices that matter for a comparison with published results:

- A reset carries out ``look around``, as the package and AgentGym do: it takes a tick of the simulator's time.
- The reward of a step is the score reached so far, 0 to 100, so that of the last step is the episode's. A failed task
  (mostly: the wrong thing in focus) ends with 0; the original says -100, and its users clip it.
- The original goes by chance and by Java's identity hashes; here every task has one course of events, on every machine.
  It is one that the original might have taken. See ``java/agentr/sciworld/Simulator.java``.
- ``task``, ``help`` and ``objects`` take no time, as in the package.

Games of one virtual machine take turns, so one server uses one core; run several servers for more.
"""

import hashlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from env_servers.base import Environment, ExpertStep, Observation, Requirement, TaskInfo, UnknownTask
from env_servers.protocol import EnvironmentSpec, Split
from env_servers.sciworld import tasks
from env_servers.sciworld.expert import demonstrate, solve
from env_servers.sciworld.machine import Answer, Game, Machine, MachineSupply
from env_servers.sciworld.nearest import nearest
from env_servers.sciworld.tasks import Problem

#: What the package can make easier; ``easy`` is all of it.
SIMPLIFICATIONS = (
    "easy",
    "teleportAction",
    "selfWateringFlowerPots",
    "openContainers",
    "openDoors",
    "noElectricalAction",
)
#: What a reset carries out first.
OPENING = "look around"
#: How the simulator begins its answer to what it does not understand.
NOT_UNDERSTOOD = ("No known action matches that input.", "Unknown action.")
#: Fresh games that are kept to be copied, since a load takes 30 to 200 ms.
KEPT_GAMES = 32
#: ETO's files for the splits that follow no rule.
ETO_FILES = {"eto_train": "train_indices.json", "eto_dev": "dev_indices.json"}


@dataclass(eq=False)
class SciWorldState:
    """A game, and how it came about.

    Attributes:
        actions: What was carried out since the reset.
        digests: For each action, a hash of what came of it.
        reward: Score so far, 0 to 100.
    """

    task: str
    problem: Problem
    description: str
    game: Game
    actions: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    reward: float = 0.0
    done: bool = False


class ScienceWorld(Environment[SciWorldState]):
    """The environment.

    Args:
        simplifications: What is made easier: names of `SIMPLIFICATIONS` with commas between them (ETO: ``easy``;
            AgentGym: none). ``noElectricalAction`` alone leaves the tasks with circuits without a solution.
        rewrite: Carry out the nearest valid action in place of one that is not valid, as Agent-R does. The answer is
            the simulator's own, without a word of it; what was carried out is in ``executed``, and that is what gets
            recorded.
        copies: ``exact`` copies the game itself (a few milliseconds). ``replay`` makes a copy by playing the actions
            again, and is what ``exact`` falls back to on a Java where copies prove wrong.
        heap: Most memory for the games of one virtual machine, as Java writes it; a game takes about 0.25 MB. When nine
            tenths are taken, further games are refused (503) until some are closed.
        eto: Folder with ETO's ``train_indices.json`` and ``dev_indices.json``; adds the splits ``eto_train`` and
            ``eto_dev``.
    """

    folder = Path(__file__).parent
    optional_splits = MappingProxyType({name: name == "eto_train" for name in ETO_FILES})

    def __init__(
        self,
        simplifications: str = "",
        rewrite: bool = False,
        copies: Literal["exact", "replay"] = "exact",
        heap: str = "1g",
        eto: str | None = None,
    ) -> None:
        if unknown := set(filter(None, simplifications.split(","))) - set(SIMPLIFICATIONS):
            raise ValueError(
                f"no simplification is called {', '.join(sorted(unknown))}; there are {', '.join(SIMPLIFICATIONS)}"
            )
        if not re.fullmatch(r"[1-9][0-9]*[kKmMgG]", heap):
            raise ValueError(f"heap must be an amount of memory like '512m' or '1g', not {heap!r}")
        if copies not in ("exact", "replay"):
            raise ValueError(f"copies must be 'exact' or 'replay', not {copies!r}")
        if missing := [f"{r.name}: {r.how}" for r in self.requirements() if not r.present]:
            raise RuntimeError(f"missing: {'; '.join(missing)}")
        self._simplifications = simplifications
        self._rewrite = rewrite
        self._copies = copies
        self._eto = (
            {name: tasks.from_eto(Path(eto) / file) for name, file in ETO_FILES.items()} if eto is not None else {}
        )
        self._machines = MachineSupply(heap)
        # The simulator's solver takes seconds, in which no game of its machine can move.
        self._solvers = MachineSupply(heap)
        self._opening = lru_cache(KEPT_GAMES)(self._open)
        self._solution = lru_cache(4096)(self._solve)

    @classmethod
    def requirements(cls) -> list[Requirement]:
        return [
            Requirement(
                "the package scienceworld", find_spec("scienceworld") is not None, "pip install scienceworld==1.2.3"
            ),
            Requirement(
                "Java 11 or later",
                shutil.which("java") is not None,
                "a JRE on the PATH, e.g. apt-get install openjdk-17-jre-headless",
            ),
        ]

    @cached_property
    def spec(self) -> EnvironmentSpec:
        spec = super().spec
        if "teleportAction" in self._simplifications or "easy" in self._simplifications:
            spec.instruction += "\n- teleport to [place]"
        for name in self._eto:
            spec.splits[name] = Split(about=f"ETO's {ETO_FILES[name]}", train=self.optional_splits[name])
        return spec

    # tasks ------------------------------------------------------------------------------------------------------------

    def split(self, name: str) -> list[TaskInfo]:
        if name in ("train", "dev", "test"):
            return [_info(str(problem), problem) for problem in tasks.problems(name)]
        if name == "agentgym_train":
            problems = tasks.numbered("agentgym")
            held_out = {problems[n] for n in tasks.EVALUATION}
            return [
                _info(f"agentgym/{n}", p) for n, p in enumerate(problems) if p.part == "train" and p not in held_out
            ]
        if name in ("agentgym_test", "agentr_test"):
            numbering = name.removesuffix("_test")
            return [_info(f"{numbering}/{n}", tasks.numbered(numbering)[n]) for n in tasks.EVALUATION]
        if name == "eto_test":
            return [_info(str(problem), problem) for problem in tasks.eto_test()]
        if name in self._eto:
            return [_info(str(problem), problem) for problem in self._eto[name]]
        hint = "; give the option eto, a folder with ETO's index files" if name in ETO_FILES else ""
        raise UnknownTask(f"ScienceWorld has no split {name!r}; it has {', '.join(self.spec.splits)}{hint}")

    # the state machine ------------------------------------------------------------------------------------------------

    def reset(self, task_id: str) -> tuple[SciWorldState, Observation]:
        problem = _parse(task_id)
        machine = self._machines.get()
        if self._copies == "exact" and machine.exact:
            game, description, look = self._opening(machine, problem)
            game = game.copy()
        else:
            game, description, look = self._open(machine, problem)
        return SciWorldState(task_id, problem, description, game), Observation(f"{description}\n{look}")

    def _open(self, machine: Machine, problem: Problem) -> tuple[Game, str, str]:
        """A fresh game after `OPENING`, what its task is, and what there is to see."""
        game = machine.load(problem.task, problem.variation, self._simplifications)
        description = game.description()
        return game, description, game.step(OPENING).text

    def step(self, state: SciWorldState, action: str) -> Observation:
        executed = nearest(action.strip(), state.game.actions()) if self._rewrite else action
        observed = self._carry_out(state, executed)
        return observed if executed.strip() == action.strip() else replace(observed, executed=executed)

    def _carry_out(self, state: SciWorldState, action: str) -> Observation:
        action = action.encode("utf-8", "replace").decode()  # a lone surrogate cannot cross to Java
        answer = _without_time(state, action) or state.game.step(action)
        state.actions.append(action)
        state.digests.append(_digest(answer))
        if answer.broken:
            state.done = True
            return Observation.failed(
                f"The simulator met an error of its own and ends here: {answer.text}", state.reward, done=True
            )
        state.reward = float(max(0, round(100 * answer.score)))
        state.done = answer.completed or answer.score < 0
        if answer.text.startswith(NOT_UNDERSTOOD):
            return Observation.failed(answer.text, state.reward, state.done)
        return Observation(answer.text or "Nothing happens.", state.reward, state.done)

    # copies -----------------------------------------------------------------------------------------------------------

    def fork(self, state: SciWorldState) -> SciWorldState:
        if self._copies == "replay" or not state.game.machine.exact:
            try:
                return self._replay(state.task, state.actions, state.digests)
            except ValueError as error:
                raise RuntimeError(str(error)) from error
        copy = state.game.copy()
        return SciWorldState(
            state.task,
            state.problem,
            state.description,
            copy,
            list(state.actions),
            list(state.digests),
            state.reward,
            state.done,
        )

    def snapshot(self, state: SciWorldState) -> dict[str, Any]:
        return {"task": state.task, "actions": list(state.actions), "digests": list(state.digests)}

    def restore(self, data: dict[str, Any]) -> SciWorldState:
        try:
            task, actions, digests = data["task"], data["actions"], data["digests"]
            _parse(task)
            if not all(isinstance(text, str) for text in (*actions, *digests)) or len(actions) != len(digests):
                raise ValueError("actions and digests are not two lists of texts with the same length")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a ScienceWorld snapshot: {error}") from error
        return self._replay(task, actions, digests)

    def _replay(self, task: str, actions: Sequence[str], digests: Sequence[str]) -> SciWorldState:
        """The state after ``actions``.

        Raises:
            ValueError: They led to something else than recorded.
        """
        state, _ = self.reset(task)
        for number, (action, digest) in enumerate(zip(actions, digests, strict=True)):
            self._carry_out(state, action)
            if state.digests[-1] != digest:
                self.close(state)
                raise ValueError(
                    f"{task}: action {number}, {action!r}, did not lead to what the snapshot recorded; it is of "
                    "another version of the simulator, of other options, or of a Java on which the simulator does not "
                    "repeat itself"
                )
        return state

    def close(self, state: SciWorldState) -> None:
        state.game.free()

    # help -------------------------------------------------------------------------------------------------------------

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        """The simulator's own solution, checked; takes seconds.
        None where it fails (mostly: plants and bees) or exceeds the step limit.

        With ``rewrite`` also where one of its actions is not listed as valid, and what is carried out in its place
        leads elsewhere.
        """
        solution = self._solution(_parse(task_id))
        return None if solution is None else list(solution)

    def _solve(self, problem: Problem) -> tuple[ExpertStep, ...] | None:
        game, description, _ = self._open(self._solvers.get(), problem)
        actions = solve(game, problem, self._simplifications, self.spec.step_limit, NOT_UNDERSTOOD)
        if actions is None or (self._rewrite and not _survives_rewriting(game, actions)):
            return None
        return tuple(demonstrate(description, actions))

    def actions(self, state: SciWorldState) -> list[str]:
        """The actions that the simulator lists as valid: 300 to 5,000, most of them to no purpose, in 20 to 200 ms."""
        return state.game.actions()


def _survives_rewriting(game: Game, actions: Sequence[str]) -> bool:
    """Whether actions that solve a fresh game also do so where each is replaced by the nearest valid one."""
    copy, ended = game.copy(), False
    for action in actions:
        if ended:
            return False
        answer = copy.step(nearest(action, copy.actions()))
        if answer.broken or answer.text.startswith(NOT_UNDERSTOOD):
            return False
        ended = answer.completed or answer.score < 0
    return ended and answer.score == 1


def _parse(task_id: str) -> Problem:
    problem = tasks.parse(task_id)
    if problem is None:
        raise UnknownTask(
            f"ScienceWorld has no task {task_id!r}; ids look like 'boil/12', 'agentgym/17' or 'agentr/17' (see /splits)"
        )
    return problem


def _info(task_id: str, problem: Problem) -> TaskInfo:
    code = tasks.CODES[problem.task]
    labels = {
        "problem": str(problem),
        "task": problem.task,
        "code": code,
        "variation": problem.variation,
        "part": problem.part,
    }
    return TaskInfo(task_id, labels)


def _without_time(state: SciWorldState, action: str) -> Answer | None:
    """The answer to a question that takes no time, or None for an action."""
    match action.strip().lower():
        case "task":
            text = f"Task description:\n{state.description}"
        case "help":
            text = f"Possible actions:\n\t{state.game.help(objects=False)}"
        case "objects":
            text = f"Possible object references:\n\t{state.game.help(objects=True)}"
        case _:
            return None
    return Answer(text, state.reward / 100, state.done, broken=False)


def _digest(answer: Answer) -> str:
    return hashlib.blake2b(f"{answer.score} {answer.completed} {answer.text}".encode(), digest_size=6).hexdigest()
