"""The agent on the page `docs/your_agent.md` works as it stands there, and keeps the contract of environments."""

import json
import re
import sys
from pathlib import Path

import pytest

from agentr.envs.local import reachable
from env_servers.conformance import Effort, Outcome, run
from env_servers.program import Program
from env_servers.sandbox import launch

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here")


@pytest.fixture
def options(tmp_path: Path) -> dict[str, object]:
    """The options of the page's environment, with its files."""
    page = (ROOT / "docs/your_agent.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"`(\S+)`:\n\n```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    assert found.keys() == {"agent.py", "train.jsonl", "grade.py"}
    (tmp_path / "agent").mkdir()
    for name, text in found.items():
        (tmp_path / ("agent/agent.py" if name == "agent.py" else name)).write_text(text, encoding="utf-8")
    (tmp_path / "test.jsonl").write_text(json.dumps({"id": "c", "high": 8, "number": 7, "tries": 4}))
    return {
        "command": [sys.executable, "agent.py"],
        "workdir": str(tmp_path / "agent"),
        "tasks": {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "test")},
        "reward": f"{tmp_path}/grade.py:score",
        "live": 4,
    }


@pytest.mark.slow
def test_its_demonstrations_win_and_another_turn_leads_elsewhere(options: dict[str, object]) -> None:
    env = Program(**options)  # type: ignore[arg-type]
    for task in env.split("train"):
        state, observed = env.reset(task.id)
        other = env.fork(state)
        for step in env.expert(task.id) or ():
            observed = env.step(state, step.action)
        assert observed.done and observed.reward == 1
        assert env.step(other, "a word").observation == "That is no number."
        env.close(other)


@pytest.mark.slow
def test_it_keeps_the_contract(options: dict[str, object]) -> None:
    with reachable("program", options) as (urls, token):
        checks = run(urls[0], token.reveal(), effort=Effort(tasks=1, steps=2, sessions=2))
    assert [f"{check.name}: {check.detail}" for check in checks if check.outcome is Outcome.FAILED] == []
