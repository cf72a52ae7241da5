"""A vLLM engine in this process: continuous batching, prefix cache, weights that are replaced in place.

One `Engine` serves many coroutines, also of different event loops. Left out on purpose: LoRA, beam search, streaming.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr.config.schema import ModelConfig, PolicyConfig
from agentr.cpu import OPENMP, keep_freed_memory
from agentr.errors import ConfigError, ContextOverflow, InfraError, ModelError, StaleVersion
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.stepper import Barrier, Batch, Stepper
from agentr.seeds import derived_seed
from agentr.types import Completion, FinishReason

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine

_CPU_BLOCK = 32
"""vLLM's attention kernels for CPUs take multiples of 32 only."""

_CPU_BATCH = 4096
"""Tokens of one step on a CPU, at least; a longer prompt that the model takes is still computed in one step."""


@dataclass(frozen=True)
class EngineHealth:
    """What an engine that lives says about itself.

    Attributes:
        version: Path of the weights that it answers with.
        running: Sequences that are being decoded or wait for room in the batch.
        queued: Requests and reloads that were not admitted yet.
        stalled_s: How long the decoding step in progress has lasted.
        prefix_queries: Prompt tokens looked up in the prefix cache, over all sequences.
        prefix_hits: How many of them were found.
    """

    version: str
    running: int
    queued: int
    stalled_s: float
    prefix_queries: int
    prefix_hits: int


def prepare_environment(config: PolicyConfig) -> bool:
    """Sets what vLLM and OpenMP read from the environment. Must run before torch is imported to take full effect.

    Returns:
        Whether the engine runs on a GPU.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    # A value that was set outside (Ray sets it from num_cpus) is not what the configuration says.
    os.environ["OMP_NUM_THREADS"] = str(config.threads)
    os.environ.update(OPENMP)
    # Models are folders here; without this, a slow network delays the start.
    defaults = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "TOKENIZERS_PARALLELISM": "false"}
    import torch

    gpu = torch.cuda.is_available()
    if not gpu:
        # The sampler compiles a function at the first request with a temperature, for tens of seconds, also in eager mode.
        # Binding threads to cores reserves a core for the front end, which on a small machine is half of it.
        defaults |= {"TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_CI_ENV": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    return gpu


def build_llm(path: str, model: ModelConfig, policy: PolicyConfig) -> LLMEngine:
    """The vLLM engine itself. Runs in the stepping thread.

    Raises:
        ConfigError: The block size is not one that the CPU kernels have.
    """
    gpu = prepare_environment(policy)
    if not gpu and policy.block_size % _CPU_BLOCK:
        raise ConfigError(
            f"policy.block_size is {policy.block_size}; on a CPU it must be a multiple of {_CPU_BLOCK}.",
            hint=f"Set policy.block_size={_CPU_BLOCK}: small blocks find more shared prefixes.",
        )
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    _mend_llvmlite()
    options: dict[str, Any]
    if gpu:
        options = {
            "gpu_memory_utilization": policy.gpu_memory_utilization,
            "tensor_parallel_size": policy.tensor_parallel_size,
            "distributed_executor_backend": "mp" if policy.tensor_parallel_size > 1 else "uni",
        }
    else:
        torch.set_num_threads(policy.threads)
        keep_freed_memory()
        _inspect_in_process(Path(path))
        options = {
            "enforce_eager": True,
            "kv_cache_memory_bytes": int(policy.kv_cache_gib * 2**30),
            # Where a prompt is computed in two steps, vllm 0.32 takes back a random number of its seeded generator, and a CPU's cannot.
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(_CPU_BATCH, model.max_model_len),
        }
    arguments = EngineArgs(
        model=path,
        dtype=model.dtype,  # type: ignore[arg-type]
        max_model_len=model.max_model_len,
        max_num_seqs=policy.max_num_seqs,
        block_size=policy.block_size,  # type: ignore[arg-type]
        enable_prefix_caching=True,
        disable_log_stats=True,
        use_tqdm_on_load=False,
        # The model's own generation_config.json would bring further end-of-turn tokens than the tokenizer's.
        generation_config="vllm",
        # The model's own distribution: before temperature, top_p and stop.
        logprobs_mode="raw_logprobs",
        **options,
    )
    return LLMEngine.from_engine_args(arguments)


def _mend_llvmlite() -> None:
    """Where numba was imported before, vLLM 0.32 fails as it looks through all modules for ``vars(value)``.

    llvmlite's library object answers every name that it is asked for, ``__dict__`` too, with a function.
    """
    llvmlite = sys.modules.get("llvmlite.binding.ffi")
    if llvmlite is not None:
        llvmlite.lib._fntab.setdefault("__dict__", {})


class Engine:
    """Answers with one set of weights at a time.

    Invariant: all completions of a request come from the same weights, those of ``version`` when the request was admitted.

    Args:
        path: Folder of the model in Hugging Face format.
        model: Type and context length.
        policy: Size of the engine.

    Raises:
        ModelError: vLLM cannot load the model.
        ConfigError: See ``build_llm``.
    """

    def __init__(self, path: str | Path, model: ModelConfig, policy: PolicyConfig) -> None:
        self._model = model
        self._policy = policy
        self._version = str(path)
        self._stats = PolicyStats()
        self._queries = 0
        self._hits = 0
        self._tokenizer: Any = None
        self._stepper = Stepper(self._start, name="vllm-stepper")

    @property
    def version(self) -> str:
        """Path of the loaded weights."""
        return self._version

    async def generate(self, request: GenerateRequest, version: str = "") -> list[Completion]:
        """``request.n`` completions of one prompt, in sample order. Cancelling the call frees its place in the batch.

        Args:
            version: Refuse if the weights are others than these; empty takes what is there.

        Raises:
            ContextOverflow: The prompt leaves no room for ``max_tokens``.
            StaleVersion: The weights are not those of ``version``.
            ModelError: vLLM refuses the request (a token id outside the vocabulary).
            InfraError: The engine died.
        """
        self._check_room(request)
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = request.sampling
        params = [
            SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
                seed=derived_seed(sampling.seed, index),
                stop=list(sampling.stop),
                include_stop_str_in_output=True,
                skip_reading_prefix_cache=not request.reuse_prefix,
                logprobs=0,
                flat_logprobs=True,
                # Undoing tokens one by one costs a third of the speed of a small model, and only stop strings need it.
                detokenize=bool(sampling.stop),
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            for index in range(request.n)
        ]
        batch = Batch(list(request.prompt_ids), params, check=lambda: self._check_version(version))
        self._stepper.submit(batch)
        outputs = await asyncio.wrap_future(batch.future)
        completions = [self._completion(output, index, bool(sampling.stop)) for index, output in enumerate(outputs)]
        self._count(request, outputs, completions)
        return completions

    async def load(self, path: str | Path) -> None:
        """Replaces the weights in place, after every request before it and before every request after it. Idempotent.

        Raises:
            ModelError: There are no weights at ``path``; the old ones stay.
            InfraError: They could not be loaded (another architecture); the engine is dead.
        """
        folder = Path(path)
        if not (folder / "config.json").exists() or not any(folder.glob("*.safetensors")):
            raise ModelError(f"{folder} holds no model: config.json and *.safetensors are expected.", hint="Was training finished?")
        barrier = Barrier(lambda llm: self._reload(llm, str(folder)))
        self._stepper.submit(barrier)
        await asyncio.wrap_future(barrier.future)

    async def stats(self) -> PolicyStats:
        """Counters since the start of this process."""
        return replace(self._stats, busy_s=self._stepper.busy_s)

    async def health(self) -> EngineHealth:
        """Answers although the engine is busy.

        Raises:
            InfraError: See ``check``.
        """
        self.check()
        stepper = self._stepper
        return EngineHealth(self._version, stepper.running, stepper.queued, stepper.stalled_s, self._queries, self._hits)

    def check(self) -> None:
        """Does nothing if the engine works.

        Raises:
            InfraError: It is dead, or has been in one step for longer than ``policy.timeout_s``.
        """
        if self._stepper.problem is not None:
            raise InfraError(f"the engine's stepping thread died: {self._stepper.problem!r}")
        stalled = self._stepper.stalled_s
        if stalled > self._policy.timeout_s:
            raise InfraError(f"the engine has been in one decoding step for {stalled:.0f} s.")

    def close(self) -> None:
        """Fails what is unfinished and frees the engine's memory."""
        self._stepper.close()

    # ------------------------------------------------------------------------------------------------------------------

    def _start(self) -> LLMEngine:
        llm = build_llm(self._version, self._model, self._policy)
        self._tokenizer = llm.get_tokenizer()
        return llm

    def _reload(self, llm: LLMEngine, path: str) -> None:
        if path == self._version:
            return
        llm.collective_rpc("reload_weights", kwargs={"weights_path": path})
        if llm.vllm_config.device_config.device_type == "cpu":
            llm.collective_rpc(_repack_output_layer)
        if not llm.reset_prefix_cache():
            raise InfraError("vLLM kept prefixes that were computed with other weights.")
        self._version = path

    def _check_room(self, request: GenerateRequest) -> None:
        prompt, answer, limit = len(request.prompt_ids), request.sampling.max_tokens, self._model.max_model_len
        if not prompt or prompt + answer > limit:
            raise ContextOverflow(
                f"a prompt of {prompt} tokens and an answer of up to {answer} do not fit into model.max_model_len={limit}.",
                hint="End the episode earlier, or raise model.max_model_len or lower max_tokens.",
            )

    def _check_version(self, wanted: str) -> None:
        if wanted and wanted != self._version:
            raise StaleVersion(f"the engine holds {self._version}, asked was {wanted}.")

    def _completion(self, output: Any, index: int, detokenized: bool) -> Completion:
        answer = output.outputs[0]
        ids = tuple(answer.token_ids)
        return Completion(
            text=answer.text if detokenized else self._tokenizer.decode(ids, skip_special_tokens=True),
            token_ids=ids,
            logprobs=tuple(answer.logprobs.logprobs),
            finish=FinishReason.LENGTH if answer.finish_reason == "length" else FinishReason.STOP,
            # Later samples share the blocks that the first one has just computed: not reuse from earlier calls.
            cached_tokens=(output.num_cached_tokens or 0) if index == 0 else 0,
        )

    def _count(self, request: GenerateRequest, outputs: list[Any], completions: list[Completion]) -> None:
        prompt = len(request.prompt_ids)
        self._queries += prompt * len(outputs)
        self._hits += sum(output.num_cached_tokens or 0 for output in outputs)
        tokens = sum(len(c.token_ids) for c in completions)
        self._stats += PolicyStats(1, len(completions), prompt, completions[0].cached_tokens, tokens)


def _repack_output_layer(worker: Any) -> None:
    """Packs the output layer anew after a reload.

    On a CPU vLLM keeps a packed copy of it. Where it is tied to the embedding, the checkpoint has no entry for it, so a reload (vllm
    0.32) renews the embedding and leaves the packed copy with the old weights: the model answers with a mixture of both.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for layer in worker.get_model().modules():
        if isinstance(layer, ParallelLMHead) and hasattr(layer, "cpu_linear"):
            layer.quant_method.process_weights_after_loading(layer)


def _inspect_in_process(path: Path) -> None:
    """Registers the model's class with vLLM, which otherwise starts a second Python to look at it (8 s) and caches that per home.

    The second process protects CUDA from being initialised before a fork; on a CPU there is nothing to protect.
    """
    import json

    from vllm.model_executor.models.registry import ModelRegistry

    for name in json.loads((path / "config.json").read_text(encoding="utf-8")).get("architectures") or []:
        lazy = ModelRegistry.models.get(name)
        if lazy is not None:
            ModelRegistry.register_model(name, lazy.load_model_cls())
