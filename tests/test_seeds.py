"""Derived seeds and pauses."""

from agentr.backoff import Backoff
from agentr.seeds import derived_seed


def test_neighbouring_seeds_share_no_samples() -> None:
    seeds = {derived_seed(seed, index) for seed in range(100) for index in range(16)}
    assert len(seeds) == 1600 and all(0 <= seed < 2**31 for seed in seeds)


def test_a_derived_seed_is_the_same_in_every_process() -> None:
    assert derived_seed(7, "expand", 3, 0) == 646803604


def test_pauses_double_up_to_the_longest() -> None:
    assert [Backoff(0.5, 3.0).pause_s(attempt) for attempt in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    shaken = [Backoff(1.0, 8.0, jitter=0.5).pause_s(1) for _ in range(50)]
    assert all(1.0 <= pause <= 3.0 for pause in shaken) and len(set(shaken)) > 1
