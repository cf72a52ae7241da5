"""``agentr plan``: for every shipped configuration, what does not fit, and what it proposes."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from agentr.cli import app
from agentr.commands.plan import pilot, plan_run, read_within
from agentr.commands.run import _predict
from agentr.config.model import Dtype
from agentr.cost.evidence import (
    EARLIER_RUN,
    GUESS,
    OTHER_METHOD,
    OTHER_MODEL,
    SAME_RUN,
    Amounts,
    Evidence,
    RowCounts,
    evidence,
)
from agentr.cost.forecast import forecast
from agentr.cost.hardware import hardware
from agentr.cost.needs import needs, require_room
from agentr.cost.propose import propose
from agentr.errors import ConfigError
from agentr.methods import load, methods_of, plan_of
from agentr.read.run import Run
from agentr.store.run import RunStore

CONFIGS = Path(__file__).parents[2] / "configs"
LARGE = ("agent_r_llama3_8b", "agent_r_qwen2_5_7b", "eto_llama2_7b", "dense_policy_llama3_8b", "et_agent_qwen2_5_7b")
MACHINE = """
this: {title: two cores, memory_gib: 24, bandwidth_gb_s: 18, bfloat16_tflops: 0.001, float32_tflops: 0.06, cores: 2,
       call_us: 6, per_node: 1, source: a test}
"""


@pytest.fixture
def this(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that was measured, and a folder without runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state/agentr").mkdir(parents=True)
    (tmp_path / "state/agentr/this.yaml").write_text(MACHINE)
    return tmp_path


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem != "bench"))
def test_every_shipped_configuration_is_forecast(this: Path, name: str) -> None:
    plan = plan_of(load(CONFIGS / f"{name}.yaml"))
    on = hardware("8xH100" if name in LARGE else "this")
    found = forecast(plan, on, [])
    assert all(stage.seconds.value >= 0 and stage.low <= stage.high for stage in found.stages)
    measured = ("eval", "recovery") if plan.config.eval.recovery else ("eval",)
    rounds = {n: method.stages(n) for n, method in enumerate(methods_of(plan)) if n}
    done = {f"rounds/{number:02d}/{stage}" for number, stages in rounds.items() for stage in (*stages, *measured)}
    said = [stage.name for stage in found.stages if stage.name.startswith("rounds/") and "/00/" not in stage.name]
    assert len(said) == len(set(said)) and set(said) == {stage for stage in done if not stage.endswith("/dataset")}
    assert found.fits, [need.role for need in found.needs if not need.fits]
    for stage in found.stages:
        assert stage.seconds.explain().startswith(stage.seconds.text)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("on", ["2xH100", "1x4090"])
def test_what_is_proposed_can_be_set_and_fits(name: str, on: str) -> None:
    path = CONFIGS / f"{name}.yaml"
    found = propose(plan_of(load(path)), machine := hardware(on), [])
    if found is None:
        assert on == "1x4090"
        return
    again = forecast(plan_of(load(path, list(found.overrides))), machine, [])
    assert again.fits and again.seconds() == pytest.approx(found.forecast.seconds())


def test_float32_is_proposed_where_a_processor_multiplies_faster_in_it(this: Path) -> None:
    path = CONFIGS / "smollm2_textcraft.yaml"
    found = propose(plan := plan_of(load(path)), machine := hardware("this"), [])
    assert found is not None and "model.dtype=float32" in found.overrides
    assert found.forecast.seconds()[1] < 0.7 * forecast(plan, machine, []).seconds()[1]
    assert plan_of(load(path, list(found.overrides))).config.model.dtype is Dtype.float32
    quick = replace(machine, device=replace(machine.device, bfloat16_tflops=0.5))
    found = propose(plan, quick, [])
    assert found is not None and not any("dtype" in key for key in found.overrides)


def test_keys_that_are_named_mend_it() -> None:
    path = CONFIGS / "agent_r_llama3_8b.yaml"
    whole = ["trainer.workers=1", "policy.engines=1"]
    over = [need for need in needs(plan_of(load(path, whole)), hardware("1xH100")) if not need.fits]
    assert [need.keys[-1] for need in over] == ["train.0.lora.rank=16", "train.1.lora.rank=16"]
    keys = [key for need in over for key in need.keys]
    mended = needs(plan_of(load(path, [*whole, *keys])), hardware("1xH100"))
    assert all(need.fits for need in mended)
    with pytest.raises(ConfigError, match=r"needs at least .* GiB, and NVIDIA H100"):
        require_room(over, "NVIDIA H100")
    require_room(mended, "NVIDIA H100")


def test_evidence_takes_the_place_of_guesses(this: Path) -> None:
    plan, on = plan_of(load(CONFIGS / "demo.yaml")), hardware("this")
    amounts = Amounts(calls=16, completions=64, prompt=2600, computed=530, drawn=915, actions=33)
    known = [
        Evidence(
            "an earlier run", EARLIER_RUN, {"collect": amounts}, {False: RowCounts(each=1.5, tokens=172, trained=0.3)}
        )
    ]
    guessed, told = ({s.name: s for s in forecast(plan, on, each).stages} for each in ([], known))
    collect = "rounds/01/collect"
    assert guessed[collect].factor == GUESS and told[collect].factor == 1.5  # the seconds' own factor is larger
    assert guessed[collect].seconds.value != told[collect].seconds.value
    assert told["rounds/01/eval"].source == "a guess" and SAME_RUN < EARLIER_RUN < OTHER_MODEL < GUESS


def test_twice_as_many_tasks_take_twice_as_long(this: Path) -> None:
    on = hardware("this")
    few, many = (
        {
            s.name: s.seconds.value
            for s in forecast(plan_of(load(CONFIGS / "demo.yaml", [f"collect.tasks.limit={n}"])), on, []).stages
        }
        for n in (100, 200)
    )
    assert many["rounds/01/collect"] == pytest.approx(2 * few["rounds/01/collect"])
    assert many["rounds/01/eval"] == few["rounds/01/eval"]


def said(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plan", *words])
    return done.exit_code, done.output if done.exception is None or isinstance(done.exception, SystemExit) else str(
        done.exception
    )


def test_the_command_says_hours_memory_and_money(this: Path) -> None:
    code, text = said(str(CONFIGS / "agent_r_llama3_8b.yaml"), "--on", "4xH100", "--price", "2.5", "--within", "1m")
    assert code == 0
    for part in ("it asks for 8 devices, and there are 4", "Longer than asked for", "trainer.workers=4", "device-hours",
                 "money, at 2.5 for an hour", "trainer, round 1", "a guess"):  # fmt: skip
        assert part in text, text
    code, text = said(str(CONFIGS / "demo.yaml"))
    assert code == 0 and "Fits." in text and "two cores" in text and "device-hours" not in text
    code, text = said(str(CONFIGS / "demo.yaml"), "--json")
    found = json.loads(text)
    assert found["fits"] and found["seconds"][0] < found["seconds"][1] < found["seconds"][2]
    code, text = said(str(CONFIGS / "demo.yaml"), "--explain", "round 1: train")
    assert code == 0 and "optimiser step = " in text and "trainer.workers" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--on", "4xH1000"], "there is no device 'H1000'"),
        (["--price", "-1"], "--price is -1, and no amount"),
        (["--price", "nan"], "--price is nan, and no amount"),
        (["policy.tensor_parallel_size=3"], "does not divide the 4 attention heads of nano"),
        (["--within", "soon"], "'soon' is no duration"),
        (["--within", "-2h"], "--within is -7200, and no amount"),
        (["--explain", "round 9: train"], "nothing is called 'round 9: train'"),
        (["--devices", "none.yaml", "--on", "H100"], "there is no file none.yaml"),
        (["model.source=hf", "model.path=somebody/unknown"], "the size of somebody/unknown is not known here"),
    ],
)
def test_what_cannot_be_answered_is_said(this: Path, words: list[str], message: str) -> None:
    code, text = said(str(CONFIGS / "demo.yaml"), *words)
    assert code != 0 and message in text


def test_durations_are_read() -> None:
    assert [read_within(text) for text in ("6h", "90m", "45s", "1d")] == [21600, 5400, 45, 86400]


def test_a_plan_says_where_its_counts_are_from(this: Path) -> None:
    """The demo's are those of this project's own run of it; of another model they say less, and of another method only
    what does not depend on the method."""
    said_of = []
    for name, changes, stage in (
        ("demo", [], "collect"),
        ("demo", ["model.source=smollm2"], "collect"),
        ("dense_math", [], "collect"),
        ("dense_math", [], "eval"),
    ):
        found = plan_run(plan_of(load(CONFIGS / f"{name}.yaml", changes)), hardware("this"))
        (one,) = (each for each in found.forecast.stages if each.name == f"rounds/01/{stage}")
        said_of.append((one.source, one.factor))
    demo, other = "the demo's first round, seed 0", "et_agent_demo, seed 0"
    assert said_of == [(demo, 1.5), (demo, OTHER_MODEL), ("a guess", GUESS), (other, OTHER_METHOD)]


def test_what_is_least_far_off_is_taken_and_of_another_method_what_does_not_depend_on_it(this: Path) -> None:
    found = evidence(plan_of(load(CONFIGS / "demo.yaml")))
    assert [each.factor for each in found] == [EARLIER_RUN, OTHER_METHOD, OTHER_METHOD, OTHER_MODEL]
    assert "collect" in found[0].stages and set(found[0].rows) == {True, False}
    assert all(set(each.stages) == {"eval"} and set(each.rows) == {True} for each in found[1:])


def test_a_run_notes_what_it_expects_once(this: Path) -> None:
    plan = plan_of(load(CONFIGS / "demo.yaml"))
    store = RunStore(this / "runs/demo")
    store.open(plan.identity)
    experiment: Any = SimpleNamespace(root=store.root, store=store)
    for _ in range(2):
        _predict(plan, experiment)
    (noted,) = [event for event in Run(store.root).events() if event["event"] == "predicted"]
    low, expected, high = noted["expected"]["rounds/01/collect"]
    assert noted["on"] == "two cores" and low < expected < high
    store.close()


def test_a_run_that_cannot_fit_is_refused_before_it_starts(this: Path) -> None:
    changes = ["model.source=hf", "model.path=Qwen/Qwen3-14B", "model.max_model_len=1024"]
    plan = plan_of(load(CONFIGS / "demo.yaml", changes))
    store = RunStore(this / "runs/large")
    store.open(plan.identity)
    experiment: Any = SimpleNamespace(root=store.root, store=store)
    with pytest.raises(ConfigError, match=r"trainer, warm start needs at least .* GiB, and two cores has 24 GiB"):
        _predict(plan, experiment)
    store.close()


def test_a_run_under_way_is_not_planned(this: Path) -> None:
    store = RunStore(this / "runs/demo")
    store.open(plan_of(load(CONFIGS / "demo.yaml")).identity)
    code, text = said(str(CONFIGS / "demo.yaml"))
    assert code != 0 and "is under way" in text
    store.close()
    assert said(str(CONFIGS / "demo.yaml"))[0] == 0


def test_a_pilot_is_one_round_of_few_tasks() -> None:
    found = pilot(plan_of(load(CONFIGS / "demo.yaml")), 20).config
    assert (found.run.name, found.run.rounds, found.run.control) == ("demo-pilot", 1, False)
    assert found.collect.tasks.limit == found.eval.tasks.limit == 20
