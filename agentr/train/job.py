"""The inputs and outputs of a training stage. Imports nothing heavy.

A stage is ``(dataset, start checkpoint, configuration) -> checkpoint``. Its folder::

    out/model/            the checkpoint: a Hugging Face folder that vLLM loads; renamed into place when complete
    out/result.json       written last: where it exists, the stage is done
    out/metrics.jsonl     a line for each logged step, without gaps or repeats after a resume
    out/worker.log        the workers' output
    out/checkpoints/      resumable states; gone once the stage is done
    out/reference.npz     of a job on preferences: log-probabilities of all pairs under the start checkpoint
    out/job.json          the job that the folder belongs to; another job refuses to continue in it
    out/failure.json      the reason why the last attempt stopped, if repeating it would not help
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentr.config.schema import TrainConfig, TrainerConfig
from agentr.errors import ConfigError, DataError
from agentr.store.files import write_json

SCHEDULES = ("cosine", "linear", "constant_with_warmup")


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The result of a finished stage.

    Attributes:
        checkpoint: Folder of the trained model. Callers hand on this value; none rebuilds the path from names.
        steps: Optimiser steps.
        epochs: Passes over the dataset: steps * batch size / rows.
        rows: Rows of the dataset.
        tokens: Tokens that went through the model, without padding, over all steps.
        trained_tokens: Those of them that were targets of the loss.
        first_loss: Mean loss per trained token of the first step; on preferences, per pair.
        last_loss: The same over the last logged window of steps.
        seconds: Spent in optimiser steps, over all attempts; starting up and saving are not in it.
        tokens_per_second: ``tokens / seconds``.
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
    margin: float | None = None
    accuracy: float | None = None
    chosen_reward: float | None = None
    rejected_reward: float | None = None


@dataclass(frozen=True)
class TrainJob:
    """One training stage.

    Attributes:
        dataset: Folder written by ``agentr.store.rows.write_rows``.
        start: Hugging Face folder (model and tokenizer) to start from. In a chain it may be the ``model`` of an earlier job.
        out: Folder of the stage.
        name: Name in reports and errors.
        stall_s: Longest time for one step, in seconds; a worker beyond it is killed, and the stage resumes from its
            last checkpoint.
    """

    dataset: Path
    start: Path
    out: Path
    config: TrainConfig = field(default_factory=TrainConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    name: str = "train"
    stall_s: float = 900.0

    @property
    def model(self) -> Path:
        return self.out / "model"

    @property
    def checkpoints(self) -> Path:
        return self.out / "checkpoints"

    @property
    def metrics(self) -> Path:
        return self.out / "metrics.jsonl"

    @property
    def reference(self) -> Path:
        return self.out / "reference.npz"

    @property
    def failure(self) -> Path:
        return self.out / "failure.json"

    def validate(self) -> None:
        """Checks the values that need no data.

        A batch is cut evenly: every worker does ``batch_size / (workers * micro_batch_size)`` forward passes of
        ``micro_batch_size`` rows in a step. A pair is one row, though both its sides go through the model.

        Raises:
            ConfigError: A value is out of range, or values contradict each other.
        """
        config, workers = self.config, self.trainer.workers
        batch, micro = config.batch_size, config.micro_batch_size
        if min(workers, batch, micro) < 1 or batch % (workers * micro):
            hint = "Make train.batch_size a multiple of trainer.workers x train.micro_batch_size."
            message = f"a batch of {batch} rows does not divide into micro-batches of {micro} on {workers} workers."
            raise ConfigError(message, hint=hint)
        if config.schedule not in SCHEDULES:
            raise ConfigError(f"train.schedule is {config.schedule!r}.", hint=f"Choose one of {', '.join(SCHEDULES)}.")
        if config.steps <= 0 and config.epochs <= 0:
            raise ConfigError("neither train.steps nor train.epochs is positive.", hint="Set one of them.")
        for key in ("checkpoint_every", "log_every", "max_length"):
            if getattr(config, key) < 1:
                raise ConfigError(f"train.{key} is {getattr(config, key)}.", hint="It must be at least 1.")
        if not 0.0 <= config.min_lr_ratio <= 1.0 or not 0.0 <= config.warmup_ratio <= 1.0:
            raise ConfigError("train.min_lr_ratio and train.warmup_ratio are shares.", hint="Give values from 0 to 1.")
        self._validate_dpo()
        self._validate_lora()

    def _validate_dpo(self) -> None:
        dpo = self.config.dpo
        if not dpo.beta > 0:
            raise ConfigError(f"train.dpo.beta is {dpo.beta}.", hint="It must be above 0: with 0 no pair would count.")
        if not dpo.sft >= 0:
            raise ConfigError(f"train.dpo.sft is {dpo.sft}.", hint="It is a weight: 0 or more.")
        if not 0.0 <= dpo.label_smoothing < 0.5:
            hint = "Give a value from 0 to below 0.5: at one half, a pair says nothing."
            raise ConfigError(f"train.dpo.label_smoothing is {dpo.label_smoothing}.", hint=hint)
        if dpo.label_smoothing and dpo.length_normalized:
            hint = "Set one of them: the loss with wrong pairs is defined on sums."
            raise ConfigError("train.dpo.label_smoothing and train.dpo.length_normalized contradict each other.", hint=hint)

    def _validate_lora(self) -> None:
        lora = self.config.lora
        if lora.rank < 0:
            raise ConfigError(f"train.lora.rank is {lora.rank}.", hint="Give 1 or more, or 0 to train all weights.")
        if not lora.alpha > 0:
            raise ConfigError(f"train.lora.alpha is {lora.alpha}.", hint="It must be above 0; adapters are scaled by alpha / rank.")
        if not 0.0 <= lora.dropout < 1.0:
            raise ConfigError(f"train.lora.dropout is {lora.dropout}.", hint="Give a share from 0 to below 1.")
        if not lora.targets:
            raise ConfigError("train.lora.targets is empty.", hint="Name linear layers, or all-linear.")

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
            raise DataError(f"{path} is not a training result: {error}.", hint="Delete the folder and train again.") from error

    def read_metrics(self) -> list[dict[str, Any]]:
        """Reads the whole lines of ``metrics.jsonl``; the last is cut off if a worker was killed or still writes."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines() if line.endswith("}")]

    def finish(self, result: TrainResult) -> None:
        """Writes the result, which marks the stage as done: everything else must be in place."""
        write_json(self.out / "result.json", asdict(result))


def empty_dataset(job: TrainJob) -> DataError:
    return DataError(f"the dataset in {job.dataset} is empty.", hint="Collect more episodes, or loosen the filters of the build.")
