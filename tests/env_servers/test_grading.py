"""Which answers are right: pairs that are equal or different by the way in which they were made, examples, and answers
made to hurt."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.env_servers import pairs

pytest.importorskip("sympy", reason="pip install 'agentr[math]'")

from env_servers.mathtool.grading import correct
from env_servers.mathtool.reading import MAX_CHARS
from env_servers.mathtool.signs import boxed

INPUTS = Path(__file__).parents[1] / "inputs"


@pytest.mark.parametrize("kind", pairs.KINDS)
def test_equal_pairs_are_right_and_different_ones_wrong(kind: str):
    """A part of each kind; ``python -m tests.env_servers.pairs`` judges all of them."""
    wrong = [pair for pair in pairs.pairs(kind, 25) if correct(pair[1], pair[0]) is not pair[2]]
    assert not wrong


def test_golds_of_public_sets(shared_data: Path):
    wrong = [pair for pair in pairs.of_data(shared_data, every=6) if correct(pair[1], pair[0]) is not pair[2]]
    assert not wrong


def test_answers_that_people_met():
    cases = [json.loads(line) for line in (INPUTS / "math_answers.jsonl").read_text().splitlines()]
    assert [case["id"] for case in cases if correct(case["answer"], case["gold"]) is not case["right"]] == []


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("0.3333", "0.33", True),
        ("1/3", "0.33", True),
        ("0.34", "0.33", False),
        ("0.333", "1/3", False),
        ("0.00012", "0.0001", False),
        ("2.04", "2", False),
        ("123456790.0", "123456789", False),
        ("1.414214", "\\sqrt{2}", True),
        ("1.41421", "\\sqrt{2}", False),
        ("0.0", "0", True),
        ("1e-300", "0", False),
        ("2^{1987}", "2^{1987} + 1", False),
        ("50%", "0.5", True),
        ("50", "50\\%", True),
        ("\\pi/2", "90^\\circ", True),
        ("5 m", "5 \\text{ cm}", False),
        ("25 ft^2", "25 \\text{ square feet}", True),
        ("25 ft", "25 \\text{ square feet}", False),
        ("3 dozen eggs", "36", True),
        ("3 million dollars", "\\$3000000", True),
        ("12 m", "12", True),
        ("12m", "12", False),
        ("y = 5", "x = 5", False),
        ("3x = 81", "81", False),
        ("6*7 = 42", "42", True),
        ("6*7 = 43", "43", False),
        ("[0, 1]", "(0, 1)", False),
        ("{1, 2}", "[1, 2]", False),
        ("(2, 1)", "x = 1, y = 2", False),
        ("[-2, 2]", "\\pm 2", True),
        ("2", "\\pm 2", False),
        ("{1, 2} ∪ {3}", "{1, 2, 3}", True),
        ("x \\ne 0", "(-\\infty, 0) \\cup (0, \\infty)", True),
        ("\\{x \\mid x > 3\\}", "(3, \\infty)", True),
        ("(2n-1)3^n", "3^n(2n - 1)", True),
        ("sqrt(x**2)", "x", False),
        ("sqrt(x)*sqrt(y)", "\\sqrt{xy}", True),
        ("-f(-y)", "f(y)", False),
        ("(-8)**(1/3)", "-2", True),
        ("exp(I*pi)", "-1", True),
        ("6:2:4", "3:1:2", True),
        ("1:3", "3:1", False),
        ("0.\\overline{3}", "1/3", True),
        ("2516", "2516_8", True),
        ("2516_7", "2516_8", False),
        ("5 18", "90", False),
        ("2\\frac53", "10/3", True),
        ("1\\frac14", "5/4", True),
        ("3 11/12", "47/12", True),
        ("1 apple", "1", True),
        ("2 or", "2", False),
        ("2@", "2", False),
        ("True", "1", False),
        ("13", "B. 13", True),
        ("B", "B. 13", True),
        ("C", "B. 13", False),
    ],
)
def test_what_an_answer_means(answer: str, gold: str, right: bool):
    assert correct(answer, gold) is right


@pytest.mark.parametrize(
    "answer",
    [
        "9**9**9**9",
        "(((x+1)**999)**999)**999",
        "factorial(10**9)",
        "factorial(factorial(20))",
        "sin(10**100000)",
        "exp(10**100000)",
        "10**-(10**10)",
        "1e999999999",
        "1e-999999999",
        "(" * 200 + "3" + ")" * 200,
        "-" * 300 + "3",
        "x" + "^x" * 190,
        "\\frac" * 80 + "3",
        "{" * 399,
        "+".join(f"sin(sqrt({n}+x))" for n in range(24)),
        "__import__('os').system('id')",
        "lambda: 3",
        "3" + ", 3" * 130,
    ],
)
def test_an_answer_cannot_hold_the_server_up_nor_run(answer: str):
    """Each of these once took minutes, or a stack, or an interpreter, in one grader or another."""
    before = sys.getrecursionlimit()
    assert correct(answer, "3") is False and correct(answer, "\\sin(\\sqrt{x}) + \\sqrt{2}") is False
    assert sys.getrecursionlimit() == before


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(max_size=40) | st.text("0123456789+-*/^_=<>()[]{}|,.:!%°'\"\\ xyeiπ√½@$&~", max_size=30))
def test_any_text_is_judged(text: str):
    assert correct(text, "0.125") in (True, False) and correct("42", text or "-") in (True, False)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(2, 10**6),
    st.lists(
        st.sampled_from("is not wrong or maybe 7 minus pi squared about x of the per ( ) ! , ? - ^".split()),
        min_size=1,
        max_size=4,
    ),
)
def test_what_follows_a_number_is_part_of_the_answer(number: int, rest: list[str]):
    if rest not in (["pi"], [","]):
        assert not correct(f"{number} {' '.join(rest)}", str(number))


def test_a_long_answer_is_wrong():
    assert (
        not correct(", ".join(map(str, range(200))) + ", 18", "18") and len(", ".join(map(str, range(200)))) > MAX_CHARS
    )


def test_what_is_in_a_box():
    assert boxed("\\boxed{1} and \\boxed{\\frac{a}{b}} end") == "\\frac{a}{b}" and boxed("\\boxed{1") == "" == boxed(
        "1"
    )
