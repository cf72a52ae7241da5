"""What the pages are told of a run."""

import math
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentr.config.identity import Identity
from agentr.methods import load
from agentr.observe.heldout import opening_of
from agentr.search.tree import Spent
from agentr.store.run import RunStore
from agentr.store.summaries import ModelSummary, TrainSummary
from agentr.types import Outcome
from agentr.ui.library import Library
from agentr.ui.server import STATIC
from agentr.ui.views.home import home
from tests.runs import TINY, given, round_of
from tests.tiny import IMITATE
from tests.trees import door, episode, reasoned
from tests.ui.conftest import Ask, asking, compared, growing, lucky, retried

REVISE = "rounds/01/revise"


def test_the_first_page_has_a_line_for_each_run(runs: Path) -> None:
    (runs / "broken").mkdir()
    (runs / "broken/config.yaml").write_text("{")
    broken, first = asking(runs)("home")["runs"]
    assert (broken["state"], broken["id"]) == ("unreadable", "broken") and broken["problem"], "and the other is shown"
    assert (first["id"], first["rounds"]) == ("first", {"done": 1, "planned": 3})
    assert first["method"].endswith("/imitate.py")
    assert (
        first["before"]["mean"] == first["after"]["mean"] == pytest.approx(1 / 3) and first["afterTitle"] == "round 1"
    )
    assert abs(datetime.fromisoformat(first["started"]) - datetime.now(UTC)) < timedelta(hours=1)
    assert first["state"] == "stopped", "three rounds are planned, and nobody works on it"


@pytest.mark.parametrize(
    "stages, state", [([], "begun"), (["model"], "stopped"), (["model", "imported/train"], "finished")]
)
def test_a_run_of_a_single_training_is_finished_with_it(tmp_path: Path, stages: list[str], state: str) -> None:
    store = RunStore(tmp_path / "one")
    store.open(Identity.of(load(None, [IMITATE, "run.rounds=2"])))
    for name in stages:
        store.stages.run(name, ModelSummary if name == "model" else TrainSummary, lambda _: TrainSummary())  # type: ignore[arg-type]
    if not stages:
        with pytest.raises(ZeroDivisionError):
            store.stages.run("model", ModelSummary, lambda _: ModelSummary(path=str(1 / 0)))
    store.close()
    (found,) = home(Library([tmp_path]))["runs"]
    assert (found["state"], found["rounds"]["planned"]) == (state, 0 if state == "finished" else 2)


def test_what_was_waited_for_is_said_of_the_stage_that_waited(tmp_path: Path) -> None:
    """Revised trees hold the searched ones with what was spent on them; that is the search's."""
    searched, revised = door(), door()
    for tree in (searched, revised):
        tree.pay(Spent(0, 0, 1, 100.0, 30.0, 0))
    revised.pay(Spent(1, 0, 1, 2.0, 0.5, 0))
    round_ = round_of(tmp_path / "first", TINY, collect=[searched])
    given(round_.experiment.store, "rounds/01/revise", [revised], includes="rounds/01/collect")
    round_.experiment.store.close()
    (_, arm) = asking(tmp_path)("run")["arms"]
    assert {stage["step"]: stage["waited"] for stage in arm["stages"]} == {
        "collect": {"policy": 100.0, "environment": 30.0},
        "revise": {"policy": 2.0, "environment": 0.5},
    }


def test_a_turn_that_was_understood_and_refused_is_not_said_to_be_misunderstood() -> None:
    script = (STATIC / "app.js").read_text(encoding="utf-8")
    assert "not understood" not in script and 'children:"refused"' in script


def test_a_page_of_a_run_has_its_policies_stages_and_times(ask: Ask) -> None:
    page = ask("run")
    assert page["problems"] == [] and [arm["title"] for arm in page["arms"]] == ["warm start", "round 1"]
    assert [claim["after"] for claim in page["claims"]] == ["round 1"]
    one = page["arms"][1]
    assert one["kinds"] == {"revision": 1, "good": 1} and one["policy"] == "rounds/01/train"
    stages = {stage["step"]: stage for stage in one["stages"]}
    assert [stages[name]["kind"] for name in ("collect", "dataset", "train", "eval")] == [
        "trees",
        "dataset",
        "training",
        "episodes",
    ]
    assert stages["collect"]["size"] == 2 and stages["dataset"]["size"] == 2
    assert all(stage["state"] == "sealed" and stage["ended"] >= stage["started"] >= 0 for stage in stages.values())
    assert [line["loss"] for line in one["curve"]] == [2.5, 0.5]


def test_tasks_have_a_score_under_each_policy(ask: Ask) -> None:
    found = ask("tasks")
    assert [policy["stage"] for policy in found["policies"]] == ["rounds/00/eval", "rounds/01/eval"]
    assert {task["key"]: (task["scores"], task["turns"]) for task in found["tasks"]} == {
        "a": ([0.0, 1.0], [3, 3]),
        "b": ([0.0, 0.0], [3, 3]),
        "c": ([1.0, 0.0], [3, 3]),
    }


def test_patterns_lead_to_their_episodes(ask: Ask) -> None:
    before, _ = ask("patterns")["policies"]
    found = {pattern["name"]: pattern for pattern in before["patterns"]}
    assert (found["repeated action"]["episodes"], found["repeated action"]["succeeded"]) == (3, 1)
    assert found["refused action"]["episodes"] == 0 and found["reached the limit"]["episodes"] == 0
    (said,) = before["openings"]
    assert (said["name"], said["episodes"], said["keys"]) == ("on wait", 2, ["a", "b"])
    assert before["lengths"] == [[3, 3, 1]] and before["outcomes"] == {"failure": 2, "success": 1}


def test_luck_of_a_round_leads_to_its_trees(ask: Ask, tmp_path: Path) -> None:
    assert ask("patterns")["luck"] == []
    lucky(tmp_path / "first")
    (found,) = asking(tmp_path)("patterns")["luck"]
    assert found == {"title": "round 1", "stage": REVISE, "tried": 4, "luck": 1, "keys": ["lucky"]}


def test_an_opening_is_the_first_sentence() -> None:
    def opening(text: str) -> str:
        tree = episode("t", ["wait"], 0.0, Outcome.FAILURE, 1)
        tree.nodes[1].text = text
        return opening_of(tree.nodes[1])

    assert opening("Thought: That did not work. I go.\nAction: go") == "That did not work."
    assert opening("  \nGo on\nthen") == "Go on" and opening("") == ""
    assert len(opening("x" * 500)) == 120


def test_forests_are_sorted_filtered_searched_and_paged(ask: Ask) -> None:
    def keys(**query: Any) -> list[str]:
        return [row["key"] for row in ask("forest", stage="rounds/01/collect", **query)["rows"]]

    assert (
        keys() == ["door", "t1"]
        and keys(sort="turns") == ["t1", "door"]
        and keys(sort="turns", down=1) == ["door", "t1"]
    )
    assert keys(only="mixed") == keys(only="solved") == keys(only="revised") == ["door"] and keys(only="failed") == [
        "t1"
    ]
    assert (
        keys(search="OO") == ["door"]
        and keys(offset=1) == ["t1"]
        and keys(limit=1) == ["door"]
        and keys(offset=9) == []
    )
    page = ask("forest", stage="rounds/01/collect", only="failed", limit=1)
    assert (page["total"], page["matched"], page["state"]) == (2, 1, "sealed")
    assert "turns" in ask("forest", 404, stage="rounds/01/collect", sort="colour")["error"]["hint"]
    assert "solved" in ask("forest", 404, stage="rounds/01/collect", only="pretty")["error"]["hint"]
    assert REVISE in ask("forest", 404, stage="rounds/01/train")["error"]["hint"]


def test_a_page_of_a_forest_decodes_no_tree(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentr.store.forest.from_bytes", lambda *_: pytest.fail("a tree was decoded"))
    assert len(ask("forest", stage="rounds/01/collect", sort="turns", search="d")["rows"]) == 1
    monkeypatch.setattr("agentr.ui.server.PAGE", 1)
    assert len(ask("forest", stage="rounds/01/collect", limit=10**9)["rows"]) == 1, (
        "a question is not answered with all there is"
    )


def test_a_tree_is_its_topology_with_marks(ask: Ask) -> None:
    tree, seen = ask("tree", stage=REVISE, key="door"), door()
    nodes = tree["nodes"]
    assert nodes["parent"] == [node.parent for node in seen.nodes] and nodes["label"][1:4] == [
        "open",
        "take key",
        "unlock",
    ]
    assert [tree["origins"][code] for code in nodes["origin"]] == [str(node.origin) for node in seen.nodes]
    assert [tree["outcomes"][code] if code >= 0 else None for code in nodes["outcome"]] == [
        n.outcome and str(n.outcome) for n in seen.nodes
    ]
    assert nodes["visits"][:2] == [3, 2] and nodes["value"][:2] == [1.2, 1.0] and tree["searched"]
    assert nodes["logprob"] == [None] * len(seen.nodes), "unknown is not zero"
    assert [(r["bad"], r["good"], r["transition"], r["end"]) for r in tree["revisions"]] == [
        (5, 3, 4, 8),
        (6, 3, 6, -1),
    ]
    assert tree["problems"] == [] and tree["policy"] == seen.policy and tree["exploration"] == 0.25
    assert tree["elsewhere"] == [{"stage": "rounds/01/collect", "key": "door", "title": "round 1: collect"}]
    assert tree["policies"] == [
        {"name": "base", "title": "base model"},
        {"name": "rounds/00", "title": "warm start"},
        {"name": "rounds/01", "title": "round 1"},
    ]
    commands = {one["command"].split(" --run ")[0]: one["command"] for one in tree["commands"]}
    assert commands["agentr search"].endswith(f" --stage {REVISE} --tree door --turn NODE --policy POLICY")


def test_a_tree_says_what_was_tried_again_and_what_was_written(runs: Path) -> None:
    _, store = growing(runs / "first", retried())
    store.close()
    again, nothing = asking(runs)("tree", stage="rounds/02/collect", key="door")["evolutions"]
    assert (again["parent"], again["operator"], again["kept"], again["end"]) == (5, "retry", 1, 3)
    assert again["guidance"] == "Do not wait." and 0 < len(again["answer"]) < 9 * 9000, "long texts are cut"
    assert (nothing["end"], nothing["reason"]) == (-1, "nothing was redundant")


def test_a_tree_says_which_rows_were_made_of_it_and_a_row_where_it_is_from(ask: Ask) -> None:
    rows = {
        (use["kind"], tuple(use["nodes"]))
        for use in ask("tree", stage=REVISE, key="door")["uses"]
        if use["index"] is not None
    }
    assert rows == {("revision", (1, 4, 7, 8)), ("good", (1, 2, 3))}
    for index in range(2):
        row = ask("row", stage="rounds/01/dataset", index=index)
        (side,) = row["sides"]
        assert (row["kind"], tuple(side["nodes"])) in rows and (side["stage"], side["key"]) == (REVISE, "door")
    dropped = [use["reason"] for use in ask("tree", stage=REVISE, key="door")["uses"] if use["index"] is None]
    assert "executed revision earned less than the good path" in dropped
    explored = ask("tree", stage="rounds/01/collect", key="door")["uses"]
    assert explored == ask("tree", stage=REVISE, key="door")["uses"], "what was made of a stage that includes it"


def test_rows_have_their_tokens_and_what_is_learnt(ask: Ask) -> None:
    page = ask("dataset", stage="rounds/01/dataset")
    assert (page["total"], page["kinds"], page["type"]) == (2, {"revision": 1, "good": 1}, "sequences")
    assert [row["kind"] for row in ask("dataset", stage="rounds/01/dataset", kind="good")["rows"]] == ["good"]
    line = next(row for row in page["rows"] if row["kind"] == "revision")
    (side,) = ask("row", stage="rounds/01/dataset", index=line["index"])["sides"]
    assert side["count"] == line["tokens"] == len(side["tokens"]) == len(side["mask"]) == len(side["logprobs"])
    assert sum(side["mask"][1:]) == line["targets"]
    learnt = "".join(text for text, counts in zip(side["tokens"], side["mask"], strict=True) if counts)
    assert "on take key" in learnt and "on open" not in learnt and "on wait" not in learnt, (
        "the bad beginning is context"
    )
    turns = {turn["id"]: turn["text"] for turn in ask("turns", stage=REVISE, key="door", nodes="1,4,7,8")["turns"]}
    placed = {node: "".join(side["tokens"][begin:end]) for node, begin, end in side["spans"]}
    assert list(placed) == [1, 4, 7, 8] and all(turns[node] in text for node, text in placed.items())
    assert "0 to 1" in ask("row", 404, stage="rounds/01/dataset", index=2)["error"]["hint"]
    assert "rounds/01/dataset" in ask("dataset", 404, stage=REVISE)["error"]["hint"]


def test_turns_have_texts_tokens_and_scores(ask: Ask) -> None:
    one, four = ask("turns", stage=REVISE, key="door", nodes="1,4")["turns"]
    assert (one["id"], one["action"], one["observation"]) == (1, "open", "It is locked.")
    assert "".join(one["tokens"]).startswith(one["text"]) and one["logprobs"] == [None] * len(one["tokens"])
    assert one["uct"] == pytest.approx(0.5 + 0.25 * (math.log(3) / 2) ** 0.5)
    assert four["verdict"] is None and four["cut"] == 0
    assert "0 to 8" in ask("turns", 404, stage=REVISE, key="door", nodes="99")["error"]["hint"]
    assert "whole numbers" in ask("turns", 404, stage=REVISE, key="door", nodes="x")["error"]["message"]


def test_a_long_turn_is_cut_unless_the_whole_is_asked_for(runs: Path) -> None:
    tree = episode("long", ["wait"], 0.0, Outcome.FAILURE, 1)
    tree.nodes[1].text = "a" * 200_000
    growing(runs / "first", tree)
    ask = asking(runs)
    (cut,) = ask("turns", stage="rounds/02/collect", key="long", nodes="1")["turns"]
    assert (len(cut["text"]), cut["cut"]) == (20_000, 180_000)
    (whole,) = ask("turns", stage="rounds/02/collect", key="long", nodes="1", whole=1)["turns"]
    assert (len(whole["text"]), whole["cut"]) == (200_000, 0)


@pytest.mark.slow
def test_a_tree_of_ten_thousand_turns_has_a_topology_of_a_megabyte(runs: Path) -> None:
    tree = episode("big", ["wait"], 0.0, Outcome.FAILURE, 1)
    for number in range(9_999):
        tree.add(number * 7 % len(tree.nodes), reasoned(f"take thing number {number}"), door().nodes[1].origin)
    growing(runs / "first", tree)
    from starlette.testclient import TestClient

    from agentr.ui.library import Library
    from agentr.ui.server import app

    client = TestClient(app(Library([runs]), "127.0.0.1", 8300), base_url="http://127.0.0.1:8300")
    answer = client.get("/api/tree", params={"run": "first", "stage": "rounds/02/collect", "key": "big"})
    assert (
        answer.status_code == 200
        and len(answer.content) < 1_000_000
        and len(answer.json()["nodes"]["parent"]) == 10_001
    )


def test_a_growing_stage_is_shown_and_so_is_the_moment_it_is_sealed(runs: Path) -> None:
    forest, store = growing(runs / "first", door())
    ask = asking(runs)
    assert ask("forest", stage="rounds/02/collect")["state"] == "growing"
    before = ask("tree", stage="rounds/02/collect", key="door")
    forest.seal()
    assert ask("tree", stage="rounds/02/collect", key="door")["nodes"] == before["nodes"]
    page = ask("forest", stage="rounds/02/collect")
    assert (page["state"], page["matched"]) == ("growing", 1), "the trees are sealed, and the stage is not yet"
    store.close()


def test_what_is_damaged_is_named_and_the_rest_is_shown(runs: Path) -> None:
    run = runs / "first"
    (run / "rounds/01/dataset/rows.parquet").write_bytes(b"PAR1 not at all")
    (run / "rounds/01/eval/evaluation.json").write_text("{")
    shutil.rmtree(run / "rounds/01/collect/trees")
    ask = asking(runs)
    assert ask("home")["runs"][0]["state"] == "stopped", "from the seals"
    page = ask("run")
    assert "results cannot be read" in page["problems"][0]["message"] and "doctor" in page["problems"][0]["hint"]
    assert len(page["arms"]) == 2 and page["config"]
    tree = ask("tree", stage=REVISE, key="door")
    assert tree["uses"] == [] and "rows.parquet" in tree["problems"][0]["message"] and tree["nodes"]["parent"]
    assert ask("tree", 404, stage="rounds/01/collect", key="door")["error"]["message"]
    assert ask("row", 404, stage="rounds/01/dataset", index=0)["error"]["message"]
    assert ask("forest", stage="rounds/01/collect")["matched"] == 2, "the table is there"


def test_without_a_tokenizer_tokens_have_no_texts(runs: Path) -> None:
    config = runs / "first/config.yaml"
    ask = asking(runs)
    for name in ("manifest.json", "model/stage.json"):
        path = runs / "first" / name
        path.write_text(path.read_text().replace("/model", "/nowhere"))
    os.utime(config)
    answer = ask("turns", stage=REVISE, key="door", nodes="1")
    assert (
        answer["turns"][0]["tokens"] is None
        and answer["turns"][0]["text"]
        and "the tokenizer cannot be read" in answer["problem"]
    )


def test_a_folder_that_vanishes_is_said(runs: Path) -> None:
    ask = asking(runs)
    shutil.rmtree(runs / "first")
    assert "no run" in ask("run", 404)["error"]["message"]
    assert ask("home")["runs"] == []


def test_a_comparison_leads_to_both_episodes_of_each_seed(runs: Path) -> None:
    compared(runs)
    found = asking(runs, "compared")("compare")
    assert found["problems"] == [] and [method["stage"] for method in found["methods"]] == ["rounds/01/eval"] * 2
    assert {task["key"]: (task["scores"], task["by_seed"]) for task in found["tasks"]} == {
        "a": ([0.0, 1.0], {"0": [0.0, 1.0], "1": [0.0, 1.0]}),
        "b": ([0.0, 0.0], {"0": [0.0, 0.0], "1": [0.0, 0.0]}),
        "c": ([1.0, 0.0], {"0": [1.0, 0.0], "1": [1.0, 0.0]}),
    }
    runs_ = {(method["label"], run["seed"]): run["run"] for method in found["methods"] for run in method["runs"]}
    assert runs_["other", 1] == "compared/other/seed-1"
    for label, action in (("base", "open"), ("other", "wait")):
        ask = asking(runs, runs_[label, 1])
        assert ask("turns", stage="rounds/01/eval", key="c", nodes="1")["turns"][0]["action"] == action
