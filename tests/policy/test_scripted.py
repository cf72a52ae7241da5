"""The scripted policy depends on the prompt and the seed, and on nothing else."""

from __future__ import annotations

import asyncio

from agentr.policy.base import GenerateRequest, sample_seed
from agentr.policy.chat import ChatCodec
from agentr.policy.scripted import ScriptedPolicy
from agentr.types import FinishReason, Message, Sampling
from tests.support import tiny_tokenizer


def test_equal_prompts_and_seeds_get_equal_answers_in_any_order():
    codec = ChatCodec(tiny_tokenizer())
    policy = ScriptedPolicy(codec, lambda prompt, seed: f"Action: {'look' if 'Go' in prompt else 'wait'} {seed % 1000}")
    first = GenerateRequest(tuple(codec.prompt([Message("user", "Go.")])), 3, Sampling(seed=1))
    second = GenerateRequest(tuple(codec.prompt([Message("user", "Stop.")])), 2, Sampling(seed=1))

    async def answers(requests):
        return [await policy.generate(r) for r in requests]

    forth = asyncio.run(answers([first, second]))
    back = asyncio.run(answers([second, first]))
    assert forth == back[::-1]
    assert len({c.text for c in forth[0]}) == 3
    assert forth[0][0].text.startswith("Action: look") and forth[1][0].text.startswith("Action: wait")
    assert forth[0][0].token_ids[-1] == codec.eos_id and len(forth[0][0].logprobs) == len(forth[0][0].token_ids)
    assert asyncio.run(policy.stats()).completions == 10


def test_long_answers_are_cut_off():
    codec = ChatCodec(tiny_tokenizer())
    policy = ScriptedPolicy(codec, lambda prompt, seed: "Action: look " * 50)
    (completion,) = asyncio.run(policy.generate(GenerateRequest((5, 6), 1, Sampling(max_tokens=7))))
    assert completion.finish is FinishReason.LENGTH
    assert len(completion.token_ids) == 7 and codec.eos_id not in completion.token_ids


def test_requests_with_neighbouring_seeds_share_no_sample():
    seeds = {sample_seed(seed, index) for seed in range(100) for index in range(16)}
    assert len(seeds) == 1600 and max(seeds) < 2**31
