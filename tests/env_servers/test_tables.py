"""Questions and problems from files: each form is read as what it is, or refused with its place; nothing is guessed."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_servers.boxed import boxed
from env_servers.mathtool import files
from env_servers.records import blank
from env_servers.searchqa.files import load_questions
from env_servers.tables import _NOT_READ

INPUTS = Path(__file__).parents[1] / "inputs"


def written(path: Path, records: list[Any]) -> Path:
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(records), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(records), encoding="utf-8")
    else:
        text = "".join(json.dumps(record) + "\n" for record in records).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def questions(path: Path) -> list[tuple[str, list[str]]]:
    return [(question.text, list(question.answers)) for question in load_questions({"test": str(path)})]


def problems(path: Path) -> list[tuple[str, str]]:
    return [(problem.question, problem.answer) for problem in files.read(path).values()]


def cases(name: str) -> list[Any]:
    lines = (INPUTS / name).read_text(encoding="utf-8").split("\n")
    return [pytest.param(case, id=case["id"]) for case in map(json.loads, filter(None, lines))]


# the usual sets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("question_files.jsonl"))
def test_questions_of_the_usual_sets(tmp_path: Path, case: dict[str, Any]) -> None:
    assert sorted(questions(written(tmp_path / case["file"], case["rows"]))[0][1]) == sorted(case["golds"])


@pytest.mark.parametrize("case", cases("problem_files.jsonl"))
def test_problems_of_the_usual_sets(tmp_path: Path, case: dict[str, Any]) -> None:
    assert [answer for _, answer in problems(written(tmp_path / case["file"], case["rows"]))] == case["answers"]


def verl(truth: Any, ability: Any = "math", **more: Any) -> dict[str, Any]:
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many?"}]
    return {
        "data_source": "d",
        "prompt": asked,
        "ability": ability,
        "reward_model": {"style": "rule", "ground_truth": truth},
        **more,
    }


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "json", "parquet"])
@pytest.mark.parametrize(
    ("record", "answer"),
    [
        ({"question": "How many?", "answer": "Three. #### 1,003"}, "1003"),
        ({"question": "How many?", "answer": "####6\nThe answer is: 6"}, "6"),
        ({"question": "How many?", "answer": "So it is $\\fbox{6}$."}, "6"),
        ({"problem": "How many?", "answer": None, "solution": "Then $\\boxed{\\frac{1}{2}}$."}, "\\frac{1}{2}"),
        ({"problem": "How many?", "answer": " ", "solution": "Then $\\boxed 6$, as said."}, "6"),
        ({"ID": "2024-I-1", "Problem": "How many?", "Solution": "Six.", "Answer": 6}, "6"),
        ({"input": "How many?", "answer": ["6", "six"], "source": "aime"}, "6"),
        ({"problem": "How many?", "question": "How many?", "answer": "6"}, "6"),
        (verl("6"), "6"),
        (verl(["6"], " Math"), "6"),
        (verl({"target": ["6"]}, "MATH"), "6"),
        (verl("6", None, extra_info={"question": "How many?", "index": "x"}), "6"),
        (verl("6", extra_info={"split": "train"}) | {"prompt": "How many?"}, "6"),
    ],
)
def test_every_form_of_a_problem(tmp_path: Path, ending: str, record: dict[str, Any], answer: str) -> None:
    assert problems(written(tmp_path / f"file.{ending}", [record])) == [("How many?", answer)]


@pytest.mark.parametrize(
    ("golds", "found"),
    [
        ({"answer": "Ouse"}, ["Ouse"]),
        ({"golden_answers": ["Ouse", " River Ouse "]}, ["Ouse", "River Ouse"]),
        ({"answers": {"text": ["Ouse", "Ouse"], "answer_start": [1, 9]}}, ["Ouse"]),
        ({"answer": ["", "Ouse", None]}, ["Ouse"]),
    ],
)
def test_every_form_of_answers_to_a_question(tmp_path: Path, golds: dict[str, Any], found: list[str]) -> None:
    assert questions(written(tmp_path / "file.jsonl", [{"question": "Which river?", **golds}])) == [
        ("Which river?", found)
    ]


def test_the_text_of_a_question_is_the_column_that_says_so_not_the_prompt_around_it(tmp_path: Path) -> None:
    asked = verl({"target": ["Ouse"]}, "fact-reasoning", question="Which river?")
    asked["prompt"] = [{"role": "user", "content": "Search first. Question: Which river?"}]
    assert questions(written(tmp_path / "file.parquet", [asked])) == [("Which river?", ["Ouse"])]


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    for name, text in (
        ("a.jsonl", '{"question": "?", "answer": "6"}'),
        ("a.json", '[{"question": "?", "answer": "6"}]'),
    ):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert problems(tmp_path / name) == [("?", "6")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no box", ""),
        ("\\boxed{1} then \\boxed{\\{1, 2\\}}.", "\\{1, 2\\}"),
        ("\\boxed {2}", "2"),
        ("$\\boxed 42$.", "42"),
        ("\\(\\boxed\\frac12\\), so", "\\frac12"),
        ("It is \\boxed 7.\nDone.", "7"),
        ("\\boxed{open", ""),
        ("\\boxedwhat{1}", ""),
    ],
)
def test_what_a_box_holds(text: str, found: str) -> None:
    assert boxed(text) == found


# what is left out, and counted ----------------------------------------------------------------------------------------


def test_what_is_no_task_is_left_out_and_counted_and_columns_that_are_not_read_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blanks = [verl(truth) for truth in ("", " \n", None, [], [""])]
    records = [
        verl("6"),
        *blanks,
        verl("Ouse", "qa"),
        {"problem": "Why?", "solution": "Proof.", "id": 3},
        {"question": " ", "answer": "6"},
    ]
    path = written(tmp_path / "file.jsonl", records)
    assert list(files.read(path)) == ["file/0"]
    assert caplog.messages == [
        f"{path}: read: 1; left out, without an answer: 5; left out, of the ability qa: 1; "
        "left out, nothing behind #### or in a \\boxed{} of solution: 1; left out, without a question: 1; "
        "column not read, data_source: 7; column not read, id: 1"
    ]


def test_questions_without_an_answer_are_left_out(tmp_path: Path) -> None:
    answered = {"question": "?", "answer": "b", "answerable": True}
    records = [
        answered,
        answered | {"answerable": False},
        {"question": "?", "answers": {"text": [], "answer_start": []}},
    ]
    assert questions(written(tmp_path / "file.json", records)) == [("?", ["b"])]


# what is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"final_answer": "7"}, "the key 'final_answer' is not known"),
        ({"answer": {"label": "b"}}, "an object with the keys label"),
        ({"answer": {"target": ["b"], "x": 1}}, "an object with the keys target, x"),
        ({"answer": True}, "a text is wanted, not bool"),
        ({"answer": [["b"], {"c": 1}]}, "an object with the keys c"),
        ({"answer": '["b", "c"]'}, "JSON written as a text"),
        ({"answer": '{"target": ["b"]}'}, "JSON written as a text"),
        ({"answer": "half \ud83d"}, "surrogates not allowed"),
        ({"question": 1}, "the question: a text is wanted, not int"),
        (
            {"question": None, "prompt": [{"role": "user", "content": [{"type": "image"}]}]},
            "the question: a text is wanted, not list",
        ),
        (
            {"question": None, "prompt": [{"role": "user", "content": text} for text in "ab"]},
            "it asks several questions",
        ),
        (
            {"question": None, "prompt": [{"role": "user", "content": "a", "weight": 0}]},
            "prompt: the key 'weight' is not known",
        ),
        ({"problem": "another"}, "it asks several questions"),
        ({"Question": "?"}, "the same name but for capitals"),
        ({"ability": 3}, "ability: a text is wanted"),
        ({"answerable": "no"}, "answerable is true or false"),
        ({"reward_model": "b"}, "reward_model: an object is wanted, not str"),
        ({"reward_model": {"ground_truth": "b", "golds": "c"}}, "reward_model: the key 'golds' is not known"),
    ],
)
def test_what_is_not_known_is_refused_with_its_place(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    good = {"question": "?", "answer": "b"}
    path = written(tmp_path / "file.jsonl", [good, good | change])
    for read in (problems, questions):
        with pytest.raises(ValueError, match=rf"file\.jsonl, line 2: .*{complaint}"):
            read(path)


def test_numbers_answer_problems_and_no_questions(tmp_path: Path) -> None:
    path = written(tmp_path / "file.json", [{"question": "?", "answer": 1994}])
    assert problems(path) == [("?", "1994")]
    with pytest.raises(ValueError, match=r"file\.json, entry 0: .*a text is wanted, not int"):
        questions(path)


def test_a_worked_solution_without_a_mark_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="several lines"):
        problems(written(tmp_path / "file.jsonl", [{"question": "?", "answer": "First 2.\nThen 4."}]))


@pytest.mark.parametrize(
    "content",
    [
        b'{"question": "a", "answer": "b", "answer": "c"}',
        b'{"question": "a", "answer": ' + b"9" * 5000 + b"}",
        b"[" * 200_000,
        b"\xff\xfe",
        b"\x00",
    ],
)
def test_bytes_that_are_no_records_are_refused_with_their_place(tmp_path: Path, content: bytes) -> None:
    for name in ("bad.jsonl", "bad.json", "bad.parquet", "bad.jsonl.gz", "bad.csv"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name}"):
            problems(tmp_path / name)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["#### 6", "\\boxed{6}", "math", "qa"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["target", "text", "value", "ground_truth", "role", "content", "x"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
KNOWN = {
    "question",
    "problem",
    "input",
    "answer",
    "answers",
    "golden_answers",
    "solution",
    "answer_aliases",
    "answerable",
    "ability",
}
KNOWN |= {"prompt", "reward_model", "extra_info", "type", "level", "hops", *_NOT_READ}


@settings(max_examples=150, derandomize=True, deadline=None)
@given(record=st.dictionaries(st.sampled_from(sorted(KNOWN)) | st.text(max_size=6), values, max_size=5))
def test_any_record_is_read_or_refused_and_no_key_becomes_an_answer(
    tmp_path_factory: pytest.TempPathFactory, record: Any
) -> None:
    """Beside a good record, whatever the other one is: an error with its place, or answers that are texts of the
    record."""
    path = written(tmp_path_factory.mktemp("any") / "any.json", [{"question": "?", "answer": "b"}, record])
    for read in (problems, questions):
        try:
            found = read(path)
        except ValueError as error:
            assert "any.json, entry 1: no question with its answer: " in str(error)
            continue
        assert all(key.casefold() in KNOWN for key, value in record.items() if not blank(value))
        texts = {text for value in record.values() for text in leaves(value)}
        for answer in found[1:]:
            for text in [answer[1]] if isinstance(answer[1], str) else answer[1]:
                assert any(text in leaf.replace(",", "") or text in leaf for leaf in texts)


def leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, list) else [str(value)]


# real files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "read", "count"),
    [
        ("math/gsm8k_train.jsonl.gz", problems, 7473),
        ("math/math500_test.jsonl", problems, 500),
        ("math/aime24_test.jsonl", problems, 30),
        ("math/aime25_test.jsonl", problems, 30),
        ("qa/arpo_train_10k.parquet", problems, 4999),  # one of the 5,000 golds is blank
        ("qa/arpo_train_10k.parquet", questions, 5000),
        ("qa/arpo_hard_search_1k.parquet", questions, 1071),
        ("qa/simpleqa_test.jsonl", questions, 500),
        ("qa/hotpot_dev_distractor_sample.json", questions, 100),
    ],
)
def test_the_published_files(shared_data: Path, name: str, read: Any, count: int) -> None:
    found = read(shared_data / name)
    assert len(found) == count and all(question and golds and "####" not in golds for question, golds in found)
