"""What is checked before an engine starts; no vLLM involved."""

import json
from pathlib import Path

import pytest

from agentr.config.model import ModelConfig
from agentr.config.policy import PolicyBackend, PolicyConfig
from agentr.errors import ConfigError, ModelError
from agentr.policy.actor import start_engine
from agentr.policy.base import GenerateRequest, PolicyStats, cost_of
from agentr.policy.vllm_engine import require_cpu_kernels
from agentr.types import Completion, Cost, FinishReason, Sampling


def describe(folder: Path, **config) -> Path:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "shape",
    [
        {"head_dim": 48},
        {"head_dim": None, "hidden_size": 96, "num_attention_heads": 2},
        {"text_config": {"head_dim": 48}, "head_dim": 64},
    ],
)
def test_heads_that_the_cpu_kernels_lack(tmp_path: Path, shape: dict) -> None:
    with pytest.raises(ModelError, match=r"attention heads of size 48; on a CPU vLLM has kernels for 32, 64"):
        require_cpu_kernels(describe(tmp_path, **shape))
    require_cpu_kernels(describe(tmp_path, hidden_size=128, num_attention_heads=2))


def test_an_api_has_no_engines_to_start() -> None:
    with pytest.raises(ConfigError, match=r"policy\.backend is openai"):
        start_engine("model", ModelConfig(), PolicyConfig(backend=PolicyBackend.openai))


def test_counters_add_and_subtract() -> None:
    answers = [
        Completion("a", (1, 2, 3), (), FinishReason.STOP, cached_tokens=2),
        Completion("b", (4,), (), FinishReason.LENGTH),
    ]
    cost = cost_of(GenerateRequest((1, 2, 3, 4), 2, Sampling()), answers)
    assert cost == Cost(calls=1, completions=2, prompt_tokens=4, cached_tokens=2, completion_tokens=4)
    one, other = PolicyStats(cost, busy_s=1.5, spent=0.25), PolicyStats(Cost(calls=2), busy_s=0.5)
    assert one + other - other == one
    assert (one + other).cost.calls == 3
