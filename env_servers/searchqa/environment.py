"""Search QA: answer a question with the help of a search engine.
Actions are ``search: QUERY`` and ``answer: TEXT``, and with the option ``python`` also ``python: CODE``, as ET-Agent's
agents have both tools.

Task ids: ``TYPE/NUMBER`` (``bridge/17``) for the questions about the fictional world (`questions.py`), ``SPLIT/NUMBER``
(``train/17``) for those of a user's files, the number counting the entries of the file.

A state holds the conversation and nothing else: what a search found is kept in it, so that a fork or a restored
snapshot searches nothing again, and a query that is repeated within an episode is answered from it. Code leaves nothing
behind: each block starts afresh.

Where a search, a summary or the sandbox cannot be had, `Unavailable` is raised and the state stays as it was: a service
that is down is not an observation, and not a reward either.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from env_servers.observation import CallStatus
from env_servers.protocol import EnvironmentSpec
from env_servers.retrieval.base import Passage, RetrievalFailure
from env_servers.retrieval.build import build, requirements, takes_corpus
from env_servers.retrieval.cache import Cache
from env_servers.retrieval.summary import ChatSummariser, Summariser
from env_servers.sandbox import PythonTool, Sandbox, SandboxFailure, launch
from env_servers.searchqa.answers import exact_match, f1, final_answer
from env_servers.searchqa.expert import demonstrate
from env_servers.searchqa.files import load_questions
from env_servers.searchqa.hints import suggest, sums
from env_servers.searchqa.questions import Question, fiction_questions
from env_servers.turns import code_of, spoken, tagged

#: What an action lacks that has nothing after its verb.
EMPTY = {"search": "query", "answer": "answer", "python": "code"}


@dataclass(frozen=True)
class Search:
    """One search and what the agent read of it."""

    query: str
    titles: tuple[str, ...]
    text: str


@dataclass
class SearchState:
    """Everything that changes in an episode.

    Attributes:
        answered: Answers given so far.
        calls: Calls so far, by tool, where they are limited; never changed in place.
    """

    task: str
    searches: list[Search] = field(default_factory=list)
    answered: int = 0
    done: bool = False
    calls: Mapping[str, int] = field(default_factory=dict)


class SearchQA(Environment[SearchState]):
    """The environment.
    Its scores are ``em`` and ``f1`` of the answer that ends an episode; the option ``reward`` says which is the reward.

    Args:
        questions: File of questions for each split (`files.py`); a single path stands for the test split. Without it,
            questions about the fictional world.
        corpus: File of passages (`retrieval/corpus.py`); without it, the fictional world. Goes with ``questions``:
            either world has the answers to its own questions alone.
        retriever: ``bm25``, ``dense``, ``web``, ``remote``, or ``module:class`` (`retrieval/build.py`).
        retriever_settings: Arguments of the retriever.
        k: Passages that a search shows.
        passage_chars: Longest part of a passage that is shown.
        reward: What an answer earns: ``em`` (exact match, 0 or 1) or ``f1`` (token F1, 0 to 1).
        attempts: Answers that an episode allows. A wrong one that is not the last earns nothing, and the agent may try
            again, which is how AgentGym plays, without a limit.
        cache: File in which searches and summaries are kept; none are without it.
        cache_mode: ``record`` keeps new ones, ``replay`` answers from the file alone.
        summary: Arguments of `retrieval.summary.ChatSummariser`: a second model reads what a search found, and the
            agent its summary.
        python: Whether agents also have a Python interpreter; instruction and example then teach both tools.
        calls: Most calls of an episode, by tool and of all together: ``{search: 3, python: 3, all: 4}``. One more is
            refused, with the status ``limit``; a query that is repeated counts, too.

    Raises:
        RuntimeError: Code is to be run, and cannot be isolated here.
    """

    folder = Path(__file__).parent

    def __init__(
        self,
        questions: str | Mapping[str, str] | None = None,
        corpus: str | None = None,
        retriever: str = "bm25",
        retriever_settings: Mapping[str, Any] | None = None,
        k: int = 4,
        passage_chars: int = 1200,
        reward: Literal["em", "f1"] = "em",
        attempts: int = 1,
        cache: str | None = None,
        cache_mode: Literal["record", "replay"] = "record",
        summary: Mapping[str, Any] | None = None,
        python: bool = False,
        calls: Mapping[str, int] | None = None,
    ) -> None:
        self._tool = PythonTool(_sandbox()) if python else None
        if reward not in ("em", "f1"):
            raise ValueError(f"reward must be 'em' or 'f1', not {reward!r}")
        if min(k, passage_chars, attempts) < 1:
            raise ValueError(
                f"k, passage_chars and attempts must be at least 1, not {k}, {passage_chars} and {attempts}"
            )
        if corpus is not None and questions is None:
            raise ValueError(
                "a corpus of your own does not hold the answers to the default questions; give questions too"
            )
        files = {"test": questions} if isinstance(questions, str) else questions
        if unknown := sorted((files or {}).keys() - self.spec.splits.keys()):
            raise ValueError(f"there is no split {', '.join(unknown)}; splits are {', '.join(self.spec.splits)}")
        self._questions = {
            question.id: question for question in (fiction_questions() if files is None else load_questions(files))
        }
        if questions is not None and corpus is None and takes_corpus(retriever):
            raise ValueError(
                f"{retriever} searches a corpus, and the default one does not hold the answers to your questions; give "
                "corpus too"
            )
        kept = None if cache is None else Cache(cache, cache_mode)
        self._retriever = build(retriever, retriever_settings, corpus, kept)
        self._summariser: Summariser | None = None if summary is None else ChatSummariser(**summary, cache=kept)
        self._k = k
        self._passage_chars = passage_chars
        self._reward = reward
        self._attempts = attempts
        self._limits = CallLimits(calls, ("search", "python") if python else ("search",))
        self.fast = self._retriever.fast and self._summariser is None and not python

    @cached_property
    def spec(self) -> EnvironmentSpec:
        spec = read_spec(self.folder)
        if self._tool is None:
            return spec
        changes = yaml.safe_load((self.folder / "python.yaml").read_text(encoding="utf-8"))
        return EnvironmentSpec.model_validate(spec.model_dump() | changes)

    @classmethod
    def requirements(cls) -> list[Requirement]:
        how = (
            "HotpotQA (https://hotpotqa.github.io) or ARPO's tables (https://github.com/dongguanting/ARPO); option "
            "'questions'"
        )
        return [
            *requirements(),
            Requirement("questions of your own", False, how, optional=True),
            Requirement(
                "sympy, and Linux namespaces, which isolate code (option 'python')",
                importlib.util.find_spec("sympy") is not None and launch.available(),
                "pip install 'agentr[math]'; apt install bubblewrap",
                optional=True,
            ),
        ]

    # tasks ------------------------------------------------------------------------------------------------------------

    def split(self, name: str) -> list[TaskInfo]:
        if name not in self.spec.splits:
            raise UnknownTask(f"Search QA has no split {name!r}; it has {', '.join(self.spec.splits)}")
        return [
            TaskInfo(question.id, {**dict(question.labels), "problem": question.identity})
            for question in self._questions.values()
            if question.split == name
        ]

    def question(self, task_id: str) -> Question:
        """The question of a task.

        Raises:
            UnknownTask: There is none.
        """
        if task_id not in self._questions:
            raise UnknownTask(
                f"Search QA has no task {task_id!r}; ids look like {next(iter(self._questions), 'test/0')!r} (see "
                "/splits)"
            )
        return self._questions[task_id]

    # the state machine ------------------------------------------------------------------------------------------------

    def reset(self, task_id: str) -> tuple[SearchState, Observation]:
        allowed = f"\nYou may answer {self._attempts} times." if self._attempts > 1 else ""
        return SearchState(task_id), Observation(
            _clean(f"Question: {self.question(task_id).text}{allowed}{self._limits.announced()}")
        )

    def step(self, state: SearchState, action: str) -> Observation:
        verb, text = _parse(_clean(action))
        if verb == "python" and self._tool is None:
            return Observation.failed("There is no Python tool here. Search, or answer.")
        if verb and not text.strip():
            return Observation.failed(f"The {EMPTY[verb]} is empty.")
        if verb == "answer":
            return self._answer(state, final_answer(text))
        if verb:
            if refused := self._limits.refused(state.calls, verb):
                return refused
            found = self._search(state, text.strip()) if verb == "search" else self._python(code_of(text))
            state.calls = self._limits.counted(state.calls, verb)
            return found
        also = ", run code (python: CODE)" if self._tool else ""
        return Observation.failed(f"That is no action. Search (search: QUERY){also}, or answer (answer: TEXT).")

    def _python(self, code: str) -> Observation:
        assert self._tool is not None, "a step without the tool ends before this"
        try:
            result = self._tool.run(code)
        except SandboxFailure as error:
            raise Unavailable(str(error), "Nothing was changed; the same step may be tried again.") from error
        return _result(_clean(result.text), result.status)

    def _search(self, state: SearchState, query: str) -> Observation:
        found = next((search for search in state.searches if search.query == query), None)
        if found is None:
            found = self._found(state, query)
            state.searches.append(found)
        return _result(found.text, CallStatus.ok if found.titles else CallStatus.empty)

    def _found(self, state: SearchState, query: str) -> Search:
        try:
            passages = self._retriever.search(query, self._k)
            text = self._show(state, query, passages)
        except RetrievalFailure as error:
            raise Unavailable(str(error), "Nothing was changed; the same step may be tried again.") from error
        return Search(query, tuple(_clean(passage.title) for passage in passages), text)

    def _show(self, state: SearchState, query: str, passages: Sequence[Passage]) -> str:
        if not passages:
            return "Nothing was found. Try other words."
        if self._summariser is None:
            return _clean(
                "\n\n".join(
                    f"[{i}] {p.title or 'Untitled'}\n{_cut(p.text, self._passage_chars)}"
                    for i, p in enumerate(passages, 1)
                )
            )
        earlier = [search.query for search in state.searches]
        summary = self._summariser.summarise(self.question(state.task).text, earlier, query, passages)
        return _clean(
            f"Summary of {len(passages)} passages ({'; '.join(passage.title for passage in passages)}):\n{summary}"
        )

    def _answer(self, state: SearchState, answer: str) -> Observation:
        golds = self.question(state.task).answers
        scores = {"em": exact_match(answer, golds), "f1": f1(answer, golds)}
        right = scores["em"] == 1.0
        state.answered += 1
        left = self._attempts - state.answered
        if not right and left > 0:
            return Observation(f"That is not the answer. You may answer {left} more time{'s' * (left > 1)}.")
        state.done = True
        text = "That is the answer." if right else "That is not the answer."
        return Observation(text, reward=scores[self._reward], done=True, scores=scores)

    # copies -----------------------------------------------------------------------------------------------------------

    def fork(self, state: SearchState) -> SearchState:
        return SearchState(state.task, list(state.searches), state.answered, state.done, state.calls)

    def snapshot(self, state: SearchState) -> dict[str, Any]:
        searches = [{**asdict(search), "titles": list(search.titles)} for search in state.searches]
        kept = {"task": state.task, "searches": searches, "answered": state.answered, "done": state.done}
        return {**kept, "calls": dict(state.calls)}

    def restore(self, data: dict[str, Any]) -> SearchState:
        try:
            task, answered, done, calls = (
                data["task"],
                data["answered"],
                data["done"],
                read_calls(data.get("calls", {})),
            )
            searches = [Search(entry["query"], tuple(entry["titles"]), entry["text"]) for entry in data["searches"]]
            if task not in self._questions:
                raise ValueError(f"there is no task {task!r}")
            if type(answered) is not int or not 0 <= answered <= self._attempts or type(done) is not bool:
                raise ValueError("the count of answers or the end is damaged")
            if not all(
                isinstance(text, str) for search in searches for text in (search.query, search.text, *search.titles)
            ):
                raise ValueError("the searches are damaged")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a Search QA snapshot: {error}") from error
        return SearchState(task, searches, answered, done, calls)

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        steps = demonstrate(self.question(task_id), python=self._tool is not None)
        calls = [verb for step in steps or () if (verb := spoken(step.action)[0]) != "answer"]
        return steps if self._limits.allow(calls) else None

    def actions(self, state: SearchState) -> list[str]:
        if state.done:
            return []
        searches = state.searches
        titles = [title for search in searches for title in search.titles]
        suggested = suggest(
            self.question(state.task).text, [s.query for s in searches], [s.text for s in searches], titles
        )
        return [*suggested, *(sums([search.text for search in searches]) if self._tool else ())]


@cache
def _sandbox() -> Sandbox:
    """One for all environments of a process."""
    return Sandbox()


def _parse(action: str) -> tuple[str, str]:
    """Verb and text of an action, from ``verb: text`` or the tags of AgentGym and ET-Agent; both empty if it is
    neither."""
    block = tagged(action)
    return spoken(action) if block is None or spoken(action)[0] else (block.verb, block.body)


def _result(text: str, status: CallStatus) -> Observation:
    """Wraps a tool's output in the tags that set it apart from the agent's own words."""
    return Observation(f"<result>\n{text}\n</result>", valid=not status.failed, status=status)


def _cut(text: str, limit: int) -> str:
    """At most ``limit`` characters, and a word on what is missing."""
    return text if len(text) <= limit else f"{text[:limit].rstrip()} ... (the first {limit} of {len(text)} characters)"


def _clean(text: str) -> str:
    """Without lone surrogates, which cannot be sent; they come from broken JSON escapes."""
    return text.encode("utf-8", "replace").decode()
