"""Repairs of vLLM 0.32. Check with each later version whether they are still needed."""

import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from agentr.policy.adapters import merged


def mend_llvmlite() -> None:
    """Lets vLLM start after numba was imported.

    vLLM 0.32 calls ``vars(value)`` on the members of all modules. It fails on llvmlite's library object, which
    answers every attribute, ``__dict__`` too, with a function.
    """
    llvmlite = sys.modules.get("llvmlite.binding.ffi")
    if llvmlite is not None:
        llvmlite.lib._fntab.setdefault("__dict__", {})


def keep_rendezvous_in(folder: str) -> None:
    """Names a folder for the file by which vLLM's processes find each other.
    vLLM 0.32 leaves one in the temporary folder at each start."""
    from vllm.v1.executor import multiproc_executor, uniproc_executor

    def method() -> str:
        return f"file://{folder}/vllm_dist_{uuid4().hex}"

    for module in (multiproc_executor, uniproc_executor):
        vars(module)["get_file_store_init_method"] = method


def repack_output_layer(worker: Any) -> None:
    """Packs the output layer anew after a reload of the weights.

    On a CPU vLLM keeps a packed copy of the output layer. If the layer is tied to the embedding, the checkpoint has no
    entry for it: a reload (vLLM 0.32) renews the embedding and leaves the packed copy with the old weights, and the
    model answers with a mixture of both.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for layer in worker.get_model().modules():
        if isinstance(layer, ParallelLMHead) and hasattr(layer, "cpu_linear"):
            layer.quant_method.process_weights_after_loading(layer)


def load_merged(worker: Any, folder: str) -> None:
    """Loads a model with the adapters in a folder. Called in each worker of an engine, which reads the files itself."""
    worker.reload_weights(weights_iterator=merged(Path(folder)))


def inspect_in_process(path: Path) -> None:
    """Registers the model's class with vLLM, which otherwise starts a second Python (8 s) to inspect it.

    The second process keeps CUDA from being initialised before a fork; on a CPU there is nothing to protect.
    """
    from vllm.model_executor.models.registry import ModelRegistry

    for name in json.loads((path / "config.json").read_text(encoding="utf-8")).get("architectures") or []:
        lazy = ModelRegistry.models.get(name)
        if lazy is not None:
            ModelRegistry.register_model(name, lazy.load_model_cls())
