"""Files of a run with drawn values in drawn places, and whatever checksum they need: each is read, or refused in a
sentence."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agentr
from agentr.commands.doctor import examine, stale_stages
from agentr.config.text import parse_yaml
from agentr.errors import AgentrError
from agentr.observe.status import describe_plan, describe_stage
from agentr.observe.summary import summarise
from agentr.observe.troubles import describe, troubles
from agentr.outside import DEEPEST, parse_json
from agentr.rounds.prune import prunable
from agentr.store.inside import check_names
from agentr.store.seal import write_checked
from agentr.ui.library import Library
from agentr.ui.views.home import home
from agentr.words import seen
from tests.strangers.attacks import HOSTILE
from tests.strangers.test_looking import whole

__all__ = ["whole"]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([HOSTILE, "../x", "/", "1e999"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)

#: Files with a checksum of their own, and those without.
CHECKED = ["manifest.json", "model/stage.json", "rounds/01/collect/stage.json", "rounds/01/train/stage.json",
           "rounds/01/eval/stage.json",
           "rounds/01/dataset/stage.json", "rounds/01/collect/manifest.json"]  # fmt: skip
PLAIN = ["rounds/01/dataset/manifest.json", "rounds/01/eval/evaluation.json"]


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """All lists and tables in plain data, each with a key."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield data, key
        if isinstance(value, dict | list):
            yield from places(value)


def changed(draw: st.DataObject, found: Any) -> Any:
    """Puts a drawn value in a drawn place, or takes that place away."""
    there = list(places(found))
    holder, key = there[draw.draw(st.integers(0, len(there) - 1), "place")]
    if draw.draw(st.booleans(), "taken away"):
        del holder[key]
    else:
        holder[key] = draw.draw(VALUES, "value")
    return found


def looked_at(run: Path) -> None:
    """Calls what the commands that look are made of."""

    def each(call: Any) -> None:
        try:
            found = call()
            list(found) if isinstance(found, Iterator) else found
        except AgentrError:
            pass

    each(lambda: home(Library([run.parent])))
    each(lambda: examine(run))
    each(lambda: stale_stages(run))
    try:
        opened = agentr.open(run)
    except AgentrError:
        return
    each(lambda: [describe_stage(record, records) for records in [opened.records()] for record in records.values()])
    each(lambda: describe_plan(opened.records(), opened.planned()))
    each(lambda: [describe(trouble) for trouble in troubles(opened.events())])
    each(lambda: summarise(opened))
    each(lambda: prunable(opened, "last 1"))
    each(opened.policies)
    each(opened.metrics)
    for stage in opened.stages().values():
        each(lambda stage=stage: list(stage) if hasattr(stage, "keys") else stage.summary)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(draw=st.data())
def test_a_value_anywhere_is_read_or_refused(whole: Path, draw: st.DataObject) -> None:
    run = whole.parent / "drawn" / "r"
    shutil.rmtree(run.parent, ignore_errors=True)
    shutil.copytree(whole, run)
    name = draw.draw(st.sampled_from([*CHECKED, *PLAIN, "config.yaml", "events.jsonl"]), "file")
    file = run / name
    if name == "config.yaml":
        file.write_text(yaml.safe_dump(changed(draw, yaml.safe_load(file.read_text()))))
    elif name == "events.jsonl":
        lines = changed(draw, [json.loads(line) for line in file.read_text().splitlines()])
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        data = changed(draw, json.loads(file.read_text()))
        if name in CHECKED:
            data.pop("checksum", None)
            write_checked(file, data)
        else:
            file.write_text(json.dumps(data))
    looked_at(run)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.text())
def test_a_name_is_a_place_in_the_run_or_refused(name: str) -> None:
    try:
        check_names([name], "a run")
    except AgentrError:
        return
    place = Path("/a/run", name)
    assert place != Path("/a/run") and place.is_relative_to("/a/run") and ".." not in place.parts and seen(name) == name


@settings(max_examples=50, derandomize=True, deadline=None)
@given(
    st.lists(st.sampled_from(["[", "{a: ", "- ", "? ", "!!set ", "&a ", "*a ", "[[", "\n ", "<<: "]), max_size=300),
    st.integers(1, 500),
)
def test_a_text_is_read_as_yaml_or_refused(parts: list[str], times: int) -> None:
    with contextlib.suppress(yaml.YAMLError):
        parse_yaml("".join(parts) * times)


@pytest.mark.parametrize("deep", [DEEPEST, DEEPEST + 1, 100_000])
def test_a_document_has_so_many_levels(deep: int) -> None:
    text = "[" * deep + "]" * deep
    for read, refused in ((parse_json, ValueError), (parse_yaml, yaml.YAMLError)):
        if deep <= DEEPEST:
            read(text)
        else:
            with pytest.raises(refused, match="levels"):
                read(text)
