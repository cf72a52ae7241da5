"""Loads a job's start checkpoint and saves its model. Low-rank adapters are made and merged here."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from agentr.errors import ConfigError, ModelError
from agentr.store.model_folder import require_model
from agentr.train.checkpoints import publish
from agentr.train.data import Plan, highest_token
from agentr.train.job import TrainJob

if TYPE_CHECKING:
    from peft import LoraConfig

    from agentr.train.trainer import JobTrainer

#: The value of ``train.lora.targets`` for every linear layer but the output.
ALL_LINEAR = "all-linear"


def load_start(job: TrainJob, plan: Plan) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, torch.dtype]:
    """Loads a job's start checkpoint: the model in float32, its tokenizer, and the dtype it is stored in.

    Raises:
        ModelError: The checkpoint cannot be loaded, or the dataset was made with another tokenizer.
    """
    require_model(job.start, "the start checkpoint")
    try:
        tokenizer = AutoTokenizer.from_pretrained(job.start)
        model = AutoModelForCausalLM.from_pretrained(job.start, dtype="auto")
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"the start checkpoint {job.start} does not load: {reason}.", hint="Is its copy complete?") from error
    vocabulary = cast(torch.nn.Embedding, model.get_input_embeddings()).num_embeddings
    highest = highest_token(plan)
    if highest >= vocabulary:
        hint = "Build the dataset with the tokenizer of this model."
        raise ModelError(f"the dataset has token {highest}, but the model in {job.start} knows {vocabulary}.", hint=hint)
    dtype = model.dtype
    return model.float(), tokenizer, dtype


def lora_config(job: TrainJob, model: PreTrainedModel) -> LoraConfig | None:
    """Returns peft's configuration of the adapters; None if all weights are trained.

    Raises:
        ConfigError: A target is not the name of a linear layer of this model, or is the output layer, which the
            losses do not run through peft.
    """
    wanted = job.config.lora
    if wanted.rank == 0:
        return None
    from peft import LoraConfig

    output = model.get_output_embeddings()
    layers = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and module is not output}
    for target in wanted.targets:
        if target != ALL_LINEAR and not any(name == target or name.endswith(f".{target}") for name in layers):
            known = ", ".join(sorted({name.rpartition(".")[2] for name in layers}))
            hint = f"Choose of {known}, or {ALL_LINEAR}."
            raise ConfigError(f"train.lora.targets names {target!r}, no inner linear layer of {job.start}.", hint=hint)
    return LoraConfig(
        r=wanted.rank,
        lora_alpha=cast(int, wanted.alpha),  # peft divides it by the rank: any number will do
        lora_dropout=wanted.dropout,
        target_modules=ALL_LINEAR if ALL_LINEAR in wanted.targets else list(wanted.targets),
        task_type="CAUSAL_LM",
    )


def save_model(trainer: JobTrainer, dtype: torch.dtype) -> None:
    """Publishes the model from the float32 masters. All workers take part; the first one writes.

    The engine is unusable afterwards: its parameters are replaced one by one, so that tied weights stay tied.
    """
    from deepspeed.utils import safe_get_full_fp32_param

    job, model = trainer.job, cast(PreTrainedModel, trainer.engine().module)
    adapted = job.config.lora.rank > 0
    for parameter in model.parameters():
        if parameter.requires_grad:
            master = safe_get_full_fp32_param(parameter) if job.config.bf16 else parameter.data
            assert master is not None
            parameter.data = master.detach().to(torch.float32 if adapted else dtype)
        else:
            parameter.data = torch.empty(0)  # below an adapter; with bf16 it was rounded, so the start's own weights are taken
    if trainer.args.should_save:
        whole = merge_adapters(trainer, dtype) if adapted else model
        publish(whole.save_pretrained, job.model, job.start)


def merge_adapters(trainer: JobTrainer, dtype: torch.dtype) -> PreTrainedModel:
    """Adds the trained adapters to the start checkpoint, W + alpha / rank * B A, in float32 and then in ``dtype``."""
    from peft import get_peft_model

    job = trainer.job
    start, _, _ = load_start(job, trainer.plan)
    config = lora_config(job, start)
    assert config is not None
    fresh = get_peft_model(start, config)
    model = cast(torch.nn.Module, trainer.engine().module)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    places = {name: parameter for name, parameter in fresh.named_parameters() if parameter.requires_grad}
    assert trained.keys() == places.keys()
    for name, parameter in places.items():
        parameter.data.copy_(trained[name].data)
    whole: torch.nn.Module = fresh.merge_and_unload()  # pyright: ignore[reportCallIssue]
    return cast(PreTrainedModel, whole.to(dtype))
