"""The shipped model: its tokenizer loses nothing, and it does read."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.models.nano import WEIGHTS, load_pretrained
from agentr.policy.chat import ChatCodec
from agentr.types import Message
from tests.tools.nano.corpus import document
from tests.tools.nano.model import CHAT_TEMPLATE
from tests.tools.nano.pretrain import item_names


@pytest.fixture(scope="module")
def codec() -> ChatCodec:
    from transformers import AutoTokenizer

    return ChatCodec(AutoTokenizer.from_pretrained(WEIGHTS))


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_survives(codec: ChatCodec, text: str) -> None:
    assert codec.decode(codec.encode(text)) == text


def test_names_are_single_tokens(codec: ChatCodec) -> None:
    names = item_names()
    assert len(names) > 500
    assert all(len(codec.encode(f" {name}")) == 1 for name in names)


def test_the_shipped_weights_read_their_prompt(codec: ChatCodec, tmp_path: Path) -> None:
    """Look-ups in made-up worlds that it never saw; guessing an item among a prompt's ten would be right once in
    ten."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(load_pretrained(tmp_path), dtype=torch.float32).eval()
    rng = random.Random("never seen in training")
    right = asked = 0
    for _ in range(30):
        prompt, turns = document(rng, item_names(), 1, max_commands=5)
        ids = codec.prompt([Message("user", f"{prompt}\n{turns[0].question}")])
        answer = codec.turn(turns[0].answer)
        with torch.no_grad():
            logits = model(torch.tensor([ids + answer])).logits[0, len(ids) - 1 : -1]
        right += int((logits.argmax(-1) == torch.tensor(answer)).sum())
        asked += len(answer)
    assert right / asked > 0.85


def test_the_template_marks_what_the_assistant_says_and_renders_as_without_marks(codec: ChatCodec) -> None:
    """Rows and prompts of earlier runs keep their ids; trainers of others find the assistant's tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    assert tokenizer.chat_template == CHAT_TEMPLATE
    unmarked = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    turns = [
        ("system", "Craft."),
        ("user", "Goal: craft bread."),
        ("assistant", " Action: get 3 wheat\n"),
        ("user", "Got 3 wheat"),
        ("assistant", ""),
    ]
    messages = [{"role": role, "content": text} for role, text in turns]
    for prompt in (False, True):
        shown = [
            tokenizer.apply_chat_template(messages, chat_template=t, tokenize=False, add_generation_prompt=prompt)
            for t in (CHAT_TEMPLATE, unmarked)
        ]
        assert shown[0] == shown[1]
    found = tokenizer.apply_chat_template(messages, return_assistant_tokens_mask=True, return_dict=True)
    learnt = [token for token, mask in zip(found["input_ids"], found["assistant_masks"], strict=True) if mask]
    assert learnt == [*codec.encode(" Action: get 3 wheat\n"), tokenizer.eos_token_id, tokenizer.eos_token_id]
