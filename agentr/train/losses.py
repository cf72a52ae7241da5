"""The registry of losses.

To add a loss, write a module with the members of `LossModule` and add its line to `LOSSES`. A type of dataset in
`agentr.store.rows` names the loss that it is trained with. The order of training, checkpoints, resuming and progress
are the same for all losses.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from agentr.errors import DataError
from agentr.types import Loss

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from agentr.train.data import BatchPlan
    from agentr.train.job import TrainJob
    from agentr.train.trainer import JobTrainer


class LossModule(Protocol):
    """The members of a module that implements a loss."""

    @property
    def METRICS(self) -> Mapping[str, str]:
        """Names in ``metrics.jsonl`` of the metrics that only this loss logs, mapped to TRL's names."""
        ...

    @property
    def RESULTS(self) -> Mapping[str, str]:
        """Fields of `TrainResult` that only this loss fills, mapped to the metrics whose last values they hold."""
        ...

    def make_trainer(self, job: TrainJob, plan: BatchPlan, model: PreTrainedModel, tokenizer: Any) -> JobTrainer:
        """Makes the trainer, with the dataset and the collator that turn the plan's rows into batches.

        Args:
            plan: Has rows of the type that this loss takes.
            model: The start checkpoint in float32.
        """
        ...


#: The module of each loss, by name: importing one takes seconds, in every worker and after every restart. Rollouts are
#: not trained on as a dataset, but step by step (``agentr.train.online``).
LOSSES: dict[Loss, str] = {
    Loss.IMITATE: "agentr.train.sft",
    Loss.PREFER: "agentr.train.dpo",
}


def load_loss(loss: Loss) -> LossModule:
    """Imports the module of a loss.

    Raises:
        DataError: It is for rollouts.
    """
    if loss not in LOSSES:
        raise DataError(
            "rollouts are trained on while they are collected, and not as a dataset", hint="See docs/rl.md."
        )
    return cast(LossModule, importlib.import_module(LOSSES[loss]))
