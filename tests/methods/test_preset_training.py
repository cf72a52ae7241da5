"""What a preset's exploration gave is trained on: one optimiser step for each loss, with the preset's own rates and
terms."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agentr.config.schema import EnvConfig
from agentr.envs.server import EnvServer
from agentr.policy.chat import ChatCodec
from agentr.train.job import TrainJob
from agentr.train.online_job import OnlineJob
from agentr.types import Loss
from tests.presets import configured, datasets
from tests.support import tiny_tokenizer
from tests.train.test_sft import distance, run

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("one_process")]


@contextmanager
def serving(env: str, folder: Path) -> Iterator[str]:
    server = EnvServer(EnvConfig(name=env), "secret", str(folder / "server.log"))
    try:
        yield server.url()
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("loss", "method", "preset", "env"),
    [
        (Loss.IMITATE, "agent_r", "released", "textcraft"),
        (Loss.PREFER, "eto", "paper", "household"),
        (Loss.REINFORCE, "arpo", "paper", "mathtool"),
    ],
)
def test_a_presets_dataset_is_trained_on(
    loss: Loss, method: str, preset: str, env: str, start: Path, tmp_path: Path
) -> None:
    """Each byte or two is a token of the small model: the examples in the prompt are left out."""
    config = configured(method, preset, env, "prompt.examples=0")
    with serving(env, tmp_path) as url:
        dataset = datasets(config, url, tmp_path / "run", ChatCodec(tiny_tokenizer()))[1]
    assert isinstance(dataset, Path), dataset
    train = replace(config.train[0], micro_batch_size=1, bf16=False, log_every=1, learning_rate=1e-3, warmup_ratio=0.0)
    if loss is Loss.REINFORCE:
        train = replace(train, batch_size=config.method.episodes // train.grpo.minibatches)  # type: ignore[attr-defined]
        job = OnlineJob(dataset.parents[1], start, tmp_path / "trained", train, steps=1)
    else:
        job = TrainJob(dataset, start, tmp_path / "trained", replace(train, steps=1, batch_size=2))
    result = run(job)
    assert math.isfinite(result.last_loss) and result.trained_tokens > 0
    assert distance(job.model, start) > 0
