"""R3L with real parts, and a model behind an API that reflects: rows of all kinds, and the same again after its
coordinator and its driver were killed."""

import re
from pathlib import Path
from typing import Any

import pytest

import agentr
from agentr.read.stage import Rollouts
from agentr.search.stored import to_json
from agentr.store.files import read_lines
from tests.chaos.driver import same_whoever_dies
from tests.policy.test_openai_api import Stub, listener, stub
from tests.presets import reflection
from tests.rewards.test_judge import saying

__all__ = ["listener", "stub"]  # fixtures

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(900)]

#: Three steps of three tasks for a reward that a model learns that knows nothing: shorter turns.
CONFIG = """
run: {{name: r3l, rounds: 1}}
method:
  type: r3l
  steps: 3
  tasks: 3
  episodes: 4
  initial: 2
  max_steps: 3
  rewards: [{{name: length, options: {{per_token: 0.02}}}}]
  gate: none
  reflect: {{who: openai, openai: {{base_url: "{url}", model: m, api_key_env: TEST_API_KEY}}}}
model: {{source: nano, dtype: float32, max_model_len: 768}}
env: {{name: textcraft, options: {{recipes: exact, distractors: 3}}, retries: 8}}
prompt: {{instruction: false}}
policy: {{max_num_seqs: 16, kv_cache_gib: 0.25}}
warm_start: {{enabled: false}}
collect: {{tasks: {{split: train, where: {{depth: 1}}, limit: 12}}, sampling: {{max_tokens: 32}}, in_flight: 3, \
infra_retries: 8}}
build: {{max_length: 768}}
train:
  - {{batch_size: 24, micro_batch_size: 6, learning_rate: 1.0e-4, bf16: false, max_length: 768,
     checkpoint_every: 1, grpo: {{ratio: none, loss: grpo}}}}
eval: {{tasks: {{split: test, where: {{depth: 1}}, limit: 4}}, sampling: {{max_tokens: 32}}, max_steps: 3}}
"""


def finds_fault(question: str) -> str:
    found = re.search(r"from 1 to (\d+)", question)
    assert found is not None
    return reflection("failure", min(2, int(found[1])))


def contents(root: Path) -> dict[str, Any]:
    """All that a run decides."""
    run = agentr.open(root)
    rollouts, train = run.rounds[1].rollouts, run.rounds[1].train
    assert isinstance(rollouts, Rollouts)
    found: dict[str, Any] = {f"trees {key}": to_json(rollouts[key]) for key in rollouts.keys()}  # noqa: SIM118 - no dict
    found |= {f"rows {number}": list(step.dataset.rows) for number, step in rollouts.steps.items()}
    return {**found, "weights": (train.model / "model.safetensors").read_bytes()}


def test_it_trains_on_retries_and_comes_to_the_same_end_whoever_dies(stub: Stub, tmp_path: Path) -> None:
    stub.answers = [saying(finds_fault)]
    config = tmp_path / "r3l.yaml"
    config.write_text(CONFIG.format(url=stub.url))

    rollouts = "rounds/01/rollouts"
    whole = same_whoever_dies(
        tmp_path,
        [str(config)],
        contents,
        lambda root: any((root / rollouts).rglob("answers*.jsonl")),
        lambda root: any(read_lines(root / rollouts / "steps.jsonl")),
    )
    rows = [row for name, found in whole.items() if name.startswith("rows") for row in found]
    kinds = {row.provenance.kind for row in rows}
    assert kinds == {"rollout", "guided"}, "what another model wrote is no row"
    for row in rows:
        if row.provenance.kind == "guided":
            assert row.rewards["total"] > row.rewards["before"] and max(row.advantages) == 1.0
    masked = [row for row in rows if row.provenance.kind == "rollout" and 0.0 in row.advantages and any(row.advantages)]
    assert masked, "turns that a rollout shares with its retry have no gradient"
