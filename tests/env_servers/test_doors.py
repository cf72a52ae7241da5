"""`examples/doors`: an environment whose state is hidden, and that draws other worlds."""

import random

from env_servers.app import create_app
from env_servers.base import Environment
from env_servers.conformance import Effort, Outcome, run
from tests.collect.test_worlds import doors
from tests.env_servers.support import TOKEN, serving

__all__ = ["doors"]


def test_its_worlds_are_those_that_answer_so_and_each_as_often(doors: Environment):
    """Enumerated: the doors behind which the treasure may be are those for which all answers were the same."""
    rng = random.Random(2)
    for task in (task.id for task in doors.split("test")):
        state, _ = doors.reset(task)
        actions = [f"listen {rng.randint(1, state.doors)}" for _ in range(rng.randint(0, 3))]
        heard = [doors.step(state, action).observation for action in actions]
        possible = []
        for door in range(1, state.doors + 1):
            other, _ = doors.reset(f"{state.doors}-{door}")
            if [doors.step(other, action).observation for action in actions] == heard:
                possible.append(door)
        drawn = [doors.redraw(state, seed).treasure for seed in range(40 * len(possible))]
        assert sorted(set(drawn)) == possible
        assert max(map(drawn.count, possible)) < 80 and min(map(drawn.count, possible)) > 12


def test_the_example_conforms(doors: Environment):
    with serving(create_app(doors, token=TOKEN)) as url:
        checks = run(url, TOKEN, effort=Effort(tasks=2, steps=6, sessions=8))
    assert [f"{check.name}: {check.detail}" for check in checks if check.outcome is Outcome.FAILED] == []
    skipped = {check.name for check in checks if check.outcome is Outcome.SKIPPED}
    assert not {"another world fits what was observed", "the expert goes on from any state"} & skipped
