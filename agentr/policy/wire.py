"""What travels between a coordinator and an engine of a generate call, as bytes.

Ray packs each argument by itself, with a pickler that is half in Python, and coordinators make hundreds of calls a
second.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from agentr.policy.base import GenerateRequest
from agentr.types import Completion

_encoder = msgspec.msgpack.Encoder()
_calls = msgspec.msgpack.Decoder(tuple[GenerateRequest, str])
_answers = msgspec.msgpack.Decoder(list[Completion])


def pack_call(request: GenerateRequest, checkpoint: str) -> bytes:
    """Packs a request and the weights that are to answer, without what an API is told: engines read the ids."""
    return _encoder.encode((replace(request, messages=(), codec=None, settings={}), checkpoint))


def unpack_call(data: bytes) -> tuple[GenerateRequest, str]:
    """Returns what was given to `pack_call`."""
    return _calls.decode(data)


def pack_answer(completions: Sequence[Completion]) -> bytes:
    """Packs the completions of a call."""
    return _encoder.encode(completions)


def unpack_answer(data: bytes) -> list[Completion]:
    """Returns what was given to `pack_answer`."""
    return _answers.decode(data)
