"""Task selection and the split guard, without a server."""

from typing import Any

import pytest

from agentr.config.schema import TaskSelection
from agentr.envs.selection import select
from agentr.envs.splits import assert_trainable
from agentr.errors import ConfigError
from agentr.types import Task
from tests.env_servers.support import Counter

TASKS = [
    Task("counter", f"train-{i}", "train", {"size": i, "kind": "even" if i % 2 == 0 else "odd"}) for i in range(10)
]
TASKS.append(Task("counter", "train-bare", "train", {}))


def sizes(where: dict[str, Any]) -> list[int | float | str]:
    return sorted(task.labels["size"] for task in select(TASKS, TaskSelection(where=where)))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"size": 3}, [3]),
        ({"size": [1, 2, 99]}, [1, 2]),
        ({"size": {"min": 7}}, [7, 8, 9]),
        ({"size": {"max": 1}}, [0, 1]),
        ({"size": {"min": 2, "max": 6}, "kind": "odd"}, [3, 5]),
        ({"kind": ["even"]}, [0, 2, 4, 6, 8]),
    ],
)
def test_filters(where: dict[str, Any], expected: list[int]):
    assert sizes(where) == expected


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        (TaskSelection(where={"depth": 1}), r"no label 'depth'\. They have: kind, size"),
        (TaskSelection(where={"size": {"from": 1}}), "min and max"),
        (TaskSelection(where={"kind": {"min": 1}}), "cannot bound"),
        (TaskSelection(where={"size": 99}), "no task of split 'train' passes"),
        (TaskSelection(limit=-1), "limit is -1"),
    ],
)
def test_what_cannot_be_selected_is_an_error(selection: TaskSelection, reason: str):
    with pytest.raises(ConfigError, match=reason):
        select(TASKS, selection)


def test_the_order_depends_on_the_seed_alone_and_a_limit_is_its_beginning():
    whole = select(TASKS, TaskSelection(seed=1))
    assert select(TASKS, TaskSelection(seed=1)) == whole != select(TASKS, TaskSelection(seed=2))
    assert select(TASKS, TaskSelection(seed=1, limit=4)) == whole[:4] and len(whole) == len(TASKS)
    assert select(TASKS, TaskSelection(limit=0)) == []


def test_the_split_guard():
    spec, held_out = Counter().spec, {"test-0": "test", "test-1": "test"}
    assert_trainable(TASKS, spec, held_out)
    with pytest.raises(ConfigError, match="2 of test: test-0, test-1"):
        assert_trainable([*TASKS, Task("counter", "test-0", "test"), Task("counter", "test-1", "test")], spec, held_out)
    with pytest.raises(ConfigError, match=r"1 of test: test-0.*Train on: train"):
        assert_trainable([Task("counter", "test-0", "train")], spec, held_out)
    with pytest.raises(ConfigError, match="split 'tset', which counter does not have"):
        assert_trainable([Task("counter", "x", "tset")], spec, held_out)
