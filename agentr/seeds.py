"""Seeds that are derived, not consumed: a random decision hashes what it is about, so no generator state has to be
kept."""

import hashlib


def derived_seed(seed: int, *parts: object) -> int:
    """Derives a seed in [0, 2**31) from ``seed`` and ``parts`` alone: not from the process, the order of calls or the
    number of workers.

    Hashed, not added: requests with neighbouring seeds must not share samples.
    """
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1
