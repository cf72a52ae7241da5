"""Names of stages, of the arms that they are of, and of what lies in a run directory."""

from pathlib import Path

import pytest

from agentr.store.layout import (
    CEILING,
    CONTROL,
    WARM_START,
    Arm,
    ArmKind,
    Checkpoint,
    Layout,
    arm_of,
    arms_in,
    name_of,
    place_of,
    round_number,
    stage_of,
    stages_on_disk,
    step_of,
    title_of,
)

FIRST, TWELFTH = arm_of(1), arm_of(12)


@pytest.mark.parametrize(
    ("arm", "folder", "title"),
    [
        (WARM_START, "rounds/00", "warm start"),
        (FIRST, "rounds/01", "round 1"),
        (TWELFTH, "rounds/12", "round 12"),
        (CONTROL, "control", "control"),
        (CEILING, "ceiling", "ceiling"),
    ],
)
def test_a_stage_is_found_by_its_name_and_named_by_its_arm(arm: Arm, folder: str, title: str) -> None:
    assert (arm.folder, arm.title, arm.stage("train")) == (folder, title, f"{folder}/train")
    assert stage_of(f"{folder}/train") == (arm, "train")


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("rounds/01/collect", "round 1: collect"),
        ("rounds/00/eval", "warm start: eval"),
        ("control/train", "control: train"),
        ("ceiling/demonstrations", "ceiling: demonstrations"),
        ("rounds/01/rollouts/000017", "round 1: rollouts, online step 17"),
        ("rounds/01/rollouts/000017/dataset", "round 1: rollouts, online step 17, dataset"),
        ("rounds/02/train@3", "round 2: train after online step 3"),
        ("model", "model"),
        ("imported/train", "imported/train"),
        ("mirroring to s3://a@b/rounds", "mirroring to s3://a@b/rounds"),
        ("", ""),
    ],
)
def test_what_sentences_and_tables_call_it(name: str, title: str) -> None:
    assert title_of(name) == title
    if stage_of(name):
        assert name_of(title) == name, "and a person may call it so"


@pytest.mark.parametrize("text", ["rounds/01/collect", "collect", "round: collect", "round 1", "round 1: two words"])
def test_what_is_no_title_is_a_name(text: str) -> None:
    assert name_of(text) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("01", 1),
        ("round 12", 12),
        ("rounds/02", 2),
        ("rounds/02/", 2),
        ("warm start", 0),
        ("last", None),
        ("-1", None),
        ("", None),
    ],
)
def test_what_a_round_may_be_called(text: str, number: int | None) -> None:
    assert round_number(text) == number


@pytest.mark.parametrize("arm", [FIRST, TWELFTH, WARM_START, CONTROL, CEILING])
@pytest.mark.parametrize("stage", ["", "train", "collect"])
def test_every_spelling_of_an_arm_and_of_its_stages_is_understood(arm: Arm, stage: str) -> None:
    n = arm.number
    numbered = [str(n), f"round {n}", f"round{n}", f"rounds/{n}", f"rounds/{n:02d}", f" {n:02d} "]
    names = {CONTROL: ["control"], CEILING: ["ceiling"], WARM_START: [*numbered, "warm start", "warm_start"]}.get(
        arm, numbered
    )
    for name in names:
        for text in (
            [f"{name}/{stage}", f"{name}: {stage}", f"{name.strip()}/{stage}/"] if stage else [name, f"{name.strip()}/"]
        ):
            if " /" in text or " :" in text:
                continue
            assert place_of(text) == (arm, stage), text
            assert name_of(text) == (arm.stage(stage) if stage else text)
            assert round_number(text) == (None if arm.reference else n)


@pytest.mark.parametrize(
    "name", ["model", "rounds/01", "rounds/01/rollouts/000001", "rounds/x/train", "control", "old/rounds/01/train"]
)
def test_what_is_of_no_arm(name: str) -> None:
    assert stage_of(name) is None


def test_rounds_are_in_order_and_what_they_are_compared_with_is_last() -> None:
    assert arm_of(0) is WARM_START and Arm(ArmKind.ROUND, 1) == FIRST
    stages = [
        "ceiling/train",
        "control/eval",
        "rounds/12/train",
        "model",
        "rounds/01/eval",
        "rounds/00/train",
        "rounds/01/train",
    ]
    assert arms_in(stages) == [WARM_START, FIRST, TWELFTH, CONTROL, CEILING]


def test_steps_of_online_training() -> None:
    assert step_of("rounds/01/rollouts/000017") == ("rounds/01/rollouts", 17)
    assert [step_of(name) for name in ("rounds/01/rollouts", "rounds/01/rollouts/a", "rounds/01/train/000017")] == [
        None
    ] * 3


def test_stages_on_disk_are_folders_at_the_places_of_stages(tmp_path: Path) -> None:
    stages = ["ceiling/dataset", "control/train", "imported/pairs", "model", "rounds/01/collect", "rounds/01/train"]
    for name in (*stages, "rounds/01/.part", "logs/x", "damaged/rounds", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "rounds/01/file").touch()
    assert stages_on_disk(tmp_path) == stages


def test_a_policy_lies_in_the_stage_that_made_it() -> None:
    layout = Layout(Path("run"))
    assert layout.checkpoint("rounds/01/train") == Checkpoint("rounds/01/train", Path("run/rounds/01/train/model"))
    assert layout.checkpoint("control/train", "2").path == Path("run/control/train/2/model")
