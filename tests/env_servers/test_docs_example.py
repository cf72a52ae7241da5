"""The environment on the page `docs/add_an_environment.md` works as it stands there."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from env_servers.app import create_app
from env_servers.base import Environment
from env_servers.conformance import Effort, Outcome, run
from env_servers.registry import load
from tests.env_servers.support import ROOT, TOKEN, serving

PAGE = ROOT / "docs" / "add_an_environment.md"


@pytest.fixture
def lamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    """The example, loaded from the files that the page shows."""
    files = re.findall(
        r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert {name for name, _ in files} == {"lamps/spec.yaml", "lamps/__init__.py"}
    for name, text in files:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield load("lamps:Lamps")
    del sys.modules["lamps"]


def test_the_expert_wins_every_task_of_the_example(lamps: Environment):
    tasks = [task.id for name in lamps.spec.splits for task in lamps.split(name)]
    assert len(tasks) == len(set(tasks)) == 205
    for task in tasks:
        state, _ = lamps.reset(task)
        answers = [lamps.step(state, step.action) for step in lamps.expert(task) or ()]
        assert answers and [a.reward for a in answers] == [0.0] * (len(answers) - 1) + [1.0]
        assert len(answers) <= lamps.spec.step_limit


def test_the_example_conforms(lamps: Environment):
    with serving(create_app(lamps, token=TOKEN)) as url:
        checks = run(url, TOKEN, effort=Effort(tasks=2, steps=6, sessions=8))
    assert [f"{check.name}: {check.detail}" for check in checks if check.outcome is Outcome.FAILED] == []
