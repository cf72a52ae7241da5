"""Sizes from ``config.json``, beside transformers' own models, which are made without weights."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentr.cost.shape import Shape, read_shape
from agentr.errors import ModelError
from agentr.models import nano

#: Of each family a configuration that differs from its defaults, so that each size counts.
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {"tie_word_embeddings": False},
    "Mistral": {"tie_word_embeddings": True},
    "Qwen2": {"tie_word_embeddings": True},
    "Qwen3": {"tie_word_embeddings": False},
    "Qwen3Moe": {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "decoder_sparse_step": 1},
    "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "Gemma": {},
    "Granite": {},
    "Olmo": {},
    "Phi3": {"pad_token_id": 0},
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_those_of_transformers(family: str) -> None:
    import torch
    import transformers

    shape = {"hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "vocab_size": 320, "head_dim": 16}
    config = getattr(transformers, f"{family}Config")(
        **{**shape, "num_attention_heads": 6, "num_key_value_heads": 2, **FAMILIES[family]}
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    found = Shape.of(json.loads(config.to_json_string(use_diff=False)), family, "config.json")
    assert found.parameters.value == pytest.approx(model.num_parameters(), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("bf16", [True, False])
def test_what_a_token_leaves_in_a_layer_is_what_autograd_keeps(family: str, bf16: bool) -> None:
    import torch
    import transformers

    from agentr.train import attention
    from agentr.train.forward import forward_of

    dtype, tokens = torch.bfloat16 if bf16 else torch.float32, 64
    laid = forward_of([list(range(tokens))], [[1]], 0, behind=True)

    def kept(layers: int) -> tuple[float, Shape]:
        config = getattr(transformers, f"{family}Config")(
            hidden_size=64, intermediate_size=144, num_hidden_layers=layers, vocab_size=80, head_dim=24,
            num_attention_heads=4, num_key_value_heads=2,
        )  # fmt: skip
        model = getattr(transformers, f"{family}Model")(config).to(dtype)
        model.set_attn_implementation(attention.NAME)
        weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        found: dict[int, Any] = {}

        def keep(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                found[storage.data_ptr()] = (storage.nbytes(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(input_ids=laid.ids_PL, position_ids=laid.positions_PL, behind=laid.behind, use_cache=False)
        described = Shape.of(json.loads(config.to_json_string(use_diff=False)), family, "config.json")
        return sum(size for size, _ in found.values()) / tokens, described

    (one, _), (two, shape) = kept(1), kept(2)
    assert two - one == pytest.approx(shape.saved(2 if bf16 else 4).value, rel=0.02)


def test_the_models_that_come_with_agentr_are_read() -> None:
    assert read_shape(nano.WEIGHTS).parameters.value == 1_571_872


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has no config.json"),
        ("{", "cannot be read"),
        ("[]", "no JSON object"),
        ("{}", "no hidden_size, so the size of"),
        ('{"hidden_size": "big"}', "no hidden_size"),
        ('{"hidden_size": -4}', "no hidden_size"),
        ('{"hidden_size": 64, "num_attention_heads": 4}', "no intermediate_size"),
        ('{"hidden_size": 64, "num_attention_heads": true}', "no num_attention_heads"),
    ],
)
def test_a_folder_without_sizes_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        read_shape(tmp_path)
