"""What travels between coordinators and engines arrives as it was."""

import math

import pytest

from agentr.policy.base import GenerateRequest
from agentr.policy.wire import pack_answer, pack_call, unpack_answer, unpack_call
from agentr.types import Completion, FinishReason, Message, Sampling


def test_a_call_arrives_without_its_messages() -> None:
    sampling = Sampling(temperature=0.7, max_tokens=12, top_p=0.9, seed=2**63 - 1, stop=("\n\n", "Observation:"))
    sent = GenerateRequest(
        (1, 0, 151_935), 3, sampling, affinity="tree 1", messages=(Message("user", "hello"),), reuse_prefix=False
    )
    got, checkpoint = unpack_call(pack_call(sent, "/runs/a/checkpoint"))
    assert checkpoint == "/runs/a/checkpoint"
    assert got == GenerateRequest((1, 0, 151_935), 3, sampling, affinity="tree 1", reuse_prefix=False)


@pytest.mark.parametrize("finish", list(FinishReason))
def test_an_answer_arrives_to_the_bit(finish: FinishReason) -> None:
    logprobs = (-0.1, -1e-310, float("-inf"), -math.pi)
    sent = [Completion("žluť 水 🐎\x00", (5, 6, 7, 2), logprobs, finish, 11), Completion("", (), (), finish)]
    assert unpack_answer(pack_answer(sent)) == sent
