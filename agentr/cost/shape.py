"""The shape of a model, from its ``config.json`` alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr.cost.number import Number, given
from agentr.errors import ModelError

#: Names that families give to the same thing, the commonest first.
_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "inner": ("intermediate_size", "ffn_hidden_size", "n_inner"),
    "words": ("vocab_size",),
}

#: Families whose feed-forward layers have no gate: two matrices in place of three.
_WITHOUT_GATE = ("gpt2", "mpt", "gpt_neox", "opt", "bloom", "falcon", "phi", "starcoder2", "gpt_bigcode", "nemotron")


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder of the usual kind: attention with grouped heads, a feed-forward layer, perhaps experts.

    Attributes:
        name: What the model is called.
        source: Where the sizes are from.
        layers: Decoder layers.
        hidden: Width.
        queries: Width of all queries: heads x width of a head.
        keys: Width of all keys, as of all values.
        heads: Attention heads.
        kv_heads: Heads of keys and values.
        inner: Width of a feed-forward layer, or of an expert's.
        words: Vocabulary.
        tied: Whether the output layer's weights are the embedding's.
        experts: Experts of a layer; 1 for none.
        active: Experts that a token goes through.
        head_norms: Whether queries and keys are normalised.
        gated: Whether the feed-forward layer has a gate.
        biases: Weights in biases, of a layer.
        longest: Longest context that it was made for.
    """

    name: str
    source: str
    layers: int
    hidden: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    inner: int
    words: int
    tied: bool
    experts: int = 1
    active: int = 1
    head_norms: bool = False
    gated: bool = True
    biases: int = 0
    longest: int = 0

    @classmethod
    def of(cls, config: Mapping[str, Any], name: str, source: str) -> Shape:
        """Reads a ``config.json``.

        Raises:
            ModelError: A size is missing or is none.
        """
        text = config.get("text_config")
        config = {**config, **text} if isinstance(text, Mapping) else config

        def size(what: str) -> int:
            for key in _NAMES[what]:
                found = config.get(key)
                if isinstance(found, int) and not isinstance(found, bool) and found > 0:
                    return found
            hint = f"It says {', '.join(sorted(map(str, config))[:12])}."
            raise ModelError(f"{source}: no {_NAMES[what][0]}, so the size of {name} is not known", hint=hint)

        kind = str(config.get("model_type", ""))
        hidden, heads = size("hidden"), size("heads")
        kv = config.get("num_key_value_heads") or heads
        wide = config.get("head_dim") or hidden // heads
        experts = config.get("num_local_experts") or config.get("num_experts") or config.get("n_routed_experts") or 1
        inner = size("inner") if kind != "gpt2" else config.get("n_inner") or 4 * hidden
        queries, keys = heads * wide, kv * wide
        biased = bool(config.get("attention_bias", kind == "qwen2"))
        out = biased and kind != "qwen2"
        return cls(
            name=name,
            source=source,
            layers=size("layers"),
            hidden=hidden,
            queries=queries,
            keys=keys,
            heads=heads,
            kv_heads=kv,
            inner=(config.get("moe_intermediate_size") or inner) if experts > 1 else inner,
            words=size("words"),
            tied=bool(config.get("tie_word_embeddings", True)),
            experts=experts,
            active=config.get("num_experts_per_tok") or 1,
            head_norms=kind.startswith(("qwen3", "gemma3", "olmo2")),
            gated=kind not in _WITHOUT_GATE,
            biases=(queries + 2 * keys + (hidden if out else 0)) if biased else 0,
            longest=config.get("max_position_embeddings") or 0,
        )

    # counts -----------------------------------------------------------------------------------------------------------

    @property
    def _layer(self) -> int:
        """Weights of a layer but its experts."""
        attention = self.hidden * (2 * self.queries + 2 * self.keys) + self.biases
        norms = 2 * self.hidden + (2 * self.queries // self.heads if self.head_norms else 0)
        router = self.hidden * self.experts if self.experts > 1 else 0
        return attention + norms + router

    @property
    def _expert(self) -> int:
        return (3 if self.gated else 2) * self.hidden * self.inner

    def _given(self, name: str, value: float) -> Number:
        return given(name, value, self.source)

    @property
    def parameters(self) -> Number:
        """All weights."""
        table = self.words * self.hidden
        body = self.layers * (self._layer + self.experts * self._expert) + self.hidden
        return self._given("parameters", body + table * (1 if self.tied else 2))

    @property
    def used(self) -> Number:
        """Weights that a token is multiplied by: not the embedding's table, and of experts those that it goes
        through."""
        body = self.layers * (self._layer + self.active * self._expert)
        return self._given("weights multiplied for a token", body + self.words * self.hidden)

    @property
    def body(self) -> Number:
        """The same without the output layer, which trained tokens alone go through."""
        return self._given("layers' weights", self.layers * (self._layer + self.active * self._expert))

    @property
    def table(self) -> Number:
        """Weights of the output layer."""
        return self._given("output layer", self.words * self.hidden)

    def kv_token(self, width: float) -> Number:
        """Bytes of a token's keys and values.

        Args:
            width: Bytes of a number.
        """
        keys = self._given("width of keys", self.keys)
        return (2 * self._given("layers", self.layers) * keys * width).named("KV of a token", "B")

    def saved(self, width: int) -> Number:
        """Bytes that a token leaves in a layer for the backward pass.

        Counted from what autograd keeps of transformers' decoder layers: two norms that compute in float32, the inputs
        of the matrices, queries and keys before and after rotation, keys, values.

        Args:
            width: Bytes of a number: 2 in bfloat16, 4 in float32.
        """
        wide, q, kv = self.hidden, self.queries, self.keys
        each = (4 * width + 8) * wide + 2 * width * (q + kv) + 8
        if self.head_norms:
            each += (4 + width) * (q + kv) + 4 * (self.heads + self.kv_heads)
        each += self.active * 4 * width * self.inner
        return given("kept of a token in a layer", each, f"counted for these sizes ({self.source})", "B")

    def adapters(self, rank: int) -> Number:
        """Weights of low-rank adapters at all linear layers but the output."""
        h, f = self.hidden, self.inner
        each = (h + self.queries) * 2 + (h + self.keys) * 2 + (3 if self.gated else 2) * (h + f) * self.experts
        return self._given("weights of adapters", self.layers * rank * each)


def read_shape(folder: Path, name: str = "") -> Shape:
    """Reads the shape of a model folder. Weights are not looked at.

    Raises:
        ModelError: There is no ``config.json``, or it is damaged.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        hint = "Give a Hugging Face folder: config.json is all that a plan needs."
        raise ModelError(f"{folder} has no config.json", hint=hint) from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is no JSON object")
    return Shape.of(config, name or folder.name, str(path))
