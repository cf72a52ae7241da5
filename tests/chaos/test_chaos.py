"""Kill everything, in turn, and lose nothing: the sealed units are those of an undisturbed run, none twice.

Agent-R is killed everywhere, in turn. A comparison of the other recipes is killed in what is theirs: DPO, and the
growth of DensePolicy's trees.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agentr.observe.logs import read_logs
from agentr.store.dataset import read_manifest
from agentr.store.files import read_lines
from agentr.store.forest import Forest
from agentr.store.run import RunStore
from agentr.store.summaries import TrainSummary
from tests.chaos.driver import DEMO, ROUND_STAGES, SMALL, end, kill, start, state, wait_for
from tests.track.test_tracking import tensorboard

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.by_hand, pytest.mark.timeout(2400)]


def small(root: Path) -> list[str]:
    return ["run", DEMO, f"run.dir={root}", "tracking=[tensorboard]", *SMALL]


def from_warm_start(undisturbed: Path) -> list[str]:
    """Overrides for a run that starts where that run's round does: from a model that solves some tasks of depth 1 and
    some not."""
    return ["model.source=hf", f"model.path={undisturbed / 'rounds/00/train/model'}"]


#: No warm start of one's own.
AS_IT_IS = ["warm_start.enabled=false"]

#: No demonstrations beside the agent's own rows: they are the warm start's.
OWN_ROWS = ["method.mixture.demonstrations=0"]


def units(root: Path) -> dict[str, list[str]]:
    """What the forests of a run's round hold."""
    return {
        stage: sorted(Forest(root / stage).finished())
        for stage in ROUND_STAGES
        if (root / stage / "summary.parquet").exists()
    }


def steps_are_reported_once(root: Path) -> bool:
    steps = [line["step"] for line in read_lines(root / "rounds/01/train/metrics.jsonl")]
    return bool(steps) and steps == sorted(set(steps))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run that the disturbed ones are compared with, finished."""
    root = tmp_path_factory.mktemp("undisturbed") / "run"
    driver = start(root.parent / "log", *small(root))
    assert driver.wait(1200) == 0, (root.parent / "log").read_text()[-3000:]
    return root


def test_kill_engine_server_coordinator_trainer_and_driver(undisturbed: Path, tmp_path: Path) -> None:
    root, log = tmp_path / "run", tmp_path / "log"
    command = [*small(root), *AS_IT_IS, *OWN_ROWS, *from_warm_start(undisturbed)]
    driver = start(log, *command)
    finished = Forest(root / "rounds/01/collect")

    def grown(count: int) -> Callable[[], bool]:
        return lambda: len(finished.finished()) >= count or finished.sealed

    try:
        # The engine, the environment server and the coordinator, while trees grow.
        wait_for(grown(4), driver, "4 trees")
        kill(driver, r"ray::.*EngineActor")
        wait_for(grown(12), driver, "12 trees")
        kill(driver, r"-m env_servers serve")
        wait_for(grown(20), driver, "20 trees")
        kill(driver, r"ray::.*Coordinator(?!Actor)")
        # The trainer, once it has a checkpoint to go on from.
        wait_for(
            lambda: list((root / "rounds/01/train").glob("work-*/checkpoints/*/complete.json")),
            driver,
            "a checkpoint of the training",
        )
        kill(driver, r"ray::.*RayTrainWorker|ray::.*TrainWorker")
        # The driver, in the last evaluation, as a job that is stopped; the same command continues.
        wait_for(lambda: state(root, "rounds/01/eval") == "running", driver, "the last evaluation")
        driver.terminate()
        assert driver.wait(120) == 143
        driver = start(log, *command)
        assert driver.wait(1200) == 0, log.read_text()[-3000:]
    finally:
        end(driver)

    assert units(root) == units(undisturbed)
    sealed = Counter(e["stage"] for e in read_lines(root / "events.jsonl") if e["event"] == "stage_sealed")
    assert [stage for stage in ROUND_STAGES if sealed[stage] != 1] == [], "a stage was sealed twice, or not at all"
    assert max(sealed.values()) == 1
    assert steps_are_reported_once(root)
    trainings = [RunStore(r).record("rounds/01/train") for r in (root, undisturbed)]
    assert [done.read(TrainSummary).steps for done in trainings if done is not None] == [24, 24]
    report = json.loads((root / "report.json").read_text())
    assert report["complete"]
    assert all(not Forest(root / stage).failures() for stage in units(root))
    assert_tracked_and_logged(root, undisturbed)


def assert_tracked_and_logged(root: Path, undisturbed: Path) -> None:
    """What the tracker was told, each point once, is what an undisturbed run tells of the round; and the logs say what
    died."""
    told = tensorboard(root / "tracking")["the only one"]
    whole = tensorboard(undisturbed / "tracking")["the only one"]
    assert max(Counter((name, step) for name, step, _ in told).values()) == 1
    losses = [step for name, step, _ in told if name == "train/main/loss"]
    assert len(losses) == len(read_lines(root / "rounds/01/train/metrics.jsonl"))
    own = ("collect/", "revise/", "dataset/", "train_total/", "eval/")
    assert {name for name, _, _ in told if name.startswith(own)} <= {name for name, _, _ in whole}
    assert ("eval/main/success", 1) in {(name, step) for name, step, _ in told}
    lines = read_logs(root)
    assert {line["run"] for line in lines if "run" in line} == {"demo"}
    assert {line["stage"] for line in lines if line["role"] == "coordinator"} >= {"rounds/01/collect", "rounds/01/eval"}
    assert any(line["role"] == "environment" and "started again" in line["message"] for line in lines)
    (died,) = [line for line in lines if "died during" in line["message"]]
    assert died["level"] == "warning" and died["stage"] == "rounds/01/collect" and died["round"] == 1
    assert not any(text.startswith("{") for text in (root / "logs/driver.log").read_text().splitlines())


#: A comparison of one round on tasks of depth 1.
COMPARISON = [
    "cluster.dashboard=false",
    "run.rounds=1",
    "collect.tasks={split: train, where: {depth: 1}, limit: 24}",
    "collect.max_completions=0",
    "collect.in_flight=4",
    "methods.eto={episodes: 4, pairs: {pairs_per_task: 4}}",
    (
        "methods.dense_policy={search: {base: 4, max_depth: 5, window: 4, stop_pairs: 6, stop_rollouts: 12}, pairs: "
        "{min_gap: 0.1}}"
    ),
    (
        "train=[{steps: 8, batch_size: 4, micro_batch_size: 4, bf16: false, max_length: 768, checkpoint_every: 2, "
        "learning_rate: 1.0e-5}]"
    ),
    "eval.tasks={split: test, where: {depth: 1}, limit: 12}",
]


def test_a_comparison_whose_driver_is_killed_loses_nothing(undisturbed: Path, tmp_path: Path) -> None:
    eto, dense = (tmp_path / recipe / "seed-0" for recipe in ("eto", "dense_policy"))
    settings = [f"--set={override}" for override in (*COMPARISON, *AS_IT_IS, *from_warm_start(undisturbed))]
    command = ["compare", *(f"configs/compare/{arm}.yaml" for arm in ("eto", "dense_policy")), f"--out={tmp_path}"]
    command += ["--base=configs/compare/tasks/textcraft.yaml", *settings]
    log = tmp_path / "log"

    trees = Forest(dense / "rounds/01/collect")
    moments: list[tuple[Callable[[], object], str]] = [
        (
            lambda: list((eto / "rounds/01/train").glob("work-*/checkpoints/*/complete.json")),
            "a checkpoint of ETO's DPO training",
        ),
        (lambda: len(trees.finished()) >= 6 or trees.sealed, "DensePolicy's trees"),
    ]
    driver = start(log, *command)
    try:
        for reached, what in moments:
            wait_for(reached, driver, what)
            driver.kill()
            driver.wait(60)
            driver = start(log, *command)
        assert driver.wait(900) == 0, log.read_text()[-3000:]
    finally:
        end(driver)

    for root in (eto, dense):
        sealed = Counter(e["stage"] for e in read_lines(root / "events.jsonl") if e["event"] == "stage_sealed")
        stages = [f"rounds/01/{stage}" for stage in ("collect", "dataset", "train", "eval")]
        assert all(sealed[stage] == 1 for stage in stages), sealed
        assert max(sealed.values()) == 1, "a stage was sealed twice"
        assert len(Forest(root / "rounds/01/collect")) == 24
        assert read_manifest(root / "rounds/01/dataset")["type"] == "preferences"
        assert steps_are_reported_once(root)
        assert json.loads((root / "report.json").read_text())["complete"]
    assert set(json.loads((tmp_path / "comparison.json").read_text())["points"]) == {"eto", "dense_policy"}
