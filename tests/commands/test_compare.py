"""Comparisons: what is refused, what is shared, and what the table says, on run directories written by hand."""

from collections.abc import Sequence
from contextlib import nullcontext
from io import StringIO
from itertools import product
from pathlib import Path
from shutil import copytree, rmtree

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from agentr.cli import app
from agentr.commands.compare import SHARED, compare, plan, shared
from agentr.config.identity import Identity
from agentr.errors import ConfigError, DataError, RunError
from agentr.methods import load, method_of
from agentr.methods.dense_policy import DensePolicyConfig
from agentr.observe.comparison import ComparedRun, compare_runs, lines_of, progress, read_plan, write_plan
from agentr.observe.progress import Reporter
from agentr.read.run import Run
from agentr.rounds.plan import Plan as RunPlan
from agentr.store.layout import WARM_START, Layout, arm_of
from agentr.store.run import RunStore
from agentr.store.summaries import ModelSummary, TrainSummary, TreeSummary
from agentr.types import Outcome
from agentr.ui.report import comparison_table, power_table, rewrite_comparison, write_comparison
from tests.runs import measured_trees, written
from tests.support import held_in
from tests.trees import episode

CONFIGS = Path(__file__).parents[2] / "configs" / "compare"
TEXTCRAFT = CONFIGS / "tasks" / "textcraft.yaml"


def test_the_comparison_pools_seeds_and_pairs_tasks(tmp_path: Path) -> None:
    lines = [
        ComparedRun("one", 0, Run(written(tmp_path, "one", 0, [{"a"}, {"a", "b"}], 5).root)),
        ComparedRun("one", 1, Run(written(tmp_path, "one", 1, [set(), {"a"}], 7).root)),
        ComparedRun("two", 0, Run(written(tmp_path, "two", 0, [{"a"}, {"a", "b", "c"}], 50).root)),
        ComparedRun("two", 1, Run(written(tmp_path, "two", 1, [set(), {"a", "b"}], 70).root)),
    ]
    result = compare_runs(lines, {})
    write_plan(tmp_path, [(line.label, line.seed) for line in lines])
    write_comparison(result, tmp_path)
    warm, last = result.points["one"]
    assert (warm.arm, last.arm) == (WARM_START, arm_of(1))
    assert (warm.title, last.title) == ("warm start", "round 1")
    assert last.success.mean == pytest.approx(3 / 6) and last.success.n == 6
    assert last.by_seed == pytest.approx({0: 2 / 3, 1: 1 / 3})
    assert (warm.calls, last.calls, last.tokens) == (0, 6, 60)
    assert last.gain is not None and last.gain.mean == pytest.approx(2 / 6)
    assert result.against_first["two"].mean == pytest.approx(2 / 6)
    assert (tmp_path / "comparison.json").exists()
    (answer,) = held_in(tmp_path / "comparison.html").values()
    assert [point["success"]["mean"] for point in answer["methods"][0]["points"]] == [
        warm.success.mean,
        last.success.mean,
    ]
    assert (
        answer["differences"]["two"]["one"]["mean"]
        == pytest.approx(2 / 6)
        == -answer["differences"]["one"]["two"]["mean"]
    )


def several(folder: Path, *labels: str, seeds: int = 3) -> Path:
    """A comparison of these labels on twelve problems of two tasks: the first solves none, the second a half, the third
    a quarter in one seed alone."""
    goals = {f"t{number}": str(number // 2) for number in range(24)}
    solved = {"first": [set[str]()] * seeds, "second": [{t for t in goals if int(t[1:]) % 2}] * seeds}
    solved["third"] = [{t for t in goals if not int(t[1:]) % 4}, *[set[str]()] * (seeds - 1)]
    write_plan(folder, [(label, seed) for label in labels for seed in range(seeds)])
    for label in labels:
        for seed in range(seeds):
            written(folder, label, f"seed-{seed}", [set(), solved[label][seed]], 1, tasks=goals)
    return folder


def test_what_stands_among_all_comparisons_is_marked(tmp_path: Path) -> None:
    result = rewrite_comparison(several(tmp_path, "first", "second", "third"))
    assert result.comparisons == 3
    sure, unsure = (result.against_first[label] for label in ("second", "third"))
    assert (sure.stands, unsure.stands) == (True, False)
    alone = rewrite_comparison(several(tmp_path / "two", "first", "third")).against_first["third"]
    assert 3 * alone.p > unsure.p >= alone.p, "adjusted for three comparisons"
    assert result.differences["first"]["second"].p == sure.p, "in both directions"
    console = Console(width=220, record=True, file=StringIO())
    console.print(comparison_table(result))
    said = console.export_text()
    assert said.count(" *") - said.count("* stands") == 1 and "3 comparisons" in said
    (answer,) = held_in(tmp_path / "comparison.html").values()
    assert answer["differences"]["second"]["first"]["p"] == sure.p


def test_what_policies_do_from_bad_beginnings_is_compared_too(tmp_path: Path) -> None:
    folder = several(tmp_path, "first", "second", "third")
    assert rewrite_comparison(folder).states == [] and "bad beginnings" not in printed(folder)
    beginnings = [f"t{number}" for number in range(16)]
    solved = {"first": [], "second": beginnings[::2], "third": beginnings[:1]}
    for label, seed in product(solved, range(3)):
        if (label, seed) != ("third", 2):  # not measured yet
            store = RunStore(folder / label / f"seed-{seed}")
            for stage, won in (("after_refusal", solved[label]), ("after_harm", [])):
                trees = [
                    episode(t, ["x"], float(t in won), Outcome.SUCCESS if t in won else Outcome.FAILURE, 1)
                    for t in beginnings
                ]
                measured_trees(store, f"rounds/01/{stage}", trees)
    refusal, harm = rewrite_comparison(folder).states
    assert (refusal.title, harm.title) == ("a refusal", "a turn that did harm")
    assert {label: found.n for label, found in refusal.success.items()} == {"first": 48, "second": 48, "third": 32}
    assert refusal.by_seed["second"] == dict.fromkeys(range(3), 0.5) and list(refusal.by_seed["third"]) == [0, 1]
    sure, unsure = (refusal.differences[label] for label in ("second", "third"))
    assert (sure.mean, sure.stands, unsure.n, unsure.stands) == (0.5, True, 32, False)
    assert harm.differences["second"].p == 1.0
    fewer = compare_runs([line for line in read_plan(folder) if line.label != "third"], {}).states[0]
    assert sure.p == pytest.approx(2 * fewer.differences["second"].p), "adjusted for four comparisons, not for two"
    said = printed(folder)
    assert "a turn that did harm" in said and said.count("stands among 4 comparisons") == 1
    (answer,) = held_in(folder / "comparison.html").values()
    assert answer["states"][0]["differences"]["second"]["mean"] == 0.5


def printed(*folders: Path) -> str:
    result = CliRunner().invoke(app, ["report", *map(str, folders)], terminal_width=220)
    assert result.exit_code == 0, result.output
    return result.output


def test_runs_that_were_started_by_themselves_are_compared(tmp_path: Path) -> None:
    """As a comparison of the same runs is, with what differs in their settings; nothing is written."""
    folder = several(tmp_path, "first", "second")
    runs = [folder / label / f"seed-{seed}" for label in ("first", "second") for seed in range(3)]
    for run in runs:
        file = Layout(run).config
        config = yaml.safe_load(file.read_text())
        config["run"]["seed"] = int(run.name[-1])
        if run.parent.name == "second":
            config["turns"]["repeat_refused"] = "redraw"
        file.write_text(yaml.safe_dump(config))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    said = printed(*runs)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    table = printed(folder)
    assert said.startswith(table.rstrip())
    assert said.count("second has another setting than first: turns.repeat_refused: 'allow' -> 'redraw'\n") == 1
    copy = copytree(runs[3], tmp_path / "copy")
    labels = [line.label for line in lines_of([Run(path) for path in (runs[0], runs[3], copy)])]
    assert labels == ["first", str(runs[3]), str(copy)], "of the same name and seed: paths"
    refused = CliRunner().invoke(app, ["report", *map(str, runs), "--row", "0"])
    assert "about one run" in str(refused.exception)


def test_how_many_seeds_it_takes_is_said_of_the_runs_so_far(tmp_path: Path) -> None:
    several(tmp_path, "first", "second", "third")

    def said(*more: str) -> Result:
        return CliRunner().invoke(app, ["compare", "--out", str(tmp_path), *more], terminal_width=220)

    result = said("--power", "20")
    assert result.exit_code == 0, result.output
    spreads = compare_runs(read_plan(tmp_path), {}).spreads
    assert (spreads["third"].seeds, spreads["third"].tasks) == (3, 24)
    assert f"{spreads['third'].tasks_for(0.2, 10):,}" in result.output and "no number" in result.output
    assert not (tmp_path / "comparison.json").exists(), "nothing was run or written"
    assert "at least one configuration" in str(said().exception)
    assert said("--power", "0").exit_code == 2
    for few in (several(tmp_path / "one", "first"), several(tmp_path / "seed", "first", "second", seeds=1)):
        with pytest.raises(DataError, match="cannot be said of one method, or of one seed"):
            power_table(rewrite_comparison(few), 5)


def test_a_run_that_has_begun_a_further_round_counts_with_the_rounds_it_has(tmp_path: Path) -> None:
    """Such a run is complete by its configuration, and its last arm has no evaluation."""
    lines = [
        ComparedRun(name, 0, Run(written(tmp_path, name, 0, [{"a"}, {"a", "b"}], 5).root)) for name in ("one", "two")
    ]
    assert lines[1].run is not None
    further = RunStore(lines[1].run.path)
    with pytest.raises(RuntimeError):
        further.stages.run("rounds/02/collect", TreeSummary, lambda _: (_ for _ in ()).throw(RuntimeError()))
    result = compare_runs(lines, {})
    write_comparison(result, tmp_path)
    assert [point.arm for point in result.points["two"]] == [WARM_START, arm_of(1)]
    assert result.against_first["two"].n == 3, "its last measured round is compared"
    assert comparison_table(result).row_count == 4


def test_a_run_that_has_just_begun_has_no_points(tmp_path: Path) -> None:
    begun = RunStore(tmp_path / "begun")
    begun.open(Identity.of(load(None)))
    begun.stages.run("model", ModelSummary, lambda _: ModelSummary())
    result = compare_runs(
        [
            ComparedRun("begun", 0, Run(begun.root)),
            ComparedRun("one", 0, Run(written(tmp_path, "one", 0, [{"a"}, {"b"}], 1).root)),
        ],
        {},
    )
    write_comparison(result, tmp_path)
    assert comparison_table(result).row_count == 2
    assert (result.points["begun"], result.against_first) == ([], {})


def test_a_method_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = plan([CONFIGS / "rft.yaml", CONFIGS / "sft.yaml"], [0, 1], tmp_path, ["run.rounds=1"], base=TEXTCRAFT)

    def run(plan: RunPlan, *_: object, **__: object) -> None:
        broken = plan.config.run.name == "rft" and plan.config.run.seed == 0
        written(
            tmp_path, plan.config.run.name, f"seed-{plan.config.run.seed}", [{"a"}] if broken else [{"a"}, {"b"}], 1
        )
        if broken:
            raise RunError("no run earned enough")

    monkeypatch.setattr("agentr.commands.compare.run", run)
    monkeypatch.setattr("agentr.commands.compare.serving", lambda *_: nullcontext())
    result = compare(entries, tmp_path, Reporter())
    assert result.failed == {"rft, seed 0": "no run earned enough"}
    assert [point.success.n for point in result.points["rft"]] == [6, 3], "its warm start counts, and the other seed"
    assert result.against_first["sft"].n == 3, "the seed that both came to the end of"
    assert "no run earned enough" in (tmp_path / "comparison.html").read_text()

    (tmp_path / "comparison.html").unlink()
    assert rewrite_comparison(tmp_path).as_dict() == result.as_dict()
    assert "no run earned enough" in (tmp_path / "comparison.html").read_text()
    rmtree(tmp_path / "sft/seed-1")
    runs = {(run["method"], run["seed"]): run for run in progress(read_plan(tmp_path))}
    state, success = ({name: run[of] for name, run in runs.items()} for of in ("state", "success"))
    assert success == {("rft", 0): [1 / 3], ("rft", 1): [1 / 3, 1 / 3], ("sft", 0): [1 / 3, 1 / 3], ("sft", 1): []}
    assert state == {("rft", 0): "between two stages", ("rft", 1): "done", ("sft", 0): "done", ("sft", 1): "not begun"}


def test_differences_of_a_comparison_are_over_problems(tmp_path: Path) -> None:
    """Ten goals of eight tasks each: one method solves every other goal, the other none."""
    goals = {f"t{number}": str(number // 8) for number in range(80)}
    half = {task for task, goal in goals.items() if int(goal) % 2}
    widths = []
    for name, problems in (("tasks", {task: task for task in goals}), ("goals", goals)):
        runs = [
            written(tmp_path / name, label, 0, [set(), solved], 1, tasks=problems)
            for label, solved in (("one", set()), ("two", half))
        ]
        result = compare_runs(
            [ComparedRun(label, 0, Run(run.root)) for label, run in zip(("one", "two"), runs, strict=True)], {}
        )
        last = result.points["two"][-1]
        assert last.gain is not None and last.gain.mean == result.against_first["two"].mean == last.success.mean == 0.5
        widths.append(
            [estimate.high - estimate.low for estimate in (last.success, last.gain, result.against_first["two"])]
        )
    assert all(goals > 2 * tasks for tasks, goals in zip(*widths, strict=True)), widths


def test_seeds_of_a_comparison_share_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = plan([CONFIGS / "sft.yaml"], [0, 1], tmp_path, ["run.rounds=1"], base=TEXTCRAFT)

    def run(plan: RunPlan, *_: object, **__: object) -> None:
        """The warm start of the second seed solves all tasks, if it is not taken over from the first."""
        warm_start = {"a", "b", "c"} if plan.config.run.seed else {"a"}
        written(tmp_path, plan.config.run.name, f"seed-{plan.config.run.seed}", [warm_start, {"a"}], 1)

    monkeypatch.setattr("agentr.commands.compare.run", run)
    monkeypatch.setattr("agentr.commands.compare.serving", lambda *_: nullcontext())
    result = compare(entries, tmp_path, Reporter())
    assert result.points["sft"][0].by_seed == pytest.approx({0: 1 / 3, 1: 1.0})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("eval: {tasks: {limit: 3}}", r"eval\.tasks\.limit: None -> 3"),
        ("turns: {cut_off: run}", r"turns\.cut_off: 'refused' -> 'run'"),
    ],
)
def test_unlike_questions_are_refused(tmp_path: Path, change: str, named: str) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(f"include: [{CONFIGS / 'rft.yaml'}]\n{change}\n")
    with pytest.raises(
        ConfigError, match=f"other and sft differ in keys that must match for a fair comparison: {named}"
    ):
        plan([CONFIGS / "sft.yaml", other], [0], tmp_path)
    with pytest.raises(ConfigError, match="two configurations have the same name: sft, sft"):
        plan([CONFIGS / "sft.yaml", CONFIGS / "sft.yaml"], [0], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("base", sorted((CONFIGS / "tasks").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_method_fits_every_task(base: Path, tmp_path: Path) -> None:
    files = sorted(CONFIGS.glob("*.yaml"))
    entries = plan(files, [0, 1], tmp_path, ["collect.in_flight=3"], base=base)
    assert len(entries) == 2 * len(files)
    assert {e.plan.config.run.seed for e in entries} == {0, 1}
    assert len({e.plan.config.run.dir for e in entries}) == len(entries)
    for entry in entries:
        demonstrated = entry.plan.config.collect.tasks in entry.plan.config.warm_start.tasks
        assert demonstrated == (entry.label == "eto"), "only ETO needs an expert's run of what it explores"


@pytest.mark.slow
def test_values_of_one_key_are_arms_that_share_their_trees(tmp_path: Path) -> None:
    config = CONFIGS / "dense_policy.yaml"
    few, many = plan([config], [3], tmp_path, vary=["method.pairs.tasks=2", "method.pairs.tasks=4"], base=TEXTCRAFT)
    assert (few.label, many.label) == ("dense_policy-2", "dense_policy-4")
    assert isinstance(few.plan.config.method, DensePolicyConfig) and isinstance(
        many.plan.config.method, DensePolicyConfig
    )
    assert (few.plan.config.method.pairs.tasks, many.plan.config.method.pairs.tasks) == (2, 4)
    assert "rounds/01/collect" in shared(few.plan, many.plan)
    slow, fast = plan(
        [CONFIGS / "grpo.yaml"],
        [3],
        tmp_path,
        vary=["train[0].learning_rate=1e-5", "train[0].learning_rate=1e-4"],
        base=TEXTCRAFT,
    )
    assert shared(slow.plan, fast.plan) == SHARED, "what an online method collects depends on how it trains"
    rule, other_rule = plan(
        [config], [3], tmp_path, vary=["method.pairs.min_gap=0.2", "method.pairs.min_gap=0.4"], base=TEXTCRAFT
    )
    assert "rounds/01/collect" not in shared(rule.plan, other_rule.plan), "the rule decides when a tree stops"
    assert "rounds/00/train" in shared(rule.plan, other_rule.plan)


def test_methods_that_explore_alike_share_their_trees(tmp_path: Path) -> None:
    names = ["agent_r", "agent_r_direct", "agent_r_paper", "rft", "eto_self_play", "eto", "dense_policy"]
    of = {e.label: e.plan for e in plan([CONFIGS / f"{name}.yaml" for name in names], [0], tmp_path, base=TEXTCRAFT)}
    alike = {(a, b) for a in names for b in names if a < b and "rounds/01/collect" in shared(of[a], of[b])}
    assert alike == {
        ("agent_r", "agent_r_direct"),
        ("agent_r", "agent_r_paper"),
        ("agent_r_direct", "agent_r_paper"),
        ("eto_self_play", "rft"),
    }
    assert "rounds/01/revise" not in shared(of["agent_r"], of["agent_r_paper"])
    for a in names:
        for b in names:
            one, other = method_of(of[a].config.method).exploration(1), method_of(of[b].config.method).exploration(1)
            same = one == other and of[a].config.collect == of[b].config.collect
            assert ({f"rounds/01/{stage}" for stage in one} <= set(shared(of[a], of[b]))) == same, (a, b)


@pytest.mark.slow
def test_methods_that_train_as_long_share_their_control(tmp_path: Path) -> None:
    wanted = ["run.control=true", "run.ceiling=true", "eval.recovery=true"]

    def of(*more: str, names: Sequence[str] = ("agent_r", "rft")) -> dict[str, RunPlan]:
        made = plan([CONFIGS / f"{name}.yaml" for name in names], [0], tmp_path, [*wanted, *more], base=TEXTCRAFT)
        return {one.label: one.plan for one in made}

    def control(one: RunPlan, other: RunPlan) -> bool:
        stages = set(shared(one, other))
        assert stages == set(shared(other, one))
        assert not any(stage.startswith("ceiling") for stage in stages), "what was searched is not known before"
        return {"control/train", "control/eval", "control/recovery"} <= stages

    plans = of(names=("agent_r", "rft", "dense_policy", "eto_self_play", "grpo"))
    assert control(plans["agent_r"], plans["rft"]) and control(plans["dense_policy"], plans["eto_self_play"])
    assert not control(plans["agent_r"], plans["eto_self_play"]), "preferences train with another schedule"
    assert not control(plans["agent_r"], plans["grpo"]), "how many steps there will be is not known"
    none = of("run.control=false")["agent_r"]
    assert not any(stage.startswith("control") for stage in shared(none, plans["rft"]))
    for change in (
        "train.0.steps=50",
        "train.0.learning_rate=5e-4",
        "run.rounds=2",
        "trainer.continue_from=warm_start",
    ):
        assert not control(of(change)["agent_r"], plans["rft"]), change
    two = of("run.rounds=2")
    assert control(two["agent_r"], two["rft"])
    epochs = of("train.0.steps=0", "train.0.epochs=2")
    assert not control(epochs["agent_r"], epochs["rft"]), "their rows decide"


def test_a_run_takes_over_sealed_stages(tmp_path: Path) -> None:
    config = load(None)
    first, second = RunStore(tmp_path / "first"), RunStore(tmp_path / "second")
    first.open(Identity.of(config))

    def model(folder: Path) -> ModelSummary:
        (folder / "weights").write_text("w")
        return ModelSummary(path=first.stored_path(folder))

    first.stages.run("model", ModelSummary, model)
    with pytest.raises(RuntimeError):
        first.stages.run("rounds/00/train", TrainSummary, lambda _: (_ for _ in ()).throw(RuntimeError()))
    first.close()
    second.stages.adopt(first.stages, ["model", "rounds/00/train", "rounds/00/eval"])
    second.open(Identity.of(config))
    assert second.sealed("model") and second.record("rounds/00/train") is None
    summary = second.stages.run("model", ModelSummary, lambda _: pytest.fail("a sealed stage is not done again"))
    assert second.model_path(summary.path) == tmp_path / "second/model"
    assert (second.model_path(summary.path) / "weights").read_text() == "w"
