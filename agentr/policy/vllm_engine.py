"""A vLLM engine in this process: continuous batching, a prefix cache, weights replaced in place.

One `VLLMEngine` serves many coroutines, also of different event loops. Left out on purpose: LoRA, beam search,
streaming.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr.cluster.ray_private import session_folder
from agentr.config.model import Dtype, ModelConfig
from agentr.config.policy import PolicyConfig
from agentr.cpu import OPENMP, keep_freed_memory, multiplies_bf16
from agentr.errors import ConfigError, ContextOverflow, InfraError, ModelError, StaleWeights
from agentr.policy.adapters import base_of
from agentr.policy.base import EngineHealth, GenerateRequest, PolicyStats, cost_of
from agentr.policy.stepper import Barrier, Batch, Stepper
from agentr.policy.vllm_patches import (
    inspect_in_process,
    keep_rendezvous_in,
    load_merged,
    mend_llvmlite,
    repack_output_layer,
)
from agentr.seeds import derived_seed
from agentr.store.model_folder import require_model
from agentr.types import Completion, FinishReason

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine

log = logging.getLogger(__name__)

#: Tokens in a block of the prefix cache: the least that vLLM's attention kernels for CPUs take. Small blocks find more
#: shared prefixes.
BLOCK = 32

CPU_HEAD_DIMS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Sizes of an attention head that vLLM's CPU kernels have (vllm 0.32, CPUAttentionBackend)."""

_CPU_BATCH = 4096
"""Lower bound on the tokens of one step on a CPU; raised to the context length, so a prompt is one step."""


def prepare_environment(config: PolicyConfig) -> bool:
    """Sets the environment variables of vLLM and OpenMP. Takes full effect only before torch is imported.

    Returns:
        Whether the engine runs on a GPU.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    # A value that was set outside (Ray sets it from num_cpus) is not what the configuration says.
    os.environ["OMP_NUM_THREADS"] = str(config.threads)
    os.environ.update(OPENMP)
    # Models are folders here; without this, a slow network delays the start.
    defaults = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "TOKENIZERS_PARALLELISM": "false",
    }
    import torch

    gpu = torch.cuda.is_available()
    if not gpu:
        # The sampler compiles a function at the first request with a temperature, for tens of seconds, also in eager
        # mode. Binding threads to cores reserves a core for the front end, which on a small machine is half of it.
        defaults |= {"TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_CI_ENV": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    return gpu


def build_llm(checkpoint: str, model: ModelConfig, policy: PolicyConfig, sleeps: bool = False) -> LLMEngine:
    """Builds vLLM's engine. Called in the stepping thread.

    Raises:
        ConfigError: The engine is to sleep, which vLLM cannot on this platform; or see ``require_cpu_kernels``.
        ModelError: See ``require_cpu_kernels``.
    """
    gpu = prepare_environment(policy)
    if sleeps:
        require_sleep()
    if not gpu:
        require_cpu_kernels(Path(checkpoint))
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    mend_llvmlite()
    if session := session_folder():
        keep_rendezvous_in(session)
    options: dict[str, Any]
    if gpu:
        options = {
            "gpu_memory_utilization": policy.gpu_memory_utilization,
            "tensor_parallel_size": policy.tensor_parallel_size,
            "distributed_executor_backend": "mp" if policy.tensor_parallel_size > 1 else "uni",
            "enable_sleep_mode": sleeps,
        }
    else:
        torch.set_num_threads(policy.threads)
        keep_freed_memory()
        if model.dtype is Dtype.bfloat16 and not multiplies_bf16():
            log.warning(
                "This processor does not multiply in bfloat16, so the engine is many times slower; set "
                "model.dtype=float32."
            )
        inspect_in_process(Path(checkpoint))
        options = {
            "enforce_eager": True,
            "kv_cache_memory_bytes": int(policy.kv_cache_gib * 2**30),
            # Where a prompt is computed in two steps, vllm 0.32 takes back a random number of its seeded generator, and
            # a CPU's cannot.
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(_CPU_BATCH, model.max_model_len),
        }
    arguments = EngineArgs(
        model=checkpoint,
        dtype=model.dtype,  # type: ignore[arg-type]
        max_model_len=model.max_model_len,
        max_num_seqs=policy.max_num_seqs,
        block_size=BLOCK,
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


def require_sleep() -> None:
    """Checks that vLLM has its sleep mode on this platform: on a CPU it says that it slept, and frees nothing.

    Raises:
        ConfigError: It has not.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_sleep_mode_available():
        where = current_platform.device_type
        raise ConfigError(
            "trainer.share=time lets engines sleep while an online method trains, and vLLM cannot sleep on this "
            f"platform ({where}).",
            hint="Set trainer.share=together (an engine and a trainer worker on one GPU) or split.",
        )


def require_cpu_kernels(folder: Path) -> None:
    """Checks that vLLM has attention kernels for a model on a CPU, before the minute that its start takes.

    Raises:
        ModelError: The kernels do not take the size of the attention heads.
        OSError, ValueError: There is no readable ``config.json`` in ``folder``.
    """
    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    size = _head_dim(described.get("text_config") or described)
    if size and size not in CPU_HEAD_DIMS:
        known = ", ".join(map(str, CPU_HEAD_DIMS))
        raise ModelError(
            f"{folder} has attention heads of size {size}; on a CPU vLLM has kernels for {known}.",
            hint="Use another model, or a GPU.",
        )


def _head_dim(text: dict[str, Any]) -> int:
    if text.get("head_dim"):
        return int(text["head_dim"])
    width, heads = int(text.get("hidden_size") or 0), int(text.get("num_attention_heads") or 0)
    return width // heads if heads else 0


class VLLMEngine:
    """An `Engine` on vLLM.

    Invariant: all completions of a request come from the weights that were loaded when the request was admitted.

    Args:
        checkpoint: Folder of the model in Hugging Face format.
        model: Data type and context length.
        policy: Sizes of the batch and of the cache, threads, deadline.
        sleeps: Whether ``sleep`` will be called.

    Raises:
        ModelError: vLLM cannot load the model, or has no kernels for it (see ``require_cpu_kernels``).
        ConfigError: See ``build_llm``.
    """

    def __init__(self, checkpoint: str | Path, model: ModelConfig, policy: PolicyConfig, sleeps: bool = False) -> None:
        self._sleeps = sleeps
        self._asleep = False
        self._model = model
        self._policy = policy
        self._checkpoint = str(checkpoint)
        self._stats = PolicyStats()
        self._queries = 0
        self._hits = 0
        self._tokenizer: Any = None
        self._scheduler: Any = None
        self._stepper = Stepper(self._start, name="vllm-stepper")

    @property
    def checkpoint(self) -> str:
        """Folder of the loaded weights."""
        return self._checkpoint

    async def generate(self, request: GenerateRequest, checkpoint: str = "") -> list[Completion]:
        """See `Engine.generate`. Cancelling the call frees its place in the batch.

        Args:
            checkpoint: Weights that must answer; empty takes those that are loaded.

        Raises:
            ContextOverflow: The prompt leaves no room for ``max_tokens``.
            StaleWeights: Other weights than ``checkpoint`` are loaded.
            ModelError: vLLM refuses the request (a token id outside the vocabulary).
            InfraError: The engine died.
        """
        _check_room(request, self._model.max_model_len)
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        sampling = request.sampling
        params = [
            SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
                seed=derived_seed(sampling.seed, index),
                stop=list(sampling.stop),
                stop_token_ids=list(sampling.stop_ids),
                include_stop_str_in_output=True,
                skip_reading_prefix_cache=not request.reuse_prefix,
                logprobs=0,
                flat_logprobs=True,
                # Undoing tokens one by one costs a third of the speed of a small model, and only stop strings need it.
                detokenize=bool(sampling.stop),
                output_kind=RequestOutputKind.FINAL_ONLY,
                structured_outputs=StructuredOutputsParams(structural_tag=sampling.form) if sampling.form else None,
            )
            for index in range(request.n)
        ]
        batch = Batch(list(request.prompt_ids), params, check=lambda: self._check_weights(checkpoint))
        self._stepper.submit(batch)
        outputs = await asyncio.wrap_future(batch.future)
        tokenizer = None if sampling.stop else self._tokenizer
        completions = [_completion(output, index, tokenizer) for index, output in enumerate(outputs)]
        self._queries += len(request.prompt_ids) * len(outputs)
        self._hits += sum(output.num_cached_tokens or 0 for output in outputs)
        self._stats += PolicyStats(cost_of(request, completions))
        return completions

    async def load(self, checkpoint: str | Path) -> None:
        """See `Engine.load`.

        Raises:
            ModelError: There are no weights in ``checkpoint``; the old ones stay.
            InfraError: The weights could not be loaded (another architecture); the engine is dead.
        """
        require_model(Path(checkpoint), "the checkpoint")
        if (base := base_of(Path(checkpoint))) is not None:
            require_model(base, "the model of the adapters")
        barrier = Barrier(lambda llm: self._reload(llm, str(checkpoint)))
        self._stepper.submit(barrier)
        await asyncio.wrap_future(barrier.future)

    async def sleep(self) -> None:
        """See `Engine.sleep`. Requests are refused by StaleWeights until weights are loaded."""
        barrier = Barrier(self._lie_down)
        self._stepper.submit(barrier)
        await asyncio.wrap_future(barrier.future)

    async def stats(self) -> PolicyStats:
        """See `Engine.stats`."""
        return replace(self._stats, busy_s=self._stepper.busy_s)

    async def health(self) -> EngineHealth:
        """See `Engine.health`.

        Raises:
            InfraError: See ``check``.
        """
        self.check()
        stepper = self._stepper
        return EngineHealth(
            checkpoint=self._checkpoint,
            running=stepper.running,
            queued=stepper.queued,
            stalled_s=stepper.stalled_s,
            prefix_queries=self._queries,
            prefix_hits=self._hits,
            **_room(self._scheduler),
        )

    def check(self) -> None:
        """See `Engine.check`.

        Raises:
            InfraError: The engine is dead, or has been in one step for longer than ``policy.timeout_s``.
        """
        if self._stepper.problem is not None:
            raise InfraError(f"the engine's stepping thread died: {self._stepper.problem!r}")
        stalled = self._stepper.stalled_s
        if stalled > self._policy.timeout_s:
            raise InfraError(f"the engine has been in one decoding step for {stalled:.0f} s.")

    def close(self) -> None:
        """See `Engine.close`."""
        self._stepper.close()

    # ------------------------------------------------------------------------------------------------------------------

    def _start(self) -> LLMEngine:
        wanted = Path(self._checkpoint)
        base = base_of(wanted)
        llm = build_llm(str(base or wanted), self._model, self._policy, self._sleeps)
        if base is not None:
            llm.collective_rpc(partial(load_merged, folder=self._checkpoint))
        self._tokenizer = llm.get_tokenizer()
        self._scheduler = llm.engine_core.engine_core.scheduler  # type: ignore[attr-defined]
        return llm

    def _lie_down(self, llm: LLMEngine) -> None:
        if not self._asleep:
            llm.sleep(level=2)  # drops the weights: others come, and host memory is the trainer's
            self._asleep, self._checkpoint = True, ""

    def _reload(self, llm: LLMEngine, checkpoint: str) -> None:
        if checkpoint == self._checkpoint:
            return
        if self._asleep:
            llm.wake_up(tags=["weights"])
        if base_of(Path(checkpoint)) is None:
            llm.collective_rpc("reload_weights", kwargs={"weights_path": checkpoint})
        else:
            llm.collective_rpc(partial(load_merged, folder=checkpoint))
        if self._asleep:  # the cache only now: while weights are read there is room for both copies of a layer
            llm.wake_up(tags=["kv_cache"])
            self._asleep = False
        if llm.vllm_config.device_config.device_type == "cpu":
            llm.collective_rpc(repack_output_layer)
        if not llm.reset_prefix_cache():
            raise InfraError("vLLM kept prefixes that were computed with other weights.")
        self._checkpoint = checkpoint

    def _check_weights(self, wanted: str) -> None:
        if self._asleep or (wanted and wanted != self._checkpoint):
            raise StaleWeights(f"the engine holds {self._checkpoint}, asked was {wanted}.")


def _check_room(request: GenerateRequest, limit: int) -> None:
    prompt, answer = len(request.prompt_ids), request.sampling.max_tokens
    if not prompt or prompt + answer > limit:
        raise ContextOverflow(
            f"a prompt of {prompt} tokens and an answer of up to {answer} do not fit into model.max_model_len={limit}.",
            hint="End the episode earlier, or raise model.max_model_len or lower max_tokens.",
        )


def _completion(output: Any, index: int, tokenizer: Any) -> Completion:
    answer = output.outputs[0]
    ids = tuple(answer.token_ids)
    return Completion(
        text=tokenizer.decode(ids, skip_special_tokens=True) if tokenizer is not None else answer.text,
        token_ids=ids,
        logprobs=tuple(answer.logprobs.logprobs),
        finish=FinishReason.LENGTH if answer.finish_reason == "length" else FinishReason.STOP,
        # Later samples share the blocks that the first one has just computed: not reuse from earlier calls.
        cached_tokens=(output.num_cached_tokens or 0) if index == 0 else 0,
    )


def _room(scheduler: Any) -> dict[str, Any]:
    """Says how sequences fit into the cache. Read beside the stepping thread, so the numbers may be of two steps."""
    there, running = list(scheduler.requests.values()), len(scheduler.running)
    preempted = sum(request.num_preemptions for request in there)
    return {
        "waiting": max(0, len(there) - running),
        "preempted": preempted,
        "cache_used": scheduler.kv_cache_manager.usage,
    }
