"""Math with Python: solve a problem with the help of an interpreter. Actions are ``python: CODE`` and ``answer: TEXT``.

Code may have several lines; what follows the colon is taken as it is. An agent writes these actions as blocks
(``codeact``) or as tags (``tags``); its side turns both into the above, and the option ``format`` says which of the two
the specification teaches.

A state is the code so far and how many answers were given, no process: where code is stateful, a step runs the earlier
code again, silently, before its own (and is remembered, see `PythonTool`). Chance and addresses are the same in each
run (`sandbox/cells.py`); the time is not, so a value that was read from a clock is another one for later code.
"""

import importlib.util
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from env_servers.base import (
    Environment,
    ExpertStep,
    Observation,
    Requirement,
    TaskInfo,
    Unavailable,
    UnknownTask,
    read_spec,
)
from env_servers.calls import CallLimits, read_calls
from env_servers.mathtool import files, grading
from env_servers.mathtool.problems import Problem, generated, generated_splits
from env_servers.protocol import EnvironmentSpec
from env_servers.sandbox import Limits, PythonTool, Sandbox, SandboxFailure, launch
from env_servers.turns import code_of, spoken

_NOT_UNDERSTOOD = "That is neither code nor an answer. Run Python code, or give your answer."


@dataclass
class MathState:
    """Everything that changes in an episode.

    Attributes:
        cells: Code that was run so far and that later code builds on; stays empty where code is not stateful.
        answers: Answers given so far.
        calls: Calls so far, by tool, where they are limited; never changed in place.
    """

    task: str
    cells: tuple[str, ...] = ()
    answers: int = 0
    done: bool = False
    calls: Mapping[str, int] = field(default_factory=dict)


class MathTool(Environment[MathState]):
    """The environment. Its score is ``math``: 1 for a right answer, 0 for a wrong one.

    Generated problems are ``FAMILY/LEVEL/SEED``, levels 1 to 3; those of a file are ``NAME/N``, with the file's name
    without its endings and the number of its record, from 0.

    Args:
        train: File of problems (`files.py`) in place of the generated ones of this split.
        dev: The same for dev.
        test: The same for test.
        format: How agents write actions: ``codeact`` (DensePolicy) or ``tags`` (ET-Agent); decides over instruction and
            observations.
        attempts: Answers that may be given. With more than one, a wrong answer is said to be wrong: DensePolicy's
            oracle feedback.
        stateful: Whether code sees the variables of earlier code; None for what the format's method does (codeact yes,
            tags no).
        cpu_s: CPU time of a step's code, in seconds; what runs again before it counts.
        memory_mb: Memory of a step's code, in MiB.
        max_output: Characters of output that an agent is shown; the middle of a longer one is left out.
        seeds: Generated problems of each family and level, in all splits together; 14 of 20 are for training.
        wasteful: Whether the expert calls the tool more often than it needs: of the problems a third once, a third
            twice with the same code, a third after a call that finds out nothing. A ground whose best number of calls
            is known to be one.
        calls: Most calls of an episode, by tool: ``{python: 3}``. One more is refused, with the status ``limit``.

    Raises:
        RuntimeError: Code cannot be isolated here, or a package is missing.
        ValueError: A file is missing or cannot be read.
    """

    folder = Path(__file__).parent
    fast = False

    def __init__(
        self,
        train: str | None = None,
        dev: str | None = None,
        test: str | None = None,
        format: Literal["codeact", "tags"] = "codeact",
        attempts: int = 1,
        stateful: bool | None = None,
        cpu_s: int = 5,
        memory_mb: int = 512,
        max_output: int = 2000,
        seeds: int = 80,
        wasteful: bool = False,
        calls: Mapping[str, int] | None = None,
    ) -> None:
        if format not in ("codeact", "tags"):
            raise ValueError(f"format must be 'codeact' or 'tags', not {format!r}")
        if min(attempts, cpu_s, memory_mb, seeds) < 1 or max_output < 100:
            raise ValueError("attempts, cpu_s, memory_mb and seeds must be positive, max_output at least 100")
        if missing := [r for r in self.requirements() if not r.present]:
            raise RuntimeError("; ".join(f"{r.name} is missing: {r.how}" for r in missing))
        self.format = format
        self.attempts = attempts
        self.seeds = seeds
        self.wasteful = wasteful
        self._limits = CallLimits(calls, ("python",))
        self.stateful = format == "codeact" if stateful is None else stateful
        self._files = {
            name: files.read(Path(path)) for name, path in (("train", train), ("dev", dev), ("test", test)) if path
        }
        self._of_files = {task: problem for problems in self._files.values() for task, problem in problems.items()}
        if len(self._of_files) < sum(map(len, self._files.values())):
            raise ValueError("the files of two splits have the same name; task ids need different ones")
        self._sandbox = _sandbox(cpu_s, memory_mb)
        self._tool = PythonTool(self._sandbox, max_output)

    @cached_property
    def spec(self) -> EnvironmentSpec:
        spec = read_spec(self.folder)
        changes: dict[str, Any] = {"step_limit": spec.step_limit + self.attempts - 1}
        if self.format == "tags":
            changes |= yaml.safe_load((self.folder / "tags.yaml").read_text(encoding="utf-8"))
        return EnvironmentSpec.model_validate(spec.model_dump() | changes)

    @classmethod
    def requirements(cls) -> list[Requirement]:
        sympy = all(importlib.util.find_spec(module) for module in ("mpmath", "sympy"))
        return [
            Requirement("sympy", sympy, "pip install 'agentr[math]'"),
            Requirement(
                "Linux namespaces, which isolate code",
                launch.available(),
                "apt install bubblewrap (see env_servers/sandbox)",
            ),
        ]

    # tasks ------------------------------------------------------------------------------------------------------------

    def split(self, name: str) -> list[TaskInfo]:
        if name not in self.spec.splits:
            raise UnknownTask(f"mathtool has no split {name!r}; it has {', '.join(self.spec.splits)}")
        problems = self._files.get(name) or generated_splits(self.seeds)[name]
        return [
            TaskInfo(task, {"family": p.family, "difficulty": p.difficulty, "problem": p.digest})
            for task, p in problems.items()
        ]

    def _problem(self, task_id: str) -> Problem:
        problem = self._of_files.get(task_id) or generated(task_id)
        if problem is None:
            raise UnknownTask(
                f"mathtool has no task {task_id!r}; ids look like 'ratio/2/17', or 'gsm8k_test/17' for a file (see "
                "/splits)"
            )
        return problem

    # the state machine ------------------------------------------------------------------------------------------------

    def reset(self, task_id: str) -> tuple[MathState, Observation]:
        allowed = f"\nYou may answer {self.attempts} times." if self.attempts > 1 else ""
        return MathState(task_id), Observation(
            f"Problem: {self._problem(task_id).question}{allowed}{self._limits.announced()}"
        )

    def step(self, state: MathState, action: str) -> Observation:
        verb, text = spoken(action)
        if verb not in ("python", "answer") or not text.strip():
            return Observation.failed(_NOT_UNDERSTOOD)
        try:
            return self._python(state, code_of(text)) if verb == "python" else self._answer(state, text.strip())
        except SandboxFailure as error:
            raise Unavailable(str(error), "Nothing was changed; the same step may be tried again.") from error

    def _python(self, state: MathState, code: str) -> Observation:
        if refused := self._limits.refused(state.calls, "python"):
            return refused
        result = self._tool.run(*state.cells, code)
        state.calls = self._limits.counted(state.calls, "python")
        if self.stateful and not result.killed:
            state.cells = (*state.cells, code)
        text = f"<result>\n{result.text}\n</result>" if self.format == "tags" else result.text
        return Observation(text, valid=not result.status.failed, status=result.status)

    def _answer(self, state: MathState, answer: str) -> Observation:
        correct = grading.correct(answer, self._problem(state.task).answer)
        state.answers += 1
        state.done = correct or state.answers >= self.attempts
        scores = {"math": float(correct)} if state.done else {}
        if correct:
            return Observation("Your answer is correct.", reward=1.0, done=True, scores=scores)
        left = self.attempts - state.answers
        text = "Your answer is incorrect." + (f" You may answer {left} more time{'s' * (left > 1)}." if left else "")
        return Observation(text, done=state.done, scores=scores)

    # copies -----------------------------------------------------------------------------------------------------------

    def fork(self, state: MathState) -> MathState:
        return MathState(state.task, state.cells, state.answers, state.done, state.calls)

    def snapshot(self, state: MathState) -> dict[str, Any]:
        kept = {"task": state.task, "cells": list(state.cells), "answers": state.answers, "done": state.done}
        return {**kept, "calls": dict(state.calls)}

    def restore(self, data: dict[str, Any]) -> MathState:
        try:
            state = MathState(
                data["task"], tuple(data["cells"]), data["answers"], data["done"], read_calls(data.get("calls", {}))
            )
            self._problem(state.task)
            if not all(isinstance(cell, str) for cell in state.cells) or (state.cells and not self.stateful):
                raise ValueError("the cells are not code that was run here")
            if (
                type(state.answers) is not int
                or not 0 <= state.answers <= self.attempts
                or type(state.done) is not bool
            ):
                raise ValueError("answers and done do not fit")
            if state.answers == self.attempts and not state.done:
                raise ValueError("all answers were given, yet the episode goes on")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a mathtool snapshot: {error}") from error
        return state

    # demonstrations ---------------------------------------------------------------------------------------------------

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        problem = self._problem(task_id)
        if not problem.code:
            return None
        answer = ExpertStep(
            f"The code gives {problem.answer}, which is what was asked for.", f"answer: {problem.answer}"
        )
        code = f"python: {problem.code}"
        calls = [ExpertStep(problem.thought, code)]
        if self.wasteful:
            kinds: list[list[ExpertStep]] = [
                calls,
                [*calls, ExpertStep("I run it again to check.", code)],
                [ExpertStep("I try the tool first.", "python: print(1)"), *calls],
            ]
            calls = kinds[random.Random(task_id).randrange(len(kinds))]
        return [*calls, answer] if self._limits.allow(["python"] * len(calls)) else None

    def actions(self, state: MathState) -> list[str]:
        numbers = list(dict.fromkeys(re.findall(r"\d+", self._problem(state.task).question)))[:3] or ["0"]
        code = [
            f"python: print({' + '.join(numbers)})",
            "python: import sympy\nprint(sympy.factorint(" + numbers[0] + "))",
        ]
        return code + [f"answer: {number}" for number in numbers]


@cache
def _sandbox(cpu_s: int, memory_mb: int) -> Sandbox:
    """One sandbox for all environments of a process that ask for the same."""
    return Sandbox(
        limits=Limits(cpu_s=cpu_s, wall_s=2.0 * cpu_s, memory_mb=memory_mb),
    )
