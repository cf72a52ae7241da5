"""The contract of environment servers, checked over HTTP on a running one: ours, or anybody's that speaks
`protocol.py`.

    checks = run("http://127.0.0.1:8000", token)
    assert not [c for c in checks if c.outcome is Outcome.FAILED]

Each check has a sentence for a name and says in its detail what it looked at, or what was expected and what came
instead. The suite opens some hundred sessions and closes them again. Two things cannot be seen from outside and are
left to an environment's own tests: whether its texts and rewards are right, and whether its memory stays bounded.
"""

from env_servers.conformance.runner import Check, Outcome, run
from env_servers.conformance.subject import Effort

__all__ = ["Check", "Effort", "Outcome", "run"]
