"""The environment keeps the contract of environments, played through its server, and its expert wins.

Run it in this folder:  python -m pytest
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from agentr.envs.local import reachable
from env_servers.conformance import Effort, Outcome, run
from env_servers.registry import load


def test_the_expert_wins() -> None:
    lamps = load("lamps:Lamps")
    for task in lamps.split("train"):
        state, _ = lamps.reset(task.id)
        answers = [lamps.step(state, step.action) for step in lamps.expert(task.id) or ()]
        assert answers[-1].reward == lamps.spec.reward.success


def test_it_keeps_the_contract() -> None:
    with reachable("lamps:Lamps", {}) as (urls, token):
        checks = run(urls[0], token.reveal(), effort=Effort(tasks=1, steps=4, sessions=4))
    assert [check.detail for check in checks if check.outcome is Outcome.FAILED] == []
