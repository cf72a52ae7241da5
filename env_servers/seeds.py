"""Tasks that are seeds of a generator: splits as ranges that share none.
For environments whose tasks have no other names."""

from collections.abc import Sequence
from itertools import combinations

from env_servers.protocol import Split

#: The splits, each with whether it may be trained on.
SPLITS = {"train": True, "dev": False, "test": False}


def seed_ranges(train: Sequence[int], dev: Sequence[int], test: Sequence[int]) -> dict[str, range]:
    """Reads the ranges of seeds of all splits, each given as its first seed and the one after its last.

    Raises:
        ValueError: One is no such pair, or two of them share seeds.
    """
    ranges: dict[str, range] = {}
    for name, given in zip(SPLITS, (train, dev, test), strict=True):
        pair = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
        if len(pair) != 2 or any(type(end) is not int for end in pair) or not 0 <= pair[0] < pair[1]:
            raise ValueError(
                f"{name} is {given!r}, and must be two whole numbers: the first seed, and the one after the last"
            )
        ranges[name] = range(pair[0], pair[1])
    for (name, one), (other, two) in combinations(ranges.items(), 2):
        if shared := range(max(one.start, two.start), min(one.stop, two.stop)):
            raise ValueError(
                f"{name} and {other} share the seeds {shared.start} to {shared.stop - 1}: held-out tasks would be "
                "trained on"
            )
    return ranges


def seed_splits(ranges: dict[str, range]) -> dict[str, Split]:
    """Describes the splits for a specification."""
    return {name: Split(about=f"Seeds {r.start} to {r.stop - 1}", train=SPLITS[name]) for name, r in ranges.items()}
