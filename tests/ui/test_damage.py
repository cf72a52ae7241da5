"""Runs that are damaged, half written, of another version, forbidden or gone: a sentence on the page, and the rest is
shown."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agentr.ui import server
from agentr.ui.library import Library
from tests.trees import door
from tests.ui.conftest import ORIGIN, asking, compared, get, growing, started

COLLECT, REVISE, DATASET = "rounds/01/collect", "rounds/01/revise", "rounds/01/dataset"


def spoil(path: Path, begin: int = 200, size: int = 400) -> None:
    """Turns bytes of a file over."""
    data = bytearray(path.read_bytes())
    data[begin : begin + size] = bytes(255 - byte for byte in data[begin : begin + size])
    path.write_bytes(data)


def sign(path: Path, **changed: Any) -> None:
    """Changes entries of a file with a checksum, which holds afterwards."""
    from agentr.store.seal import read_checked, write_checked

    write_checked(path, {**read_checked(path), **changed})


def rewrite(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def later(run: Path) -> None:
    for path in [run / "manifest.json", *run.glob("rounds/*/*/stage.json"), run / "model/stage.json"]:
        rewrite(path, format=99, agentr="9.9")


def half_a_line(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][: len(lines[1]) // 2], *lines[2:]]) + "\n")


@pytest.mark.parametrize(
    ("damage", "name", "query", "said"),
    [
        (
            lambda run: spoil(run / COLLECT / "trees/00000.parquet"),
            "tree",
            {"stage": COLLECT, "key": "t1"},
            "trees/00000.parquet is damaged",
        ),
        (
            lambda run: (run / COLLECT / "trees/00000.parquet").write_bytes(b""),
            "tree",
            {"stage": COLLECT, "key": "t1"},
            "00000.parquet is damaged",
        ),
        (
            lambda run: (run / COLLECT / "summary.parquet").unlink(),
            "forest",
            {"stage": COLLECT},
            "summary.parquet is damaged or missing",
        ),
        (
            lambda run: shutil.copy(run / REVISE / "trees/00000.parquet", run / COLLECT / "trees/00000.parquet"),
            "tree",
            {"stage": COLLECT, "key": "t1"},
            "another hash than when it was written",
        ),
        (
            lambda run: rewrite(run / DATASET / "manifest.json", format=99),
            "dataset",
            {"stage": DATASET},
            "stored in format 99",
        ),
        (
            lambda run: sign(run / COLLECT / "manifest.json", format=99),
            "tree",
            {"stage": COLLECT, "key": "door"},
            "stored in format 99",
        ),
        (
            lambda run: spoil(run / COLLECT / "manifest.json", 40, 20),
            "tree",
            {"stage": COLLECT, "key": "door"},
            "manifest.json",
        ),
        (
            lambda run: spoil(run / DATASET / "rows.parquet", 10, 200),
            "row",
            {"stage": DATASET, "index": 0},
            "rows.parquet is damaged",
        ),
        (later, "run", {}, "stored in format 99"),
    ],
    ids=["pages", "empty", "missing", "hash", "rows-later", "trees-later", "manifest", "rows", "run-later"],
)
def test_what_cannot_be_answered_says_which_file_and_why(
    runs: Path, damage: Callable[[Path], Any], name: str, query: dict[str, Any], said: str
) -> None:
    shutil.copytree(runs / "first", runs / "second")
    damage(runs / "first")
    ask = asking(runs)
    error = ask(name, 404, **query)["error"]
    assert said in error["message"], error
    first, second = ask("home")["runs"]
    assert (first["id"], second["id"], second["problem"]) == ("first", "second", "")
    assert asking(runs, "second")(name, **query)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: half_a_line(run / "events.jsonl"), "events.jsonl, line 2 is damaged"),
        (
            lambda run: (run / "rounds/01/train/metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "lo'),
            "",
        ),
        (
            lambda run: (run / "rounds/01/train/metrics.jsonl").write_text("{}\n{\n{}\n"),
            "metrics.jsonl, line 2 is damaged",
        ),
        (
            lambda run: (run / "rounds/01/eval/evaluation.json").write_text('{"success": 1}'),
            "the results cannot be read",
        ),
        (lambda run: (run / "rounds/01/eval/evaluation.json").unlink(), "evaluation.json does not exist"),
        (lambda run: (run / COLLECT / "summary.parquet").write_bytes(b"PAR1"), f"{COLLECT} cannot be read"),
    ],
    ids=["events", "last-line", "curve", "keys", "evaluation", "table"],
)
def test_the_page_of_a_run_names_what_it_lacks(runs: Path, damage: Callable[[Path], Any], said: str) -> None:
    damage(runs / "first")
    page = asking(runs)("run")
    told = [problem["message"] for problem in page["problems"]]
    assert any(said in message for message in told) if said else told == [], told
    assert (
        [arm["title"] for arm in page["arms"]] == ["warm start", "round 1"]
        and page["config"]
        and page["card"]["method"].endswith("/imitate.py")
    )
    assert [stage["step"] for stage in page["arms"][1]["stages"]] == ["collect", "revise", "dataset", "train", "eval"]


def test_other_policies_are_shown_without_the_one_that_cannot_be_read(runs: Path) -> None:
    (runs / "first/rounds/01/eval/evaluation.json").write_text("[")
    shutil.rmtree(runs / "first/rounds/01/eval/trees")
    ask = asking(runs)
    found = ask("tasks")
    assert [task["scores"] for task in found["tasks"]] == [[0.0, None], [0.0, None], [1.0, None]]
    assert "the evaluation of round 1 cannot be read" in found["problems"][0]["message"]
    found = ask("patterns")
    assert [policy["title"] for policy in found["policies"]] == ["warm start"]
    assert "the episodes of round 1 cannot be read" in found["problems"][0]["message"]


def test_a_growing_stage_is_listed_without_the_tree_that_was_half_written(runs: Path) -> None:
    forest, store = growing(runs / "first", door(), _named("other"))
    path = forest.work / "finished/other.json.zst"
    path.write_bytes(path.read_bytes()[:100])
    (forest.work / "failures.jsonl").write_text('{"key": "x", "reason": "\\ud800 no answer"}\n{"key"')
    store.close()
    ask = asking(runs)
    found = ask("forest", stage="rounds/02/collect")
    assert [row["key"] for row in found["rows"]] == ["door"] and found["failed"] == [
        {"key": "x", "reason": "\ud800 no answer"}
    ], "half of a pair, too"
    assert "the tree other cannot be read" in found["problems"][0]["message"]
    assert "damaged" in ask("tree", 404, stage="rounds/02/collect", key="other")["error"]["message"]


def test_a_comparison_is_shown_without_the_run_that_cannot_be_read(runs: Path) -> None:
    folder = compared(runs)
    (folder / "other/seed-1/config.yaml").write_text("{")
    (folder / "other/seed-1/manifest.json").write_text("{")
    (folder / "base/seed-1/rounds/01/eval/evaluation.json").write_text("{")
    ask = asking(runs, "compared")
    found = ask("compare")
    told = " ".join(problem["message"] for problem in found["problems"])
    assert "other, seed 1, cannot be read" in told and "base, seed 1, cannot be read" in told
    states = {(method["label"], run["seed"]): run["state"] for method in found["methods"] for run in method["runs"]}
    assert states["base", 1] == "unreadable" and states["base", 0] == states["other", 0] == "between two stages"
    assert found["differences"]["other"]["base"]["n"] == 3, "of the seed that both have"
    (card,) = ask("home")["comparisons"]
    assert card["problem"] and card["methods"] == ["base", "other"] and card["seeds"] == [0, 1]
    (folder / "plan.json").write_text("{")
    assert "plan" in asking(runs, "compared")("home")["comparisons"][0]["problem"]


def test_numbers_that_are_none_are_left_out_of_the_answer(runs: Path) -> None:
    (runs / "first/rounds/01/train/metrics.jsonl").write_text(
        '{"step": 1, "loss": NaN}\n{"step": 2, "loss": Infinity}\n'
    )
    assert asking(runs)("run")["arms"][1]["curve"] == [{"step": 1, "loss": None}, {"step": 2, "loss": None}]


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("by zero"), AttributeError("no such field"), RecursionError("too deep"), MemoryError()]
)
def test_a_defect_is_a_sentence_and_its_place_is_logged(
    made: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def defect(*_: Any, **__: Any) -> None:
        raise error

    client = TestClient(server.app(Library([made]), "127.0.0.1", 8300), base_url=ORIGIN)
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(server, "forest", defect)
        answer = client.get("/api/forest", params={"run": "first", "stage": COLLECT})
    assert answer.status_code == 500 and answer.headers["content-type"] == "application/json"
    assert type(error).__name__ in answer.json()["error"]["message"] and "defect" in answer.json()["error"]["hint"]
    (record,) = [record for record in caplog.records if record.name == "agentr.observe.problems"]
    assert record.exc_info and "in defect" in "".join(_traceback(record.exc_info))
    assert client.get("/api/forest", params={"run": "first", "stage": COLLECT}).status_code == 200, (
        "the server lives on"
    )


def _traceback(info: Any) -> list[str]:
    import traceback

    return traceback.format_exception(*info)


# as another user ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may read everything, and there is no setpriv"
)
def test_without_permission_to_read_the_rest_is_shown(runs: Path) -> None:
    for name in ("secret", "half"):
        shutil.copytree(runs / "first", runs / name)
    closed = [
        runs / "secret",
        runs / "half/rounds/01/eval/evaluation.json",
        runs / "half" / COLLECT / "trees/00000.parquet",
    ]
    for path in closed:
        path.chmod(0)
    try:
        with started(runs) as address:
            _, home = get(address, "api/home")
            assert [run["id"] for run in home["runs"]] == ["first", "half"]
            assert any("secret" in p["message"] and "may not be read" in p["message"] for p in home["problems"]), home[
                "problems"
            ]
            status, page = get(address, "api/run?run=half")
            assert status == 200 and any("may not be read" in problem["message"] for problem in page["problems"])
            status, tree = get(address, f"api/tree?run=half&stage={COLLECT}&key=door")
            assert status == 404 and "Permission denied" in tree["error"]["message"]
            assert get(address, f"api/tree?run=half&stage={REVISE}&key=door")[0] == 200
    finally:
        for path in closed:
            path.chmod(0o755)


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everywhere, and there is no setpriv"
)
def test_a_run_that_was_moved_and_may_not_be_written_is_readable_in_full(runs: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(runs / "first", tmp_path / "elsewhere/another name"))
    model = Path(shutil.copytree(moved / "rounds/01/train/model", moved / "model/nano"))
    sealed = moved / "model/stage.json"
    sealed.write_text(sealed.read_text().replace(_model_of(moved), "model/nano"))
    _seal_again(sealed)
    shutil.rmtree(runs)
    folders = [moved, *moved.rglob("*")]
    for path in folders[::-1]:
        path.chmod(path.stat().st_mode & 0o555)
    try:
        with started(tmp_path / "elsewhere", XDG_CACHE_HOME=str(tmp_path / "cache")) as address:
            where = f"run=another%20name&stage={REVISE}&key=door"
            for question in ("state", "run", "tasks", "patterns"):
                status, found = get(address, f"api/{question}?run=another%20name")
                assert status == 200 and found.get("problems", []) == [], question
            for question in (f"forest?{where}", f"tree?{where}", f"row?run=another%20name&stage={DATASET}&index=0"):
                status, found = get(address, f"api/{question}")
                assert status == 200 and found.get("problem", "") == "" and found.get("problems", []) == [], question
            (turn,) = get(address, f"api/turns?{where}&nodes=1")[1]["turns"]
            assert turn["tokens"], "with the tokenizer that moved along"
            probe = _probed(address, f"api/probe?{where}&at=2")
            assert probe["state"] == "done" and [policy["problem"] for policy in probe["policies"]] == ["", "", ""], (
                probe
            )
            assert all(value < 0 for policy in probe["policies"] for value in policy["logprobs"]) and model.is_dir()
    finally:
        for path in folders:
            path.chmod(0o755)


def _probed(address: str, question: str) -> dict[str, Any]:
    import time

    for _ in range(400):
        _, found = get(address, question)
        if found.get("state") != "running":
            break
        time.sleep(0.3)
    return found


def _model_of(run: Path) -> str:
    return json.loads((run / "model/stage.json").read_text())["summary"]["path"]


def _seal_again(path: Path) -> None:
    from agentr.store.seal import hash_of

    stored = json.loads(path.read_text())
    stored.pop("checksum")
    path.write_text(json.dumps({**stored, "checksum": hash_of(stored)}))


def _named(name: str) -> Any:
    from dataclasses import replace

    tree = door()
    tree.task = replace(tree.task, id=name)
    return tree
