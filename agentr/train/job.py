"""The inputs and outputs of a training stage. Imports nothing heavy.

A stage is ``(dataset, start checkpoint, configuration) -> checkpoint``. Its folder::

    out/model/            the checkpoint: a Hugging Face folder that vLLM loads; renamed into place when complete
    out/result.json       written last: where it exists, the stage is done
    out/metrics.jsonl     a line for each logged step, without gaps or repeats after a resume
    out/reference.npz     of a job on preferences: log-probabilities of all pairs under the start checkpoint
    out/worker.log        the workers' output
    out/job.json          the job that the folder belongs to; another job refuses to continue in it
    out/work-<epoch>/     what an attempt works on: all of the above that is moved to ``out`` in the end, and
        checkpoints/      resumable states
        stalled-0.json    where a worker is whose step takes long, by its rank
        failure.json      the reason why the last attempt stopped, if repeating it would not help

An attempt takes over the working folder of the one before, whose workers may live on where nobody can end them
(``agentr.store.working``).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentr.config.checks import find_problems
from agentr.config.training import TrainConfig, TrainerConfig
from agentr.errors import ConfigError, DataError, RunError
from agentr.store.dataset import read_manifest, rows_hash
from agentr.store.files import disk, read_lines, remove, write_json
from agentr.store.layout import stage_of, title_of
from agentr.store.working import ALONE, PREFIX, take_over, working

#: What moves from the working folder to the folder of the stage when the job is done; the result is last.
_MADE = ("model", "metrics.jsonl", "reference.npz", "result.json")


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The result of a finished stage.

    Attributes:
        checkpoint: Folder of the trained model.
        steps: Optimiser steps.
        epochs: Passes over the dataset: steps * batch size / rows.
        rows: Rows of the dataset.
        tokens: Tokens that went through the model, without padding, over all steps.
        trained_tokens: Those of them that were targets of the loss.
        first_loss: Mean loss per trained token of the first step; on preferences, per pair.
        last_loss: The same over the last logged window of steps.
        seconds: Spent in optimiser steps, over all attempts; starting up and saving are not in it.
        tokens_per_second: ``tokens / seconds``.
        bf16: Whether it was computed in bfloat16.
        margin: Mean reward of the chosen sides minus that of the rejected ones, over the last logged window; None
            unless trained on preferences. The reward is DPO's implicit one, beta * (log p - log p_ref); 0 at step 0
            because the reference is the start checkpoint.
        accuracy: Share of pairs whose chosen side has the higher reward, over the same window.
        chosen_reward: Mean reward of the chosen sides. Below 0, the margin comes from making both sides less likely.
        rejected_reward: Mean reward of the rejected sides.
    """

    checkpoint: str
    steps: int
    epochs: float
    rows: int
    tokens: int
    trained_tokens: int
    first_loss: float
    last_loss: float
    seconds: float
    tokens_per_second: float
    bf16: bool | None = None
    margin: float | None = None
    accuracy: float | None = None
    chosen_reward: float | None = None
    rejected_reward: float | None = None


@dataclass(frozen=True)
class TrainJob:
    """One training stage.

    Attributes:
        dataset: Folder written by ``agentr.store.rows.write_rows``.
        start: Hugging Face folder (model and tokenizer) to start from. In a chain it may be the ``model`` of an earlier
            job.
        out: Folder of the stage.
        name: Its stage, with hyphens: the name of its files.
        watch_s: Time after which a step is worth a word: the worker writes where it is into ``stalled``.
        stall_s: Longest time for one step, in seconds; a worker beyond it is killed, and the stage resumes from its
            last checkpoint.
        nodes: Labels of the nodes on which workers may run.
        gpus: What each worker books of a GPU, if it trains on one.
        chat_template: What the checkpoint's conversations are written by; empty if that is the start's own template.
        stop_ids: Tokens that end a turn, besides those of the start's own files: whoever serves the checkpoint must
            stop there.
        epoch: Of the driver's attempt (``agentr.store.lease``).
        attempt: Of the workers, who are started again within it; empty for whoever looks on.
    """

    dataset: Path
    start: Path
    out: Path
    config: TrainConfig = field(default_factory=TrainConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    name: str = "train"
    watch_s: float = 90.0
    stall_s: float = 900.0
    nodes: Mapping[str, str] = field(default_factory=dict)
    gpus: float = 1.0
    chat_template: str = ""
    stop_ids: tuple[int, ...] = ()
    epoch: str = ALONE
    attempt: str = ""

    @property
    def title(self) -> str:
        """Its name in errors."""
        stage = self.name.replace("-", "/")
        return title_of(stage) if stage_of(stage) else self.name

    @property
    def model(self) -> Path:
        return self.out / "model"

    @property
    def work(self) -> Path:
        """The working folder: that of the attempt, or the last one's; before the first attempt and after the last,
        ``out``."""
        return self.out / f"{PREFIX}{self.attempt}" if self.attempt else working(self.out) or self.out

    @property
    def checkpoints(self) -> Path:
        return self.work / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.work / "metrics.jsonl"

    @property
    def reference(self) -> Path:
        return self.work / "reference.npz"

    @property
    def precision(self) -> Path:
        """In what the first attempt computes, if the configuration does not set it; the optimiser's state cannot be
        continued in the other."""
        return self.work / "precision.json"

    @property
    def failure(self) -> Path:
        return self.work / "failure.json"

    def stalled(self, rank: int) -> Path:
        """Where a worker says where it is, while a step takes long."""
        return self.work / f"stalled-{rank}.json"

    def next_attempt(self) -> str:
        """Takes over what the last attempt left, and returns the name of this one.

        Raises:
            RunError: A later attempt is under way.
        """
        before = sorted(path.name for path in self.out.glob(f"{PREFIX}{self.epoch}.*"))
        attempt = f"{self.epoch}.{int(before[-1].rpartition('.')[2]) + 1 if before else 1:03d}"
        work = take_over(self.out, attempt)
        # of an attempt that died while it finished, or of a version without working folders
        for name in (*_MADE, "checkpoints"):
            if (self.out / name).exists() and not (work / name).exists():
                disk.rename(self.out / name, work / name)
        return attempt

    def require_current(self) -> None:
        """Checks that no later attempt took the work over.

        Raises:
            RunError: One did.
        """
        if not self.work.is_dir():
            raise RunError(f"{self.title}: a later attempt goes on with {self.out}; this one ends here")

    def validate(self) -> None:
        """Checks the values that need no data.

        A batch is cut evenly: every worker does ``batch_size / (workers * micro_batch_size)`` forward passes of
        ``micro_batch_size`` rows in a step. A pair is one row, though both its sides go through the model.

        Raises:
            ConfigError: A value is out of range, or values contradict each other.
        """
        problems = [*find_problems(self.config, "train."), *find_problems(self.trainer, "trainer.")]
        problems += [problem.within("train") for problem in self.config.batch_problems(self.trainer.workers)]
        if problems:
            raise ConfigError(f"{self.title}: " + " ".join(map(str, problems)))

    def require_rows(self) -> None:
        """Checks that there is something to train on.

        Raises:
            DataError: The dataset is missing, damaged or empty.
        """
        if not read_manifest(self.dataset)["rows"]:
            raise empty_dataset(self)

    def made_of(self) -> dict[str, Any]:
        """Returns what decides what the job makes, besides its start checkpoint."""
        return {"dataset": rows_hash(self.dataset), **asdict(self.config)}

    def finished(self) -> TrainResult | None:
        """Returns the result of the stage, if it is done. Its checkpoint is in ``out``, even if that was moved.

        Raises:
            DataError: The file is damaged.
        """
        path = self.out / "result.json"
        if not path.exists():
            return None
        try:
            written = json.loads(path.read_text(encoding="utf-8"))
            return TrainResult(**{**written, "checkpoint": str(self.model)})
        except (json.JSONDecodeError, TypeError) as error:
            raise DataError(
                f"{path} is not a training result: {error}.", hint="Delete the folder and train again."
            ) from error

    def read_metrics(self) -> list[dict[str, Any]]:
        """Reads the whole lines of ``metrics.jsonl``."""
        return read_lines(self.metrics)

    def done(self) -> bool:
        """Whether there are a result and a model."""
        return self.finished() is not None and self.model.exists()

    def finish(self, result: TrainResult) -> None:
        """Moves what was made to the folder of the stage, the result last, which marks it as done, and ends the
        attempt.

        Raises:
            OSError: A later attempt took the work over.
        """
        work = self.work
        write_json(work / "result.json", {**asdict(result), "checkpoint": self.model.name})
        if work == self.out:
            return
        for name in _MADE:
            if (work / name).exists():
                remove(self.out / name)
                disk.rename(work / name, self.out / name)
        remove(work)


def empty_dataset(job: TrainJob) -> DataError:
    return DataError(
        f"the dataset in {job.dataset} is empty.", hint="Collect more episodes, or loosen the filters of the build."
    )
