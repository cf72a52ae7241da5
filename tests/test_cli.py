"""The command line as a person meets it."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import jsonschema
import pytest
import typer
import yaml
from typer.main import get_command
from typer.testing import CliRunner, Result

from agentr import __version__
from agentr.cli import GROUPS, app, main
from agentr.config.schema import Config
from agentr.errors import ConfigError, RunError
from agentr.rounds.plan import Plan
from agentr.store.run import RunStore
from agentr.store.summaries import TrainSummary
from env_servers.sandbox import launch
from tests.notes import Notes
from tests.runs import dataset, round_of, written
from tests.support import tiny_tokenizer
from tests.trees import door

ROOT = Path(__file__).parents[1]


def agentr(*arguments: str | Path) -> Result:
    """Runs a command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_an_error_is_shown_letter_by_letter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["agentr", "run", "none[red].yaml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "none[red].yaml" in capsys.readouterr().err


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one round's trees and dataset, only for commands that change nothing."""
    round_ = round_of(
        tmp_path_factory.mktemp("stored") / "run", ["method.revise.alpha=[1.0]"], collect=[door()], revise=[door()]
    )
    dataset(round_)
    round_.experiment.store.close()
    return round_.experiment.store.root


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ("run configs/demo.yaml run.sede=1 --dry-run", "sede", "seed"),
        ("run configs/demo.yaml run.rounds=-1", "run.rounds: -1 is refused", "It should be greater than or equal to 0"),
        (
            "compare configs/compare/sft.yaml --seeds 0,x",
            "--seeds '0,x' is not a list of numbers",
            "For example --seeds 0,1,2.",
        ),
        ("compare configs/compare/sft.yaml --vary run.rounds", "--vary 'run.rounds' is not of the form key=value", ""),
        ("run {run}", "run is a folder, not a configuration file", "'agentr resume"),
        ("run {run}/rounds", "rounds is a folder, not a configuration file", "Name a YAML file"),
        ("run {run}/manifest.json run.name", "'run.name' is not of the form key=value", "For example: run.seed=1"),
        (
            "compare configs/compare/sft.yaml --base none.yaml",
            "there is no configuration file none.yaml",
            "See configs/ for examples.",
        ),
        ("status nowhere", "nowhere holds no run: there is no such folder", "Start one with 'agentr run CONFIG'."),
        ("status {run}/config.yaml", "config.yaml holds no run: there is no such folder", ""),
        ("report nowhere", "nowhere holds no run", "Start one with"),
        ("doctor nowhere", "nowhere holds no run", "Start one with"),
        ("prune nowhere", "nowhere holds no run", "Start one with"),
        ("pack nowhere", "nowhere holds no run", "Start one with"),
        ("resume nowhere", "nowhere holds no run", ""),
        ("prune {run} --keep last", "'last' does not name the checkpoints that are kept", "such as 'last 2'"),
        (
            "doctor {run} --repair --stage rounds/01/colect",
            "has no stage 'rounds/01/colect'",
            "The nearest: rounds/01/collect",
        ),
        ("report {run} --node 3", "no row is named", "Give --row N, or --stage NAME --tree KEY --node N."),
        ("report {run} --row 99", "rounds/01/dataset has no row 99", "Its rows: 0 to 1."),
        ("report {run} --round 7 --row 0", "has no stage 'rounds/07/dataset'", "The nearest: rounds/01/dataset"),
        (
            "report {run} --round 1 --row 0 --step 3",
            "has no stage 'rounds/01/rollouts/000003/dataset'",
            "The nearest: rounds/01/dataset",
        ),
        ("report {run} --row 0 --step 3", "has no round with what is asked for yet", "agentr status"),
        (
            "report {run} --stage revise --tree dor --node 0",
            "rounds/01/revise holds no tree 'dor'",
            "The nearest: door.",
        ),
        ("report {run} --stage revise --tree door --node 99", "has no node 99", "Its nodes: 0 to"),
        (
            "report {run} --stage dataset --tree door --node 0",
            "the stage rounds/01/dataset holds no trees",
            "--stage collect",
        ),
        (
            "unpack {run}/config.yaml",
            "config.yaml is no archive of a run, or damaged",
            "Make it with 'agentr pack RUN'.",
        ),
        (
            "logs nowhere",
            "there is no run directory nowhere here, and no cluster was named",
            "--address http://HEAD:8265",
        ),
        ("logs nowhere --stage collect", "there is no run directory nowhere here", "such as runs/demo"),
        ("logs {run} --level loud", "there is no level 'loud'", "There are debug, info, warning, error, critical."),
        ("stop {run}", "no cluster was named", "Say --address http://HEAD:8265, or set RAY_API_SERVER_ADDRESS."),
        ("verify --method rlx", "there are no rules of 'rlx'", "Methods: agent_r"),
        (
            "import none.json --config configs/demo.yaml --out x",
            "none.json cannot be read",
            "Give a JSON list, one JSON object a line",
        ),
        (
            "import {run}/manifest.json --config none.yaml --out x",
            "there is no configuration file none.yaml",
            "See configs/",
        ),
        ("run configs/demo.yaml --dataset nowhere", "nowhere holds no readable dataset", "agentr import"),
        ("export {run} --out {run}", "run is a folder", "Name the file to write"),
        ("export {run} --out {run}/config.yaml/x", "config.yaml is a file, not a folder", "Name another place."),
        (
            "export {run} --out {run}/config.yaml --format agent_r_trees",
            "config.yaml is a file, and each tree becomes one",
            "Name a folder.",
        ),
        ("export {run} --out x --format cvs", "unknown export format 'cvs'", "Formats: messages, trl"),
        ("export {run} --out x --round 3", "has no round 3", "Its rounds: 0 to 1."),
        ("export nowhere --out x", "nowhere holds no run", ""),
        (
            "run configs/demo.yaml --only rounds/03/train",
            "the run has no stage rounds/03/train",
            "rounds/02/train, rounds/02/eval",
        ),
        ("run configs/demo.yaml --only train", "the run has no stage train", "Its stages: model, "),
    ],
)
def test_what_cannot_be_done_is_said_without_a_traceback(
    arguments: str,
    message: str,
    hint: str,
    stored: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only to the error stream, with a status by which a script notices."""
    before = {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()}
    words = [
        str(ROOT / word) if word.startswith("configs/") else word.replace("{run}", str(stored))
        for word in arguments.split()
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    monkeypatch.setattr(sys, "argv", ["agentr", *words])
    monkeypatch.setattr("agentr.commands.run.Services", lambda *_: Notes())
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr()
    assert ended.value.code == 1
    assert message in shown.err and hint in shown.err and shown.err.startswith("error: ")
    assert "Traceback" not in shown.out + shown.err and message not in shown.out
    assert not (tmp_path / "nowhere").exists() and not (tmp_path / "x").exists()
    assert before == {path: path.read_bytes() for path in stored.rglob("*") if path.is_file()}


def test_an_interrupted_command_ends_as_the_shell_expects(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        main(cast(typer.Typer, interrupted))
    assert ended.value.code == 130 and capsys.readouterr().err == "interrupted\n"


@pytest.mark.slow
def test_the_stages_of_a_run_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--only`` does its stages, or says which are missing before them; the whole run does what is left, and a second
    one nothing."""
    notes, run = Notes(), tmp_path / "run"
    monkeypatch.setattr("agentr.commands.run.Services", lambda *_: notes)
    config = tmp_path / "config.yaml"
    config.write_text(
        f"method: {{type: rft}}\nmodel: {{max_model_len: 1024}}\nrun: {{dir: {run}, rounds: 2}}\n"
        "collect: {tasks: {limit: 2}}\neval: {judge: {who: policy}}\n"
    )

    def only(*stages: str) -> Result:
        return agentr("run", config, *(word for stage in stages for word in ("--only", stage)))

    def sealed() -> set[str]:
        return {record.name for record in RunStore(run).records() if record.sealed}

    refused = only("rounds/01/collect")
    assert "rounds/01/collect needs model, which is not there yet" in str(refused.exception) and not sealed()
    done = {"model", "rounds/00/demonstrations", "rounds/00/dataset"}
    assert only("warm start: dataset", *done).exit_code == 0 and sealed() == done, "in any order, by any spelling"
    for stage in ("rounds/00/train", "rounds/01/collect", "rounds/01/dataset", "rounds/01/train"):
        assert only(stage).exit_code == 0
        done.add(stage)
        assert sealed() == done, "nothing besides: held-out episodes are not needed for what follows"
    assert only("rounds/01/train").exit_code == 0 and sealed() == done, "once more is no error"
    assert "rounds/01/judged needs rounds/01/eval" in str(only("rounds/01/judged").exception)
    evaluated = only("rounds/01/eval")
    done.add("rounds/01/eval")
    assert "round 1: success 100.0" in evaluated.stdout and sealed() == done
    assert "rounds/02/dataset needs rounds/02/collect" in str(only("rounds/02/dataset").exception) and sealed() == done
    assert notes.engines_early is False, "no evaluation need follow a training"
    own = agentr("run", config, "--dataset", str(run / "rounds/01/dataset"))
    assert (
        own.stdout.strip().endswith(f"{run}/imported/train/model") and notes.trainings[-1].start == run / "model/nano"
    )
    assert list(notes.stages) == ["rounds/00/demonstrations", "rounds/01/collect", "rounds/01/eval"]
    assert agentr("run", config).exit_code == 0
    told = " ".join(agentr("status", run).stdout.split())
    assert (
        "finished; " in told
        and "Best: rounds/00, held-out success 100.0 %" in told
        and "no evidence of a difference" in told
    )
    stages = [
        "rounds/00/eval",
        "rounds/00/judged",
        "rounds/01/judged",
        "rounds/02/collect",
        "rounds/02/eval",
        "rounds/02/judged",
    ]
    assert list(notes.stages)[3:] == stages and len(notes.trainings) == 4
    assert (run / "report.html").exists() and json.loads((run / "report.json").read_text())["complete"]
    resumed = agentr("resume", run)
    assert resumed.exit_code == 0 and len(notes.stages) == 9 and len(notes.trainings) == 4


def test_a_comparison_with_a_run_that_failed_shows_the_others_and_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(plan: Plan, *_: object, **__: object) -> None:
        config = plan.config
        written(
            tmp_path / "out", config.run.name, "seed-0", [{"a"}] if config.run.name == "rft" else [{"a"}, {"a", "b"}], 1
        )
        if config.run.name == "rft":
            raise RunError("no run earned enough")

    monkeypatch.setattr("agentr.commands.compare.run", run)
    monkeypatch.setattr("agentr.commands.compare.serving", lambda *_: nullcontext())
    configs = ROOT / "configs/compare"
    shown = agentr(
        "compare",
        configs / "rft.yaml",
        configs / "sft.yaml",
        "--base",
        configs / "tasks/textcraft.yaml",
        "--out",
        tmp_path / "out",
    )
    assert shown.exit_code == 1 and "1 run could not be finished: rft, seed 0" in str(shown.exception)
    assert "66.7" in shown.stdout and "comparison.html" in shown.stdout


def test_the_version_is_shown() -> None:
    assert agentr("--version").stdout.strip() == __version__
    assert agentr("no-such-command").exit_code == 2


@pytest.mark.parametrize("command", [name for names in GROUPS.values() for name in names])
def test_every_command_explains_itself(command: str) -> None:
    shown = agentr(command, "--help")
    assert shown.exit_code == 0 and "Usage" in shown.stdout


def test_the_help_has_each_command_once_under_a_heading() -> None:
    shown = agentr("--help").output
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names)) and "agentr ui runs" in shown
    assert set(names) == set(get_command(app).commands)  # type: ignore[attr-defined]
    places = [shown.index(f"─ {title} ─") for title in GROUPS]
    assert places == sorted(places)


def test_runs_are_listed_with_what_came_of_them(tmp_path: Path) -> None:
    written(tmp_path, "one", 0, ["a", "ab"], calls=10)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/config.yaml").write_text("{")
    shown = agentr("status", tmp_path).output
    assert (
        "one/0" in shown and "1 of 1" in shown and "finished" in shown and "broken" in shown and "unreadable" in shown
    )
    listed = {run["id"]: run for run in json.loads(agentr("status", tmp_path, "--json").output)["runs"]}
    assert listed["one/0"]["after"]["mean"] == pytest.approx(2 / 3) and listed["broken"]["problem"]
    (tmp_path / "empty").mkdir()
    assert "no runs below" in agentr("status", tmp_path / "empty").output


def test_a_run_whose_configuration_was_changed_is_resumed_when_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr("agentr.commands.run.run", lambda config, reporter, allow_change: asked.append(allow_change))
    written(tmp_path, "one", 0, ["a"], calls=1)
    assert (
        agentr("resume", tmp_path / "one/0").exit_code
        == agentr("resume", tmp_path / "one/0", "--allow-config-change").exit_code
        == 0
    )
    assert asked == [False, True]


def test_a_key_among_the_files_of_a_comparison_is_told_how_to_say_it() -> None:
    refused = agentr("compare", "configs/compare/sft.yaml", "run.rounds=2")
    assert refused.exit_code == 1 and isinstance(refused.exception, ConfigError)
    assert "there is no configuration file run.rounds=2. For a key use --set run.rounds=2" in str(refused.exception)


def test_methods_are_listed() -> None:
    shown = agentr("list", "methods")
    assert shown.exit_code == 0
    for word in (
        "agent_r",
        "dense_policy",
        "eto",
        "grpo",
        "tree_grpo",
        "rft",
        "sft",
        "imitate",
        "prefer",
        "docs/eto.md",
        "released",
    ):
        assert word in shown.stdout


def test_rewards_are_listed_with_their_options() -> None:
    shown = agentr("list", "rewards")
    assert shown.exit_code == 0
    for word in ("outcome", "success_only=False", "et_agent", "sigma_tool=0.1", "length", "calls", "tool was called."):
        assert word in shown.stdout


@pytest.mark.slow
def test_a_dry_run_says_what_it_costs_and_shows_the_whole_configuration(tmp_path: Path) -> None:
    said = agentr("run", ROOT / "configs/demo.yaml", "run.seed=5", "--dry-run")
    assert said.exit_code == 0 and "optimiser steps:    at most 770" in said.stdout
    assert "agentr plan CONFIG --on 4xH100" in said.stdout, "this machine was not measured"
    shown = agentr("run", ROOT / "configs/demo.yaml", "run.seed=5", "--dry-run", "--show")
    assert shown.exit_code == 0 and "seed: 5" in shown.stdout
    (tmp_path / "config.yaml").write_text(shown.stdout)
    again = agentr("run", tmp_path / "config.yaml", "--dry-run", "--show")
    assert again.stdout == shown.stdout, "what it prints is a configuration"


def test_status_and_report_of_a_run_show_losses_and_success(tmp_path: Path) -> None:
    store = written(tmp_path, "one", 0, [{"a"}, {"a", "b"}], 5)
    store.stages.run("rounds/01/train", TrainSummary, lambda _: TrainSummary(steps=3, first_loss=1.5, last_loss=0.25))
    shown = agentr("status", store.root)
    assert shown.exit_code == 0, shown.exception
    assert "loss 1.5 -> 0.25" in shown.stdout and "success 66.7 % of 3 tasks" in shown.stdout
    assert json.loads(agentr("status", store.root, "--json").stdout)["run"] == "one"
    assert (
        agentr("report", store.root, "--out", tmp_path / "there").exit_code == 0
        and (tmp_path / "there/report.html").exists()
    )
    assert not (store.root / "report.html").exists()
    reported = agentr("report", store.root)
    assert reported.exit_code == 0, reported.exception
    assert "round 1" in reported.stdout and (store.root / "report.html").exists()


def test_status_and_report_of_a_comparison(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path, name, "seed-0", [{"a"}, {"a", "b"}], 5)
    (tmp_path / "plan.json").write_text(json.dumps({"runs": [["one", 0], ["two", 0]]}))
    shown = agentr("status", tmp_path)
    assert shown.exit_code == 0 and shown.stdout.count("done") == 2
    assert [run["method"] for run in json.loads(agentr("status", tmp_path, "--json").stdout)] == ["one", "two"]
    assert agentr("report", tmp_path).exit_code == 0
    assert (tmp_path / "comparison.html").exists()


@pytest.mark.slow
def test_a_round_is_exported(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "model/config.json").write_text('{"model_type": "llama"}')
    round_ = round_of(tmp_path / "run", ["method.revise.alpha=[1.0]"], model=tmp_path / "model", revise=[door()])
    dataset(round_)
    round_.experiment.store.close()
    for words, written_ in (
        ("sharegpt", "1 of them (1 revision) have turns of the agent that are context"),
        ("trl", "2 rows in"),
        ("messages --per-turn", "5 turns in"),
        ("agent_r_trees", "left out: 2 (2 revision turns)"),
    ):
        kind, *more = words.split()
        shown = agentr("export", tmp_path / "run", "--out", tmp_path / kind, "--format", kind, *more)
        assert shown.exit_code == 0, (kind, shown.exception)
        assert written_ in shown.stdout and shown.stdout.startswith(
            "round 1, the last that is there (--round names another)\n"
        )
        card = (tmp_path / f"{kind}.card.md").read_text()
        assert "| round 1: revise | 1 task | 1 |" in card, "beside what is exported"
    assert "has no round 2" in str(
        agentr(
            "export", tmp_path / "run", "--out", tmp_path / "x", "--format", "agent_r_trees", "--round", "2"
        ).exception
    )
    assert "holds no run" in str(agentr("export", tmp_path / "nowhere", "--out", tmp_path / "x").exception)


@pytest.mark.slow
def test_a_run_is_traced_checked_packed_and_pruned(tmp_path: Path) -> None:
    """Each command is started once with each of its ways; what they do is tested beside the code."""
    round_ = round_of(tmp_path / "run", ["method.revise.alpha=[1.0]"], collect=[door()], revise=[door()])
    dataset(round_)
    round_.experiment.store.close()
    run = tmp_path / "run"

    def said(*words: str | Path, code: int = 0) -> str:
        result = agentr(*words)
        assert result.exit_code == code, (words, result.exception, result.output)
        return result.stdout

    which, _, traced = said("report", run, "--row", "0").partition("\n")
    assert which == "round 1, the last that is there (--round names another)"
    assert "row 0 of round 1: dataset" in traced and "made from: tree door of round 1: revise" in traced
    assert (
        traced
        == said("report", run, "--row", "0", "--round", "round 1")
        == said("report", run, "--row", "0", "--round", "rounds/01")
    )
    which, _, shown = said("report", run, "--stage", "revise", "--tree", "door", "--turn", "5").partition("\n")
    assert which.startswith("round 1, ")
    assert shown == said("report", run, "--stage", "round 1: revise", "--tree", "door", "--node", "5"), (
        "as the other one has named it"
    )
    refused = agentr("report", run, "--row", "0", "--round", "last")
    assert refused.exit_code == 2 and "'last' is no round" in refused.output
    assert (
        "node 5 (policy, return 0, failure)" in shown
        and "dropped from round 1: dataset, 1 time: trajectory with too low" in shown
    )
    assert "no row is named" in str(agentr("report", run, "--node", "1").exception)
    assert "every file is what it was" in said("doctor", run)
    assert json.loads(said("doctor", run, "--json")) == {"damaged": [], "stale": []}
    assert "set aside" in said("doctor", run, "--repair", "--stage", "rounds/01/dataset")
    round_ = round_of(run, ["method.revise.alpha=[1.0]"], collect=[door()], revise=[door()])
    dataset(round_)
    round_.experiment.store.close()
    (run / "rounds/01/dataset/rows.parquet").write_bytes(b"")
    assert "rows.parquet" in said("doctor", run, code=1)
    assert json.loads(said("doctor", run, "--json", code=1))["damaged"][0]["stage"] == "rounds/01/dataset"
    assert "resume" in said("doctor", run, "--repair", "--stale")
    for command in ("doctor", "resume"):
        assert "has its model in its own folder" in str(agentr(command, run, "--model", tmp_path).exception)
    assert "files in" in said("pack", run, "--out", tmp_path / "run.tar.zst", "--for-sharing")
    assert "every file is what it was" in said("unpack", tmp_path / "run.tar.zst", "--out", tmp_path / "there")
    (run / "logs").mkdir(exist_ok=True)
    (run / "logs/server.log").write_text("x" * 1000)
    assert "logs/server.log" in said("prune", run, "--keep", "last 2", "--yes")
    assert "nothing to delete" in said("prune", run, "--keep", "all")
    assert not (run / "logs/server.log").exists()


def test_a_run_of_an_earlier_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("run: {name: old, recipe: agent_r}\n")
    for command in ("status", "report", "resume"):
        error = str(agentr(command, tmp_path).exception)
        assert "was made by an earlier version of agentr" in error and "start it anew" in error
    assert RunStore(tmp_path).records() == []


def test_a_run_is_resumed_with_the_defaults_of_keys_that_its_preset_did_not_have_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_of(tmp_path / "run", ["method.preset=released"]).experiment.store.close()
    stored = tmp_path / "run" / "config.yaml"
    without = {key: value for key, value in yaml.safe_load(stored.read_text()).items() if key != "turns"}
    stored.write_text(yaml.safe_dump(without))
    resumed: list[Config] = []
    monkeypatch.setattr("agentr.commands.run.run", lambda plan, reporter, allow_change: resumed.append(plan.config))
    assert agentr("resume", tmp_path / "run").exit_code == 0
    assert [(config.method.preset, config.turns.cut_off) for config in resumed] == [("released", "refused")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run", "Missing argument 'CONFIG'"),
        ("export runs/demo", "Missing option '--out'"),
        ("export runs/demo --out x --round one", "Invalid value for '--round'"),
        ("status runs/demo --jsn", "No such option: --jsn"),
        ("unpack none.tar.zst", "'none.tar.zst' does not exist"),
    ],
)
def test_a_command_that_is_written_wrong_says_how_it_is_called(arguments: str, said: str) -> None:
    shown = agentr(*arguments.split())
    text = " ".join(shown.stderr.replace("│", " ").split())
    assert shown.exit_code == 2 and "Usage: " in text and said in text and not shown.stdout


def test_logs_of_a_run_are_read_here_and_chosen_by_stage_task_and_level(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    about = {"time": "2026-01-01T00:00:00+00:00", "level": "info", "stage": "rounds/01/collect", "task": "door"}
    written_ = [{**about, "message": "grown"}, {**about, "level": "warning", "task": "gate", "message": "slow"}]
    (stored / "logs").mkdir(exist_ok=True)
    (stored / "logs/driver.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written_))
    for words, wanted in (
        ("", 2),
        ("--level warning", 1),
        ("--task door", 1),
        ("--stage collect", 2),
        ("--stage eval", 0),
        ("--stage 01/coll", 2),
    ):
        shown = agentr("logs", stored, *words.split())
        assert shown.exit_code == 0 and len(shown.stdout.splitlines()) == wanted, words
    assert "warning  [round 1: collect gate] slow" in agentr("logs", stored).stdout


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout")
@pytest.mark.parametrize("made", ["runs/demo", "searches/demo-t-0-base", "demo.tar.zst"])
def test_what_commands_leave_in_the_current_folder_is_ignored_by_git(made: str) -> None:
    assert subprocess.run(["git", "check-ignore", "-q", made], cwd=ROOT).returncode == 0


def test_a_dry_run_shows_where_each_value_is_from(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("run: {rounds: 2, name: base}\ntrain: [{steps: 5}]")
    (tmp_path / "top.yaml").write_text(
        "include: [base.yaml]\nrun: {name: top}\nmethod: {preset: paper}\ncluster: cpu_cluster"
    )
    shown = agentr(
        "run",
        tmp_path / "top.yaml",
        "cluster.address=",
        "run.dir=",
        "run.seed=3",
        "train[0].epochs=2",
        "--dry-run",
        "--origins",
    )
    lines = shown.output.splitlines()
    for expected in (
        f"run.rounds: 2  # {tmp_path / 'base.yaml'}",
        f'run.name: "top"  # {tmp_path / "top.yaml"}',
        "run.seed: 3  # the command line",
        "run.control: false  # default",
        f"train[0].steps: 5  # {tmp_path / 'base.yaml'}",
        "train[0].epochs: 2.0  # the command line",
        "method.search.max_depth: 20  # preset paper",
        'policy.device: "cpu"  # cluster cpu_cluster',
    ):
        assert expected in lines, expected


@pytest.mark.parametrize(
    ("kind", "page", "explained"),
    [
        ((), "add_an_environment", ("lamps/__init__.py", "lamps/spec.yaml")),
        pytest.param(("--agent",), "your_agent", ("agent/agent.py", "grade.py"), marks=pytest.mark.slow),
    ],
    ids=("environment", "agent"),
)
def test_a_project_of_ones_own_is_begun(
    tmp_path: Path, kind: tuple[str, ...], page: str, explained: tuple[str, ...]
) -> None:
    """Its test plays its environment; its configuration is checked by the schema beside it."""
    if kind and not launch.available():
        pytest.skip("programs cannot be isolated here")
    project = tmp_path / "mine"
    assert agentr("init", project, *kind).exit_code == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=project, capture_output=True, text=True
    )
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout
    text = (ROOT / f"docs/{page}.md").read_text()
    for file in explained:
        assert (project / file).read_text() in text, "the page explains it"
    jsonschema.validate(
        yaml.safe_load((project / "run.yaml").read_text()), json.loads((project / "schema.json").read_text())
    )
    assert "already there" in str(agentr("init", project).exception)
