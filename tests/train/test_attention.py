"""Rows behind one another attend to what they attend to by themselves, and to nothing else."""

# pyright: reportCallIssue=false
# What torch and datasets take is not what they say.

import random
from typing import Any

import pytest

pytestmark = pytest.mark.cluster


def rows_of(seed: int) -> list[list[int]]:
    """Rows that branch at random from one another."""
    generator = random.Random(seed)
    rows = [[generator.randrange(9) for _ in range(generator.randint(1, 30))] for _ in range(3)]
    for _ in range(generator.randint(0, 9)):
        row = generator.choice(rows)
        more = [generator.randrange(9) for _ in range(generator.randint(0, 12))]
        rows.append([*row[: generator.randint(1, len(row))], *more])
    return rows


def each_by_itself(rows: list[list[int]], query: Any, key: Any, value: Any, places: list[Any]) -> list[Any]:
    """Attention of each row's places, by PyTorch in float64."""
    import torch

    return [
        torch.nn.functional.scaled_dot_product_attention(
            *(tensor[:, :, at].double() for tensor in (query, key, value)), is_causal=True, enable_gqa=True, scale=0.3
        )
        for _, at in zip(rows, places, strict=True)
    ]


@pytest.mark.parametrize("way", ["products", "pieces", "kernel"])
@pytest.mark.parametrize("seed", range(12))
def test_values_and_gradients_are_those_of_each_row_by_itself(
    seed: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from agentr.train import attention
    from agentr.train.prefixes import behind_one_another

    if way == "pieces":
        monkeypatch.setattr(attention, "_LONGEST", 4)
    rows = rows_of(seed)
    layout = behind_one_another(rows)
    segments = [attention.Segment(start, end, torch.from_numpy(before)) for start, end, before in layout.segments]
    size = len(layout) + 3  # padding
    torch.manual_seed(seed)
    tensors = [torch.randn(1, heads, size, 8, requires_grad=True) for heads in (4, 2, 2)]
    if way == "kernel":
        found = attention.by_kernel(*tensors, segments, 0.3)
    else:
        found = attention.attend(torch.nn.Module(), *tensors, None, scaling=0.3, behind=segments)[0].transpose(1, 2)
    assert not found[:, :, len(layout) :].any()
    # the place of a row's last token predicts nothing, and is known by its predecessors
    places = [torch.from_numpy(layout.predictors[number]) for number in range(len(rows))]
    expected = each_by_itself(rows, *tensors, places)
    weights = [torch.randn(4, len(at), 8) for at in places]
    for at, one in zip(places, expected, strict=True):
        assert torch.allclose(found[:, :, at].double(), one, atol=1e-5)
    ours, theirs = (
        torch.autograd.grad(sum((w * one[0]).sum() for w, one in zip(weights, outs, strict=True)), tensors)
        for outs in ([found[:, :, at] for at in places], expected)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


#: Of each kind of attention a model, its peculiarities, and whether its rows may stand behind one another.
FAMILIES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "llama": ("Llama", {}, True),
    "dropout": ("Llama", {"attention_dropout": 0.1}, False),
    "qwen2": ("Qwen2", {}, True),
    "qwen3": ("Qwen3", {}, True),
    "experts": ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}, True),
    "short window": ("Mistral", {"sliding_window": 16}, False),
    "long window": ("Mistral", {"sliding_window": 64}, True),
    "capped": ("Gemma2", {"attn_logit_softcapping": 30.0, "sliding_window": 64}, False),
    "sinks": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 64}, False),
    "a state": ("Qwen3Next", {"num_experts": 4, "num_experts_per_tok": 2, "layer_types": ["linear_attention"] * 2},
                False),
    "no interface": ("Bloom", {"n_layer": 2, "n_head": 4}, False),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_takes_rows_behind_one_another_or_is_known_not_to(family: str) -> None:
    import torch
    import transformers
    from trl.trainer.utils import add_fused_lm_head

    from agentr.train import attention
    from agentr.train.forward import Unpadded

    name, more, taken = FAMILIES[family]
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64, "head_dim": 8}
    config = getattr(transformers, f"{name}Config")(
        **{**shape, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, **more}
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    assert attention.takes_rows(model, 64) is taken
    if not taken:
        return
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    rows = rows_of(1)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row), dtype=torch.long) for row in rows], batch_first=True)
    labels = ids.masked_fill((mask == 0) | (torch.arange(ids.shape[1]) % 3 == 0), -100)
    padded = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    model.set_attn_implementation(attention.NAME)
    found = Unpadded(model, 0)(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    assert torch.equal(found.label_mask, padded.label_mask)
    for values, others in ((found.log_probs, padded.log_probs), (found.entropy, padded.entropy)):
        assert torch.allclose(values, others, atol=1e-5)
