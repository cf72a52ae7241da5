"""Losses and their gradients: the project's own trainers on a model whose probabilities are a table, without DeepSpeed.

Imports torch when asked.
"""

import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentr.store.rows import Preference, Provenance, Rollout, Row
from agentr.train.worker import logged_to
from agentr.types import Loss

#: What speaks of several processes: DeepSpeed's part of a trainer's arguments.
_ENGINE = ("deepspeed", "accelerator_config")

Table = Sequence[Sequence[float]]


@contextmanager
def _alone() -> Iterator[Path]:
    """A folder, and a process that trains by itself and prints nothing; whoever trains next finds it as it was."""
    before = dict(os.environ)
    os.environ.update(
        HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1", ACCELERATE_USE_DEEPSPEED="false"
    )
    with tempfile.TemporaryDirectory() as name, logged_to(Path(name) / "libraries.log"):
        from accelerate.state import AcceleratorState

        try:
            yield Path(name)
        finally:
            AcceleratorState._reset_state(reset_partial_state=True)
            os.environ.clear()
            os.environ.update(before)


def _model(table: Table, folder: Path) -> Any:
    """A Llama without layers: token j follows token i with probability ``table[i][j]``, whatever came before."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    size = len(table)
    shape: dict[str, Any] = {
        "vocab_size": size,
        "hidden_size": size,
        "intermediate_size": size,
        "num_hidden_layers": 0,
        "num_attention_heads": 1,
    }
    model = LlamaForCausalLM(
        LlamaConfig(**shape, num_key_value_heads=1, rms_norm_eps=0.0, tie_word_embeddings=False, pad_token_id=0)
    )
    _fill(model, table)
    model.save_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder).float()


def _fill(model: Any, table: Table) -> None:
    import torch

    size = len(table)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.model.norm.weight.fill_(size**-0.5)  # a unit vector's root mean square is the inverse of this
        model.lm_head.weight.copy_(torch.tensor(table, dtype=torch.float64).log().T)


def _tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def _found(model: Any, losses: Iterable[Any]) -> dict[str, Any]:
    """The sum of the losses, and its gradient: how it changes with the logit of token j after token i, in row i."""
    model.zero_grad()
    total = 0.0
    for loss in losses:
        loss.backward()
        total += float(loss.detach())
    # token i's hidden state is the i-th unit vector
    return {"loss": total, "gradient": model.lm_head.weight.grad.T.tolist()}


def sft(train: Any, table: Table, rows: Sequence[Mapping[str, Any]], micro: int = 0) -> dict[str, Any]:
    """The loss of a batch of rows.

    Args:
        table: Probability of each token after each token.
        rows: Token ids of each, ``tokens``, and which are trained on, ``mask``.
        micro: Rows of a micro-batch; 0 means all.
    """
    with _alone() as folder:
        import numpy as np
        import torch
        from trl.trainer.sft_config import SFTConfig

        from agentr.train.data import BatchPlan
        from agentr.train.job import TrainJob
        from agentr.train.sft import AgentSFTTrainer, Collator, as_dataset, encode, trl_arguments

        made = [Row(tuple(row["tokens"]), tuple(row["mask"]), Provenance("toy", (), "good")) for row in rows]
        micro = micro or len(made)
        sizes = {"batch_size": len(made), "micro_batch_size": micro, "bf16": False}
        job = TrainJob(folder, folder, folder, replace(train[0], **sizes))
        counts = np.array([sum(row.targets for row in made)])
        plan = BatchPlan(
            loss=Loss.IMITATE, rows=made, order=np.arange(len(made))[None], tokens_S=counts, targets_S=counts
        )
        arguments = {key: value for key, value in trl_arguments(job, 1, 1).items() if key not in _ENGINE}
        trainer: Any = AgentSFTTrainer(
            job,
            plan,
            model=_model(table, folder),
            args=SFTConfig(**arguments),
            data_collator=Collator(0),
            train_dataset=as_dataset(plan),
            processing_class=_tokenizer(),
        )
        parts = [[encode(row) for row in made[first : first + micro]] for first in range(0, len(made), micro)]
        batches, count = trainer.get_batch_samples(map(trainer.data_collator, parts), len(parts), torch.device("cpu"))
        return _found(
            trainer.model, (trainer.compute_loss(trainer.model, batch, num_items_in_batch=count) for batch in batches)
        )


def dpo(train: Any, table: Table, pairs: Sequence[Mapping[str, Any]], micro: int = 0) -> dict[str, Any]:
    """The loss of a batch of pairs.

    Args:
        table: Probability of each token after each token.
        pairs: Token ids of ``prompt``, ``chosen`` and ``rejected``; ``chosen_mask`` and ``rejected_mask`` where not all
            count; ``reference``, the log-probabilities of both sides under it.
        micro: Pairs of a micro-batch; 0 means all.
    """
    with _alone() as folder:
        import numpy as np
        import torch
        from trl.trainer.dpo_config import DPOConfig

        from agentr.train.data import BatchPlan
        from agentr.train.dpo import AgentDPOTrainer, PairCollator, as_pair_dataset, trl_arguments
        from agentr.train.job import TrainJob

        rows = [
            Preference(
                tuple(pair["prompt"]),
                tuple(pair["chosen"]),
                tuple(pair.get("chosen_mask", [1] * len(pair["chosen"]))),
                tuple(pair["rejected"]),
                tuple(pair.get("rejected_mask", [1] * len(pair["rejected"]))),
                Provenance("toy", (), "trajectory"),
            )
            for pair in pairs
        ]
        micro = micro or len(rows)
        sizes = {"batch_size": len(rows), "micro_batch_size": micro, "bf16": False}
        job = TrainJob(folder, folder, folder, replace(train[0], **sizes))
        counts = np.array([sum(row.targets for row in rows)])
        plan = BatchPlan(
            loss=Loss.PREFER, rows=rows, order=np.arange(len(rows))[None], tokens_S=counts, targets_S=counts
        )
        arguments = {key: value for key, value in trl_arguments(job, 1, 1).items() if key not in _ENGINE}
        trainer = AgentDPOTrainer(
            job,
            plan,
            model=_model(table, folder),
            args=DPOConfig(**arguments),
            data_collator=PairCollator(rows, 0),
            train_dataset=as_pair_dataset(plan),
            processing_class=_tokenizer(),
        )
        trainer.reference = torch.tensor([pair["reference"] for pair in pairs])
        numbers = [{"pair": number} for number in range(len(rows))]
        batches = [trainer.data_collator(numbers[first : first + micro]) for first in range(0, len(rows), micro)]
        # The engine takes the mean over micro-batches.
        return _found(trainer.model, (trainer.compute_loss(trainer.model, batch) / len(batches) for batch in batches))


def grpo(
    train: Any,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    max_length: int = 16,
    reference: Table | None = None,
    before: Table | None = None,
    room: int = 0,
) -> dict[str, Any]:
    """The loss of a step of rollouts in one micro-batch.

    Args:
        table: Probability of each token after each token.
        rows: Of each rollout its ``prompt``, its ``tokens``, the probabilities with which they were ``drawn``, and its
            ``advantage``.
        reference: The table of the start checkpoint, if it is another one.
        before: The table before the first of the step's updates, if it is another one.
        room: Rollouts that there is room for; 0 means as many as there are.
    """
    with _alone() as folder:
        from datasets import Dataset
        from trl.trainer.grpo_config import GRPOConfig

        from agentr.train.grpo import AgentGRPOTrainer, trl_arguments
        from agentr.train.online_job import OnlineJob

        rollouts = [_rollout(number, row) for number, row in enumerate(rows)]
        room = room or len(rows)
        sizes = {"batch_size": room, "micro_batch_size": room, "bf16": False, "max_length": max_length}
        job = OnlineJob(folder, folder, folder, replace(train[0], **sizes), steps=1)
        arguments = {key: value for key, value in trl_arguments(job, 1).items() if key not in _ENGINE}
        trainer: Any = AgentGRPOTrainer(
            job,
            iter([rollouts]),
            model=_model(reference or table, folder),
            reward_funcs=lambda **_: [],
            args=GRPOConfig(**arguments),
            train_dataset=Dataset.from_dict({"prompt": [""]}),
            processing_class=_tokenizer(),
        )
        _fill(trainer.model, before or table)
        trainer.current_gradient_accumulation_steps = 1
        trainer.model.train()
        trainer.model_wrapped = trainer.model
        batches = list(trainer.micro_batches())
        _fill(trainer.model, table)
        return _found(
            trainer.model, (trainer.compute_loss(trainer.model, trainer._prepare_inputs(batch)) for batch in batches)
        )


def _rollout(number: int, row: Mapping[str, Any]) -> Rollout:
    prompt, tokens = tuple(row["prompt"]), tuple(row["tokens"])
    drawn = (*(None for _ in prompt), *map(math.log, row["drawn"]))
    mask = (*(0 for _ in prompt), *(1 for _ in tokens))
    each = (*(0.0 for _ in prompt), *(row["advantage"] for _ in tokens))
    return Rollout(
        (*prompt, *tokens),
        mask,
        Provenance("toy", (number,), "rollout"),
        drawn,
        each,
        "toy",
        {"total": row["advantage"]},
    )


def packed(rows: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> dict[str, Any]:
    """How rows stand behind one another in one sequence.

    Args:
        targets: Places of the tokens that are predicted, of each row.

    Returns:
        ``tokens``: how many go through the model, ``of rows``: how many the rows have, ``padded``: how long the
        sequence is. ``width``: for how many targets of a row there is room. ``predicted``: of each row's targets the
        token, the position of the place that predicts it, and the tokens that are seen from there, by their positions.
    """
    from agentr.train.forward import forward_of

    found = forward_of(rows, targets, 0, behind=True)

    def at(place: int) -> list[Any]:
        run = next(run for run in found.behind if run.start <= place < run.end)
        seen = sorted([*run.before.tolist(), *range(run.start, place + 1)], key=lambda i: int(found.positions_PL[0, i]))
        assert [int(found.positions_PL[0, i]) for i in seen] == list(range(len(seen)))
        position = int(found.positions_PL[0, place])
        return [int(found.labels_PL[0, place]), position, [int(found.ids_PL[0, i]) for i in seen]]

    predicted = [[at(int(found.places_RT[row, n])) for n in range(len(places))] for row, places in enumerate(targets)]
    (tokens,), (count, length) = found.lengths_P.tolist(), found.ids_PL.shape
    assert count == 1
    width = found.places_RT.shape[1]
    return {"tokens": tokens, "of rows": found.row_tokens, "padded": length, "width": width, "predicted": predicted}


def padded(rows: Sequence[int], pairs: Sequence[Sequence[int]]) -> dict[str, Any]:
    """How long micro-batches are in which rows and sides of pairs are padded, and how many places of each are attended
    to.

    Args:
        rows: Tokens of each row.
        pairs: Tokens of the prompt and the sides of each pair.
    """
    from agentr.train.dpo import PairCollator
    from agentr.train.sft import Collator

    made = [
        Preference(
            (1,) * prompt, (1,) * one, (1,) * one, (1,) * other, (1,) * other, Provenance("toy", (), "trajectory")
        )
        for prompt, one, other in pairs
    ]
    batches = {
        "rows": Collator(0)([{"input_ids": [1] * size, "labels": [1] * size} for size in rows]),
        "pairs": PairCollator(made, 0)([{"pair": number} for number in range(len(made))]),
    }
    return {
        kind: [batch["input_ids"].shape[1], batch["attention_mask"].sum(1).tolist()] for kind, batch in batches.items()
    }
