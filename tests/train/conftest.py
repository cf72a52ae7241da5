"""A small dataset, a small model, and a process that may train."""

import gc
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from agentr.store.dataset import write_rows
from agentr.store.rows import Preference, Provenance, Rollout, Row


def random_rows(count: int, seed: int = 0, longest: int = 60) -> list[Row]:
    """Rows of 8 to ``longest`` tokens with a third of them trained on, so targets differ between rows.
    The last two tokens are not."""
    generator = random.Random(seed)
    rows = []
    for index in range(count):
        length = generator.randint(8, longest)
        ids = tuple(generator.randrange(3, 300) for _ in range(length))
        mask = tuple(int(position % 3 == 2 and position < length - 2) for position in range(length))
        rows.append(Row(ids, mask, Provenance(f"tree{index}", (0, 1), "good")))
    return rows


def random_pairs(count: int, seed: int = 0) -> list[Preference]:
    """Pairs of several turns: sides of different lengths in which five tokens of an observation follow every four of
    the agent."""
    generator = random.Random(seed)

    def ids(least: int, most: int) -> tuple[int, ...]:
        return tuple(generator.randrange(3, 300) for _ in range(generator.randint(least, most)))

    def mask(length: int) -> tuple[int, ...]:
        return tuple(int(position % 9 < 4) for position in range(length))

    pairs = []
    for index in range(count):
        prompt, chosen, rejected = ids(4, 12), ids(10, 30), ids(10, 50)
        origin = Provenance(f"tree{index}", (0, 1), "trajectory", rejected=(0, 2))
        pairs.append(Preference(prompt, chosen, mask(len(chosen)), rejected, mask(len(rejected)), origin))
    return pairs


#: Groups of ``rollouts``, and rollouts of each.
GROUPS, EACH = 3, 4


def rollouts(start: Path, seed: int = 0) -> list[Rollout]:
    """Three groups of four rollouts of two turns with an observation between.
    Two of a group have their first turn in common.

    The log-probabilities are those of a policy near the start checkpoint, the same for tokens that two rows have in
    common.
    """
    return list(_rollouts(start, seed))


@cache
def _rollouts(start: Path, seed: int) -> tuple[Rollout, ...]:
    import torch
    from transformers import AutoModelForCausalLM

    generator, model = random.Random(seed), AutoModelForCausalLM.from_pretrained(start)

    def draw(least: int, most: int) -> tuple[int, ...]:
        return tuple(generator.randrange(3, 300) for _ in range(generator.randint(least, most)))

    found = []
    for group in range(GROUPS):
        opening, shared = draw(6, 10), draw(10, 14)
        for number in range(EACH):
            first, last = shared if number < 2 else draw(8, 12), draw(3, 9)
            ids = (*opening, *first, *last)
            mask = (
                *(0 for _ in opening),
                *(int(position % 5 < 3) for position in range(len(first))),
                *(1 for _ in last),
            )
            with torch.no_grad():
                whole = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            noise = [random.Random(str(ids[: t + 1])).uniform(-0.5, 0.5) for t in range(len(ids))]
            drawn = tuple(whole[t - 1, ids[t]].item() + noise[t] if mask[t] else None for t in range(len(ids)))
            earned = generator.choice([-1.3, -0.4, 0.7, 1.1])
            made = Provenance(f"task{group}", (number,), "rollout")
            found.append(Rollout(ids, mask, made, drawn, tuple(earned for _ in ids), f"task{group}", {"total": earned}))
    return tuple(found)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """A worker trains again and again: none of a module's trainings may be kept, with its weights and optimiser."""
    yield
    gc.collect()
    kept = [name for each in gc.get_objects() if (name := type(each).__name__).startswith("DeepSpeed")]
    assert "DeepSpeedEngine" not in kept and "DeepSpeedZeroOptimizer" not in kept


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "pairs"
    write_rows(folder, random_pairs(12))
    return folder


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "dataset"
    write_rows(folder, random_rows(20))
    return folder


@pytest.fixture(params=["behind", "padded"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go through the model behind one another, and as they do where its attention does not allow that."""
    if request.param == "padded":
        monkeypatch.setattr("agentr.train.trainer.takes_rows", lambda *_: False)
