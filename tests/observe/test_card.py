"""The card of a checkpoint: what it says, that it is the same for the same run, and that it changes no stage."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

import agentr
from agentr.commands.doctor import examine
from agentr.commands.run import report
from agentr.config.identity import changed_keys, plain
from agentr.methods import load
from agentr.observe.card import recipe, write_card, write_cards
from agentr.observe.progress import Reporter
from agentr.store.files import write_json
from agentr.store.layout import CONTROL, EVAL, WARM_START, arm_of
from agentr.store.records import read_records
from agentr.store.run import RunStore
from agentr.store.seal import hash_file, sealed_files, write_seal
from tests.runs import measured, small, trained
from tests.support import tiny_model
from tests.tiny import IMITATE

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return small(folder / "run", tiny_model(folder / "model"))


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def cards(root: Path) -> list[str]:
    return [file.read_text(encoding="utf-8") for file in write_cards(agentr.open(root))]


def test_a_card_says_where_a_policy_is_from_and_what_is_known_of_it(root: Path) -> None:
    warm_start, round_1 = cards(root)
    assert (
        "| Base model | nano |" in round_1
        and "| Policy | round 1 of 3 rounds |" in round_1
        and "| Seed | 0 |" in round_1
    )
    assert "| Method | imitate.py, preset default |" in round_1 and re.search(r"\| agentr \| \d+\.\d+", round_1)
    assert "| Tasks of evaluation | split 'dev' |" in round_1
    assert "| warm start | rows 0 |" in round_1 and "| round 1 | good 1, revision 1 |" in round_1
    assert "The first of these goes on from the base model, each other one from the one above it." in round_1
    assert (
        "| Success on held-out tasks | 33.3 \\[0.0, 100.0\\] %, 95 % interval |" in round_1
        and "| Tasks | 3 of the split dev |" in round_1
    )
    assert "round 1 against warm start: +0.0 points" in round_1 and "against warm start" not in warm_start
    assert "no control was measured" in round_1 and "flattered by the choice" in round_1
    assert "One seed." in round_1 and "chat template in this folder" in round_1 and "apache-2.0" in round_1
    assert "agentr run config.yaml" in round_1
    assert (
        "goes on from the base model." in warm_start
        and "round 1" not in warm_start.partition("## Limits")[0].partition("## Data")[2]
    )


def test_its_head_is_what_hugging_face_reads(root: Path) -> None:
    card = ModelCard(cards(root)[1])
    assert (card.data.license, card.data.library_name, card.data.pipeline_tag) == (
        "apache-2.0",
        "transformers",
        "text-generation",
    )
    assert {"agentr", "imitate", "textcraft"} < set(card.data.tags or [])
    (result,) = card.data.eval_results or []
    assert (result.dataset_type, result.dataset_split, result.metric_type, result.metric_value) == (
        "textcraft",
        "dev",
        "success",
        33.3,
    )


def test_the_same_run_has_the_same_card_wherever_it_is(made: Path, root: Path) -> None:
    there = cards(root)
    assert there == cards(root) == cards(Path(shutil.copytree(made, root.parent / "elsewhere")))
    assert all(str(made.parent) not in card and str(root.parent) not in card for card in there)
    assert not any(re.search(r"\b20\d\d-\d\d-\d\d|\d\d:\d\d|/tmp/|/home/", card) for card in there)


def test_a_card_is_written_again_when_more_is_known_and_changes_no_stage(root: Path) -> None:
    run, store = agentr.open(root), RunStore(root)
    before = {name: record.content for name, record in run.records().items()}
    store.stages.set_aside("rounds/01/eval")
    assert "Unknown: this policy was not measured" in cards(root)[1]
    store.take()
    measured(store, arm_of(1).stage(EVAL), {"a": ("open", 1.0), "b": ("open", 1.0), "c": ("open", 1.0)})
    store.close()
    file = write_card(run, arm_of(1))
    assert file == root / "rounds/01/train/model/README.md"
    assert "100.0 \\[100.0, 100.0\\]" in file.read_text() and "round 1 against warm start: +66.7" in file.read_text()
    assert list(examine(root)) == [] and all(stage.verify() == [] for stage in run.stages().values())
    assert {
        name: record.content for name, record in run.records().items() if name != "rounds/01/eval"
    }.items() <= before.items()


def test_a_stage_that_is_sealed_with_a_card_in_it_does_not_seal_it(root: Path) -> None:
    (root / "rounds/00/train/model/nested").mkdir()
    for name in ("model/README.md", "model/nested/README.md", "01/model/README.md"):
        (root / "rounds/00/train" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "rounds/00/train" / name).write_text("x")
    assert [name for name in sealed_files(root / "rounds/00/train") if name.endswith(".md")] == [
        "model/nested/README.md"
    ]


def test_a_card_that_was_sealed_stays(root: Path, tmp_path: Path) -> None:
    """Before there were cards, a model's own was copied from checkpoint to checkpoint, and sealed."""
    run = agentr.open(root)
    seal = root / "rounds/01/train/stage.json"
    (root / "rounds/01/train/model/README.md").write_text("of the base model")
    record = read_records(root)["rounds/01/train"]
    record.files["model/README.md"] = hash_file(root / "rounds/01/train/model/README.md")
    seal.unlink()
    write_seal(seal.parent, record)
    assert [file.parent.parent.parent.name for file in write_cards(run)] == ["00"]
    assert (root / "rounds/01/train/model/README.md").read_text() == "of the base model" and run.rounds[
        1
    ].train.verify() == []


def test_a_policy_whose_weights_are_gone_gets_none(root: Path) -> None:
    shutil.rmtree(root / "rounds/00/train/model")
    assert len(cards(root)) == 1


def test_a_report_writes_the_cards_unless_it_goes_elsewhere(root: Path, tmp_path: Path) -> None:
    report(agentr.open(root), Reporter(), tmp_path / "out")
    assert not list(root.rglob("README.md"))
    report(agentr.open(root), Reporter())
    assert len(list(root.glob("rounds/*/train/model/README.md"))) == 2


def test_the_best_policy_and_the_control_are_told(root: Path) -> None:
    write_json(root / "best.json", {"round": "rounds/01", "success": 0.3, "all": {}, "split": "test"})
    store = RunStore(root)
    store.take()
    trained(store, "control/train", root / "rounds/00/train/model", "rounds/00/train")
    measured(store, CONTROL.stage(EVAL), dict.fromkeys("abc", ("x", 0.0)))
    store.close()
    warm_start, round_1, control = cards(root)
    best = "It is the best policy of its run by success on the split test."
    assert best in round_1 and best not in warm_start + control
    assert "against control" in round_1 and "no control was measured" not in round_1
    assert "| Policy | control of 3 rounds |" in control and "| control | rows 0 |" in control


# the base model -------------------------------------------------------------------------------------------------------


def rewritten(root: Path, **sections: dict[str, Any]) -> Path:
    config = yaml.safe_load((root / "config.yaml").read_text())
    for name, values in sections.items():
        config[name].update(values)
    (root / "config.yaml").write_text(yaml.safe_dump(config))
    return root


@pytest.mark.parametrize(("own", "licence"), [
    ("---\nlicense: llama3.1\nlanguage: en\n---\n# Llama\n", "llama3.1"),
    ("---\nlanguage: en\n---\n", "unknown"),
    ("---\nlicense: [\n---\n", "unknown"),
    ("---\nlicense: 'x: y\\ny'\n---\n", "unknown"),
    ("# nothing", "unknown"),
    (None, "unknown"),
])  # fmt: skip
def test_the_licence_is_that_of_the_base_model_as_far_as_it_is_known(root: Path, own: str | None, licence: str) -> None:
    base = root.parent / "someone/Llama"
    base.mkdir(parents=True)
    if own is not None:
        (base / "README.md").write_text(own)
    record = read_records(root)["model"]
    record.summary["path"] = str(base)
    write_seal(root / "model", record)
    (_, card) = cards(rewritten(root, model={"source": "hf", "path": str(base)}))
    assert ModelCard(card).data.license == licence and ModelCard(card).data.base_model is None
    assert (
        "| Base model | Llama |" in card
        and str(base) not in card
        and ("Unknown: the base model does not say" in card) is (licence == "unknown")
    )


def test_a_model_of_the_hub_is_named_as_the_hub_does(root: Path) -> None:
    record = read_records(root)["model"]
    record.summary["path"] = "model/Qwen--Qwen3"
    write_seal(root / "model", record)
    (_, card) = cards(rewritten(root, model={"source": "hf", "path": "Qwen/Qwen3"}))
    assert ModelCard(card).data.base_model == "Qwen/Qwen3" and "| Base model | Qwen/Qwen3 |" in card


def test_hostile_texts_stay_texts(root: Path) -> None:
    name = "</h1><img src=x>\n# taken\n\u202e```[a](javascript:b)"
    (_, card) = cards(rewritten(root, run={"name": name}, prompt={"system": "````\n# taken"}))
    body = card.partition("\n---\n")[2]
    (title,) = re.findall(r"^# .*", body.partition("`````yaml")[0], re.MULTILINE)
    assert title == "# \\</h1\\>\\<img src=x\\> \\# taken \\[U+202E\\]\\`\\`\\`\\[a\\](javascript:b), round 1"
    assert "\u202e" not in card
    assert body.count("`````") == 2, "the configuration cannot end its block"
    assert ModelCard(card).data.license == "apache-2.0"


# the same again -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", CONFIGS, ids=[file.stem for file in CONFIGS])
def test_the_configuration_of_a_card_is_that_of_the_run(file: Path, tmp_path: Path) -> None:
    before = plain(load(file, files=False))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(recipe(before), sort_keys=False))
    again = plain(load(tmp_path / "config.yaml", files=False))
    portable = {change.partition(":")[0] for change in changed_keys(before, again)}
    assert all(key == "model.path" or "files" in key or key.endswith("_path") for key in portable), portable


def test_what_lies_on_the_machine_has_its_last_name_alone() -> None:
    config = plain(load(None, [IMITATE, "warm_start.files=[/home/someone/rows.json]"], files=False))
    config["run"]["dir"], config["env"]["url"] = "/home/someone/run", "http://10.0.0.1:8000"
    told = yaml.safe_dump(recipe(config))
    assert "rows.json" in told and "someone" not in told and "10.0.0.1" not in told


def test_warm_start_alone_has_a_card_before_there_is_a_round(root: Path) -> None:
    store = RunStore(root)
    for stage in ("eval", "train", "dataset", "revise", "collect"):
        store.stages.set_aside(f"rounds/01/{stage}")
    file = write_card(agentr.open(root), WARM_START)
    assert file is not None and "Success on held-out tasks" in file.read_text()
    assert write_card(agentr.open(root), arm_of(1)) is None
