"""Trackers are told every point once, as one run, whatever was killed on the way.
The libraries are real, and offline."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentr.commands.run import opened
from agentr.config.identity import Identity
from agentr.config.schema import TRACKERS
from agentr.config.secrets import without_secrets
from agentr.errors import ConfigError
from agentr.methods import load, plan_of
from agentr.observe.progress import Reporter
from agentr.store.files import append_line, read_json
from agentr.store.layout import Layout
from agentr.store.run import RunStore
from agentr.store.summaries import TreeSummary
from agentr.track.points import Point, Points, read_points
from agentr.track.tracker import environment
from tests.track import driver
from tests.track.driver import STEPS

#: What a tracker holds: the name, the step and the value of each point, in order, for each run that it has.
Held = dict[str, list[tuple[str, int, float]]]


def tensorboard(folder: Path) -> Held:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    found = [(name, event.step, event.value) for name in events.Tags()["scalars"] for event in events.Scalars(name)]
    return {"the only one": found}


def mlflow(folder: Path) -> Held:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow import MlflowClient

    client = MlflowClient((folder / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("agentr")
    assert experiment is not None
    found: Held = {}
    for run in client.search_runs([experiment.experiment_id]):
        assert run.data.params["run.name"] == "small" and run.info.status == "FINISHED"
        histories = [client.get_metric_history(run.info.run_id, name) for name in run.data.metrics]
        found[run.info.run_id] = [
            (metric.key, metric.step, metric.value) for history in histories for metric in history
        ]
    return found


def wandb(folder: Path) -> Held:
    from agentr.track.wandb_file import rows

    found: Held = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        held = found.setdefault(path.stem, [])
        for row in rows(path):
            (axis,) = [name for name in row if name == "round" or name.endswith("/step")]
            held += [(name, int(row[axis]), value) for name, value in row.items() if "/" in name and name != axis]
    return found


def trackio(folder: Path) -> Held:
    program = (
        "import json, sys, trackio\nfrom trackio.sqlite_storage import SQLiteStorage\n"
        "runs = [run.name for run in trackio.Api().runs('agentr')]\n"
        "print('@' + json.dumps({run: SQLiteStorage.get_logs('agentr', run) for run in runs}))"
    )
    environment = {**os.environ, "TRACKIO_DIR": str(folder / "trackio")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    logs = json.loads(done.stdout.partition("@")[2])
    return {
        run: [
            (name, row["step"], value)
            for row in rows
            for name, value in row.items()
            if name not in ("step", "timestamp")
        ]
        for run, rows in logs.items()
    }


READERS: dict[str, Callable[[Path], Held]] = {
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
    "trackio": trackio,
}


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


EACH = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(not installed(name), reason=f"{name} is not installed"))
        for name in TRACKERS
    ],
)


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in environment(TRACKERS):
            patch.delenv(name)
        patch.setenv("WANDB_MODE", "offline")
        yield


def start(root: Path, pause_s: float, *trackers: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tests.track.driver", str(root), str(pause_s), *trackers])


def finish(process: subprocess.Popen[bytes]) -> None:
    assert process.wait(240) == 0


def told(root: Path, name: str) -> int:
    note = Layout(root).tracking / f"{name}.json"
    return read_json(note)["logged"] if note.exists() else 0


def points_of(root: Path, name: str) -> list[Point]:
    return read_points(Layout(root).tracking / f"{name}.jsonl")


def expected(root: Path, name: str) -> list[tuple[str, int, float]]:
    points = points_of(root, name)
    return sorted(
        (name, point.step, value)
        for point in points
        for name, value in point.numbers.items()
        if not name.endswith("/seconds")
    )


def held(root: Path, name: str) -> list[tuple[str, int, float]]:
    """What the only run of a tracker holds, without what depends on the clock; single precision is enough for a
    tracker."""
    runs = READERS[name](Layout(root).tracking)
    assert len(runs) == 1, f"one run of {name}, not {list(runs)}"
    (found,) = runs.values()
    return sorted(
        (key, step, pytest.approx(value, rel=1e-6)) for key, step, value in found if not key.endswith("/seconds")
    )


@pytest.fixture(scope="module")
def runs(offline: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An undisturbed run, and one whose driver is killed in two trainings; each is told to all trackers that are
    installed."""
    folder, there = tmp_path_factory.mktemp("runs"), list(filter(installed, TRACKERS))
    whole, killed = folder / "whole", folder / "killed"
    finish(start(whole, 0.0, *there))
    for more in (10, STEPS + 15):
        process = start(killed, 0.1, *there)
        deadline = time.monotonic() + 240
        while min(told(killed, name) for name in there) < more:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finish(start(killed, 0.0, *there))
    return whole, killed


@pytest.mark.chaos
@EACH
def test_a_killed_run_tells_what_an_undisturbed_one_tells(name: str, runs: tuple[Path, Path]) -> None:
    whole, killed = runs
    assert expected(killed, name) == expected(whole, name) == held(whole, name) == held(killed, name)
    losses = {
        axis: [step for key, step, _ in expected(killed, name) if key == f"{axis}/loss"]
        for axis in ("train/main", "train/control")
    }
    assert losses["train/main"] == list(range(1, 3 * STEPS + 1)), "the warm start and the rounds are one curve"
    assert losses["train/control"] == list(range(STEPS + 1, 2 * STEPS + 1)), (
        "the control goes on from the warm start, too"
    )
    assert ("eval/main/success", 2, 0.5) in expected(killed, name) and ("eval/control/success", 2, 0.25) in expected(
        killed, name
    )
    assert ("train_total/main/steps", 1, STEPS) in expected(killed, name)


@pytest.mark.chaos
def test_what_was_told_and_not_noted_is_not_told_again(runs: tuple[Path, Path], tmp_path: Path) -> None:
    root = tmp_path / "run"
    shutil.copytree(runs[0], root, symlinks=True)
    there = list(filter(installed, TRACKERS))
    for name in there:
        note = Layout(root).tracking / f"{name}.json"
        note.write_text(json.dumps({**read_json(note), "logged": 5}))
    finish(start(root, 0.0, *there))
    for name in there:
        assert held(root, name) == expected(root, name), name
        assert told(root, name) == len(points_of(root, name))


@pytest.mark.chaos
def test_a_stage_that_is_made_anew_is_told_again_if_it_is_another(runs: tuple[Path, Path], tmp_path: Path) -> None:
    root, name = tmp_path / "run", "tensorboard"
    shutil.copytree(runs[0], root, symlinks=True)
    before = expected(root, name)
    for stage in ("rounds/01/train", "rounds/02/train"):
        RunStore(root).stages.set_aside(stage)
    driver.run(root, 0.0, [name], remade=("rounds/01",))
    again = expected(root, name)
    assert held(root, name) == again
    new = Counter(again) - Counter(before)
    assert new == Counter(
        entry for entry in before if entry[0].startswith(("train/main/", "train_total/main/")) and in_round_1(entry)
    )


def in_round_1(entry: tuple[str, int, float]) -> bool:
    name, step, _ = entry
    return step == 1 if name.startswith("train_total") else STEPS < step <= 2 * STEPS


@pytest.mark.slow
def test_a_tracker_that_cannot_be_told_is_said_once_and_is_told_later(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root, name = tmp_path / "run", "tensorboard"
    root.mkdir()
    Layout(root).tracking.mkdir()
    (Layout(root).tracking / name).write_text("in the way")
    driver.run(root, 0.05, [name])  # long enough for several attempts
    shown = capfd.readouterr().out
    assert shown.count("tensorboard cannot be reached: FileExistsError") == 1 and "The run goes on" in shown, shown
    assert "not everything is logged yet: tensorboard" in shown
    (Layout(root).tracking / name).unlink()
    driver.run(root, 0.0, [name])
    assert held(root, name) == expected(root, name)


@pytest.mark.slow
@pytest.mark.skipif(not installed("wandb"), reason="wandb is not installed")
def test_a_key_that_is_none_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "sesame")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    root = tmp_path / "run"
    driver.run(root, 0.05, ["wandb"])
    shown = capfd.readouterr().out
    assert "wandb" in shown and "not everything is logged yet: wandb" in shown and "sesame" not in shown
    assert not [path for path in root.rglob("*") if path.is_file() and b"sesame" in path.read_bytes()]
    assert json.loads(Layout(root).manifest.read_text())["stages"]


def test_steps_of_online_training_are_curves_over_rounds(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    store = RunStore(tmp_path)
    store.open(Identity.of(load(None, [])))
    try:
        for round_ in (1, 2):

            def roll(folder: Path) -> TreeSummary:
                for step in (1, 2, 3):
                    append_line(
                        folder / "steps.jsonl",
                        {"step": step, "success": step / 4, "rewards": {"total": 0.5}, "version": "x"},
                    )
                return TreeSummary(trees=3, events={"duplicates, of turns": 2})

            store.stages.run(f"rounds/0{round_}/rollouts", TreeSummary, roll)
    finally:
        store.close()
    assert Points(layout, "any").collect() == 8 and Points(layout, "any").collect() == 0
    points = points_of(tmp_path, "any")
    lines = [point for point in points if point.axis == "rollouts/main/step"]
    assert [point.step for point in lines] == [1, 2, 3, 4, 5, 6]
    assert lines[4].numbers == {"rollouts/main/success": 0.5, "rollouts/main/rewards/total": 0.5}
    totals = [point for point in points if point.axis == "round"]
    assert [point.step for point in totals] == [1, 2] and totals[1].numbers[
        "rollouts_total/main/duplicates_ of turns"
    ] == 2


def test_points_of_which_the_last_one_was_cut_off(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.open(Identity.of(load(None, [])))
    try:
        store.stages.run("rounds/01/collect", TreeSummary, lambda _: TreeSummary(trees=3))
        assert Points(store.layout, "any").collect() == 1
        file = store.layout.tracking / "any.jsonl"
        whole = file.read_bytes()
        store.stages.run("rounds/01/revise", TreeSummary, lambda _: TreeSummary(trees=4))
        with file.open("ab") as torn:
            torn.write(b'{"number": 2, "ti')
        assert Points(store.layout, "any").collect() == 1
    finally:
        store.close()
    assert file.read_bytes().startswith(whole)
    assert [point.numbers.get("revise/main/trees") for point in points_of(tmp_path, "any")] == [None, 4.0]


def test_the_configuration_is_told_without_secrets() -> None:
    overrides = ["env.options={api_key: sesame, max_tokens: 5}", "policy.openai.base_url=https://host/v1"]
    found = without_secrets(load(None, overrides, files=False))
    assert "sesame" not in str(found) and found["env.options.max_tokens"] == 5
    assert (
        found["policy.openai.base_url"] == "https://host/v1" and found["policy.openai.api_key_env"] == "OPENAI_API_KEY"
    )


def test_a_tracker_that_is_not_known() -> None:
    with pytest.raises(ConfigError, match=r"there is no tracker 'tensorbord'. Did you mean 'tensorboard'"):
        load(None, ["tracking=[tensorbord]"])


def test_a_tracker_whose_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else found(name))
    root = tmp_path / "run"
    config = load(None, ["tracking=[tensorboard,wandb]", f"run.dir={root}"])
    with (
        pytest.raises(ConfigError, match="the package of wandb is not installed") as error,
        opened(plan_of(config), Reporter()),
    ):
        pass
    assert "pip install wandb," in error.value.hint and not root.exists()
