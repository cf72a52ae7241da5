"""The policy gradient against TRL's own, and packed rows against rows by themselves."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentr.config.training import Correction, GRPOConfig, PolicyLoss, RatioLevel, TrainConfig
from agentr.store.rows import Rollout
from agentr.train.online_job import OnlineJob
from tests.train.conftest import EACH, GROUPS, rollouts

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("one_process")]


def trainer_of(
    start: Path,
    out: Path,
    rows: list[Rollout],
    micro: int = GROUPS * EACH,
    batch: int = GROUPS * EACH,
    **grpo: Any,
) -> Any:
    from agentr.train.grpo import make_trainer
    from agentr.train.model import load_start
    from agentr.train.worker import register_deepspeed

    register_deepspeed(use_gpu=False)
    sizes = {"batch_size": batch, "micro_batch_size": micro}
    config = TrainConfig(**sizes, bf16=False, max_length=64, grpo=GRPOConfig(**grpo))
    job = OnlineJob(out, start, out, config, steps=1)
    model, tokenizer, _ = load_start(job)
    trainer = make_trainer(job, iter([rows]), model, tokenizer)
    trainer.current_gradient_accumulation_steps = batch // micro
    trainer.model.train()
    trainer.model_wrapped = trainer.model
    return trainer


def gradients(trainer: Any) -> tuple[float, dict[str, Any]]:
    """Goes through all micro-batches of one optimiser step and returns the loss and the gradients."""
    trainer.model.zero_grad()
    total = 0.0
    for batch in trainer.micro_batches():
        loss = trainer.compute_loss(trainer.model, trainer._prepare_inputs(batch))
        loss.backward()
        total += loss.item()
    return total, {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}


def each_apart(rows: list[Rollout]) -> Callable[..., Any]:
    """TRL's scores of tokens for episodes of several conversations: each goes through the model by itself."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    def scores(_: Any, model: Any, ids_RT: Any, _seen: Any, keep: int, **_more: Any) -> Any:
        found = []
        for row in rows:
            parts = []
            for ids in row.sequences():
                logprobs = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
                drawn = logprobs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
                both = torch.stack([drawn, -(logprobs.exp() * logprobs).sum(-1)], 1)
                parts.append(torch.cat([torch.zeros(1, 2), both]))
            found.append(torch.cat(parts)[row.loss_mask.index(1) :])
        padded = pad_sequence(found, batch_first=True)
        return padded[..., 0], padded[..., 1], None

    return scores


def trl_gradients(trainer: Any, rows: list[Rollout], micro: int, scores: Any = None) -> tuple[float, dict[str, Any]]:
    """The same by TRL alone: what its trainer computes from the tensors that its own generation would make of these
    rollouts.

    Args:
        scores: Takes the place of TRL's scores of tokens.
    """
    import torch
    from trl.trainer.grpo_trainer import GRPOTrainer

    grpo, total = trainer.job.config.grpo, 0.0
    plain = type("Plain", (type(trainer),), {
        "_compute_loss": GRPOTrainer._compute_loss,
        "_get_per_token_logps_and_entropies": scores or GRPOTrainer._get_per_token_logps_and_entropies,
    })  # fmt: skip
    trainer.__class__ = plain
    for model in (trainer.model, trainer.ref_model):
        if model is not None:
            model.set_attn_implementation("sdpa")
    trainer.model.zero_grad()
    for first in range(0, len(rows), micro):
        part = rows[first : first + micro]
        opening = [row.loss_mask.index(1) for row in part]
        left = max(opening)
        right = max(len(row.input_ids) - o for row, o in zip(part, opening, strict=True))
        shape = (len(part), right)
        inputs: dict[str, Any] = {
            name: torch.zeros(len(part), left, dtype=torch.long) for name in ("prompt_ids", "prompt_mask")
        }
        inputs |= {
            name: torch.zeros(shape, dtype=torch.long) for name in ("completion_ids", "completion_mask", "tool_mask")
        }
        drawn = torch.zeros(shape)
        for index, (row, o) in enumerate(zip(part, opening, strict=True)):
            size = len(row.input_ids) - o
            inputs["prompt_ids"][index, left - o :] = torch.tensor(row.input_ids[:o])
            inputs["prompt_mask"][index, left - o :] = 1
            inputs["completion_ids"][index, :size] = torch.tensor(row.input_ids[o:])
            inputs["completion_mask"][index, :size] = 1
            inputs["tool_mask"][index, :size] = torch.tensor(row.loss_mask[o:])
            drawn[index, :size] = torch.tensor([logprob or 0.0 for logprob in row.logprobs[o:]])
        inputs["advantages"] = torch.tensor([row.advantages[-1] for row in part])
        inputs["num_items_in_batch"] = torch.tensor(float(sum(row.targets for row in rows)))
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        with torch.no_grad():
            now, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, seen, right)
            inputs["old_per_token_logps"] = drawn if grpo.correction is Correction.none else now
            if grpo.kl:
                inputs["ref_per_token_logps"], _, _ = trainer._get_per_token_logps_and_entropies(
                    trainer.ref_model, ids, seen, right
                )
            difference = (now - drawn) * inputs["completion_mask"] * inputs["tool_mask"]
            ratio = (
                difference.sum(-1, keepdim=True) if grpo.correction.value.startswith("sequence") else difference
            ).exp()
            over = ratio > grpo.correction_max
            inputs["importance_sampling_ratio"] = (
                ratio.masked_fill(over, 0.0)
                if grpo.correction.value.endswith("mask")
                else ratio.clamp(max=grpo.correction_max)
            )
        loss = trainer._compute_loss(trainer.model, inputs)
        loss.backward()
        total += loss.item()
    return total, {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}


def assert_equal(one: tuple[float, dict[str, Any]], other: tuple[float, dict[str, Any]]) -> None:
    assert one[0] == pytest.approx(other[0], abs=1e-5)
    assert one[1].keys() == other[1].keys() and any(grad.abs().max() > 1e-3 for grad in one[1].values())
    for name, grad in one[1].items():
        assert (grad - other[1][name]).abs().max() < 1e-5, name


VARIANTS: list[dict[str, Any]] = [
    *({"loss": loss} for loss in PolicyLoss),
    {"loss": PolicyLoss.grpo, "ratio": RatioLevel.sequence},
    {"dual_clip": 3.0, "clip_high": 0.28},
    {"kl": 0.1},
    {"kl": 0.1, "kl_ratio": True},
    {"entropy": 0.01},
    *(
        {"correction": correction, "correction_max": 1.5}
        for correction in Correction
        if correction is not Correction.none
    ),
]


def name_of(variant: dict[str, Any]) -> str:
    return "-".join(str(value) for value in variant.values())


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_loss_and_gradients_are_trls(start: Path, tmp_path: Path, variant: dict[str, Any]) -> None:
    rows = rollouts(start)
    trainer = trainer_of(start, tmp_path, rows, **variant)
    if trainer.ref_model is not None:  # else the divergence from the start would be 0
        for parameter in trainer.ref_model.parameters():
            parameter.data += 0.02
    ours = gradients(trainer)
    assert_equal(ours, trl_gradients(trainer, rows, len(rows)))


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_an_episode_of_several_conversations_is_one_sequence(
    start: Path, tmp_path: Path, variant: dict[str, Any]
) -> None:
    """Two rollouts of a group as the conversations of one episode, also with an advantage of each, and one that has a
    single conversation: losses and gradients are TRL's, whose every mean is over episodes and their targets."""
    drawn = rollouts(start)
    rows = [
        replace(
            one,
            input_ids=one.input_ids + other.input_ids,
            loss_mask=one.loss_mask + other.loss_mask,
            logprobs=one.logprobs + other.logprobs,
            advantages=one.advantages[:1] * (len(one.input_ids) + len(other.input_ids)),
            starts=(len(one.input_ids),),
        )
        for one, other in zip(drawn[::2], drawn[1::2], strict=True)
    ]
    rows[2:3] = drawn[4:6]
    assert sum(bool(row.starts) for row in rows) == 5 and max(row.longest for row in rows) <= 64
    trainer = trainer_of(start, tmp_path, rows, micro=7, batch=7, **variant)
    if trainer.ref_model is not None:
        for parameter in trainer.ref_model.parameters():
            parameter.data += 0.02
    ours = gradients(trainer)
    assert_equal(ours, trl_gradients(trainer, rows, len(rows), each_apart(rows)))
    if variant == VARIANTS[0]:
        cut = trainer_of(start, tmp_path / "cut", rows, micro=2, batch=8, **variant)
        assert_equal(gradients(cut), ours)


@pytest.mark.parametrize("loss", [PolicyLoss.grpo, PolicyLoss.dapo, PolicyLoss.dr_grpo])
def test_the_cut_into_micro_batches_changes_nothing_but_rounding(start: Path, tmp_path: Path, loss: PolicyLoss) -> None:
    rows = rollouts(start)
    whole = gradients(trainer_of(start, tmp_path / "1", rows, loss=loss))
    assert_equal(gradients(trainer_of(start, tmp_path / "2", rows, micro=2, loss=loss)), whole)
    # four places stay empty
    assert_equal(gradients(trainer_of(start, tmp_path / "3", rows, micro=8, batch=16, loss=loss)), whole)


def test_rows_that_say_nothing_count_but_do_not_go_through_the_model(start: Path, tmp_path: Path) -> None:
    rows = [
        replace(row, advantages=tuple(0.0 for _ in row.advantages)) if row.group == "task1" else row
        for row in rollouts(start)
    ]
    for number, loss in enumerate(PolicyLoss):
        trainer = trainer_of(start, tmp_path / str(number), rows, micro=4, loss=loss)
        passed = [batch["rollouts"]["batch"] for batch in trainer.micro_batches()]
        assert sum(int(batch.live_R.sum()) for batch in passed) == 8 and all(
            batch.forward is not None for batch in passed
        )
        trainer = trainer_of(start, tmp_path / str(number), rows, loss=loss)
        assert_equal(gradients(trainer), trl_gradients(trainer, rows, len(rows)))


def test_a_micro_batch_without_a_word_has_a_gradient_of_zero(start: Path, tmp_path: Path) -> None:
    rows = [replace(row, advantages=tuple(0.0 for _ in row.advantages)) for row in rollouts(start)]
    loss, found = gradients(trainer_of(start, tmp_path, rows, micro=4))
    assert loss == 0.0 and found and not any(grad.any() for grad in found.values())


def test_advantages_may_differ_by_token(start: Path, tmp_path: Path) -> None:
    """Each token's gradient is its own advantage's: rows of two advantages are the sum of rows that have one of
    them."""
    rows = rollouts(start)

    def only(keep: Callable[[int], bool]) -> list[Rollout]:
        return [
            replace(row, advantages=tuple(a if keep(t) else 0.0 for t, a in enumerate(row.advantages))) for row in rows
        ]

    whole = gradients(trainer_of(start, tmp_path / "1", rows))
    early, late = (
        gradients(trainer_of(start, tmp_path / str(n), only(keep)))
        for n, keep in ((2, lambda t: t < 20), (3, lambda t: t >= 20))
    )
    assert_equal(whole, (early[0] + late[0], {name: early[1][name] + late[1][name] for name in whole[1]}))


def test_shared_beginnings_go_through_the_model_once(start: Path, tmp_path: Path) -> None:
    rows = rollouts(start)
    (batch,) = trainer_of(start, tmp_path, rows).micro_batches()
    found = batch["rollouts"]["batch"].forward
    distinct = len({row.input_ids[: t + 1] for row in rows for t in range(len(row.input_ids))})
    branches = int(found.lengths_P.sum()) - distinct
    assert 0 < branches <= len(rows)  # where rows part, a token stands once for each of them
    assert found.row_tokens == sum(len(row.input_ids) for row in rows)
