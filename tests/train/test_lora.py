"""Low-rank adapters under both trainers: trained, resumed, and gone in the checkpoint."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from agentr.config.training import LoRAConfig
from agentr.errors import ConfigError, RunError
from agentr.train.job import TrainJob
from tests.train.test_dpo import stop_after
from tests.train.test_sft import distance, make_job, run, weights

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("one_process")]


def lora_job(data: Path, start: Path, out: Path, lora: LoRAConfig | None = None, **config) -> TrainJob:
    lora = lora or LoRAConfig(rank=4, alpha=8.0)
    return make_job(data, start, out, **{"batch_size": 4, "schedule": "constant_with_warmup", "lora": lora, **config})


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("kind", ["dataset", "pairs"])
def test_the_checkpoint_is_a_whole_model_of_low_rank_changes(
    kind: str, bf16: bool, start: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    job = lora_job(request.getfixturevalue(kind), start, tmp_path, LoRAConfig(rank=2, alpha=8.0), bf16=bf16, steps=4)
    result = run(job)
    before, after = weights(start), weights(job.model)
    assert before.keys() == after.keys()
    assert {path.name for path in job.model.iterdir()} == {path.name for path in start.iterdir()}
    for name, weight in before.items():
        change = after[name] - weight
        if "proj" in name:
            # The base below an adapter is bf16 while it trains, but not in the checkpoint: there, nothing but the
            # adapter was added.
            assert torch.linalg.matrix_rank(change, atol=1e-5) == 2, name
        else:
            assert change.abs().max() == 0.0, name
    AutoModelForCausalLM.from_pretrained(job.model)
    assert result.last_loss < result.first_loss


def test_the_saved_model_is_the_policy_that_was_trained(pairs: Path, start: Path, tmp_path: Path) -> None:
    from tests.train.conftest import random_pairs
    from tests.train.test_dpo import logprobs

    one = lora_job(pairs, start, tmp_path / "one", steps=1, batch_size=12)
    two = replace(one, out=tmp_path / "two", config=replace(one.config, steps=2))
    run(one)
    run(two)
    first, second = two.read_metrics()
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-5)
    expected = logprobs(one.model, random_pairs(12)).mean(axis=0)
    assert (second["chosen_logprob"], second["rejected_logprob"]) == pytest.approx(tuple(expected), rel=1e-5)
    assert abs(second["chosen_logprob"] - first["chosen_logprob"]) > 0.1


@pytest.mark.parametrize("kind", ["dataset", "pairs"])
def test_a_resumed_job_with_dropout_ends_the_same(
    kind: str, start: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lora = LoRAConfig(rank=4, dropout=0.3)
    whole = lora_job(request.getfixturevalue(kind), start, tmp_path / "whole", lora, steps=5, checkpoint_every=2)
    broken = replace(whole, out=tmp_path / "broken")
    run(whole)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(RunError, match="stopped by the test"):
            run(broken)
    assert (broken.checkpoints / "checkpoint-2").exists()
    run(broken)
    assert distance(whole.model, start) > 1e-3
    assert distance(broken.model, whole.model) < 1e-6
    undropped = replace(whole, out=tmp_path / "undropped", config=replace(whole.config, lora=LoRAConfig(rank=4)))
    run(undropped)
    assert distance(undropped.model, whole.model) > 1e-4


def test_activations_may_be_computed_twice(pairs: Path, start: Path, tmp_path: Path) -> None:
    jobs = [lora_job(pairs, start, tmp_path / str(twice), gradient_checkpointing=twice) for twice in (False, True)]
    for job in jobs:
        run(job)
    for one, other in zip(*(job.read_metrics() for job in jobs), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
    assert distance(jobs[0].model, start) > 0
    assert distance(jobs[0].model, jobs[1].model) < 1e-5


def test_only_the_layers_named_are_trained(dataset: Path, start: Path, tmp_path: Path) -> None:
    job = lora_job(dataset, start, tmp_path, LoRAConfig(rank=2, targets=["q_proj", "layers.0.mlp.up_proj"]), steps=2)
    run(job)
    before, after = weights(start), weights(job.model)
    changed = {name.removeprefix("model.layers.") for name in before if not before[name].equal(after[name])}
    assert changed == {"0.self_attn.q_proj.weight", "1.self_attn.q_proj.weight", "0.mlp.up_proj.weight"}


@pytest.mark.parametrize("target", ["w_pack", "lm_head", "proj"])
def test_a_target_that_is_no_inner_linear_layer_is_named(
    target: str, dataset: Path, start: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError, match=rf"names '{target}', no inner linear layer .* Choose of down_proj, .* or all-linear"
    ):
        run(lora_job(dataset, start, tmp_path, LoRAConfig(rank=2, targets=["q_proj", target])))
