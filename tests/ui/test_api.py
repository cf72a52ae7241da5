"""The types of the pages' answers: the server's answers are of them, and the page's TypeScript is made of them."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from agentr.ui.api import QUESTIONS
from agentr.ui.library import Library
from agentr.ui.server import app
from tests.ui.conftest import ORIGIN, Ask, asked_by_program, asking, compared, growing
from tests.ui.page_types import FILE, typescript

REVISE, DATASET = "rounds/01/revise", "rounds/01/dataset"


def test_the_pages_types_are_those_of_the_answers() -> None:
    assert FILE.read_text(encoding="utf-8") == typescript(), (
        "make them anew: python -m tests.ui.page_types, then make ui"
    )


def fits(name: str, answer: Any) -> None:
    """Checks that an answer has what its type says, and nothing else."""
    found = msgspec.json.decode(json.dumps(answer), type=QUESTIONS[name])
    assert json.loads(msgspec.json.encode(found)) == answer


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("home", {}),
        ("state", {}),
        ("run", {}),
        ("tasks", {}),
        ("patterns", {}),
        ("forest", {"stage": REVISE}),
        ("tree", {"stage": REVISE, "key": "door"}),
        ("turns", {"stage": REVISE, "key": "door", "nodes": "0,1,8"}),
        ("dataset", {"stage": DATASET}),
        ("row", {"stage": DATASET, "index": 0}),
    ],
)
def test_answers_are_of_their_types(ask: Ask, name: str, query: dict[str, Any]) -> None:
    fits(name, ask(name, **query))


def test_answers_of_a_program_are_of_their_types(runs: Path) -> None:
    _, store = growing(runs / "first", asked_by_program())
    store.close()
    where = {"stage": "rounds/02/collect", "key": "asks"}
    ask = asking(runs)
    fits("tree", ask("tree", **where))
    fits("turns", ask("turns", **where, nodes="0,1,2,3,4,5,6"))


def test_logs_and_comparisons_are_of_their_types(runs: Path) -> None:
    log = runs / "first/logs/driver.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("a line\n")
    client = TestClient(app(Library([runs]), "127.0.0.1", 8300), base_url=ORIGIN)
    fits("log", client.get("/api/log", params={"run": "first", "name": "driver.log"}).json())
    compared(runs)
    fits("compare", asking(runs, "compared")("compare"))
