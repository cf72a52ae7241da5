"""The shape of the configured model, and what its trainings are made of."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from agentr.config.model import Dtype, ModelConfig, ModelSource
from agentr.config.text import read_yaml
from agentr.config.training import TrainConfig, TrainerConfig
from agentr.cost.evidence import RowCounts
from agentr.cost.hardware import DeviceSpec
from agentr.cost.memory import TrainingSetup
from agentr.cost.shape import Shape, read_shape
from agentr.errors import ModelError
from agentr.models import nano
from agentr.types import Loss

_SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"


def shape_of(model: ModelConfig) -> Shape:
    """Returns the shape of the configured model: of its folder, or of what agentr knows of models with that name.

    Raises:
        ModelError: There is neither.
    """
    if model.source is ModelSource.nano:
        return read_shape(nano.WEIGHTS, "nano")
    name = _SMOLLM2 if model.source is ModelSource.smollm2 else model.path
    folder = Path(name).expanduser()
    if folder.is_dir():
        return read_shape(folder)
    described = _described()
    if name not in described:
        hint = "Give model.path as a folder with config.json; its weights need not be there."
        raise ModelError(f"the size of {name} is not known here", hint=hint)
    return Shape.of(described[name], name, f"models.yaml: {name}")


def width_of(model: ModelConfig) -> int:
    """Returns the bytes of a weight in engines and checkpoints."""
    return 4 if model.dtype is Dtype.float32 else 2


def training_of(
    train: TrainConfig, loss: Loss, trainer: TrainerConfig, device: DeviceSpec, rows: RowCounts | None = None
) -> TrainingSetup:
    """Returns what an optimiser step is made of; without evidence of rows as long as they may be."""
    sides = 2 if loss is Loss.PREFER else 1
    return TrainingSetup(
        workers=trainer.workers,
        rows=train.micro_batch_size * sides,
        batch=train.batch_size * sides,
        longest=train.max_length,
        mean=rows.tokens if rows is not None else train.max_length,
        trained=rows.trained if rows is not None else 1.0,
        bf16=device.bf16 if train.bf16 is None else train.bf16,
        checkpointing=train.gradient_checkpointing,
        rank=train.lora.rank,
        zero=trainer.zero,
        reference=loss is Loss.REINFORCE and train.grpo.kl > 0,
    )


@cache
def _described() -> dict[str, Any]:
    return read_yaml(Path(__file__).with_name("models.yaml"))
