"""Numbers carry the formula that made them."""

import math

from hypothesis import given as drawn
from hypothesis import strategies as st

from agentr.cost.number import Number, given, least, most, shown, up

NAMES = [given(name, value, "here") for name, value in (("a", 3), ("b", 0.5), ("c", 7), ("d", 2))]


def numbers() -> st.SearchStrategy[Number]:
    leaf = st.sampled_from(NAMES)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(inner, inner, st.sampled_from("+-*/")).map(
                lambda found: {"+": found[0] + found[1], "-": found[0] - found[1], "*": found[0] * found[1],
                               "/": found[0] / (found[1] * found[1] + 1)}[found[2]]
            ),
            st.tuples(inner, inner).map(lambda found: most(*found)),
            st.tuples(inner, inner).map(lambda found: least(*found)),
            inner.map(up),
        ),
        max_leaves=8,
    )  # fmt: skip


@drawn(numbers())
def test_the_formula_that_is_shown_gives_the_value(number: Number) -> None:
    """Also with a name for a part of it: an expression that lost its brackets would give another value."""
    known = {"max": max, "min": min, "ceil": math.ceil, **{one.text: one.value for one in NAMES}}
    assert math.isclose(eval(number.text, {}, known), number.value, rel_tol=1e-9, abs_tol=1e-9)
    part = number.named("part")
    both = part * 2 - part
    assert math.isclose(eval(both.text, {}, {**known, "part": number.value}), both.value, abs_tol=1e-9)
    assert both.inputs == (part,) and part.formula == number.text


def test_every_input_is_told_once_with_its_source() -> None:
    weights = (given("parameters", 8e9, "config.json") * given("bytes", 2, "bfloat16")).named("weights", "B")
    told = (weights + weights / given("workers", 4, "trainer.workers")).named("need", "B").explain()
    assert told.splitlines()[0] == "need = weights + weights / workers = 18.6 GiB"
    assert told.count("parameters = 8,000,000,000   (config.json)") == 1 and told.count("weights = ") == 1


def test_values_are_shown_with_units() -> None:
    assert [shown(2.0**30, "B"), shown(512, "B"), shown(1234.0, ""), shown(0.25, "s")] == [
        "1 GiB", "512 B", "1,234", "0.25 s"
    ]  # fmt: skip
