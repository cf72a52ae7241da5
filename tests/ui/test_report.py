"""The report of a run: the same answers as the server's in one file, as many trees as there is room for, and texts that
stay texts."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import agentr
from agentr.store.run import RunStore
from agentr.store.summaries import TrainSummary
from agentr.types import Outcome
from agentr.ui.report import TRIED, run_table, write_report
from agentr.ui.show import address
from tests.runs import measured_trees, written
from tests.support import held_in
from tests.trees import episode
from tests.ui.conftest import Ask

HOSTILE = "</script></pre><img src=x onerror=\"document.title='taken'\">\u202egnp\0"


def report(root: Path, out: Path) -> dict[str, Any]:
    out.mkdir(exist_ok=True)
    write_report(agentr.open(root), out)
    return held_in(out / "report.html")


def test_a_report_has_what_the_server_says(made: Path, ask: Ask, tmp_path: Path) -> None:
    held = report(made / "first", tmp_path)
    page, theirs = held[address("run", run="run")], ask("run")
    differs = {"card", "logs", "problems", "config"}
    assert {name: page[name] for name in page if name not in differs} == {
        name: theirs[name] for name in theirs if name not in differs
    }
    assert {**theirs["card"], "id": "run", "path": ""} == page["card"] and page["problems"] == theirs["problems"] == []
    for name, query in (
        ("tasks", {}),
        ("patterns", {}),
        ("forest", {"stage": "rounds/01/eval"}),
        ("dataset", {"stage": "rounds/01/dataset"}),
    ):
        assert held[address(name, run="run", **query)] == ask(name, **query), name
    trees = [name for name in held if name.startswith("api/tree?")]
    assert len(trees) == sum(forest["total"] for name, forest in held.items() if name.startswith("api/forest?")) == 9
    saved = (tmp_path / "report.html").read_bytes()
    report(made / "first", tmp_path)
    assert saved == (tmp_path / "report.html").read_bytes(), "the same run has the same page"


def test_examples_are_what_was_won_what_was_lost_and_a_row_with_its_tokens(made: Path, tmp_path: Path) -> None:
    held = report(made / "first", tmp_path)
    won, lost, row = held[address("run", run="run")]["examples"]
    assert (won["query"]["task"], lost["query"]["task"], row["title"]) == (
        "a",
        "c",
        "a row that was trained on: revision",
    )
    side = held[address("row", run="run", **row["query"])]["sides"][0]
    assert side["tokens"] and 0 < sum(side["mask"]) < side["count"]


def test_a_run_with_little_in_it_has_a_report(tmp_path: Path) -> None:
    root = written(tmp_path, "run", 0, ["a", "ab"], 1).root
    held = report(root, tmp_path / "out")
    page = held[address("run", run="run")]
    assert page["claims"] and page["examples"][0]["query"]["task"] == "b"
    assert {problem["message"].split(" cannot")[0] for problem in page["problems"]} == {
        f"the tree b of rounds/0{n}/eval" for n in (0, 1)
    }
    assert run_table(write_report(agentr.open(root))).row_count == 2
    assert json.loads((root / "report.json").read_text())["complete"]


def test_a_report_tells_nobody_what_may_be_a_secret(made: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made / "first", tmp_path / "run"))
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["env"]["options"] = {"api_key": "sk-very-secret"}
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    held = report(copy, tmp_path / "out")
    told = yaml.safe_load(held[address("run", run="run")]["config"])
    assert told["env.options.api_key"] == "(not shown)" and told["run.seed"] == 0


def test_texts_of_models_and_worlds_stay_texts(made: Path, tmp_path: Path) -> None:
    copy = hostile(made, tmp_path)
    held = report(copy, tmp_path / "out")
    text = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert (
        text.count("<script") == text.count("</script") == 2
        and "<img" not in text
        and "\u202e" not in text.split('id="answers"')[0]
    )
    assert held[address("run", run="run")]["card"]["name"] == HOSTILE.replace("\0", "")
    turn = held[address("turns", run="run", stage="rounds/01/eval", key="a", nodes=1)]["turns"][0]
    assert turn["text"] == turn["observation"] == HOSTILE, "nothing of it is lost"


def hostile(made: Path, folder: Path) -> Path:
    """A copy of the run whose name, turns and observations are hostile."""
    copy = Path(shutil.copytree(made / "first", folder / "hostile"))
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["run"]["name"] = HOSTILE.replace("\0", "")
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    tree = episode("a", ["x", "y"], 1.0, Outcome.SUCCESS, 1)
    for node in tree.nodes[1:]:
        node.text = node.observation = node.action = HOSTILE
    remeasure(copy, [tree])
    return copy


def remeasure(root: Path, trees: list[Any]) -> None:
    store = RunStore(root)
    store.stages.set_aside("rounds/01/eval")
    store.take()
    measured_trees(store, "rounds/01/eval", trees)
    store.close()


@pytest.mark.slow
def test_a_large_run_has_a_report_below_five_megabytes_that_says_what_it_leaves_out(made: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made / "first", tmp_path / "large"))
    trees = [
        episode(f"{number:04d}", [f"step {turn}" for turn in range(20)], 1.0, Outcome.SUCCESS, 1)
        for number in range(2 * TRIED)
    ]
    for tree in trees:
        for node in tree.nodes[1:]:
            node.text = node.observation = "\"'<&>\u202e" * 200
    remeasure(copy, trees)
    store = RunStore(copy)
    store.take()
    for number in range(2, 40):
        lines = "".join(f'{{"step": {step}, "loss": {1 / (step + 1)}, "entropy": 0.5}}\n' for step in range(5000))

        def train(folder: Path, lines: str = lines) -> TrainSummary:
            (folder / "metrics.jsonl").write_text(lines)
            return TrainSummary(steps=5000)

        store.stages.run(f"rounds/{number:02d}/train", TrainSummary, train)
    store.close()
    held = report(copy, tmp_path / "out")
    assert 1_000_000 < (tmp_path / "out/report.html").stat().st_size < 5_000_000
    page, forest = held[address("run", run="run")], held[address("forest", run="run", stage="rounds/01/eval")]
    kept = [name for name in held if name.startswith("api/tree?")]
    assert 0 < len(kept) < TRIED and forest["matched"] == len(forest["rows"]) < forest["total"] == 2 * TRIED
    said = " ".join(problem["message"] for problem in page["problems"])
    total = sum(found["total"] for name, found in held.items() if name.startswith("api/forest?"))
    assert f"leaves out {total - len(kept)} of {total} trees" in said and "some points of long curves" in said
    assert max(len(arm["curve"]) for arm in page["arms"]) <= 300 and page["arms"][-1]["title"] == "round 39"
    assert not re.search(
        r"<(link|img|iframe)|\ssrc=", (tmp_path / "out/report.html").read_text().split('id="answers"')[0]
    )
