"""Real parts that tests share: a Ray, a tokenizer with a ChatML template, and a random model that vLLM loads."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ m['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_CORPUS = (
    "Thought: I need two oak planks.\nAction: craft 4 oak planks using 1 oak log",
    "Observation: You see a key, a lamp and a closed door. What do you do?",
    "user assistant system look take open get inventory the answer is 1 2 3 4 5 6 7 8 9 0",
)


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python ``work`` runs in this thread: how it grows does not depend on what else the machine
    does, as seconds do."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@contextmanager
def own_ray() -> Iterator[None]:
    """A private Ray on this machine: 4 logical CPUs, no dashboard, no token (it is on loopback), its files in a short
    temporary path (Unix sockets allow 107 characters)."""
    import ray

    saved = {key: os.environ.get(key) for key in ("RAY_AUTH_MODE", "RAY_raylet_start_wait_time_s")}
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_raylet_start_wait_time_s="180")
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    try:
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=100 * 2**20,
            _temp_dir=folder,
        )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        for key, value in saved.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@cache
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of about 400 tokens; any text goes through it and back unchanged.
    Shared: do not change it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def tiny_model(folder: Path, seed: int = 0) -> Path:
    """Writes a random Llama (2 layers, 2 heads of 32, the vocabulary of ``tiny_tokenizer``) as a Hugging Face folder.

    Weights are large enough that the distributions are far from uniform and differ between seeds.

    Returns:
        ``folder``.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def held_in(file: Path) -> dict[str, Any]:
    """Returns the answers that a page has in itself, by their addresses."""
    (held,) = re.findall(
        '<script type="application/json" id="answers">(.*?)</script>', file.read_text(encoding="utf-8")
    )
    return json.loads(held)["answers"]
