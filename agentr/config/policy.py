"""The section ``policy``, and whoever else is asked: who answers, how answers are drawn, and what they may cost."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from agentr.config.checks import Problem, Section


class PolicyBackend(StrEnum):
    vllm = "vllm"
    """vLLM engines that agentr starts."""
    openai = "openai"
    """An OpenAI-compatible API."""


@dataclass
class SamplingConfig(Section):
    """How completions are drawn."""

    temperature: NonNegativeFloat = 1.0
    """0 means greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling: the most likely tokens that together have this probability; 1 means all."""
    max_tokens: PositiveInt = 256
    """Longest completion, in tokens; a turn that reaches it is cut off, and turns.cut_off says whether it is
    executed."""


#: What is sent to an API beside its model, the messages and the tools.
PARAMETERS = ("n", "temperature", "top_p", "max_tokens", "seed", "stop", "parallel_tool_calls")


@dataclass
class OpenAIConfig(Section):
    """An OpenAI-compatible API as the policy (GPT-4o as Agent-R's actor, or a vLLM server elsewhere)."""

    base_url: str = "https://api.openai.com/v1"
    """Address of the API, up to and including its version."""
    model: str = ""
    """Name of the model there."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key."""
    max_cost: NonNegativeFloat = 0.0
    """Stop when this much was spent, in the currency of the prices; 0 means no limit."""
    prompt_price_per_mtok: NonNegativeFloat = 0.0
    """Price of a million prompt tokens."""
    completion_price_per_mtok: NonNegativeFloat = 0.0
    """Price of a million generated tokens."""
    concurrency: PositiveInt = 16
    """Requests at the same time."""
    parameters: dict[str, str] = field(default_factory=dict)
    """What the model calls parameters, such as {max_tokens: max_completion_tokens, seed: ''}; one with an empty name is
    left out."""

    def problems(self) -> Iterator[Problem]:
        for name in self.parameters:
            if name not in PARAMETERS:
                yield Problem(
                    "parameters", f"no parameter {name!r} is sent", f"Those that are: {', '.join(PARAMETERS)}."
                )


class Device(StrEnum):
    """What engines run on."""

    auto = "auto"
    """GPUs if the cluster has any when engines start. A cluster that grows may have none yet: set gpu there."""
    cpu = "cpu"
    """CPUs, whatever there is."""
    gpu = "gpu"
    """GPUs, also if they are yet to come."""


class Sync(StrEnum):
    """Where the weights are on their way from the trainer to the engines, between online steps."""

    files = "files"
    """In the run directory."""
    memory = "memory"
    """In this machine's memory (/dev/shm), for runs on one machine whose run directory is slow."""


#: Folder in a machine's memory that all its processes see.
SHARED_MEMORY = Path("/dev/shm")


@dataclass
class PolicyConfig(Section):
    """Who answers, and with how much of the machine."""

    backend: PolicyBackend = PolicyBackend.vllm
    """Our own engines, or an API."""
    engines: PositiveInt = 1
    """vLLM engines; trees are spread over them. Without GPUs small models answer most with one for each core."""
    device: Device = Device.auto
    """What engines run on."""
    max_num_seqs: PositiveInt = 64
    """Sequences that an engine decodes together."""
    kv_cache_gib: PositiveFloat = 1.0
    """Memory for the key-value cache on a CPU."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.85
    """Share of a GPU's memory that an engine takes."""
    tensor_parallel_size: PositiveInt = 1
    """GPUs that share one engine's model."""
    threads: PositiveInt = 1
    """OpenMP threads of an engine on a CPU."""
    sync: Sync = Sync.files
    """How weights get to the engines between online steps."""
    timeout_s: PositiveFloat = 300.0
    """Deadline of one call."""
    retries: NonNegativeInt = 3
    """Attempts at a call after the first."""
    openai: OpenAIConfig = field(default_factory=OpenAIConfig)
    """For backend=openai."""

    def problems(self) -> Iterator[Problem]:
        if self.backend is PolicyBackend.openai and not self.openai.model:
            yield Problem("openai.model", "policy.backend = openai needs policy.openai.model", "Name the model.")
        if self.sync is Sync.memory and not SHARED_MEMORY.is_dir():
            yield Problem("sync", f"there is no {SHARED_MEMORY} here", "Set it to files.")


class Who(StrEnum):
    """Who is asked."""

    nobody = "nobody"
    """Nothing is asked."""
    policy = "policy"
    """The policy that explores, or that is measured."""
    openai = "openai"
    """A model behind an OpenAI-compatible API, a vLLM server elsewhere for example."""


@dataclass
class AdvisorConfig(Section):
    """Who is asked, and how."""

    who: Who = Who.policy
    """The policy itself, another model, or nobody."""
    openai: OpenAIConfig = field(default_factory=OpenAIConfig)
    """For who=openai: address, model, prices, budget."""
    sampling: SamplingConfig = field(
        default_factory=lambda: SamplingConfig(temperature=0.7, top_p=0.95, max_tokens=512)
    )
    """How answers are drawn."""
    timeout_s: PositiveFloat = 120.0
    """Deadline of an answer."""
    retries: NonNegativeInt = 3
    """Attempts at an answer after the first."""
    required: bool = False
    """Stop if there is no answer; otherwise nothing comes of the question, which is counted, and the run goes on."""

    def problems(self) -> Iterator[Problem]:
        if self.who is Who.openai and not self.openai.model:
            yield Problem("openai.model", "who = openai needs a model", "Name the model.")
