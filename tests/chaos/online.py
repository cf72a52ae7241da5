"""A small run of online training, for the tests that disturb it."""

from pathlib import Path

from tests.chaos.driver import Driver, start

#: Seven steps of a model that knows nothing, for a reward that it can learn at once: shorter turns. Rollouts branch,
#: tasks are chosen, and collection is a step ahead of training. Two steps are validated.
ONLINE = """
run: {name: online, rounds: 1}
method:
  type: tree_grpo
  steps: 7
  tasks: 3
  max_staleness: 1
  pareto: {tasks: 9, episodes: 3, settled: keep}
  episodes: 4
  max_steps: 3
  rewards: [{name: length, options: {per_token: 0.02}}]
  gate: none
  validation: {every: 3, tasks: {split: dev, where: {depth: 1}, limit: 4}}
model: {source: nano, dtype: float32, max_model_len: 768}
env: {name: textcraft, options: {recipes: exact, distractors: 3}, retries: 8}
prompt: {instruction: false}
policy: {max_num_seqs: 16, kv_cache_gib: 0.25}
warm_start: {enabled: false}
collect: {tasks: {split: train, where: {depth: 1}, limit: 12}, sampling: {max_tokens: 32}, in_flight: 2, \
infra_retries: 8}
build: {max_length: 768}
train:
  - {batch_size: 6, micro_batch_size: 3, learning_rate: 1.0e-4, bf16: false, max_length: 768,
     checkpoint_every: 2, grpo: {minibatches: 2}}
eval: {tasks: {split: test, where: {depth: 1}, limit: 4}, sampling: {max_tokens: 32}, max_steps: 3}
"""


def written(folder: Path) -> Path:
    """Writes the configuration into a folder and returns its file."""
    config = folder / "online.yaml"
    config.write_text(ONLINE)
    return config


def started(root: Path, *overrides: str) -> Driver:
    """The run in that directory, with a Ray of its own."""
    return start(root.parent / "log", "run", str(written(root.parent)), f"run.dir={root}", *overrides)
