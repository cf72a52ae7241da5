"""The pages on the architecture say what the code does: their parts are made anew, and what they name exists."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs import a_turn, architecture, costs, estimates, fidelity, metrics, read_a_run
from tests.docs.pages import PART, ROOT, WIDTH, parts, refreshed

PAGES = pytest.mark.parametrize(
    "page", [architecture.PAGE, a_turn.PAGE, metrics.PAGE, fidelity.PAGE], ids=lambda page: page.stem
)


def a_turn_part() -> Callable[[str], str]:
    made = a_turn.snippets()
    assert list(made) == parts(a_turn.PAGE), "the page shows other parts than the script makes"
    return made.__getitem__


SCRIPTS = [
    (architecture, lambda: architecture.make),
    (a_turn, a_turn_part),
    (fidelity, lambda: fidelity.make),
    (costs, lambda: costs.make),
    pytest.param(estimates, lambda: estimates.make, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(
    ("script", "maker"), SCRIPTS, ids=["architecture", "a_turn", "fidelity", "cost", "your_model_and_gpu"]
)
def test_the_page_says_what_the_code_does(script, maker: Callable[[], Callable[[str], str]]) -> None:
    now = refreshed(script.PAGE, maker())
    assert now == script.PAGE.read_text(encoding="utf-8"), (
        f"write docs/{script.PAGE.name} anew: python -m {script.__name__}"
    )


def test_the_page_prints_what_its_python_prints(tmp_path: Path) -> None:
    read_a_run.small(tmp_path / read_a_run.RUN)
    now = refreshed(read_a_run.PAGE, read_a_run.printed(tmp_path).__getitem__)
    assert now == read_a_run.PAGE.read_text(encoding="utf-8"), (
        "write docs/read_a_run.md anew: python -m tests.docs.read_a_run"
    )
    assert "<svg" in (tmp_path / "success.svg").read_text(encoding="utf-8") and read_a_run.PICTURE.exists()


def test_every_metric_and_alert_is_described() -> None:
    assert metrics.PAGE.read_text(encoding="utf-8") == metrics.page(), (
        "write docs/metrics.md anew: python -m tests.docs.metrics"
    )


def test_the_picture_leaves_out_what_follows() -> None:
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}}
    assert architecture.reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": {"d"}}


def test_every_package_has_its_line() -> None:
    rows = re.findall(
        r"^\| (`.*?) \|.*\| `(\S+)`(?:: `(\w+)`)? \|$", architecture.PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    graph = architecture.imports()
    boxes = set(graph) | set().union(*graph.values())
    assert {re.findall(r"\w+", name)[0] for name, _, _ in rows} == {re.findall(r"\w+", box)[0] for box in boxes}
    for name, file, shown in rows:
        body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        assert not shown or shown in {getattr(node, "name", "") for node in body}, f"{name}: {file} has no {shown}"


@PAGES
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    files = re.findall(r"`((?:agentr|env_servers|tests|docs)/[\w./]+)`", text)
    links = [name for name in re.findall(r"\]\(([^)#]+)", text) if "://" not in name]
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert [name for name in links if not (page.parent / name).exists()] == []


@PAGES
def test_lines_are_short(page: Path) -> None:
    text = PART.sub("", page.read_text(encoding="utf-8"))
    assert [line for line in text.splitlines() if len(line) > WIDTH and not line.startswith("|")] == []
