"""Preferences in this process: TRL and DeepSpeed, without Ray."""

# pyright: reportCallIssue=false
# What torch and datasets take is not what they say.

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentr.config.training import DPOConfig
from agentr.errors import ModelError, RunError
from agentr.store.dataset import write_rows
from agentr.store.rows import Preference, Provenance
from agentr.train.data import make_plan
from agentr.train.job import TrainJob
from tests.support import tiny_tokenizer
from tests.train.conftest import random_pairs
from tests.train.test_sft import distance, run
from tests.train.test_sft import make_job as make_any_job

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("one_process")]


def make_job(dataset: Path, start: Path, out: Path, dpo: DPOConfig | None = None, **config) -> TrainJob:
    return make_any_job(
        dataset, start, out, **{"batch_size": 4, "learning_rate": 1e-3, "dpo": dpo or DPOConfig(), **config}
    )


def side(model: Any, prompt: tuple[int, ...], ids: tuple[int, ...], mask: tuple[int, ...]) -> float:
    """Log-probability of the tokens of a side that count, one by one."""
    import torch

    with torch.no_grad():
        logprobs = model(torch.tensor([prompt + ids])).logits[0].double().log_softmax(-1)
    return sum(logprobs[len(prompt) + at - 1, ids[at]].item() for at in range(len(ids)) if mask[at])


def logprobs(folder: Path, pairs: list[Preference]) -> np.ndarray:
    """Log-probabilities of both sides under a model, shape [pairs, 2]."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    return np.array(
        [
            (
                side(model, p.prompt_ids, p.chosen_ids, p.chosen_mask),
                side(model, p.prompt_ids, p.rejected_ids, p.rejected_mask),
            )
            for p in pairs
        ]
    )


def counts(pairs: list[Preference]) -> np.ndarray:
    """Tokens that count, shape [pairs, 2]."""
    return np.array([(sum(p.chosen_mask), sum(p.rejected_mask)) for p in pairs])


def softplus(values: np.ndarray) -> np.ndarray:
    """-log sigmoid(-values)."""
    return np.logaddexp(0.0, values)


def test_the_policy_starts_as_its_own_reference(pairs: Path, start: Path, tmp_path: Path) -> None:
    job = make_job(pairs, start, tmp_path, steps=1, micro_batch_size=2)
    result = run(job)
    first = job.read_metrics()[0]
    assert result.first_loss == pytest.approx(math.log(2), abs=1e-5)
    assert first["reward_margin"] == pytest.approx(0.0, abs=1e-5)
    rows = make_plan(job).rows
    used = [rows[number] for number in make_plan(job).order[0]]
    expected = logprobs(start, used)
    assert first["chosen_logprob"] == pytest.approx(expected[:, 0].mean(), rel=1e-5)
    assert first["rejected_logprob"] == pytest.approx(expected[:, 1].mean(), rel=1e-5)
    assert result.trained_tokens == counts(used).sum()
    with np.load(job.reference) as stored:
        assert stored["logprobs"][make_plan(job).order[0]] == pytest.approx(expected, rel=1e-5)
        assert np.isnan(stored["logprobs"]).all(axis=1).sum() == 8, "pairs that no step uses are not asked"


@pytest.mark.parametrize(
    "dpo",
    [
        DPOConfig(beta=0.3),
        DPOConfig(beta=20.0, length_normalized=True),
        DPOConfig(beta=0.3, label_smoothing=0.2),
        DPOConfig(beta=0.3, sft=0.5),
    ],
    ids=["sum", "mean", "smoothed", "sft"],
)
def test_the_loss_of_pairs_of_several_turns_is_the_formula(
    dpo: DPOConfig, pairs: Path, start: Path, tmp_path: Path
) -> None:
    # The policy that the second of two steps starts from is the model of the same job with one step.
    one = make_job(
        pairs, start, tmp_path / "one", dpo, steps=1, batch_size=12, micro_batch_size=3, schedule="constant_with_warmup"
    )
    two = replace(one, out=tmp_path / "two", config=replace(one.config, steps=2))
    run(one)
    result = run(two)
    rows = random_pairs(12)
    policy, reference, tokens = logprobs(one.model, rows), logprobs(start, rows), counts(rows)
    ratio = policy - reference
    score = dpo.beta * np.subtract(*(ratio / tokens if dpo.length_normalized else ratio).T)
    assert np.abs(score).max() > 0.1, "there must be something to see"
    expected = softplus(-score)
    if dpo.label_smoothing:
        expected = ((1 - dpo.label_smoothing) * expected - dpo.label_smoothing * softplus(score)) / (
            1 - 2 * dpo.label_smoothing
        )
    expected = expected.mean() - dpo.sft * policy[:, 0].sum() / tokens[:, 0].sum()
    line = two.read_metrics()[-1]
    assert result.last_loss == line["loss"] == pytest.approx(expected, rel=1e-4)
    rewards = dpo.beta * ratio
    assert result.margin == line["reward_margin"] == pytest.approx(np.subtract(*rewards.T).mean(), rel=1e-3)
    assert result.accuracy == line["reward_accuracy"] == pytest.approx((rewards[:, 0] > rewards[:, 1]).mean())
    assert result.chosen_reward == line["chosen_reward"] == pytest.approx(rewards[:, 0].mean(), rel=1e-3)
    assert result.rejected_reward == line["rejected_reward"] == pytest.approx(rewards[:, 1].mean(), rel=1e-3)
    assert line["chosen_logprob"] == pytest.approx(policy[:, 0].mean(), rel=1e-5)
    assert line["rejected_logprob"] == pytest.approx(policy[:, 1].mean(), rel=1e-5)


def test_training_prefers_the_chosen_sides(pairs: Path, start: Path, tmp_path: Path) -> None:
    job = make_job(pairs, start, tmp_path, steps=9)
    result = run(job)
    assert result.last_loss < 0.5 < result.first_loss
    assert result.margin is not None
    assert result.margin > 0.5
    assert result.accuracy == 1.0
    assert job.finished() == result


def test_cutting_the_batch_changes_nothing_with_any_part_of_the_loss(pairs: Path, start: Path, tmp_path: Path) -> None:
    jobs = [
        make_job(pairs, start, tmp_path / str(micro), DPOConfig(sft=1.0), micro_batch_size=micro) for micro in (4, 1)
    ]
    for job in jobs:
        run(job)
    for whole, cut in zip(*(job.read_metrics() for job in jobs), strict=True):
        for key in ("loss", "grad_norm", "reward_margin", "chosen_logprob"):
            assert whole[key] == pytest.approx(cut[key], rel=1e-3, abs=1e-5)
    assert distance(jobs[0].model, jobs[1].model) < 2e-3


def test_a_mask_changes_the_loss_and_what_follows_the_last_turn_does_not(start: Path, tmp_path: Path) -> None:
    rows = random_pairs(4)
    masked = [replace(row, rejected_mask=(*row.rejected_mask[:4], 1, *row.rejected_mask[5:])) for row in rows]
    # An observation after the last turn is context of nothing; 40 more tokens of it also change the padding.
    longer = [
        replace(row, rejected_ids=(*row.rejected_ids, *[5] * 40), rejected_mask=(*row.rejected_mask, *[0] * 40))
        for row in rows
    ]
    lines = []
    for name, changed in {"rows": rows, "masked": masked, "longer": longer}.items():
        write_rows(tmp_path / name, changed)
        job = make_job(tmp_path / name, start, tmp_path / f"{name}-out", steps=2)
        run(job)
        lines.append(job.read_metrics()[1])
    plain, other, same = lines
    assert abs(plain["loss"] - other["loss"]) > 1e-4
    assert plain["loss"] == pytest.approx(same["loss"], rel=1e-4)
    assert plain["grad_norm"] == pytest.approx(same["grad_norm"], rel=1e-3)


def test_single_turns_train_as_with_trls_own_trainer(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate.state import AcceleratorState
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig as PlainConfig
    from trl import DPOTrainer

    tokenizer, texts, rows = tiny_tokenizer(), [], []
    for index in range(8):
        prompt = [{"role": "user", "content": f"You see {index} doors." + " Look." * index}]
        sides = [f"Action: open door {index}", f"Thought: I do not know the answer.\nAction: take lamp {9 - index}"]
        ids = [
            tokenizer.apply_chat_template([*prompt, {"role": "assistant", "content": text}], return_dict=True)[
                "input_ids"
            ]
            for text in sides
        ]
        begin = len(tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"])
        chosen, rejected = (tuple(side[begin:]) for side in ids)
        all_ones = (1,) * len(chosen), (1,) * len(rejected)
        rows.append(
            Preference(
                tuple(ids[0][:begin]),
                chosen,
                all_ones[0],
                rejected,
                all_ones[1],
                Provenance(f"t{index}", (0,), "sibling"),
            )
        )
        texts.append(
            {
                "prompt": prompt,
                **{
                    key: [{"role": "assistant", "content": s}]
                    for key, s in zip(("chosen", "rejected"), sides, strict=True)
                },
            }
        )
    write_rows(tmp_path / "pairs", rows)
    job = make_job(tmp_path / "pairs", start, tmp_path / "ours", steps=3, schedule="constant_with_warmup")
    run(job)

    monkeypatch.delenv("ACCELERATE_USE_DEEPSPEED")
    AcceleratorState._reset_state(reset_partial_state=True)
    plain = DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(start, dtype="float32"),
        args=PlainConfig(
            output_dir=str(tmp_path / "plain"),
            max_steps=3,
            per_device_train_batch_size=4,
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            train_sampling_strategy="sequential",
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_list([texts[number] for number in make_plan(job).order.ravel()]),
        processing_class=AutoTokenizer.from_pretrained(start),
    )
    assert not plain.is_deepspeed_enabled
    plain.train()
    theirs = [line for line in plain.state.log_history if "loss" in line]
    assert len(theirs) == 3
    for ours, line in zip(job.read_metrics(), theirs, strict=True):
        assert ours["loss"] == pytest.approx(line["loss"], rel=1e-4)
        assert ours["grad_norm"] == pytest.approx(line["grad_norm"], rel=1e-3)
        assert ours["reward_margin"] == pytest.approx(line["rewards/margins"], rel=1e-3, abs=1e-5)
        assert ours["chosen_logprob"] == pytest.approx(line["logps/chosen"], rel=1e-4)
    assert theirs[-1]["loss"] < 0.6


def stop_after(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ends the next job after so many steps, as a killed worker would be."""
    from agentr.train.progress import Progress

    original = Progress.on_step_begin

    def stop(self: Progress, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == step:
            raise RunError("stopped by the test")
        original(self, args, state, control, **more)

    monkeypatch.setattr(Progress, "on_step_begin", stop)


def test_a_resumed_job_keeps_its_reference_and_ends_the_same(pairs: Path, start: Path, tmp_path: Path) -> None:
    from agentr.train.dpo import AgentDPOTrainer

    whole = make_job(pairs, start, tmp_path / "whole", steps=6, checkpoint_every=2, micro_batch_size=2, log_every=3)
    broken = replace(whole, out=tmp_path / "broken")
    run(whole)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 5)
        with pytest.raises(RunError, match="stopped by the test"):
            run(broken)
    assert (broken.checkpoints / "checkpoint-4").exists()
    written = broken.reference.stat().st_mtime_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AgentDPOTrainer, "compute_reference", lambda _: pytest.fail("the reference was asked again"))
        result = run(broken)
    assert broken.reference.stat().st_mtime_ns == written
    assert result.steps == 6
    lines, undisturbed = broken.read_metrics(), whole.read_metrics()
    # the last is about steps 4 to 6, though the job went on after step 4
    assert [line["step"] for line in lines] == [1, 3, 6]
    for one, other in zip(lines, undisturbed, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert one["reward_margin"] == pytest.approx(other["reward_margin"], rel=1e-4, abs=1e-6)
    assert distance(broken.model, whole.model) < 1e-6


@pytest.mark.parametrize("damage", ["missing", "torn", "of another start"])
def test_a_later_policy_never_becomes_the_reference(damage: str, pairs: Path, start: Path, tmp_path: Path) -> None:
    job = make_job(pairs, start, tmp_path / "job", steps=4, checkpoint_every=1)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(RunError, match="stopped by the test"):
            run(job)
    if damage == "missing":
        job.reference.unlink()
    elif damage == "torn":
        job.reference.write_bytes(job.reference.read_bytes()[:100])
    else:
        from tests.support import tiny_model

        job = replace(job, start=tiny_model(tmp_path / "other", seed=1))
    with pytest.raises(RunError, match=r"reference.npz is missing or belongs to another .* Delete .* to train anew"):
        run(job)
    shutil.rmtree(job.out)
    assert run(job).first_loss == pytest.approx(math.log(2), abs=1e-5)


def test_dropout_of_the_model_is_off(pairs: Path, start: Path, tmp_path: Path) -> None:
    dropping = tmp_path / "dropping"
    shutil.copytree(start, dropping)
    config = json.loads((start / "config.json").read_text())
    (dropping / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.5}))
    job = make_job(pairs, dropping, tmp_path / "out", steps=1)
    assert run(job).first_loss == pytest.approx(math.log(2), abs=1e-5)
    assert json.loads((job.model / "config.json").read_text())["attention_dropout"] == 0.5


def test_bf16_does_not_round_the_reference(pairs: Path, start: Path, tmp_path: Path) -> None:
    # A sum near -100 in bf16 is a multiple of 0.5: with this beta, margins of a few would be lost.
    job = make_job(pairs, start, tmp_path, DPOConfig(beta=10.0), steps=1, bf16=True)
    result = run(job)
    assert result.first_loss == pytest.approx(math.log(2), abs=1e-3)


def test_masks_that_are_not_the_datasets_stop_the_training(
    pairs: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentr.train.dpo import PairCollator

    original = PairCollator.__call__

    def trained_on_observations(self: PairCollator, examples: list[dict[str, int]]) -> dict:
        batch = original(self, examples)
        return {**batch, "completion_mask": batch["attention_mask"]}

    monkeypatch.setattr(PairCollator, "__call__", trained_on_observations)
    with pytest.raises(RunError, match=r"step 0 would train on \d+ tokens, its loss masks have"):
        run(make_job(pairs, start, tmp_path))


def test_pairs_of_another_tokenizer_are_named(start: Path, tmp_path: Path) -> None:
    rows = random_pairs(4)
    write_rows(tmp_path / "foreign", [*rows[:3], replace(rows[3], rejected_ids=(70_000, *rows[3].rejected_ids[1:]))])
    with pytest.raises(ModelError, match="has token 70000, but the model"):
        run(make_job(tmp_path / "foreign", start, tmp_path / "out"))
