"""Attention for rows that stand behind one another in one sequence: no padding, and common beginnings stand once.

A layout (`agentr.train.prefixes`) says which places of the sequence each segment of places attends to besides its own
earlier ones. On a CPU that is two matrix products a segment, in float32 and with the softmax computed again backwards:
faster at these sizes than PyTorch's own kernel, and nearer to float64's gradients in bfloat16, whose eight bits are too
few for the scores of heads that copy. Elsewhere each segment goes through PyTorch's kernel for the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface, PreTrainedModel

#: The name under which transformers finds this attention.
NAME = "agentr_rows"

#: Most places of a segment that are computed at a time on a CPU: scores grow with its length times what it sees.
_LONGEST = 256


@dataclass(frozen=True)
class Segment:
    """Places ``start`` to ``end`` of a sequence, each of which attends to ``before`` and to those from ``start`` on up
    to itself.

    Attributes:
        before: Places before ``start``, shape [B].
    """

    start: int
    end: int
    before: torch.Tensor

    def seen(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the values [.., L, D] of what the last place attends to, [.., B + end - start, D]."""
        own = values[..., self.start : self.end, :]
        return torch.cat([values.index_select(-2, self.before), own], -2) if len(self.before) else own

    def pieces(self, longest: int) -> Sequence["Segment"]:
        """Returns the same as segments of at most ``longest`` places."""
        if self.end - self.start <= longest:
            return (self,)
        of = range(self.start, self.end, longest)
        every = torch.cat([self.before, torch.arange(self.start, self.end, device=self.before.device)])
        return [
            Segment(start, min(start + longest, self.end), every[: len(self.before) + start - self.start])
            for start in of
        ]

    def to(self, device: torch.device) -> "Segment":
        return replace(self, before=self.before.to(device))


def takes_rows(model: PreTrainedModel, longest: int) -> bool:
    """Returns whether a model's attention is no more than this one, for rows of at most ``longest`` tokens.

    It is not with windows shorter than that, capped scores, sinks, or dropout, nor where layers carry a state along the
    sequence.
    """
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    windows = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return (
        bool(model._supports_attention_backend)
        and kinds <= {"full_attention", "sliding_attention"}
        and all(window is None or window >= longest for window in windows)
        and not getattr(config, "attn_logit_softcapping", None)
        and not any(name.rpartition(".")[2] == "sinks" for name, _ in model.named_parameters())
        and not any(getattr(module, "attention_dropout", 0.0) for module in model.modules())
    )


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    behind: Sequence[Segment] = (),
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in the form that transformers asks for.

    Args:
        query: Shape [1, heads, L, D].
        key: Shape [1, KV heads, L, D], as ``value``.
        behind: The segments; places of none attend to nothing and get 0.

    Returns:
        Shape [1, L, heads, D].
    """
    assert behind and attention_mask is None and len(query) == 1, "rows must be laid out by forward_of"
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if query.device.type == "cpu":
        pieces = [piece for segment in behind for piece in segment.pieces(_LONGEST)]
        found = _Products.apply(query[0], key[0], value[0], pieces, scale)
    else:
        found = by_kernel(query, key, value, behind, scale)[0]
    return found.transpose(0, 1)[None].contiguous(), None


AttentionInterface.register(NAME, attend)


def by_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, behind: Sequence[Segment], scale: float
) -> torch.Tensor:
    """The same by PyTorch's kernels, segment by segment. All have shape [1, heads, L, D]."""
    parts = []
    for segment in behind:
        mine, keys, values = query[:, :, segment.start : segment.end], segment.seen(key), segment.seen(value)
        parts.append(
            torch.nn.functional.scaled_dot_product_attention(
                mine,
                keys,
                values,
                attn_mask=causal_lower_right(mine.shape[2], keys.shape[2]) if len(segment.before) else None,
                is_causal=not len(segment.before),
                scale=scale,
                enable_gqa=query.shape[1] != key.shape[1],
            )
        )
    left = query.shape[2] - behind[-1].end
    return torch.cat([*parts, query.new_zeros((*query.shape[:2], left, query.shape[3]))], 2)


class _Products(torch.autograd.Function):
    """Attention by matrix products in float32. ``query`` is [heads, L, D], ``key`` and ``value`` [KV heads, L, D]."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Any, scale: float
    ) -> Any:
        ctx.save_for_backward(query, key, value)
        ctx.segments, ctx.scale = segments, scale
        q, k, v = _floats(query, key, value, scale)
        found = torch.zeros_like(q)
        for segment in segments:
            probs = _probabilities(q, k, segment)
            found[:, :, segment.start : segment.end] = (probs @ segment.seen(v)).unflatten(1, (q.shape[1], -1))
        return found.flatten(0, 1).to(query.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value = ctx.saved_tensors
        q, k, v = _floats(query, key, value, ctx.scale)
        g = grad.float().contiguous().unflatten(0, (len(k), -1))
        to_q, to_k, to_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for segment in ctx.segments:
            probs = _probabilities(q, k, segment)
            mine = g[:, :, segment.start : segment.end].flatten(1, 2)
            seen = segment.seen(k)
            _add(to_v, segment, probs.mT @ mine)
            inner = mine @ segment.seen(v).mT
            inner -= (inner * probs).sum(-1, keepdim=True)
            inner *= probs
            to_q[:, :, segment.start : segment.end] = (inner @ seen).unflatten(1, (q.shape[1], -1))
            _add(to_k, segment, inner.mT @ q[:, :, segment.start : segment.end].flatten(1, 2))
        return (to_q * ctx.scale).flatten(0, 1).to(query.dtype), to_k.to(key.dtype), to_v.to(value.dtype), None, None


def _floats(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> tuple[torch.Tensor, ...]:
    """Returns the queries, scaled, by the KV head that they look at, [KV heads, heads / KV heads, L, D], keys and
    values; each head's lie behind one another, or every product would copy them first."""
    queries = (query.float() * scale).contiguous().unflatten(0, (len(key), -1))
    return queries, key.float().contiguous(), value.float().contiguous()


def _probabilities(q: torch.Tensor, k: torch.Tensor, segment: Segment) -> torch.Tensor:
    """Returns how much each place of a segment attends to each that it sees: [KV heads, G * segment, seen]."""
    size = segment.end - segment.start
    scores = q[:, :, segment.start : segment.end].flatten(1, 2) @ segment.seen(k).mT
    scores.unflatten(1, (-1, size))[..., -size:] += _later()[:size, :size]
    return scores.softmax(-1)


@cache
def _later() -> torch.Tensor:
    """Minus infinity where a place of a segment is later than the one that looks."""
    return torch.full((_LONGEST, _LONGEST), -torch.inf).triu(1)


def _add(to: torch.Tensor, segment: Segment, found: torch.Tensor) -> None:
    """Adds gradients of what a segment sees to those of the places."""
    count = len(segment.before)
    if count:
        to.index_add_(1, segment.before, found[:, :count])
    to[:, segment.start : segment.end] += found[:, count:]
