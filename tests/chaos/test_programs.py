"""A whole run through a program that reports: equal to the native one, and the same when its parts are killed.

All parts, by hand: ``pytest tests/chaos/test_programs.py --by-hand -k every``.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentr.store.dataset import ROWS, read_manifest
from agentr.store.forest import Forest
from agentr.store.tables import read_table
from env_servers.sandbox import launch
from tests.chaos.driver import chaos, end, start
from tests.players import OPTIONS
from tests.programs.test_equality import ROOT, plain
from tests.programs.textcraft_tasks import write

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.chaos,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here"),
]

#: Agent-R on 24 tasks: every stage, in a minute or two.
CONFIG: dict[str, Any] = {
    "include": [str(ROOT / "configs/smoke.yaml")],
    "warm_start": {"tasks": [{"split": "train", "where": {"depth": 1}, "limit": 24}], "train": {"steps": 30}},
    "method": {"search": {"iterations": 3, "max_depth": 6}},
    "collect": {"tasks": {"limit": 24}, "in_flight": 12},
    "train": [{"steps": 2, "batch_size": 4, "micro_batch_size": 2, "bf16": False, "max_length": 768}],
    "eval": {"tasks": {"limit": 4}},
    "env": {"retries": 8},
}
FORESTS = [f"rounds/{stage}" for stage in ("00/demonstrations", "00/eval", "01/collect", "01/revise", "01/eval")]


def done(folder: Path, **env: Any) -> Path:
    """A finished run."""
    folder.mkdir()
    config = {**CONFIG, "env": {**CONFIG["env"], **env}}
    (folder / "run.yaml").write_text(yaml.safe_dump(config))
    driver = start(folder / "log", "run", str(folder / "run.yaml"), f"run.dir={folder}/undisturbed")
    try:
        assert driver.wait(900) == 0, (folder / "log").read_text()[-3000:]
    finally:
        end(driver)
    return folder / "undisturbed"


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run through a program, undisturbed."""
    folder = tmp_path_factory.mktemp("through")
    command = [sys.executable, str(ROOT / "tests/programs/plays_textcraft.py"), str(ROOT)]
    options = {"command": command, "tasks": write(folder), "action_format": "react", "live": 12}
    options["preload"] = ["agentr.tasks.formats", "env_servers.textcraft"]
    return done(folder / "run", name="program", options=options, timeout_s=120)


def test_it_is_the_native_run(through: Path, tmp_path: Path) -> None:
    native = done(tmp_path / "run", name="textcraft", options=OPTIONS)
    for stage in FORESTS:
        ours, theirs = (list(Forest(root / stage)) for root in (through, native))
        assert [plain(tree) for tree in ours] == [plain(tree) for tree in theirs] and ours
    for stage in ("rounds/00/", "rounds/01/"):
        ours, theirs = (list(rows(root / stage / "dataset")) for root in (through, native))
        assert ours == theirs and ours
        weights = [(root / stage / "train/model/model.safetensors").read_bytes() for root in (through, native)]
        assert weights[0] == weights[1]


def rows(dataset: Path) -> list[dict[str, Any]]:
    return [
        row for batch in read_table(dataset / ROWS, read_manifest(dataset)["rows_footer"]) for row in batch.to_pylist()
    ]


#: While a program waits for the answer to a call, in a search and in the execution of revisions;
#: `tests.programs.test_kills` kills servers alone.
PARTS = ("collect:engine", "collect:supervisor", "collect:coordinator", "collect:environment", "collect:driver")
PARTS += ("collect:environment:freeze", "revise:environment", "revise:coordinator")


@pytest.mark.by_hand
def test_its_parts_are_killed_and_nothing_is_lost(through: Path, tmp_path: Path) -> None:
    shutil.copytree(through, tmp_path / "chaos/undisturbed", symlinks=True)
    faults = [f"--faults={part}" for part in PARTS]
    status, said = chaos(through.parent / "run.yaml", tmp_path / "chaos", *faults, "--freeze=5")
    assert status == 0, said[-3000:]
    report = json.loads((tmp_path / "chaos/chaos.json").read_text())
    hit = {outcome["fault"]: outcome for outcome in report["faults"] if outcome["hit"]}
    assert report["same"] and report["contents"] and sorted(hit) == sorted(PARTS), said[-3000:]
    assert {(outcome["lost"], outcome["twice"]) for outcome in hit.values()} == {(0, 0)}
