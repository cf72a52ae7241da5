"""Household: find, treat and place things in a room, with the actions, texts and six task types of ALFWorld's text
games.

A simulator of our own: the state is plain data, so that a step or a fork takes microseconds. Two sources of tasks:

- Our own (the default), ``train/clean-0017``: made by `generate` from nothing but the id. ``test`` has rooms of its
  own; ``dev`` has rooms of ``train`` and goals that ``train`` does not have.
- ``problems=PATH``: ALFWorld's games or others in their PDDL (`pddl`),
  ``valid_seen/pick_cool_..-Apple-None-Microwave-5/trial_..``, in the splits that their folders say. Playing them here
  is not the ALFWorld benchmark; ``env_servers.alfworld`` is.
"""

import random
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from env_servers.alfred.expert import Known, Turn, demonstrate
from env_servers.alfred.problem import TREATMENTS, Problem
from env_servers.base import Environment, ExpertStep, Observation, TaskInfo, UnknownTask
from env_servers.household import rules
from env_servers.household.generate import generate, ids
from env_servers.household.pddl import ProblemFiles, parse_labels
from env_servers.household.redraw import furnished, is_thing, redrawn
from env_servers.household.rules import HouseholdState
from env_servers.protocol import EnvironmentSpec

#: Longest demonstration of a task in a split, in actions.
MAX_PLAN = 30
#: Longest demonstration that the expert tries.
EXPERT_LIMIT = 100


class Household(Environment[HouseholdState]):
    """The environment.

    Args:
        problems: A folder of ALFWorld games or a file of problems to play in place of our own; see `pddl`.
        show_actions: Every observation ends with the actions that can be done next.
    """

    folder = Path(__file__).parent
    fast = True

    def __init__(self, problems: str | None = None, show_actions: bool = False) -> None:
        self.files = None if problems is None else ProblemFiles(problems)
        self.show_actions = show_actions

    @cached_property
    def spec(self) -> EnvironmentSpec:
        spec = super().spec  # nobody knows what files of problems are drawn from
        return spec if self.files is None else spec.model_copy(update={"redraws": False})

    # tasks ------------------------------------------------------------------------------------------------------------

    def split(self, name: str) -> list[TaskInfo]:
        if name not in self.spec.splits:
            raise UnknownTask(f"household has no split {name!r}; it has {', '.join(self.spec.splits)}")
        return list(_own_split(name) if self.files is None else _split_of_files(self.files, name))

    def _problem(self, task_id: str) -> Problem:
        problem = _own_problem(task_id) if self.files is None else self.files.problem(task_id)
        if problem is None:
            example = "train/clean-0017" if self.files is None else f"those under {self.files.path}"
            raise UnknownTask(f"household has no task {task_id!r}; ids are like {example} (see /splits)")
        return problem

    # the state machine ------------------------------------------------------------------------------------------------

    def reset(self, task_id: str) -> tuple[HouseholdState, Observation]:
        state = _start(task_id, self._problem(task_id))
        return state, Observation(self._shown(state, rules.introduction(state.problem)))

    def step(self, state: HouseholdState, action: str) -> Observation:
        answer = rules.act(state, action)
        state.done = rules.reached(state)
        if answer is None:
            return Observation.failed(self._shown(state, rules.NOTHING_HAPPENS), float(state.done), state.done)
        return Observation(self._shown(state, answer), float(state.done), state.done)

    def actions(self, state: HouseholdState) -> list[str]:
        return rules.admissible(state)

    def _shown(self, state: HouseholdState, text: str) -> str:
        return f"{text}\nAVAILABLE ACTIONS: {', '.join(rules.admissible(state))}" if self.show_actions else text

    def redraw(self, state: HouseholdState, seed: int) -> HouseholdState:
        made = generate(state.task)
        assert made is not None, "the specification of files says that there is no such distribution"
        return redrawn(state, made, random.Random(f"household/redraw/{seed}"))

    # copies -----------------------------------------------------------------------------------------------------------

    def fork(self, state: HouseholdState) -> HouseholdState:
        return HouseholdState(state.task, state.problem, state.place, dict(state.where), set(state.marks), state.done)

    def snapshot(self, state: HouseholdState) -> dict[str, Any]:
        return {
            "task": state.task,
            "place": state.place,
            "where": dict(state.where),
            "marks": sorted(state.marks),
            "done": state.done,
        }

    def restore(self, data: dict[str, Any]) -> HouseholdState:
        try:
            return self._restored(**data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a household snapshot: {error}") from error

    def _restored(
        self, task: str, place: int | None, where: dict[str, str], marks: list[str], done: bool
    ) -> HouseholdState:
        problem = self._problem(task)
        if not (place is None or (type(place) is int and place in problem.at)) or not isinstance(done, bool):
            raise ValueError(f"place {place!r}, done {done!r}")
        if where.keys() != problem.where.keys():
            if self.files is not None or not all(map(is_thing, where)):
                raise ValueError("things that the task does not have")
            problem = furnished(problem, where)
        if not all(home == "" or home in problem.receptacles for home in where.values()):
            raise ValueError("receptacles that the task does not have")
        if sum(not home for home in where.values()) > 1:
            raise ValueError("more than one thing in the hand")
        if not all(rules.is_mark(problem, mark) for mark in marks):
            raise ValueError("marks that the task does not have")
        # In the problem's order, which is that of the texts; JSON may have been through a sort.
        return HouseholdState(task, problem, place, {name: where[name] for name in problem.where}, set(marks), done)

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        return _demonstration(_start(task_id, self._problem(task_id)))

    def expert_from(self, state: HouseholdState) -> list[ExpertStep] | None:
        return _demonstration(self.fork(state))


def _start(task: str, problem: Problem) -> HouseholdState:
    return HouseholdState(task, problem, problem.start, dict(problem.where), set(problem.marks))


def _demonstration(state: HouseholdState) -> list[ExpertStep] | None:
    """The expert's steps from a state on, which it changes."""
    admissible, seen = partial(rules.admissible, state), rules.seen(state)
    mark = TREATMENTS[state.problem.goal.type][1] if state.problem.goal.type in TREATMENTS else ""
    treated = {name for name in state.where if f"{mark} {name}" in state.marks}
    here = () if state.place is None else state.problem.at[state.place]
    at = next((name for name in here if name in seen), "")
    known = Known(seen, at, state.held or "", treated)

    def carry_out(action: str) -> Turn:
        answer = rules.act(state, action)
        return Turn(answer or rules.NOTHING_HAPPENS, admissible, rules.reached(state))

    return demonstrate(Turn(rules.introduction(state.problem), admissible), carry_out, EXPERT_LIMIT, known)


@lru_cache(maxsize=1024)
def _own_problem(task_id: str) -> Problem | None:
    made = generate(task_id)
    return None if made is None else made.problem


@cache
def _own_split(name: str) -> tuple[TaskInfo, ...]:
    """Tasks whose demonstration is not too long, with their labels."""
    infos = []
    for task in ids(name):
        made = generate(task)
        assert made is not None, task
        if (plan := _demonstration(_start(task, made.problem))) is not None and len(plan) <= MAX_PLAN:
            named = {"type": made.problem.goal.type.value, "room": made.layout.room, "goal": made.goal}
            infos.append(
                TaskInfo(task, {**named, "receptacles": len(made.problem.receptacles), "plan_length": len(plan)})
            )
    return tuple(infos)


@cache
def _split_of_files(files: ProblemFiles, name: str) -> tuple[TaskInfo, ...]:
    """The problems of a split that are not solved before they begin; without ``plan_length`` where the expert fails."""
    infos = []
    for task in files.ids(name):
        problem = files.problem(task)
        if problem is None or rules.reached(_start(task, problem)):
            continue
        plan = _demonstration(_start(task, problem))
        length = {} if plan is None else {"plan_length": len(plan)}
        infos.append(TaskInfo(task, {**parse_labels(task), "receptacles": len(problem.receptacles), **length}))
    return tuple(infos)
