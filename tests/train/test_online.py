"""Online training in this process: steps that come one by one, weights that are published, and what a killed worker
leaves."""

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import save_file

from agentr.config.training import GRPOConfig, LoRAConfig, TrainConfig
from agentr.errors import DataError, ModelError, RunError
from agentr.policy.adapters import base_of, merged
from agentr.store.dataset import write_rows
from agentr.store.rows import Rollout
from agentr.train.job import TrainResult
from agentr.train.online_job import OnlineJob
from tests.train.conftest import EACH, GROUPS, random_rows, rollouts
from tests.train.test_sft import distance, weights

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("one_process")]

STEPS = 4


def make_job(
    start: Path, out: Path, steps: int = STEPS, staleness: int = 0, checkpoint_every: int = 2, **grpo
) -> OnlineJob:
    config = TrainConfig(
        batch_size=GROUPS * EACH // grpo.get("minibatches", 1),
        micro_batch_size=3,
        learning_rate=1e-3,
        warmup_ratio=0.0,
        bf16=False,
        max_length=64,
        checkpoint_every=checkpoint_every,
        grpo=GRPOConfig(**grpo),
    )
    return OnlineJob(out / "feed", start, out, config, steps=steps, staleness=staleness)


def feed(job: OnlineJob, *numbers: int, change: Callable[[Rollout], Rollout] = lambda row: row) -> None:
    for number in numbers:
        job.step(number).mkdir(parents=True)
        write_rows(job.rows_of(number), [change(row) for row in rollouts(job.start, number)])


def run(job: OnlineJob) -> TrainResult:
    from agentr.train.run import run_job
    from agentr.train.worker import register_deepspeed

    register_deepspeed(use_gpu=False)
    return run_job(job)


def test_each_step_is_trained_on_once_it_is_there(start: Path, tmp_path: Path) -> None:
    """The weights of a step are there before the next step's rollouts are, and go on changing. They do not pile up."""
    job, moved, there = make_job(start, tmp_path), [], []
    for number in range(1, STEPS + 1):
        # made before the training starts: transformers cannot load two models at a time in a process
        rollouts(start, number)

    def collect() -> None:
        for number in range(1, STEPS + 1):
            feed(job, number)
            while number < STEPS and not (job.published(number) / "model.safetensors").exists():
                threading.Event().wait(0.02)
            if number < STEPS:
                moved.append(distance(job.published(number), job.published(number - 1)))
                there.append(sorted(path.name for path in job.published(1).parent.iterdir()))

    collector = threading.Thread(target=collect, daemon=True)
    collector.start()
    result = run(job)
    collector.join()
    assert len(moved) == STEPS - 1 and min(moved) > 1e-4
    assert max(map(len, there)) <= 2
    assert result.steps == STEPS and result.rows == STEPS * GROUPS * EACH
    lines = job.read_metrics()
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all(line["entropy"] > 0 and line["grad_norm"] > 0 and line["logprob_difference"] > 0 for line in lines)
    assert (job.model / "tokenizer.json").exists() and not job.checkpoints.exists()


@pytest.mark.parametrize("renamed", [False, True])
def test_adapters_are_handed_over_alone_and_are_the_model(start: Path, tmp_path: Path, renamed: bool) -> None:
    """Where the start's files have other names than its layers, nobody could add adapters to them: there the whole
    model is handed over."""
    begin = start
    if renamed:
        begin = shutil.copytree(start, tmp_path / "begin")
        found = weights(begin)
        save_file({name.removeprefix("model."): weight for name, weight in found.items()}, begin / "model.safetensors")
    job = make_job(begin, tmp_path, steps=2)
    job = replace(job, config=replace(job.config, lora=LoRAConfig(rank=4)))
    feed(job, 1, 2)
    run(job)
    last = job.published(2)
    assert base_of(job.model) is None and distance(job.model, start) > 0
    if renamed:
        assert base_of(last) is None and distance(last, job.model) == 0.0
        return
    assert base_of(last) == begin and not (last / "model.safetensors").exists()
    assert (last / "tokenizer.json").exists() and (last / "config.json").exists()
    whole = weights(job.model)
    there = dict(merged(last))
    assert there.keys() == whole.keys()
    assert all((there[name].float() - whole[name].float()).abs().max() < 1e-6 for name in whole)


@pytest.mark.parametrize("staleness", [0, 1])
def test_weights_that_are_gone_are_made_again(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    """Weights in memory do not outlive the machine; the collection that waits for them gets the same ones."""
    from agentr.train import online

    whole = make_job(start, tmp_path / "whole", staleness=staleness)
    feed(whole, 1, 2, 3, 4)
    run(whole)
    memory = tmp_path / "memory"
    job = replace(make_job(start, tmp_path / "killed", staleness=staleness), weights=memory)
    # step 2 is the last one with a checkpoint, and the weights after it are waited for
    feed(job, *range(1, 3 + staleness))

    sleep, here = time.sleep, threading.current_thread()

    def dies(seconds: float) -> None:
        # a watch in another thread sleeps on: that of a server would take the server along
        if threading.current_thread() is here:
            raise KeyboardInterrupt
        sleep(seconds)

    with monkeypatch.context() as patch:
        patch.setattr(online.time, "sleep", dies)  # while it waits for the next step
        with pytest.raises(KeyboardInterrupt):
            run(job)
    assert [path.name for path in job.checkpoints.iterdir()] == ["checkpoint-2"] and not (
        job.out / "published"
    ).exists()
    assert "000002" in {path.name for path in memory.iterdir()}
    shutil.rmtree(memory)
    waited: list[float] = []

    def collect() -> None:
        while not (job.published(2) / "model.safetensors").exists():
            threading.Event().wait(0.02)
        waited.append(distance(job.published(2), start))
        feed(job, *range(3 + staleness, STEPS + 1))

    collector = threading.Thread(target=collect, daemon=True)
    collector.start()
    run(job)
    assert waited and waited[0] > 1e-4 and distance(whole.model, job.model) == 0.0


@pytest.mark.parametrize(
    "grpo", [{}, {"minibatches": 2, "iterations": 2}, {"kl": 0.1, "correction": "token_truncate"}], ids=str
)
def test_a_worker_that_died_goes_on_from_its_checkpoint_to_the_same_weights(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grpo: dict
) -> None:
    from agentr.train import online

    whole, killed = make_job(start, tmp_path / "whole", **grpo), make_job(start, tmp_path / "killed", **grpo)
    feed(whole, 1, 2, 3, 4)
    run(whole)
    feed(killed, 1, 2, 3)
    publish = online.StepProgress._publish

    def dies(self: online.StepProgress, number: int) -> None:
        publish(self, number)
        if number == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(online.StepProgress, "_publish", dies)
        with pytest.raises(KeyboardInterrupt):
            run(killed)
    assert [path.name for path in killed.checkpoints.iterdir()] == [f"checkpoint-{2 * killed.config.grpo.updates}"]
    shutil.rmtree(killed.rows_of(1))  # the steps before the checkpoint are not looked at again
    killed.rows_of(1).mkdir()
    write_rows(killed.rows_of(1), rollouts(start, 1))
    feed(killed, 4)
    run(killed)
    assert distance(whole.model, killed.model) == 0.0
    assert [line["loss"] for line in whole.read_metrics()] == [line["loss"] for line in killed.read_metrics()]


def test_the_steps_may_end_early(start: Path, tmp_path: Path) -> None:
    job = make_job(start, tmp_path)
    feed(job, 1, 2)
    job.stop(after=2)
    assert run(job).steps == 2
    short = make_job(start, tmp_path / "short", steps=2)
    feed(short, 1, 2)
    short = replace(short, steps=STEPS)  # the schedule is that of the steps that were planned
    short.stop(after=2)
    run(short)
    assert distance(job.model, short.model) == 0.0


def test_bad_steps_are_refused(start: Path, tmp_path: Path) -> None:
    job = make_job(start, tmp_path / "sequences")
    job.step(1).mkdir(parents=True)
    write_rows(job.rows_of(1), random_rows(4))
    with pytest.raises(DataError, match="holds Row, and rollouts are wanted"):
        run(job)
    job = make_job(start, tmp_path / "long")
    columns = ("input_ids", "loss_mask", "logprobs", "advantages")
    feed(job, 1, change=lambda row: replace(row, **{name: getattr(row, name) * 3 for name in columns}))
    with pytest.raises(DataError, match=r"\d+ rollouts of online step 1 exceed train.max_length 64"):
        run(job)
    job = make_job(start, tmp_path / "vocabulary")
    feed(job, 1, change=lambda row: replace(row, input_ids=(99_999, *row.input_ids[1:])))
    with pytest.raises(ModelError, match="has token 99999"):
        run(job)
    job = make_job(start, tmp_path / "nan")
    feed(job, 1, change=lambda row: replace(row, advantages=tuple(float("nan") for _ in row.advantages)))
    with pytest.raises(RunError, match="no longer a number at optimiser step 1"):
        run(job)
