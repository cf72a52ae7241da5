"""The JSON schema by which editors check a configuration: it takes what is shipped, and refuses what loading
refuses."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agentr.config.identity import plain
from agentr.config.json_schema import config_schema
from agentr.config.schema import Config
from agentr.config.text import parse_yaml
from agentr.errors import ConfigError
from agentr.methods import load, methods

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "configs").rglob("*.yaml"))
FILE = ROOT / "configs" / "schema.json"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return config_schema(methods())


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_file_is_that_of_the_sections(schema: dict[str, Any]) -> None:
    assert json.loads(FILE.read_text()) == schema, "run: agentr config schema > configs/schema.json"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_each_shipped_file_names_it_and_is_taken(validator: jsonschema.Draft202012Validator, path: Path) -> None:
    first = path.read_text().splitlines()[0]
    named = first.removeprefix("# yaml-language-server: $schema=")
    assert named != first and (path.parent / named).resolve() == FILE
    data = json.loads(json.dumps(parse_yaml(path.read_text())))  # in which keys are texts, as in editors
    assert [error.message for error in validator.iter_errors(data)] == []


def leaves(data: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, value in items:
        yield (*above, name)
        yield from leaves(value, (*above, name))


def every() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, method in methods().items():
        yield name, plain(Config(method=method.config_class()))


def within(data: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        data = data[name]
    return data


@pytest.mark.slow
def test_every_key_misspelt_is_refused(validator: jsonschema.Draft202012Validator) -> None:
    tried = 0
    for _, data in every():
        assert validator.is_valid(data)
        for path in leaves(data):
            if isinstance(path[-1], int):
                continue
            wrong = copy.deepcopy(data)
            section = within(wrong, path[:-1])
            section[f"{path[-1]}x"] = section.pop(path[-1])
            assert not validator.is_valid(wrong), path
            tried += 1
    assert tried > 2000


def test_wrong_values_that_loading_refuses_are_refused(
    validator: jsonschema.Draft202012Validator, tmp_path: Path
) -> None:
    """Of each method's keys some, by chance, get a value of another kind or out of every range."""
    rng, refused, taken = random.Random(0), 0, []
    all_data = dict(every())
    while refused < 200:
        name = rng.choice(list(all_data))
        keys = [
            path for path in leaves(all_data[name]) if path[-1] != "type" and all(isinstance(key, str) for key in path)
        ]
        path = rng.choice([path for path in keys if not isinstance(within(all_data[name], path), dict)])
        value = rng.choice([-7, 1.5, "no such value", True, [3], {"a": 1}, None])
        data: dict[str, Any] = {"method": {"type": name}}
        part = data
        for key in path[:-1]:
            part = part.setdefault(key, {})
        part[path[-1]] = value
        file = tmp_path / "config.yaml"
        file.write_text(json.dumps(data))
        try:
            load(file, files=False)
        except ConfigError as error:
            refused += 1
            if validator.is_valid(data):
                taken.append((".".join(path), value, str(error)))
    by_rule = [one for one in taken if "is refused" in one[2] or "is no section" in one[2] or "unknown key" in one[2]]
    assert by_rule == [], "what types and ranges refuse, the schema refuses"
    assert len(taken) < 40, taken
