"""The nano model before its training: its tokenizer, and weights with copying heads in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

PAD, TURN_START, TURN_END = "<|pad|>", "<|im_start|>", "<|im_end|>"

#: Says which part the assistant generates, by which trainers of others mask (TRL's assistant_only_loss); the text is as
#: without the marks.
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}{% else %}{{ m['content'] }}<|im_end|>{% endif "
    "%}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

#: Phrases of the environment's answers, of demonstrations and of the corpus that are one token each.
PHRASES = (
    "Crafting commands:|Goal: craft|Thought:|Action:| using |craft | craft | get | inventory|Got |Crafted |Could not "
    "find|Could not find enough items to craft minecraft:|Could not find a valid recipe for minecraft:|Could not "
    "execute|Wrong item format:|Inventory: |You are not carrying anything.| minecraft:|minecraft:| I have everything "
    "for|, |.|?|_|user|assistant|system|[|] (|) | needs| need| That did not work.| cannot be fetched| is crafted| is "
    "fetched"
).split("|")

#: Common words, alone and with a space before them, so that reflections and thoughts in plain English stay short.
WORDS = (
    "a after again all and another are be before but by can cannot carry command craft crafted did different enough "
    "everything fetched first for from get had has have how I instead into is it item items list made make makes many "
    "missing mistake more must need needs next no not nothing of once one only other over repeat rethink same should "
    "so step takes that the then there things this times to try was way went what which will with work wrong yes"
).split()


@dataclass(frozen=True)
class NanoConfig:
    """Sizes of the model.

    Attributes:
        embedding_width: Part of the hidden state that holds a token's embedding when training starts.
        memory_width: Part that holds an earlier token; there are ``lookback`` of them.
        lookback: How many earlier tokens the first layer's heads look at when training starts; at most ``num_heads``.
        max_position: Longest conversation in tokens.
    """

    embedding_width: int = 64
    memory_width: int = 32
    lookback: int = 3
    intermediate_size: int = 320
    num_layers: int = 4
    num_heads: int = 4
    head_dim: int = 64
    max_position: int = 1024
    rope_theta: float = 1_000_000.0
    norm_eps: float = 1e-5
    init_std: float = 0.02

    @property
    def hidden_size(self) -> int:
        return self.embedding_width + self.lookback * self.memory_width


NANO = NanoConfig()


def build_tokenizer(names: Sequence[str]) -> PreTrainedTokenizerFast:
    """Builds a tokenizer in which each of ``names`` (with the space before it) is one token.

    Text is cut into the fewest tokens; of two cuts with as many, the more uneven one. Lines and numbers (up to two
    digits) are cut first, so a token never crosses them. What the vocabulary does not hold is spelled in bytes: any
    text is lossless.

    Args:
        names: Names of items in plain words, such as ``oak planks``. Their order does not matter.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = sorted({word for name in names for word in name.split()})
    pieces = [
        *("\n", *PHRASES, *(f" {name}" for name in sorted(set(names)))),
        *(form for word in words for form in (word, f" {word}")),
        *(form for word in WORDS for form in (word, f" {word}")),
        *(str(n) for n in range(100)),
        *(f"0{n}" for n in range(10)),
        *map(chr, range(32, 127)),
    ]
    special = [PAD, TURN_START, TURN_END, "<|unk|>"]
    in_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    # Fewest tokens win: each costs 1, less a trifle that grows with the square of its length and so prefers uneven
    # cuts.
    scored = [(piece, -1.0 + 1e-6 * len(piece) ** 2) for piece in dict.fromkeys(pieces)]
    vocabulary = [*((token, 0.0) for token in special), *scored, *((token, -10.0) for token in in_bytes)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=special.index("<|unk|>"), byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n|[0-9]{1,2}"), behavior="isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=CHAT_TEMPLATE,
        pad_token=PAD,
        eos_token=TURN_END,
        additional_special_tokens=[TURN_START],
        clean_up_tokenization_spaces=False,
        model_max_length=NANO.max_position,
    )


def build_model(
    config: NanoConfig, vocab_size: int, seed: int, *, eos_id: int | None = None, pad_id: int | None = None
) -> LlamaForCausalLM:
    """Builds a freshly initialised model in float32, with copying heads in place. Deterministic."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocab_size,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                num_key_value_heads=config.num_heads,
                head_dim=config.head_dim,
                attention_bias=True,
                max_position_embeddings=config.max_position,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
                rms_norm_eps=config.norm_eps,
                initializer_range=config.init_std,
                tie_word_embeddings=True,
                bos_token_id=None,
                eos_token_id=eos_id,
                pad_token_id=pad_id,
            )
        )
        _place_copying_heads(model, config)
    return model


def _place_copying_heads(model: Any, config: NanoConfig) -> None:
    """Initialises an induction circuit (Olsson et al. 2022); training from noise takes long to find one.

    Layer 0, head h attends to the token h + 1 places back (a constant query and key, turned against each other by the
    rotary embedding) and writes a projection of it into memory block h. Two heads of layer 1 look for the place whose
    ``lookback`` preceding tokens are the present one and those before it, and copy what stands there. Training may
    change all of it.
    """
    import torch

    width, memory, dim, half = config.embedding_width, config.memory_width, config.head_dim, config.head_dim // 2
    frequency = config.rope_theta ** (-torch.arange(half) / half)
    fast = frequency > 0.003  # planes that tell neighbours apart
    slow = frequency < 0.01  # planes that hardly turn within a conversation: content can be compared in them
    std, peak, sharpness, copied = 0.1, 7.5, 2.2, 0.2
    with torch.no_grad():
        table = model.model.embed_tokens.weight
        table[:, :width] = torch.randn(table.shape[0], width) * std
        project = torch.linalg.qr(torch.randn(width, memory)).Q.T
        first, second = model.model.layers[0].self_attn, model.model.layers[1].self_attn
        scale = std * (width / config.hidden_size) ** 0.5  # the memory comes out as large as the embedding
        for h in range(config.lookback):
            at = h * dim
            for linear in (first.q_proj, first.k_proj):
                linear.weight[at : at + dim] = 0.0
            turn = (h + 1) * frequency
            first.k_proj.bias[at : at + half] = peak * fast
            first.q_proj.bias[at : at + half] = peak * fast * torch.cos(turn)
            first.q_proj.bias[at + half : at + dim] = -peak * fast * torch.sin(turn)
            first.v_proj.weight[at : at + memory, :width] = project
            block = width + h * memory
            first.o_proj.weight[block : block + memory, at : at + memory] = torch.eye(memory) * scale
        planes = slow.nonzero().flatten()
        dims = torch.cat([planes, planes + half])
        share = len(dims) // config.lookback
        for head in range(2):
            at = head * dim
            for linear in (second.q_proj, second.k_proj):
                linear.weight[at : at + dim] = 0.0
            for m in range(config.lookback):
                rows = at + dims[m * share : (m + 1) * share]
                entries = torch.randperm(memory)[:share]
                if m == 0:
                    second.q_proj.weight[rows, :width] = project[entries] * sharpness
                else:
                    second.q_proj.weight[rows, width + (m - 1) * memory + entries] = sharpness
                second.k_proj.weight[rows, width + m * memory + entries] = sharpness
            copy = min(width, dim)
            second.v_proj.weight[at : at + copy, :copy] = torch.eye(copy)
            second.o_proj.weight[:copy, at : at + copy] = torch.eye(copy) * copied
