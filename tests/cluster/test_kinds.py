"""The kinds of causes, their table in the documentation, and the tests that provoke them."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from agentr.cluster.causes import CauseKind
from agentr.methods import load

ROOT = Path(__file__).parents[2]
TABLE = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in (ROOT / "docs" / "cluster.md")
    .read_text(encoding="utf-8")
    .partition("\n| kind |")[2]
    .partition("\n\n")[0]
    .splitlines()[2:]
]


def test_every_kind_has_a_line_in_the_documentation() -> None:
    assert [row[0].strip("` ") for row in TABLE] == list(CauseKind)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_every_setting_of_the_table_is_one(row: list[str]) -> None:
    for key in re.findall(r"`([\w.]+)`", row[3]):
        found: Any = load(
            None,
            [
                "method.type=grpo",
                "method.tasks=2",
                "method.episodes=2",
                "train=[{batch_size: 4, micro_batch_size: 4}]",
                "warm_start.enabled=false",
            ],
        )
        for name in key.split("."):
            found = found[0] if isinstance(found, list) else found
            assert is_dataclass(found) and name in {field.name for field in fields(found)}, key
            found = getattr(found, name)


@pytest.mark.parametrize("kind", CauseKind)
def test_every_kind_is_provoked_by_a_test(kind: CauseKind) -> None:
    files = ["rounds/test_causes.py", "rounds/test_experiment.py", "store/test_mirror.py", "cluster/test_node_watch.py"]
    tests = "".join((ROOT / "tests" / file).read_text(encoding="utf-8") for file in files)
    assert f"Kind.{kind}" in tests or f'"{kind}"' in tests
