"""Jobs in a real Ray Train worker group: killed, resumed, split over workers, failing."""

import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from agentr.config.training import DPOConfig, LoRAConfig, TrainConfig, TrainerConfig
from agentr.errors import ConfigError, DataError, ModelError, RunError
from agentr.store.dataset import write_rows
from agentr.train.group import cause_in
from agentr.train.job import TrainJob, TrainResult
from agentr.train.launch import Report, Workers, _claim
from agentr.train.online_job import OnlineJob
from agentr.train.worker import logged_to
from tests.train.test_online import feed
from tests.train.test_online import make_job as make_steps
from tests.train.test_sft import distance

CONFIG = TrainConfig(
    steps=60, batch_size=8, micro_batch_size=8, learning_rate=1e-3, checkpoint_every=10, log_every=1, bf16=False
)


def make_job(dataset: Path, start: Path, out: Path, workers: int = 1, **config) -> TrainJob:
    return TrainJob(
        dataset, start, out, replace(CONFIG, **config), TrainerConfig(workers=workers, threads=1), name=out.name
    )


def train_many(jobs: list[TrainJob], progress: Report | None = None) -> list[TrainResult]:
    """Runs a chain of jobs in workers of its own."""
    workers = Workers(jobs[0].out.parent)
    try:
        return workers.train(jobs, progress)
    finally:
        workers.close()


def train(job: TrainJob, progress: Report | None = None) -> TrainResult:
    return train_many([job], progress)[0]


def make_online_job(start: Path, out: Path, workers: int = 1) -> OnlineJob:
    """A job of three steps whose rows are there; the weights of the last one are published."""
    job = make_steps(start, out, steps=3)
    feed(job, 1, 2, 3)
    return replace(job, trainer=TrainerConfig(workers=workers, threads=1), name=out.name)


def losses(job: TrainJob) -> list[float]:
    lines = job.read_metrics()
    assert [line["step"] for line in lines] == list(range(1, job.config.steps + 1))
    return [line["loss"] for line in lines]


def worker_pids(job: TrainJob) -> list[int]:
    return [int(pid) for pid in re.findall(r"pid (\d+) ready", (job.out / "worker.log").read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def chain(
    dataset: Path, pairs: Path, start: Path, ray_session: None, tmp_path_factory: pytest.TempPathFactory
) -> list[TrainJob]:
    """Undisturbed runs in one worker group: a long one, one that goes on from it, a short one, one on preferences, and
    one step by step."""
    folder = tmp_path_factory.mktemp("chain")
    long = make_job(dataset, start, folder / "long")
    jobs = [
        long,
        make_job(dataset, long.model, folder / "further", steps=2),
        make_job(dataset, start, folder / "short", steps=4),
    ]
    jobs += [
        make_job(pairs, start, folder / "pairs", steps=4, dpo=DPOConfig(sft=0.5)),
        make_online_job(start, folder / "online"),
    ]
    seen: list[dict] = []
    results = train_many(jobs, seen.append)
    assert [result.steps for result in results] == [60, 2, 4, 4, 3]
    for job, result in zip(jobs, results, strict=True):
        assert [line["step"] for line in seen if line["job"] == job.name] == list(range(1, result.steps + 1))
    return jobs


@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_weights_that_are_split_too_are_trained_resumed_and_handed_over_alike(
    chain: list[TrainJob], dataset: Path, pairs: Path, start: Path, tmp_path: Path
) -> None:
    """ZeRO-3 on two workers beside ZeRO-2 on one: rows, of which a worker is killed after a checkpoint, adapters,
    pairs, and an online job, which publishes its weights. The first is long: it must not be done when it is killed."""
    split = TrainerConfig(workers=2, threads=1, zero=3)
    long = make_job(dataset, start, tmp_path / "long", workers=2, micro_batch_size=2)
    adapters = replace(long.config, steps=4, lora=LoRAConfig(rank=4))
    jobs = [
        long,
        replace(long, out=tmp_path / "lora", name="lora", config=adapters),
        make_job(pairs, start, tmp_path / "pairs", workers=2, steps=4, micro_batch_size=2, dpo=chain[3].config.dpo),
        make_online_job(start, tmp_path / "online", workers=2),
    ]
    jobs = [replace(job, trainer=split) for job in jobs]
    killed: list[int] = []

    def kill_once(line: dict) -> None:
        if line["job"] == "long" and line["step"] >= 12 and not killed:
            killed.append(worker_pids(jobs[0])[0])
            os.kill(killed[0], signal.SIGKILL)

    train_many(jobs, kill_once)
    assert killed and len(worker_pids(jobs[0])) == 2
    for job, one in zip((jobs[0], *jobs[2:]), (chain[0], *chain[3:]), strict=True):
        for line, other in zip(job.read_metrics(), one.read_metrics(), strict=True):
            assert line["loss"] == pytest.approx(other["loss"], rel=1e-3, abs=1e-5)
            assert line["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3, abs=1e-5)
        assert distance(job.model, one.model) < 1e-3
    online = jobs[3]
    assert isinstance(online, OnlineJob) and distance(online.published(3), online.model) == 0.0
    assert distance(jobs[1].model, start) > 0


@pytest.mark.cluster
def test_a_chain_shares_one_worker_and_a_later_job_starts_from_an_earlier_model(
    chain: list[TrainJob], start: Path
) -> None:
    long, further, short, preferences, _ = chain
    assert len({worker_pids(job)[0] for job in chain}) == 1
    assert distance(long.model, start) > 1e-2
    assert 0 < distance(further.model, long.model) < distance(long.model, start)
    assert losses(short)[0] == pytest.approx(losses(long)[0], rel=1e-5)
    assert preferences.read_metrics()[0]["reward_margin"] == pytest.approx(0.0, abs=1e-5)
    assert "LOAD_GLOBAL" not in (long.out / "worker.log").read_text(encoding="utf-8")


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_workers_stay_for_the_next_training_and_come_again_where_they_died(
    chain: list[TrainJob], dataset: Path, start: Path, tmp_path: Path
) -> None:
    workers = Workers(tmp_path)

    def trained(name: str, **config) -> list[int]:
        job = make_job(dataset, start, tmp_path / name, **{"steps": 4, **config})
        workers.train([job])
        assert losses(job)[:4] == pytest.approx(losses(chain[2]), rel=1e-5)
        return worker_pids(job)

    try:
        (pid,) = trained("one")
        assert trained("two") == [pid]
        with pytest.raises(RunError, match="bad failed: the loss is no longer a number"):
            trained("bad", learning_rate=1e38, steps=60)
        (after,) = trained("three")
        assert after != pid
        os.kill(after, signal.SIGKILL)  # while it waits
        assert after not in trained("four")
        assert list(tmp_path.glob(".ray-*"))
    finally:
        workers.close()
    assert not list(tmp_path.glob(".ray-*"))


@pytest.mark.cluster
def test_what_is_done_is_not_done_again(chain: list[TrainJob]) -> None:
    before = (chain[0].out / "result.json").stat().st_mtime_ns
    assert train(chain[0]).steps == 60
    assert (chain[0].out / "result.json").stat().st_mtime_ns == before


@pytest.mark.cluster
@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_killed_worker_resumes_and_ends_with_the_same_model(
    chain: list[TrainJob], dataset: Path, start: Path, tmp_path: Path
) -> None:
    job = make_job(dataset, start, tmp_path / "killed")
    torn = job.checkpoints / "checkpoint-999"
    torn.mkdir(parents=True)
    killed: list[int] = []

    def kill_once(line: dict) -> None:
        if line["step"] >= 12 and not killed:
            killed.append(worker_pids(job)[0])
            os.kill(killed[0], signal.SIGKILL)

    result = train(job, kill_once)
    pids = worker_pids(job)
    assert len(pids) == 2
    assert pids[0] == killed[0]
    assert result.steps == 60
    assert "torn checkpoint" in (job.out / "worker.log").read_text(encoding="utf-8")
    assert losses(job) == pytest.approx(losses(chain[0]), rel=1e-4)
    assert distance(job.model, chain[0].model) < 1e-5


@pytest.mark.cluster
@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_killed_controller_is_an_error_of_ours_and_the_next_one_goes_on(
    chain: list[TrainJob], dataset: Path, start: Path, tmp_path: Path
) -> None:
    job = make_job(dataset, start, tmp_path / "killed")
    killed: list[psutil.Process] = []

    def kill_once(line: dict) -> None:
        if line["step"] >= 12 and not killed:
            killed.extend(
                p for p in psutil.Process().children(recursive=True) if p.name().startswith("ray::TrainContr")
            )
            killed[0].kill()

    with pytest.raises(RunError, match=r"killed: Ray Train's controller died\n?.*continues from its last checkpoint"):
        train(replace(job, trainer=replace(job.trainer, max_failures=0)), kill_once)
    assert train(job).steps == 60
    assert losses(job) == pytest.approx(losses(chain[0]), rel=1e-4)
    assert distance(job.model, chain[0].model) < 1e-5


@pytest.fixture(scope="module")
def two_workers(
    chain: list[TrainJob], dataset: Path, pairs: Path, start: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[TrainJob]:
    """The chain's short job, its job on preferences and its online job in a group of two workers, and at last a job
    that fails."""
    folder, dpo = tmp_path_factory.mktemp("two"), chain[3].config.dpo
    jobs = [
        make_job(dataset, start, folder / "short", workers=2, steps=4, micro_batch_size=2),
        make_job(pairs, start, folder / "pairs", workers=2, steps=4, micro_batch_size=2, dpo=dpo),
        make_online_job(start, folder / "online", workers=2),
        make_job(dataset, start, folder / "nan", workers=2, micro_batch_size=4, learning_rate=1e38, checkpoint_every=1),
    ]
    with pytest.raises(
        RunError, match=r"nan failed: the loss is no longer a number at optimiser step \d+\. Lower train.learning_rate"
    ):
        train_many(jobs)
    return jobs


@pytest.mark.cluster
def test_two_workers_do_what_one_does(chain: list[TrainJob], two_workers: list[TrainJob]) -> None:
    two, one = two_workers[0], chain[2]
    assert (two.out / "worker.1.log").exists()
    assert two.finished().trained_tokens == one.finished().trained_tokens  # type: ignore[union-attr]
    assert losses(two) == pytest.approx(losses(one), rel=1e-3)
    for line, other in zip(two.read_metrics(), one.read_metrics(), strict=True):
        assert line["learning_rate"] == pytest.approx(other["learning_rate"])
        assert line["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
    assert distance(two.model, one.model) < 1e-3


@pytest.mark.cluster
def test_two_workers_share_the_reference_and_do_what_one_does(
    chain: list[TrainJob], two_workers: list[TrainJob]
) -> None:
    two, one = two_workers[1], chain[3]
    with np.load(two.reference) as ours, np.load(one.reference) as theirs:
        assert ours["logprobs"] == pytest.approx(theirs["logprobs"], rel=1e-5)
    for line, other in zip(two.read_metrics(), one.read_metrics(), strict=True):
        for key in ("loss", "grad_norm", "reward_margin", "reward_accuracy", "chosen_logprob", "rejected_logprob"):
            if (key, line["step"]) != ("reward_accuracy", 1):  # of margins that are 0 but for rounding
                assert line[key] == pytest.approx(other[key], rel=1e-3, abs=1e-5), key
    assert distance(two.model, one.model) < 1e-3


@pytest.mark.cluster
def test_two_workers_train_and_publish_step_by_step_what_one_does(
    chain: list[TrainJob], two_workers: list[TrainJob]
) -> None:
    two, one = two_workers[2], chain[4]
    assert isinstance(two, OnlineJob) and isinstance(one, OnlineJob)
    for line, other in zip(two.read_metrics(), one.read_metrics(), strict=True):
        for key in ("loss", "grad_norm"):
            assert line[key] == pytest.approx(other[key], rel=1e-3, abs=1e-5), key
    assert distance(two.model, one.model) < 1e-3
    assert distance(two.published(3), two.model) == 0.0 < distance(two.model, two.start)


@pytest.mark.cluster
def test_a_loss_that_is_no_number_ends_the_stage_and_is_not_tried_again(
    two_workers: list[TrainJob], dataset: Path, start: Path
) -> None:
    failed = two_workers[-1]
    assert worker_pids(failed) == worker_pids(two_workers[0])
    assert not failed.model.exists()
    with pytest.raises(RunError, match="holds a job with another learning_rate"):
        train(make_job(dataset, start, failed.out, micro_batch_size=4, learning_rate=1e-4, checkpoint_every=1))


def test_what_can_be_known_before_is_said_before(dataset: Path, start: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "empty", [])
    with pytest.raises(DataError, match="is empty"):
        train(make_job(tmp_path / "empty", start, tmp_path / "a"))
    with pytest.raises(DataError, match="no readable dataset"):
        train(make_job(tmp_path / "nothing", start, tmp_path / "a"))
    with pytest.raises(ModelError, match=r"the start checkpoint .*nowhere has no config.json"):
        train(make_job(dataset, tmp_path / "nowhere", tmp_path / "a"))
    with pytest.raises(ConfigError, match="is no multiple of micro_batch_size"):
        train(make_job(dataset, start, tmp_path / "a", workers=3))
    with pytest.raises(ConfigError, match="need different workers"):
        train_many(
            [
                make_job(dataset, start, tmp_path / "a"),
                make_job(dataset, start, tmp_path / "b", workers=2, micro_batch_size=4),
            ]
        )
    assert not (tmp_path / "a").exists()


def test_a_run_directory_that_is_gone_is_not_made_anew(dataset: Path, start: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="its folder is gone"):
        train(make_job(dataset, start, tmp_path / "run/rounds/01/train"))
    with pytest.raises(RunError, match="its folder is gone"), logged_to(tmp_path / "run/rounds/01/train/worker.log"):
        pass
    assert not (tmp_path / "run").exists()


def test_what_a_process_says_after_an_error_is_heard(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="a fault"), logged_to(tmp_path / "worker.log"):
        print("within")
        os.write(2, b"a library within\n")
        raise ValueError("a fault")
    print("after")
    os.write(2, b"a library after\n")
    heard = capfd.readouterr()
    assert (heard.out, heard.err) == ("after\n", "a library after\n")
    assert (tmp_path / "worker.log").read_text() == "within\na library within\n"


def test_the_work_of_another_start_is_not_continued(dataset: Path, start: Path, tmp_path: Path) -> None:
    job, other = make_job(dataset, start, tmp_path / "out"), tmp_path / "other"
    shutil.copytree(start, other)
    weights = next(other.glob("*.safetensors"))
    whole = bytearray(weights.read_bytes())
    _claim(job, promised=set())
    _claim(replace(job, start=other), promised=set())  # a copy
    whole[-1] ^= 1
    weights.write_bytes(whole)
    with pytest.raises(RunError, match=r"holds a job with another start\. Delete the folder to train anew"):
        train(replace(job, start=other))
    _claim(replace(job, start=other), promised={other})


@pytest.mark.cluster
@pytest.mark.usefixtures("ray_session")
def test_a_cluster_that_is_too_small_or_dead_is_named(
    dataset: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(dataset, start, tmp_path / "gpu")
    with pytest.raises(RunError, match="gpu needs 1 GPU, the cluster has 0"):
        train(replace(job, trainer=replace(job.trainer, use_gpu=True)))
    monkeypatch.setattr("ray.cluster_resources", dict)
    with pytest.raises(RunError, match=r"gpu: no node of the Ray cluster is alive\. Start the same run again"):
        train(job)


def test_the_cause_is_the_error_that_is_not_about_another_worker() -> None:
    class Failed(Exception):
        worker_failures = {  # noqa: RUF012
            0: RuntimeError("Traceback\n ...\n[gloo/transport/tcp/pair.cc] Connection closed by peer"),
            1: RuntimeError("Traceback\n ...\ntorch.OutOfMemoryError: CUDA out of memory"),
        }

    assert cause_in(Failed()) == "torch.OutOfMemoryError: CUDA out of memory"
