"""A small dataset, a small model, and a process that may train."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentr.store.rows import Provenance, Row, write_rows
from tests.support import tiny_model


def random_rows(count: int, seed: int = 0, longest: int = 60) -> list[Row]:
    """Rows of 8 to ``longest`` tokens with a third of them trained on, so targets differ between rows. The last two tokens are not."""
    generator = random.Random(seed)
    rows = []
    for index in range(count):
        length = generator.randint(8, longest)
        ids = tuple(generator.randrange(3, 300) for _ in range(length))
        mask = tuple(int(position % 3 == 2 and position < length - 2) for position in range(length))
        rows.append(Row(ids, mask, Provenance(f"tree{index}", (0, 1), "good")))
    return rows


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "dataset"
    write_rows(folder, random_rows(20))
    return folder


@pytest.fixture(scope="module")
def one_process() -> Iterator[None]:
    """Makes this process a worker group of one, without Ray."""
    import torch
    import torch.distributed as dist

    from agentr.train.worker import prepare_process

    before, threads = dict(os.environ), torch.get_num_threads()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    prepare_process(use_gpu=False, threads=1)
    yield
    dist.destroy_process_group()
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(before)
