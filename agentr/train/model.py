"""Loads a job's start checkpoint and saves its model. Low-rank adapters are made and merged here."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from agentr.errors import ConfigError, ModelError, first_line
from agentr.policy.adapters import FILE, can_be_merged
from agentr.store.model_folder import require_model
from agentr.train.checkpoints import publish
from agentr.train.job import TrainJob

if TYPE_CHECKING:
    from peft import LoraConfig

    from agentr.train.trainer import JobTrainer

#: The value of ``train.lora.targets`` for every linear layer but the output.
ALL_LINEAR = "all-linear"


def load_start(job: TrainJob) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, torch.dtype]:
    """Loads a job's start checkpoint: the model in what the job computes in, its tokenizer, and the dtype it is stored
    in.

    Raises:
        ModelError: The checkpoint cannot be loaded.
    """
    require_model(job.start, "the start checkpoint")
    # With ZeRO-3 transformers would split the model among the workers while it loads: also a second one of a single
    # worker, which the others do not load.
    unset_hf_deepspeed_config()
    try:
        tokenizer = AutoTokenizer.from_pretrained(job.start, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(job.start, dtype="auto", trust_remote_code=False)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = first_line(error).rstrip(".")
        raise ModelError(
            f"the start checkpoint {job.start} does not load: {reason}.", hint="Is its copy complete?"
        ) from error
    dtype = model.dtype
    cast(torch.nn.Module, model).to(torch.bfloat16 if job.config.bf16 else torch.float32)
    return model, tokenizer, dtype


def require_vocabulary(model: PreTrainedModel, highest: int, start: Path) -> None:
    """Checks that a model knows the largest token of a dataset.

    Raises:
        ModelError: The dataset was made with another tokenizer.
    """
    vocabulary = cast(torch.nn.Embedding, model.get_input_embeddings()).num_embeddings
    if highest >= vocabulary:
        hint = "Build the dataset with the tokenizer of this model."
        raise ModelError(f"the dataset has token {highest}, but the model in {start} knows {vocabulary}.", hint=hint)


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

    layers = _linear(model)
    for target in wanted.targets:
        if not any(_named(name, target) for name in layers):
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


def trained_numbers(job: TrainJob, model: PreTrainedModel) -> int:
    """Returns how many numbers are trained: all weights, or those of the adapters."""
    wanted = job.config.lora
    if wanted.rank == 0:
        return model.num_parameters()
    adapted = [
        layer for name, layer in _linear(model).items() if any(_named(name, target) for target in wanted.targets)
    ]
    return sum(wanted.rank * (layer.in_features + layer.out_features) for layer in adapted)


def _linear(model: PreTrainedModel) -> dict[str, torch.nn.Linear]:
    """The linear layers by name, without the output."""
    output = model.get_output_embeddings()
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not output
    }


def _named(name: str, target: str) -> bool:
    """Whether a layer is one of a target of ``train.lora.targets``."""
    return target == ALL_LINEAR or name == target or name.endswith(f".{target}")


def save_model(trainer: JobTrainer, dtype: torch.dtype, folder: Path, *, whole_model: bool = True) -> None:
    """Writes the model as it is now from the float32 masters, in one step. All workers take part; the first one
    writes.

    Args:
        whole_model: Else adapters are written alone, if whoever loads them can add them to the start's weights
            (``agentr.policy.adapters``).
    """
    from deepspeed.utils import safe_get_full_fp32_param

    job, model = trainer.job, cast(PreTrainedModel, trainer.engine().module)
    adapted = job.config.lora.rank > 0
    weights: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        if adapted and not parameter.requires_grad:
            continue  # below an adapter; with bf16 it was rounded, so the start's own weights are taken
        whole = not job.config.bf16 and job.trainer.zero == 2  # else the masters, which are split
        master = parameter.data if whole else safe_get_full_fp32_param(parameter)
        assert master is not None
        if trainer.args.should_save:  # beside the engine, accelerators may have no room for another copy
            weights[name] = master.detach().to("cpu", torch.float32 if adapted else dtype)
    if trainer.args.should_save:
        if not adapted:
            save: Callable[[Path], object] = partial(model.save_pretrained, state_dict=weights)
        elif not whole_model and can_be_merged(job.start, weights):
            save = partial(_save_adapters, job, model, weights)
        else:
            save = merge_adapters(job, weights, dtype).save_pretrained
        publish(save, folder, job)


def _save_adapters(job: TrainJob, model: PreTrainedModel, weights: dict[str, torch.Tensor], folder: Path) -> None:
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors.torch import save_file

    assert isinstance(model, PeftModel)
    config = copy(model.active_peft_config)
    config.base_model_name_or_path, config.inference_mode = str(job.start.resolve()), True
    config.save_pretrained(str(folder))
    save_file(get_peft_model_state_dict(model, state_dict=weights), folder / FILE, {"format": "pt"})


def merge_adapters(job: TrainJob, weights: dict[str, torch.Tensor], dtype: torch.dtype) -> PreTrainedModel:
    """Adds trained adapters to the start checkpoint, W + alpha / rank * B A, in float32 and then in ``dtype``.

    Args:
        weights: The adapters' weights by name.
    """
    from peft import get_peft_model

    start = load_start(replace(job, config=replace(job.config, bf16=False)))[0]
    config = lora_config(job, start)
    assert config is not None
    fresh = get_peft_model(start, config)
    places = {name: parameter for name, parameter in fresh.named_parameters() if parameter.requires_grad}
    assert weights.keys() == places.keys()
    for name, parameter in places.items():
        parameter.data.copy_(weights[name])
    whole: torch.nn.Module = fresh.merge_and_unload()  # pyright: ignore[reportCallIssue]
    return cast(PreTrainedModel, whole.to(dtype))


def disable_dropout(model: PreTrainedModel) -> None:
    """Turns all dropout off, also of attention weights, for which some models have no module.

    With dropout, a policy would differ from itself by chance.
    """
    from trl.trainer.utils import disable_dropout_in_model

    disable_dropout_in_model(model)
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 - to a type checker, a module has only modules and tensors
