"""A program that calls a model, turned inside out: its calls are observations, and our turns are its answers.

``reset`` starts the program on a task and waits for its first call. ``step`` answers the call that waits, and waits for
the next one or the end. A copy of a state is its recorded answers: the program is started again and given them, and
each of its calls must be the recorded one. The first copy takes over the program that runs, so that an episode without
branches is played once.

A program finds the task in the file that ``AGENTR_TASK`` names, and a model behind ``OPENAI_BASE_URL``. What it does
with an answer it may report (`Report`); nothing needs it.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from env_servers.base import Environment, ExpertStep, Failed, Requirement, TaskInfo, Unavailable, UnknownTask
from env_servers.observation import NOT_AGAIN, Again, Answer, Asked, CallStatus, Observation, OtherAnswer
from env_servers.program.calls import Call
from env_servers.program.command import checked_command
from env_servers.program.grading import checked_grader, grade, read_reward
from env_servers.program.live import Limits, Programs
from env_servers.program.live import Program as Running
from env_servers.program.others import Others, endpoints
from env_servers.program.requests import Continues, Request, continues, difference, ignoring, masked, message_of
from env_servers.program.tasks import read_tasks
from env_servers.protocol import EnvironmentSpec
from env_servers.sandbox import launch

#: Memory that is counted for a program, in GB, where the options do not say how many may live.
_GB_OF_ONE = 0.5
#: Fields of a task that are not the program's.
_OURS = ("labels", "demonstration")
#: How often a program is begun again for one answer, until it repeats itself.
_TRIES = 2


class _Differs(Exception):
    """A program that was begun again asked something else than the recorded call; says what."""


@dataclass(eq=False)
class Played:
    """Where an episode is.

    Attributes:
        history: The calls so far with their answers.
        asked: The call that waits for an answer; None where the program has ended.
        beside: Calls that wait behind it.
        reward: The return so far, as the program reports it.
        others: What other models answered the program so far.
        program: The program, as long as it was not ended to make room.
    """

    task: str
    history: tuple[tuple[Request, Answer], ...] = ()
    asked: Request | None = None
    beside: tuple[Request, ...] = ()
    reward: float = 0.0
    others: tuple[OtherAnswer, ...] = ()
    program: Running | None = field(default=None, repr=False)


class Program(Environment[Played]):
    """The environment.

    Args:
        command: The program and its arguments. It works in a copy of ``workdir``.
        tasks: A file of tasks for each split: JSON lines, a JSON list or a table, each with an ``id`` and whatever the
            program reads; perhaps ``labels``, and a ``demonstration``: a list of turns, or of pairs of thought and
            action where ``action_format`` has such. ``train`` is trained on.
        reward: ``FILE.py:FUNCTION``, called with ``task``, ``folder`` and ``transcript``; returns a number from 0 to 1,
            or an object with ``reward`` and ``scores``. Without it the program writes ``reward.json``, or reports it.
        workdir: Folder that the program finds itself in.
        environment: More environment variables of the program.
        preload: Modules that take long to import: they are imported once, outside of the isolation, by the command's
            Python, of which each program is a fork. For commands of a Python and a script, or ``-m`` and a module.
        models: Other models that the program asks, by the names that it says: where they are served (``url``), perhaps
            the name there (``model``) and the environment variable with the key (``key_env``). Their answers are
            recorded and replayed, and never trained on. Every other name is that of the model that is trained.
        ignore: What may differ when a program is started again, as ``PATH /regex/``.
        live: Programs at the same time; by default by memory and cores.
        steps: Turns of an episode.
        success: Reward from which an episode counts as solved.
        identity: Label that says which problem a task poses.
        strata: Labels that evaluations break success down by.
        action_format: How the program reads turns, for what is written of them: revisions, and the action of a turn
            that is not reported.
        grade_s: Seconds that the reward may take.
        limits: Of a program: see `env_servers.program.live.Limits`.
        isolation: ``bubblewrap`` or ``unshare``; the first that works if not given.

    Raises:
        ValueError: An option that does not fit.
        RuntimeError: Programs cannot be isolated on this machine.
    """

    folder = Path(__file__).parent
    paths = ("tasks", "reward", "workdir")

    def __init__(
        self,
        command: Sequence[str],
        tasks: Mapping[str, str],
        reward: str = "",
        workdir: str = "",
        environment: Mapping[str, str] | None = None,
        preload: Sequence[str] = (),
        models: Mapping[str, Any] | None = None,
        ignore: Sequence[str] = (),
        live: int = 0,
        steps: int = 30,
        success: float = 1.0,
        identity: str = "",
        strata: Sequence[str] = (),
        action_format: str = "turn",
        grade_s: float = 60.0,
        limits: Mapping[str, float] | None = None,
        isolation: str | None = None,
    ) -> None:
        if live < 0 or steps < 1 or not 0 < success <= 1:
            raise ValueError(
                f"live = {live} must be 0 or more, steps = {steps} 1 or more, success = {success:g} in (0, 1]"
            )
        place = Path(workdir).expanduser().resolve() if workdir else None
        if place is not None and not place.is_dir():
            raise ValueError(f"workdir: there is no folder {place}")
        if unknown := sorted((limits or {}).keys() - {f.name for f in fields(Limits)}):
            raise ValueError(
                f"limits: there is no {', '.join(unknown)}; there are {', '.join(f.name for f in fields(Limits))}"
            )
        self._grader = checked_grader(reward)
        self._grade_s = grade_s
        self._ignore = ignoring(ignore)
        self._limits = Limits(**(limits or {}))
        self._tasks = {split: read_tasks(split, Path(file).expanduser()) for split, file in tasks.items()}
        if not self._tasks:
            raise ValueError("tasks names no file")
        self._by_id = {task["id"]: task for found in self._tasks.values() for task in found}
        if len(self._by_id) < sum(map(len, self._tasks.values())):
            raise ValueError("a task is in two splits: give each an id of its own")
        self._published = {
            "step_limit": steps,
            "at_once": live or _room(),
            "reward": {"success": success},
            "identity": identity,
            "strata": [*strata],
            "action_format": action_format,
        }
        self._programs = Programs(
            checked_command(command, place, environment or {}, preload),
            place,
            environment or {},
            self._limits,
            self._published["at_once"],
            Others(endpoints(models or {}), self._ignore, self._limits.hold_s),
            preload,
            isolation,
        )

    @classmethod
    def requirements(cls) -> list[Requirement]:
        return [
            Requirement(
                "Linux namespaces, which isolate programs",
                launch.available(),
                "apt install bubblewrap (see env_servers/sandbox)",
            )
        ]

    @cached_property
    def spec(self) -> EnvironmentSpec:
        splits = {name: {"about": "Tasks from a file of the user's", "train": name == "train"} for name in self._tasks}
        return EnvironmentSpec.model_validate({**super().spec.model_dump(), **self._published, "splits": splits})

    def split(self, name: str) -> list[TaskInfo]:
        if name not in self._tasks:
            raise UnknownTask(f"there is no split {name!r}; tasks names {', '.join(self._tasks)}")
        return [TaskInfo(task["id"], task.get("labels", {})) for task in self._tasks[name]]

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        turns = self._task(task_id).get("demonstration")
        return (
            None if turns is None else [ExpertStep(*(("", turn) if isinstance(turn, str) else turn)) for turn in turns]
        )

    # the state machine ------------------------------------------------------------------------------------------------

    def reset(
        self, task_id: str, expected: str | None = None, others: tuple[OtherAnswer, ...] = ()
    ) -> tuple[Played, Observation]:
        state = Played(task_id)
        program = self._start(state, others)
        call = self._waited(program, self._next(state, program, expected), self._limits.first_call_s)
        if call is None:
            how = program.ended
            self._end(program)
            what = (
                f"did not call the model within {self._limits.first_call_s:g} s"
                if how is None
                else f"{how or 'ended'} before it called the model"
            )
            why = f": its request was refused, since {program.refused}" if program.refused else ""
            raise Failed(f"the program {what}{why}. It printed last: {program.output[-150:].strip() or 'nothing'}")
        return state, self._as_recorded(self._observed(state, program, call), expected)

    def step(self, state: Played, action: str, expected: str | None = None) -> Observation:
        try:
            program, call, again = self._at_its_call(state)
        except _Differs as differs:
            state.asked = None
            how = Observation.failed("", state.reward, done=True)
            return replace(how, asked=Asked(refused=f"the program did not repeat itself: {differs}"))
        answer = Answer.read(action)
        assert state.asked is not None, "the episode has ended"
        state.history, state.asked = (*state.history, (state.asked, answer)), None
        program.answer(call, answer)
        try:
            following = self._waited(program, self._next(state, program, expected), self._limits.step_s)
        except Unavailable:  # it is asked again, then of a program that is begun again
            state.history, state.asked = state.history[:-1], state.history[-1][0]
            raise
        observed = self._observed(state, program, following) if following else self._graded(state, program)
        return self._as_recorded(replace(observed, again=again), expected)

    def fork(self, state: Played) -> Played:
        copy = replace(state, program=None)
        if state.program is not None and self._programs.wake(state):
            copy.program, state.program = state.program, None
            self._programs.rest(copy, copy.program)
        return copy

    def close(self, state: Played) -> None:
        program, state.program = state.program, None
        if program is not None and self._programs.wake(state):
            self._end(program)

    def stop(self) -> None:
        self._programs.stop()

    def snapshot(self, state: Played) -> dict[str, Any]:
        asked = None if state.asked is None else state.asked.stored
        return {
            "task": state.task,
            "history": [[request.stored, answer.text] for request, answer in state.history],
            "asked": asked,
            "done": asked is None,
            "beside": [request.stored for request in state.beside],
            "reward": state.reward,
            "others": [vars(answer) for answer in state.others],
        }

    def restore(self, data: dict[str, Any]) -> Played:
        try:
            self._task(data["task"])
            history = tuple((Request.restored(request), Answer.read(text)) for request, text in data["history"])
            asked = None if data["asked"] is None else Request.restored(data["asked"])
            beside = tuple(map(Request.restored, data["beside"]))
            if data["done"] is not (asked is None):
                raise ValueError("it has ended, and asks")
            others = tuple(OtherAnswer(**answer) for answer in data["others"])
            return Played(data["task"], history, asked, beside, float(data["reward"]), others)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a program's snapshot: {error}") from error

    # ------------------------------------------------------------------------------------------------------------------

    def _task(self, task_id: str) -> Mapping[str, Any]:
        if task_id not in self._by_id:
            raise UnknownTask(f"no task file has the id {task_id!r}")
        return self._by_id[task_id]

    def _start(self, state: Played, others: Sequence[OtherAnswer]) -> Running:
        task = {key: value for key, value in self._task(state.task).items() if key not in _OURS}
        return self._programs.start(task, others)

    def _waited(self, program: Running, pick: Callable[[list[Call]], Call | None], seconds: float) -> Call | None:
        """As `Running.wait`; a program that has lost an answer is ended."""
        try:
            return program.wait(pick, seconds)
        except Unavailable:
            self._end(program)
            raise

    def _end(self, program: Running) -> None:
        program.end()
        self._programs.gone()

    def _at_its_call(self, state: Played) -> tuple[Running, Call, Again]:
        """The program of a state, awake, and the call that waits in it; begun again if need be, and what that took.

        Raises:
            _Differs: It does not repeat itself.
        """
        program, state.program = state.program, None
        if program is not None and self._programs.wake(state):
            call = next((call for call in program.waits() if call.request == state.asked), None)
            if call is not None and program.ended is None and not program.held_too_long:
                return program, call, NOT_AGAIN
            self._end(program)
        began = time.monotonic()
        for attempt in range(_TRIES):
            try:
                return *self._begun_again(state), Again(attempt + 1, len(state.history), time.monotonic() - began)
            except _Differs:  # what runs side by side in it may come out as it did
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _begun_again(self, state: Played) -> tuple[Running, Call]:
        assert state.asked is not None, "the episode has ended"
        program = self._start(state, state.others)
        try:
            coming = [request for request, _ in state.history] + [state.asked, *state.beside]
            for number, (_, answer) in enumerate(state.history):
                program.answer(self._repeated(program, number, coming, state.history), answer)
            return program, self._repeated(program, len(state.history), coming, state.history)
        except BaseException:  # whatever it is goes on to the caller; the program is nobody's
            self._end(program)
            raise

    def _repeated(
        self, program: Running, number: int, coming: Sequence[Request], history: Sequence[tuple[Request, Answer]]
    ) -> Call:
        """The call of a program that is begun again which is the recorded one.

        One that stands where the recorded one stood, behind the same answer, is another one, and refused at once. Any
        other may be of a conversation beside, and early: the recorded one may still come.

        Args:
            number: Of the call, from 0 on.
            coming: All recorded calls.
            history: Those that were answered.
        """
        recorded, before, other = coming[number], history[:number], ""
        behind = continues(recorded, before, self._ignore).after

        def pick(calls: list[Call]) -> Call | None:
            nonlocal other
            for call in calls:
                if not difference(recorded, call.request, self._ignore):
                    return call
            for call in calls:
                if any(not difference(later, call.request, self._ignore) for later in coming[number:]):
                    continue
                instead = behind and continues(call.request, before, self._ignore).after == behind
                if instead or time.monotonic() - call.since > self._limits.early_s:
                    other = difference(recorded, call.request, self._ignore)
                    return call
            return None

        limit = self._limits.step_s if number else self._limits.first_call_s
        call = program.wait(pick, limit)
        if call is None:
            other = "there was none" if program.ended is None else f"the program {program.ended or 'ended'}"
        if other or call is None:
            raise _Differs(f"in call {number + 1}, {other}")
        return call

    def _next(self, state: Played, program: Running, expected: str | None) -> Callable[[list[Call]], Call | None]:
        """Picks the call that is observed next: the first one, or, in a replay, the one that was observed then; others
        wait for it as long as an early call does."""

        def pick(calls: list[Call]) -> Call | None:
            for call in calls:
                if expected is None or time.monotonic() - calls[0].since > self._limits.early_s:
                    return call
                if self._same(self._text(state, program, self._continues(call, state)), expected):
                    return call
            return None

        return pick

    def _same(self, text: str, expected: str) -> bool:
        return masked(text, self._ignore) == masked(expected, self._ignore)

    def _as_recorded(self, observed: Observation, expected: str | None) -> Observation:
        """In a replay, what differs in no more than what is ignored is what was observed then."""
        same = self._ignore and expected is not None and self._same(observed.observation, expected)
        return replace(observed, observation=expected) if same else observed

    def _continues(self, call: Call, state: Played) -> Continues:
        return continues(call.request, state.history, self._ignore)

    @staticmethod
    def _text(state: Played, program: Running, found: Continues) -> str:
        """What a call is as text: its last message at first, later what the program reports, or what was said since the
        conversation that it goes on from."""
        if not state.history:
            return found.new[-1]["content"]
        heard = "\n".join(message["content"] for message in found.new if message["role"] != "assistant")
        return heard if program.report.observation is None else program.report.observation

    def _observed(self, state: Played, program: Running, call: Call) -> Observation:
        """The observation of a call that waits for its answer; from here on the program may be ended."""
        report = program.report
        found = self._continues(call, state)
        state.asked, state.program = call.request, program
        state.beside = tuple(other.request for other in program.waits() if other is not call)
        state.reward = state.reward if report.reward is None else report.reward
        tools = tuple(json.dumps(tool, ensure_ascii=False) for tool in call.request.tools)
        asked = Asked(found.new, found.after, found.answered, tools, call.request.settings, report.action)
        asked = replace(asked, others=self._others(state, program))
        self._programs.rest(state, program)
        text = self._text(state, program, found)
        return Observation(text, state.reward, valid=report.valid, status=CallStatus(report.status), asked=asked)

    @staticmethod
    def _others(state: Played, program: Running) -> tuple[OtherAnswer, ...]:
        """What other models answered since the last answer; the state has it from here on."""
        before, state.others = len(state.others), program.heard.all
        return state.others[before:]

    def _graded(self, state: Played, program: Running) -> Observation:
        """The last observation of an episode, whose program has ended, or is ended now."""
        how, report = program.ended, program.report
        state.reward = state.reward if report.reward is None else report.reward
        try:
            reward, scores = self._reward(state, program)
        finally:
            self._end(program)
        text = report.observation or ("" if not how and how is not None else f"The program {how or 'took too long'}.")
        status = CallStatus(report.status) if how == "" else CallStatus.timeout if how is None else CallStatus.error
        asked = Asked(action=report.action, others=self._others(state, program))
        return Observation(text, reward, True, report.valid, "", status, {**scores, **report.scores}, asked)

    def _reward(self, state: Played, program: Running) -> tuple[float, dict[str, float]]:
        work = program.folder / "work"
        if work.is_symlink():  # it may do with its folder as it likes, and would be read elsewhere
            raise Failed("the program put a link in the place of its folder")
        if self._grader is not None:
            transcript = [*state.history[-1][0].messages, message_of(state.history[-1][1], len(state.history))]
            return grade(
                self._grader, self._grade_s, task=self._task(state.task), folder=str(work), transcript=transcript
            )
        written = work / "reward.json"
        if written.is_file() and not written.is_symlink():
            with written.open(encoding="utf-8", errors="replace") as file:
                return read_reward(file.read(10_000), "reward.json")
        return read_reward(str(state.reward), "the program's report")


def _room() -> int:
    """How many programs may live: as many as memory and cores hold."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    return max(1, min(int(memory / 2 / _GB_OF_ONE), 16 * (os.cpu_count() or 1)))
