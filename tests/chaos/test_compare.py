"""Chaos without a cluster: a run that is not the same is noticed, faults are chosen and spread, growth is told from
noise."""

import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentr.config.identity import Identity
from agentr.errors import ConfigError
from agentr.methods import load
from agentr.search import Tree
from agentr.store.files import append_line
from agentr.store.forest import Forest
from agentr.store.layout import Layout
from agentr.store.run import RunStore
from agentr.store.seal import FORMAT, files_of, hash_files, read_seal, write_checked, write_seal
from agentr.store.tables import TableWriter, read_table
from tests.chaos.driver import DEMO
from tests.runs import given
from tests.tools.chaos.command import app
from tests.tools.chaos.disturb import Outcome
from tests.tools.chaos.faults import Fault, How, Part, choose, faults, schedule
from tests.tools.chaos.processes import Hand
from tests.tools.chaos.report import Report, table
from tests.tools.chaos.run import parent_of
from tests.tools.chaos.slope import Sample, Slope, Verdict, fit
from tests.tools.chaos.units import Difference, compare
from tests.trees import new_tree, tree_of

STAGE = "rounds/01/collect"


def trees(*paths: str) -> list[Tree]:
    return [tree_of(path, into=new_tree(name=f"task-{number}")) for number, path in enumerate(paths)]


ALL = ("open: 1.0", "wait: 0.0", "open / take key: 1.0")


def made(root: Path, *paths: str) -> Path:
    """A run with one stage of these trees."""
    store = RunStore(root)
    store.open(Identity.of(load(None)))
    given(store, STAGE, trees(*paths))
    store.close()
    return root


def doubled(root: Path) -> None:
    """Writes one tree once more into its stage, and seals that anew."""
    folder = root / STAGE
    manifest = Forest(folder).manifest
    (part,) = manifest["parts"]
    rows = [row for batch in read_table(folder / part["file"], part["footer"]) for row in batch.to_pylist()]
    with TableWriter(
        folder / part["file"], {"key": "string", "tree": "binary", "spent": "binary"}, compressed=False
    ) as writer:
        for row in [*rows, rows[-1]]:
            writer.add(row)
    part["footer"] = writer.footer
    del manifest["format"]
    write_checked(folder / "manifest.json", {**manifest, "format": FORMAT, "trees": len(rows) + 1})
    record = read_seal(folder)
    assert record is not None
    write_seal(folder, type(record)(**{**vars(record), "files": hash_files(folder, files_of(folder))}))


def flipped(root: Path) -> None:
    """Changes one byte in the middle of a sealed file."""
    (file,) = (root / STAGE / "trees").iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(bytes(data))


def only(differences: list[Difference]) -> Difference:
    (found,) = differences
    assert found.stage == STAGE
    return found


def test_equal_runs_are_equal_whatever_they_took(tmp_path: Path) -> None:
    found = only(compare(made(tmp_path / "a", *ALL), made(tmp_path / "b", *ALL)))
    assert found.same and found.units == 3


@pytest.mark.parametrize(
    "paths, contents, lost, twice, others",
    [
        (ALL[:2], True, 1, 0, 0),
        ((*ALL, "open: 1.0"), True, 0, 1, 0),
        ((*ALL[:2], "open / take sword: 1.0"), True, 0, 0, 1),
        ((*ALL[:2], "open / take sword: 1.0"), False, 0, 0, 0),
    ],
    ids=["missing", "added", "other", "other, by keys"],
)
def test_a_unit_that_is_missing_added_or_another_is_named(
    tmp_path: Path, paths: tuple[str, ...], contents: bool, lost: int, twice: int, others: int
) -> None:
    found = only(compare(made(tmp_path / "a", *ALL), made(tmp_path / "b", *paths), contents=contents))
    assert (len(found.lost), len(found.twice), len(found.others)) == (lost, twice, others)
    assert found.same == (lost == twice == others == 0)
    assert found.same or "task" in str(found)


@pytest.mark.parametrize(
    "harm, said",
    [
        (doubled, "1 there twice (task-2)"),
        (flipped, "has another hash than when it was sealed"),
        (
            lambda root: append_line(Layout(root).events, {"event": "stage_sealed", "stage": STAGE}),
            "was sealed 2 times",
        ),
        (lambda root: (root / STAGE / "summary.parquet").unlink(), "is missing"),
    ],
    ids=["doubled", "tampered", "sealed twice", "lost file"],
)
def test_a_broken_run_is_not_the_same(tmp_path: Path, harm: Callable[[Path], None], said: str) -> None:
    undisturbed, disturbed = made(tmp_path / "a", *ALL), made(tmp_path / "b", *ALL)
    harm(disturbed)
    found = only(compare(undisturbed, disturbed))
    assert not found.same and said in str(found), str(found)
    outcome = Outcome(stage=STAGE, fault="collect:engine", hit="rollout-0 1", recovered_s=1.0)
    report = Report(undisturbed, True)
    report.add(disturbed, [outcome], [found], [])
    assert outcome.result == "not the same" and (outcome.twice == 1) == (harm is doubled)
    assert not report.same and table(report).row_count == 1 and any(said in line for line in report.words())


def test_a_stage_that_was_never_sealed_has_lost_all(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "b")
    store.open(Identity.of(load(None)))
    store.close()
    found = only(compare(made(tmp_path / "a", *ALL), tmp_path / "b"))
    assert len(found.lost) == 3 and "is not there" in str(found)


# which faults, and when -----------------------------------------------------------------------------------------------


def test_faults_are_those_that_the_configuration_can_have() -> None:
    there = set(map(str, faults(load(Path(DEMO)))))
    assert {
        "collect:engine",
        "revise:coordinator",
        "train:worker",
        "train:controller",
        "eval:environment:freeze",
        "dataset:driver",
    } <= there
    assert "collect:worker" not in there and "train:engine" not in there
    remote = set(map(str, faults(load(Path(DEMO), ["env.url=http://localhost:1"]))))
    assert not {fault for fault in remote if "environment" in fault or "supervisor" in fault}
    online = set(map(str, faults(load(Path("configs/grpo_textcraft.yaml")))))
    assert {"rollouts:engine", "rollouts:worker", "rollouts:driver"} <= online


def test_patterns_choose_faults_and_mistakes_are_named() -> None:
    config = load(Path(DEMO))
    assert {fault.how for fault in choose(config, [])} == {How.kill}
    assert {fault.part for fault in choose(config, ["*:driver"])} == {Part.driver}
    assert choose(config, ["eval:environment:freeze"]) == [Fault("eval", Part.environment, How.freeze)]
    with pytest.raises(ConfigError, match=r"'evil:\*'.*collect:engine"):
        choose(config, ["evil:*"])


def test_the_faults_of_a_stage_are_spread_over_the_round_with_the_most_units_the_first_as_soon_as_it_runs() -> None:
    sizes = {
        "rounds/00/eval": (12, 0),
        "rounds/01/collect": (40, 0),
        "rounds/01/train": (0, 24),
        "rounds/01/eval": (12, 0),
    }
    chosen = [
        Fault("collect", Part.engine),
        Fault("collect", Part.driver),
        Fault("train", Part.worker),
        Fault("eval", Part.driver),
    ]
    found = [(str(strike.fault), strike.place, strike.after) for strike in schedule(chosen, sizes)]
    assert found == [
        ("eval:driver", "rounds/00/eval", 0),
        ("collect:engine", "rounds/01/collect", 0),
        ("collect:driver", "rounds/01/collect", 20),
        ("train:worker", "rounds/01/train", 0),
    ]


def test_the_command_lists_faults_and_shows_the_schedule_without_starting_anything() -> None:
    listed = CliRunner().invoke(app, [DEMO, "--list"])
    assert listed.exit_code == 0 and "collect:engine\n" in listed.output
    shown = CliRunner().invoke(app, [DEMO, "--dry-run", "--faults", "collect:*"])
    assert shown.exit_code == 0 and "engine, environment, supervisor, coordinator, driver" in shown.output


def test_a_run_is_never_taken_for_the_folder_of_the_test(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds a run"):
        parent_of(load(None, [f"run.dir={made(tmp_path / 'a', *ALL)}"]))


# flat or not ----------------------------------------------------------------------------------------------------------


def series(growth: float, hours: float, lives: int = 3, run_s: float = 90.0) -> list[Sample]:
    """Samples of processes at different levels, one after the other, that grow by so much an hour and need more late in
    each run."""
    chance, end = random.Random(0), hours * 3600
    found = []
    for life in range(lives):
        for at in (life * end / lives + 5 * step for step in range(int(end / lives / 5))):
            value = 500 + 40 * life + growth * at / 3600 + 50 * (at % run_s / run_s) + chance.gauss(0, 0.5)
            found.append(Sample(f"life {life}", f"soak-{int(at // run_s):04d}", at, value))
    return found


def test_growth_is_told_from_noise_and_from_another_level() -> None:
    assert fit(series(0.0, 1.0), least=5.0).verdict is Verdict.flat
    grown = fit(series(60.0, 1.0), least=5.0)
    assert grown.verdict is Verdict.grows and grown.low < 60 < grown.high and grown.lives == 3 and grown.runs > 20
    assert fit(series(60.0, 0.02, lives=1), least=5.0).verdict is Verdict.unknown
    assert fit([], least=1.0).verdict is Verdict.unknown


def test_what_changes_within_each_run_is_no_growth() -> None:
    """Three runs seen, of which one was seen from its start to its end: that says nothing, however much it needs at its
    end."""
    assert fit(series(0.0, 0.08, lives=1, run_s=100.0), least=5.0).lives == 0
    halves = [sample for sample in series(0.0, 1.0, lives=1) if not 1800 < sample.seconds < 1845]
    assert fit(halves, least=5.0).verdict is Verdict.flat


def test_what_a_process_takes_while_it_warms_up_is_no_growth() -> None:
    def warming(until_s: float) -> Slope:
        cold = [
            replace(sample, value=sample.value - 300 * (sample.seconds < until_s))
            for sample in series(0.0, 1.0, lives=1)
        ]
        return fit(cold, least=5.0)

    assert warming(1000.0).verdict is Verdict.flat, "within the first third of its runs"
    assert warming(1900.0).slope > 2 * warming(1900.0).allowed


def test_a_process_that_has_ended_has_no_memory_to_measure() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert Hand().measure([process.pid])[process.pid][0] > 0
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie from here on
        assert Hand().measure([process.pid]) == {}
