"""One job in one worker, from the start checkpoint to the result."""

import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from agentr.cpu import multiplies_bf16
from agentr.store.files import read_json, write_json
from agentr.train.checkpoints import latest
from agentr.train.data import BatchPlan, highest_token, make_plan
from agentr.train.job import TrainJob, TrainResult
from agentr.train.losses import LossModule, load_loss
from agentr.train.model import load_start, require_vocabulary, save_model
from agentr.train.online_job import OnlineJob
from agentr.train.progress import Progress
from agentr.train.stall import expect_no_more, expect_progress

log = logging.getLogger(__name__)


def run_job(job: TrainJob) -> TrainResult:
    """Runs or resumes a job in this process, one of ``job.trainer.workers`` that call this function together.

    The default process group must exist, with DeepSpeed registered in accelerate (``agentr.train.worker`` does both).

    Raises:
        AgentrError: The job cannot be done; repeating it would not help.
    """
    said = [job.next_attempt() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(said, src=0)
    job = replace(job, attempt=said[0])
    job = replace(job, config=replace(job.config, bf16=_computes_in_bf16(job)))
    expect_progress(job)
    try:
        if isinstance(job, OnlineJob):
            from agentr.train.online import run_online

            return run_online(job)
        return _train(job)
    finally:
        expect_no_more()


def _computes_in_bf16(job: TrainJob) -> bool:
    """Whether this job computes in bfloat16: as configured, else as its first attempt did, where all workers' hardware
    multiplies in it."""
    if job.config.bf16 is not None:
        return job.config.bf16
    mine = torch.cuda.is_bf16_supported() if job.trainer.use_gpu else multiplies_bf16()
    able: list[bool] = [mine] * dist.get_world_size()
    dist.all_gather_object(able, mine)
    if dist.get_rank() == 0 and not job.precision.exists():
        write_json(job.precision, {"bf16": all(able)})
    decided = [dist.get_rank() == 0 and read_json(job.precision)["bf16"]]
    dist.broadcast_object_list(decided, src=0)
    log.info(
        "Computes in %s.",
        "bfloat16" if decided[0] else "float32, because there is hardware that does not multiply in bfloat16",
    )
    return decided[0]


def _train(job: TrainJob) -> TrainResult:
    plan = make_plan(job)
    model, tokenizer, dtype = load_start(job)
    require_vocabulary(model, highest_token(plan), job.start)
    found: list[Path | None] = [latest(job.checkpoints) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    resume = found[0]
    loss = load_loss(plan.loss)
    with closing(loss.make_trainer(job, plan, model, tokenizer)) as trainer:
        progress = Progress(job, plan, int(resume.name.rpartition("-")[2]) if resume else 0, trainer, loss.METRICS)
        trainer.add_callback(progress)
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        assert trainer.state.global_step == plan.steps
        save_model(trainer, dtype, job.work / job.model.name)
    result = _result(job, plan, loss, progress.seconds)
    if trainer.args.should_save:
        job.finish(result)
    dist.barrier()
    return result


def _result(job: TrainJob, plan: BatchPlan, loss: LossModule, seconds: float) -> TrainResult:
    lines = job.read_metrics()
    tokens, last = int(plan.tokens_S.sum()), lines[-1]
    return TrainResult(
        checkpoint=str(job.model),
        steps=plan.steps,
        epochs=round(plan.steps * job.config.batch_size / len(plan.rows), 4),
        rows=len(plan.rows),
        tokens=tokens,
        trained_tokens=int(plan.targets_S.sum()),
        first_loss=lines[0]["loss"],
        last_loss=last["loss"],
        seconds=round(seconds, 3),
        tokens_per_second=round(tokens / max(seconds, 1e-9), 1),
        bf16=job.config.bf16,
        **{field: last.get(metric) for field, metric in loss.RESULTS.items()},
    )
