"""Questions, answers and the state machine, without HTTP but where a failure must become one."""

import json
import os
import random
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.tasks.formats import action_format
from env_servers.app import create_app
from env_servers.base import Unavailable, UnknownTask
from env_servers.registry import BadOptions, UnknownEnvironment, load
from env_servers.retrieval.base import Passage, RetrievalFailure, Retriever
from env_servers.retrieval.passages import fiction
from env_servers.retrieval.world import World
from env_servers.sandbox import SandboxFailure
from env_servers.searchqa import SearchQA
from env_servers.searchqa.answers import exact_match, f1, final_answer, normalise
from env_servers.searchqa.questions import Question, fiction_questions, number
from tests.env_servers.support import ROOT, TOKEN, http_client, serving
from tests.env_servers.test_retrieval import CHAT, endpoint

DIGEST = """
import hashlib
from env_servers.searchqa import SearchQA
qa = SearchQA()
digest = hashlib.sha256()
for name in qa.spec.splits:
    tasks = qa.split(name)
    digest.update(repr(tasks).encode())
    for task in tasks[::9]:
        state, observed = qa.reset(task.id)
        digest.update(observed.observation.encode())
        for step in qa.expert(task.id):
            digest.update(repr((step, qa.actions(state), qa.step(state, step.action))).encode())
print(digest.hexdigest())
"""


@pytest.fixture(scope="module")
def qa() -> SearchQA:
    return SearchQA()


LACKING = [r for r in SearchQA.requirements() if "'python'" in r.name and not r.present]
needs_sandbox = pytest.mark.skipif(bool(LACKING), reason="; ".join(f"{r.name}: {r.how}" for r in LACKING))


@pytest.fixture(scope="module")
def both() -> SearchQA:
    """With both tools."""
    return SearchQA(k=2, python=True)


def sample(split: str, count: int) -> list[str]:
    return random.Random(split).sample([q.id for q in fiction_questions() if q.split == split], count)


def play(qa: SearchQA, task: str, seed: int) -> list[str]:
    """The expert's searches with others between them, and at most one answer, at the end."""
    rng = random.Random(seed)
    actions = []
    for step in qa.expert(task) or ():
        actions += rng.choices(
            ["search: a town on a river", "search: xyzzy", "look around", step.action], k=rng.randrange(3)
        )
        actions.append(step.action)
    searches = [action for action in actions[:-1] if not action.startswith("answer")]
    return (searches + actions[-1:])[: rng.randrange(len(searches) + 1) + 1]


# the default questions ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_questions_whatever_the_hash_seed():
    def digest(seed: str) -> str:
        environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-c", DIGEST], env=environ, check=True, capture_output=True, text=True
        ).stdout

    first, second = digest("1"), digest("2")
    assert first == second and len(first.strip()) == 64


def test_the_expert_finds_what_it_says_and_earns_the_reward(qa: SearchQA):
    for question in fiction_questions():
        steps = qa.expert(question.id)
        assert steps and len(steps) == len(question.facts) + 1
        state, _ = qa.reset(question.id)
        answers = [qa.step(state, step.action) for step in steps]
        assert (answers[-1].reward, answers[-1].done) == (1.0, True), f"{question.id}: {answers[-1]}"
        for fact, search, answer in zip(question.facts, state.searches, answers, strict=False):
            assert fact.subject in search.titles and fact.phrase in answer.observation, (
                f"{question.id}: {fact.relation.name} is not found"
            )
        assert {fact.subject for fact in question.facts} <= {
            title for search in state.searches for title in search.titles
        }
        assert all(answer.valid and not answer.reward and not answer.done for answer in answers[:-1])
        assert all(
            "{" not in step.thought and step.thought[0].isupper() and step.thought.endswith(".") for step in steps
        )


def test_an_answer_is_told_from_a_call(qa: SearchQA, both: SearchQA):
    """Else it would count as a call, and an answer that is repeated would prove that no search was needed."""
    written = action_format(qa.spec.action_format).parse("<think>so</think>\n<answer>Holford</answer>").action
    assert (
        written is not None
        and written.startswith(qa.spec.answer_prefix)
        and qa.spec.answer_prefix == both.spec.answer_prefix == "answer:"
    )
    for task in qa.split("train")[:20]:
        *calls, last = qa.expert(task.id)
        assert last.action.startswith("answer:") and not any(call.action.startswith("answer:") for call in calls)


def test_splits_share_no_question_no_chain_and_no_first_fact(qa: SearchQA):
    questions = fiction_questions()
    counts = Counter(question.split for question in questions)
    assert counts == {"train": 1050, "dev": 225, "test": 225}
    for attribute in ("id", "text", "identity"):
        assert len({getattr(question, attribute) for question in questions}) == len(questions)
    starts = {split: set() for split in counts}
    for question in questions:
        compared = dict(question.labels)["type"] == "comparison"
        starts[question.split].update(fact.subject for fact in (question.facts if compared else question.facts[:1]))
    assert (
        not starts["train"] & starts["dev"]
        and not starts["train"] & starts["test"]
        and not starts["dev"] & starts["test"]
    )
    for name in counts:
        tasks = qa.split(name)
        assert [task.id for task in tasks] == [question.id for question in questions if question.split == name]
        assert all(task.labels.keys() == {"type", "hops", "problem"} for task in tasks)


def test_answers_follow_from_the_facts():
    world = World.fiction()
    for question in fiction_questions():
        kind, first, last = dict(question.labels)["type"], question.facts[0], question.facts[-1]
        assert all(world.entities[fact.subject].facts[fact.relation.name] == fact for fact in question.facts)
        if kind == "bridge":
            assert first.value == last.subject and question.answers == last.answers
            assert last.subject not in question.text, f"{question.id} names what it describes: {question.text}"
        elif question.answers[0] in ("yes", "no"):
            assert (first.value == last.value) == (question.answers[0] == "yes")
        elif kind == "comparison":
            right = next(fact for fact in question.facts if fact.subject == question.answers[0])
            wrong = next(fact for fact in question.facts if fact is not right)
            smaller = any(f" {word}" in question.text for word in ("first,", "shorter", "fewer", "earlier"))
            assert (number(right) < number(wrong)) is smaller, question.text


def test_answers_cannot_be_guessed_from_the_form_of_a_question():
    closed = Counter(question.answers[0] for question in fiction_questions() if question.answers[0] in ("yes", "no"))
    assert 0.4 < closed["yes"] / closed.total() < 0.6
    chosen = [
        q for q in fiction_questions() if dict(q.labels)["type"] == "comparison" and q.answers[0] not in ("yes", "no")
    ]
    first_named = sum(q.facts[0].subject == q.answers[0] for q in chosen)
    assert 0.4 < first_named / len(chosen) < 0.6
    chains = Counter(
        tuple(fact.relation.name for fact in q.facts) for q in fiction_questions() if dict(q.labels)["type"] == "bridge"
    )
    assert len(chains) > 40 and max(chains.values()) < 0.06 * chains.total()


@pytest.mark.parametrize(
    ("task", "python"), [("bridge/51", False), pytest.param("comparison/4", True, marks=needs_sandbox)]
)
def test_the_worked_example_is_a_real_episode(task: str, python: bool):
    qa = SearchQA(k=2, python=python)
    written = action_format(qa.spec.action_format)
    [example] = qa.spec.examples
    state, observed = qa.reset(task)
    assert task in {listed.id for listed in qa.split("train")}
    shown = [observed.observation]
    for step in qa.expert(task) or ():
        turn = written.compose(step.thought, step.action)
        assert written.parse(turn).action == step.action
        shown += [turn, qa.step(state, step.action).observation]
    assert [turn.content for turn in example] == shown[:-1]


# answers --------------------------------------------------------------------------------------------------------------


def test_answers_are_compared_as_squad_does():
    assert normalise(" The  Beatles, (an English\tband)! ") == "beatles english band"
    assert exact_match("the U.S.A.", ["USA"]) == exact_match("12,400", ["12400", "x"]) == 1.0
    assert exact_match("", ["x"]) == exact_match("Paris, France", ["Paris"]) == 0.0
    assert f1("Paris, France", ["Paris"]) == pytest.approx(2 / 3)
    assert f1("a b b c", ["b b d", "z"]) == pytest.approx(2 * 2 / (3 + 3)), "the article a is dropped, b counts twice"
    assert f1("yes it is", ["yes"]) == 0.0 == f1("no", ["yes"]) and f1("Yes.", ["yes"]) == 1.0
    assert f1("x", []) == 0.0


def test_what_normalises_to_nothing_equals_itself_alone():
    cases = [
        json.loads(line)
        for line in (Path(__file__).parents[1] / "inputs" / "exact_match.jsonl").read_text().splitlines()
    ]
    assert [case["id"] for case in cases if exact_match(case["answer"], [case["gold"]]) != case["right"]] == []
    alone = ["A", "An", "the", "The The", "+", "-", "a +", "!", "..."]
    assert [[x, y] for x in alone for y in alone if exact_match(x, [y]) != (x == y)] == []


@given(st.text())
def test_composed_and_decomposed_signs_are_one(text: str):
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]
    assert exact_match(forms[0], [forms[1]]) == f1(forms[0], [forms[1]]) == 1.0


@given(st.text(), st.text())
def test_scores_are_bounded_and_symmetric(given_answer: str, gold: str):
    assert 0.0 <= f1(given_answer, [gold]) == f1(gold, [given_answer]) <= 1.0
    assert exact_match(given_answer, [gold]) <= f1(given_answer, [gold])
    assert f1(gold, [gold]) == exact_match(gold, [gold]) == 1.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Paris", "Paris"),
        (r"It is \[ \boxed{Paris} \].", "Paris"),
        (r"\boxed{x} no, \boxed{\text{New York} {City}}", "New York {City}"),
        (r"\boxed{unclosed", "unclosed"),
        (r"\boxed{}", ""),
    ],
)
def test_the_final_answer_is_read(text: str, answer: str):
    assert final_answer(text) == answer


# the state machine ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [
        "search: River Eldis",
        " Search :River Eldis\n",
        "<search> River Eldis </search>",
        (
            "<think>The <search> tag helps.</think>\n<search>River Eldis</search> <result>made up</result> "
            "<answer>x</answer>"
        ),
        "<think>cut at the stop string</think><search>River Eldis",
    ],
)
def test_a_search_may_be_written_in_several_ways(qa: SearchQA, action: str):
    state, observed = qa.reset("single/0")
    assert observed.observation == f"Question: {qa.question('single/0').text}"
    found = qa.step(state, action)
    assert found.valid and not found.done and found.observation.startswith("<result>\n[1] River Eldis\n")
    assert state.searches[0].query == "River Eldis" and len(state.searches[0].titles) == 4
    assert found.observation.count("\n\n[") == 3


def test_an_action_is_read_in_one_pass(qa: SearchQA):
    """The tags of 420,000 characters once kept a server for a minute."""
    state, _ = qa.reset("single/0")
    start = time.thread_time()
    for text in ("<think>" * 60_000, "<think></think>" * 28_000, "<search" * 60_000, "</think>" * 50_000):
        assert not qa.step(state, text).valid
    assert qa.step(state, "<THINK>a</THINK><think><think>b</think><search>River Eldis").valid
    assert time.thread_time() - start < 3.0


@pytest.mark.parametrize(
    "action",
    ["", "look", "search:", "answer: ", "<answer></answer>", "python: 1 + 1", "<python>1</python>", "Thought: hm"],
)
def test_what_is_no_action_is_said(qa: SearchQA, action: str):
    state, _ = qa.reset("single/0")
    before = qa.snapshot(state)
    answer = qa.step(state, action)
    assert answer.observation and not answer.valid and not answer.done and answer.reward == 0.0
    assert qa.snapshot(state) == before


@needs_sandbox
def test_python_is_a_second_tool(both: SearchQA):
    assert "<python>" in both.spec.instruction and not both.fast
    state, _ = both.reset("comparison/4")
    before = both.snapshot(state)
    assert (
        both.step(state, "<think>2</think>\n<python>\nx = 6\nprint(x * 7)\n</python>").observation
        == "<result>\n42\n</result>"
    )
    assert both.step(state, "python:\n    x = 5\n    2 ** x").observation == "<result>\n32\n</result>"
    failed = both.step(state, "python: x")
    assert "NameError: name 'x' is not defined" in failed.observation and not failed.valid, "each block starts afresh"
    assert both.step(state, "python: ").observation == "The code is empty."
    assert "python: CODE" in both.step(state, "look").observation
    assert both.snapshot(state) == before, "code leaves nothing behind"
    both.step(state, "search: River Dalys")
    [code] = [action for action in both.actions(state) if action.startswith("python: ")]
    assert code == "python: print(420 - 88173)" and both.step(state, code).observation == "<result>\n-87753\n</result>"


@needs_sandbox
def test_the_expert_has_python_compare_numbers(both: SearchQA):
    compared = [
        q for q in fiction_questions() if dict(q.labels)["type"] == "comparison" and q.answers[0] not in ("yes", "no")
    ]
    for question in compared[::25]:
        *searches, code, answer = both.expert(question.id) or ()
        assert [step.action for step in (*searches, answer)] == [
            step.action for step in SearchQA(k=2).expert(question.id) or ()
        ]
        state, _ = both.reset(question.id)
        assert (
            both.step(state, code.action).observation.removeprefix("<result>\n").removesuffix("\n</result>")
            in question.answers
        )
        assert both.step(state, answer.action).reward == 1.0
    assert all(step.action.split(":")[0] != "python" for step in both.expert("bridge/51") or ())


@needs_sandbox
def test_a_sandbox_that_fails_is_a_503(both: SearchQA, monkeypatch: pytest.MonkeyPatch):
    def fail(*cells: str) -> None:
        raise SandboxFailure("no zygote")

    monkeypatch.setattr(both._tool, "_outcome", fail)
    state, _ = both.reset("single/0")
    with pytest.raises(Unavailable, match="no zygote") as refused:
        both.step(state, "python: 1")
    assert "may be tried again" in refused.value.hint and state == both.reset("single/0")[0]


def test_a_wrong_answer_ends_the_episode_unless_more_are_allowed(qa: SearchQA):
    gold = qa.question("single/0").answers[0]
    state, _ = qa.reset("single/0")
    wrong = qa.step(state, "answer: something else")
    assert (wrong.reward, wrong.done, state.done) == (0.0, True, True) and gold not in wrong.observation
    patient = SearchQA(attempts=3, reward="f1")
    state, observed = patient.reset("single/0")
    assert "3 times" in observed.observation
    assert patient.step(state, f"answer: {gold} or not").done is False
    again = patient.step(state, "answer: no idea")
    assert "1 more time." in again.observation and (again.reward, again.done) == (0.0, False)
    last = patient.step(patient.fork(state), f"answer: {gold} or")
    words = len(normalise(gold).split())
    assert last.done and last.reward == pytest.approx(2 * words / (2 * words + 1))
    right = patient.step(state, rf"<answer>\boxed{{the {gold}}}</answer>")
    assert (right.reward, right.done) == (1.0, True) and patient.actions(state) == []


def test_both_scores_are_given_whichever_is_the_reward(qa: SearchQA):
    gold = qa.question("single/0").answers[0]
    words = len(normalise(gold).split())
    for reward in ("em", "f1"):
        env = SearchQA(reward=reward, attempts=2)
        for answer, em, overlap in (
            (gold, 1.0, 1.0),
            (f"{gold} or", 0.0, 2 * words / (2 * words + 1)),
            ("no idea", 0.0, 0.0),
        ):
            state, _ = env.reset("single/0")
            first = env.step(state, "answer: nothing of the kind")
            last = env.step(env.fork(state), f"answer: {answer}")
            assert not first.scores and last.done and last.scores == {"em": em, "f1": pytest.approx(overlap)}
            assert last.reward == last.scores[reward] and last.status == "ok"


def test_how_a_search_came_out(qa: SearchQA):
    state, opened = qa.reset("single/0")
    assert opened.status == "ok"
    found, nothing, neither = (qa.step(state, action) for action in ("search: River Eldis", "search: xyzzy", "xyzzy"))
    assert [(answer.status, answer.valid) for answer in (found, nothing, neither)] == [
        ("ok", True),
        ("empty", True),
        ("error", False),
    ]
    assert "Nothing was found" in nothing.observation
    for copy in (qa.fork(state), qa.restore(json.loads(json.dumps(qa.snapshot(state))))):
        assert qa.step(copy, "search: River Eldis") == found and qa.step(copy, "search: xyzzy") == nothing


@needs_sandbox
def test_how_code_came_out(both: SearchQA):
    state, _ = both.reset("single/0")
    answers = [
        both.step(state, f"python: {code}") for code in ("print(1)", "x = 1", "1 / 0", "while True: print(1)", " ")
    ]
    assert [answer.status for answer in answers] == ["ok", "empty", "error", "limit", "error"]
    assert [answer.valid for answer in answers] == [True, True, False, False, False]


def test_long_passages_are_cut_and_it_is_said():
    qa = SearchQA(passage_chars=40, k=1)
    state, _ = qa.reset("single/0")
    shown = qa.step(state, "search: River Eldis").observation
    full = next(passage.text for passage in fiction() if passage.title == "River Eldis")
    assert (
        shown
        == f"<result>\n[1] River Eldis\n{full[:40].rstrip()} ... (the first 40 of {len(full)} characters)\n</result>"
    )


def test_a_fork_is_a_replay_and_independent(qa: SearchQA):
    for seed, task in enumerate(sample("train", 25)):
        prefix, rest = play(qa, task, seed)[:-1], play(qa, task, seed + 1000)
        state, _ = qa.reset(task)
        for action in prefix:
            qa.step(state, action)
        before = qa.snapshot(state)
        fork = qa.fork(state)
        replayed, _ = qa.reset(task)
        for action in prefix:
            qa.step(replayed, action)
        assert qa.snapshot(fork) == qa.snapshot(replayed) == before
        assert [qa.step(fork, action) for action in rest] == [qa.step(replayed, action) for action in rest]
        assert qa.snapshot(state) == before, "the fork moved its parent"


def test_a_snapshot_restores_to_the_same_play_without_searching(qa: SearchQA):
    for seed, task in enumerate(sample("dev", 15)):
        state, _ = qa.reset(task)
        for action in play(qa, task, seed):
            qa.step(state, action)
        stored = json.loads(json.dumps(qa.snapshot(state)))
        copy = SearchQA(retriever=f"{__name__}:Flaky").restore(stored)
        assert copy == state and qa.snapshot(copy) == stored
        assert qa.actions(copy) == qa.actions(state)


@pytest.mark.parametrize(
    "change",
    [
        {"task": "single/99999"},
        {"task": []},
        {"searches": None},
        {"searches": [{"query": "x"}]},
        {"searches": [{"query": 1, "titles": [], "text": ""}]},
        {"answered": True},
        {"answered": 2},
        {"done": 0},
    ],
)
def test_a_damaged_snapshot_is_refused(qa: SearchQA, change: dict[str, Any]):
    state, _ = qa.reset("single/0")
    for data in ({}, {**qa.snapshot(state), **change}):
        with pytest.raises(ValueError, match="not a Search QA snapshot"):
            qa.restore(data)


@pytest.mark.parametrize(
    "task", ["", "single", "single/", "single/-1", "bridge/99999", "train/0", "../etc", "single/0\n"]
)
def test_an_unknown_task_is_named(qa: SearchQA, task: str):
    for call in (qa.reset, qa.expert):
        with pytest.raises(UnknownTask):
            call(task)
    with pytest.raises(UnknownTask):
        qa.split("nowhere")


def test_suggestions_lead_to_the_answer(qa: SearchQA):
    """What the expert does can be chosen from the suggestions, but for the answer."""
    for task in sample("test", 40):
        state, _ = qa.reset(task)
        for step in (qa.expert(task) or [])[:-1]:
            suggested = qa.actions(state)
            assert step.action in suggested, f"{task}: {step.action} is not in {suggested}"
            assert len(set(suggested)) == len(suggested) and any(action.startswith("answer: ") for action in suggested)
            qa.step(state, step.action)


pieces = st.sampled_from(
    ["search:", "answer:", "<search>", "</search>", "<answer>", "<think>", "</think>", "River", "\\boxed{", "}", "yes"]
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.text(st.characters(), max_size=30), st.lists(pieces, max_size=6).map(" ".join)), max_size=5)
)
def test_any_text_is_an_action(qa: SearchQA, actions: list[str]):
    state, _ = qa.reset("comparison/0")
    for action in [*actions, "search: \ud800 River"]:
        answer = qa.step(state, action)
        assert answer.observation.encode() and answer.reward in (0.0, 1.0)
        if answer.done:
            break
    assert qa.restore(json.loads(json.dumps(qa.snapshot(state)))) == state


# other sources --------------------------------------------------------------------------------------------------------


class Flaky(Retriever):
    """Answers every other search; says so by a passage that quotes the query."""

    name = "flaky"

    def __init__(self) -> None:
        self.calls = 0

    def search(self, query: str, k: int) -> list[Passage]:
        self.calls += 1
        if self.calls % 2:
            raise RetrievalFailure("the search engine is down")
        return [Passage("1", "Echo \ud800", query)]


def test_a_search_that_fails_is_a_503_and_changes_nothing():
    with serving(create_app(SearchQA(retriever=f"{__name__}:Flaky"), token=TOKEN)) as url, http_client(url) as client:
        session = client.post("/v1/open", json={"task": "single/0"}).json()["session"]
        step = {"session": session, "action": "search: x", "index": 0}
        failed = client.post("/v1/step", json=step)
        assert failed.status_code == 503 and failed.json()["error"] == "the search engine is down"
        assert client.post("/v1/snapshot", json={"session": session}).json()["state"]["searches"] == []
        found = client.post("/v1/step", json=step)
        assert found.status_code == 200 and found.json()["observation"] == "<result>\n[1] Echo ?\nx\n</result>"
        assert (
            client.post("/v1/step", json={**step, "index": 1}).json()["observation"]
            == "<result>\n[1] Echo ?\nx\n</result>"
        ), "a repeated query is not asked"
        assert client.post("/v1/expand", json={"session": session, "actions": ["search: y"]}).status_code == 503
        assert client.post("/v1/snapshot", json={"session": session}).status_code == 200


def test_a_recorded_run_is_replayed_without_the_source(tmp_path: Path):
    options = {"retriever": f"{__name__}:Flaky", "cache": str(tmp_path / "cache")}
    recording = SearchQA(**options)
    state, _ = recording.reset("single/0")
    with pytest.raises(Unavailable, match="down"):
        recording.step(state, "search: x")
    found = recording.step(state, "search: x")
    replaying = SearchQA(**options, cache_mode="replay")
    state, _ = replaying.reset("single/0")
    assert replaying.step(state, "search: X") == found
    with pytest.raises(Unavailable, match="holds no answer of flaky to '4 y'"):
        replaying.step(state, "search: y")
    assert len(state.searches) == 1 and not replaying.fast


def test_a_second_model_may_read_the_passages(tmp_path: Path):
    with endpoint(lambda number, _: (200, CHAT) if number == 1 else (400, "no")) as (url, asked):
        qa = SearchQA(summary={"base_url": f"{url}/v1", "model": "m"}, k=2, cache=str(tmp_path / "cache"))
        assert not qa.fast
        state, _ = qa.reset("single/0")
        found = qa.step(state, "search: River Eldis")
        assert found.observation.startswith(
            "<result>\nSummary of 2 passages (River Eldis; "
        ) and found.observation.endswith("):\nThe mill is old.\n</result>")
        assert qa.question("single/0").text in asked[0]["body"]["messages"][0]["content"]
        assert "Nothing was found" in qa.step(state, "search: xyzzy").observation and len(asked) == 1
        with pytest.raises(Unavailable, match="refuses the request: status 400"):
            qa.step(state, "search: River Falesk")
        assert [search.query for search in state.searches] == ["River Eldis", "xyzzy"]


def test_questions_come_from_files(tmp_path: Path):
    rows = [
        {
            "reward_model": {"ground_truth": "4"},
            "ability": "math",
            "prompt": [{"role": "user", "content": "2 + 2?"}],
            "extra_info": None,
        },
        {
            "reward_model": {"ground_truth": "Paris"},
            "ability": "qa",
            "prompt": [{"role": "user", "content": "Capital?"}],
            "extra_info": None,
        },
        {
            "reward_model": {"ground_truth": "six"},
            "ability": None,
            "prompt": [],
            "extra_info": {"question": "How many?"},
        },
    ]
    pa.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "arpo.parquet")
    (tmp_path / "flash.jsonl").write_text('{"id": "a", "question": "Who?", "golden_answers": ["Ada", "Ada Orwen"]}\n')
    (tmp_path / "hotpot.json").write_text(
        '[{"question": "Same?", "answer": "yes", "type": "comparison", "level": "hard"}]'
    )
    files = {
        "train": str(tmp_path / "arpo.parquet"),
        "dev": str(tmp_path / "flash.jsonl"),
        "test": str(tmp_path / "hotpot.json"),
    }
    (tmp_path / "corpus.jsonl").write_text('{"id": "0", "contents": "Ada Orwen\\nAda Orwen counted the bells."}\n')
    qa = SearchQA(questions=files, corpus=str(tmp_path / "corpus.jsonl"))
    assert [task.id for task in qa.split("train")] == ["train/1", "train/2"]
    assert qa.question("train/2") == Question("train/2", "train", "How many?", ("six",), "how many")
    assert qa.question("dev/0").answers == ("Ada", "Ada Orwen")
    assert qa.split("test")[0].labels == {"type": "comparison", "level": "hard", "problem": "same"}
    assert qa.expert("test/0") is None
    state, _ = qa.reset("dev/0")
    assert qa.step(state, "answer: ada orwen").reward == 1.0
    single = SearchQA(questions=files["dev"], corpus=str(tmp_path / "corpus.jsonl"))
    assert [task.id for task in single.split("test")] == ["test/0"] and qa.actions(qa.reset("test/0")[0])
    with pytest.raises(BadOptions, match=r"bm25 searches a corpus, and the default one .*; give corpus too"):
        load("searchqa", {"questions": files})
    remote = load(
        "searchqa", {"questions": files, "retriever": "remote", "retriever_settings": {"url": "http://127.0.0.1:9"}}
    )
    assert remote.split("dev") == qa.split("dev"), "a service searches what it has"


def test_real_question_files(shared_data: Path):
    hotpot = str(shared_data / "qa" / "hotpot_dev_distractor_sample.json")
    qa = SearchQA(questions=hotpot, corpus=hotpot, k=5)
    assert len(qa.split("test")) == 100 and qa.split("train") == [] and qa.fast
    state, _ = qa.reset("test/0")
    assert "Ed Wood" in qa.step(state, "search: Ed Wood nationality").observation
    assert qa.step(state, "answer: Yes").reward == 1.0
    folder = shared_data / "qa"
    arpo = SearchQA(
        questions={"train": str(folder / "arpo_valid.parquet"), "test": str(folder / "2wiki_test.jsonl")}, corpus=hotpot
    )
    assert len(arpo.split("train")) == 80 and len(arpo.split("test")) == 200
    web = SearchQA(questions=hotpot, corpus=str(folder / "arpo_search_cache.json"))
    assert "Campfire Tales" in web.step(web.reset("test/0")[0], "search: Amy Smart film debut").observation


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward": "bleu"}, "reward must be"),
        ({"k": 0}, "at least 1"),
        ({"corpus": "x.jsonl"}, "give questions too"),
        ({"questions": {"valid": "x"}}, "no split valid"),
        ({"questions": "nowhere.jsonl"}, "no question file"),
        ({"retriever": "google"}, "no retriever is called"),
        ({"cache": "nowhere", "cache_mode": "replay"}, "no recording"),
        ({"cache": "nowhere", "cache_mode": "off"}, "off"),
        ({"summary": {"model": "m"}}, "base_url"),
    ],
)
def test_options_that_do_not_fit_are_named(
    options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadOptions, match=message):
        load("searchqa", options)


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SERPER_API_KEY", raising=False)
    with pytest.raises(UnknownEnvironment, match="SERPER_API_KEY"):
        load("searchqa", {"retriever": "web"})


def test_what_is_missing_is_said_without_failing():
    needed = SearchQA.requirements()
    assert {r.name for r in needed if not r.optional} == {"BM25 search (bm25s, PyStemmer)"}
    assert all(r.how for r in needed) and SearchQA().fast
