"""How actions come out, in every environment: the status goes together with what is valid."""

import random

import pytest
from pydantic import ValidationError

from env_servers.observation import CallStatus
from env_servers.protocol import ObservedState, Snapshot
from env_servers.registry import describe, load

DESCRIBED = {found.name: found for found in describe() if not found.needed}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DESCRIBED))
def test_an_action_is_valid_where_its_status_is_ok_or_empty(name: str):
    """Whatever is played: what the environment suggests, nonsense, and the expert's actions to the end."""
    if not DESCRIBED[name].available:
        pytest.skip(f"{name} is not available here; `agentr list environments` says why")
    environment, rng, seen = load(name), random.Random(name), set()
    task = environment.split(next(iter(environment.spec.splits)))[0].id
    plan = [step.action for step in environment.expert(task) or ()]
    if not plan:
        pytest.skip(f"{name} has no expert")
    state, observed = environment.reset(task)
    assert observed.status is CallStatus.ok
    for index, action in enumerate(plan):
        others = environment.fast or index % 8 == 0  # a copy of a slow environment is made by playing again
        suggested = environment.actions(state) if others else []
        for tried in ("xyzzy", *rng.sample(suggested, min(4, len(suggested)))) if others else ():
            answer = environment.step(copy := environment.fork(state), tried)
            environment.close(copy)
            assert answer.valid is not answer.status.failed, f"{tried!r}: {answer}"
            assert tried != "xyzzy" or answer.status is CallStatus.error
            seen.add(answer.status)
        observed = environment.step(state, action)
        assert observed.valid and not observed.status.failed
        assert observed.done or not observed.scores
        seen.add(observed.status)
    environment.close(state)
    assert observed.done and seen >= {CallStatus.ok, CallStatus.error}


@pytest.mark.parametrize(
    "said", [{"status": "odd"}, {"scores": {"f1": 1.1}}, {"scores": {"f1": -0.1}}, {"scores": {"f1": None}}]
)
def test_what_anybodys_server_says_is_a_status_and_are_scores(said: dict):
    """The conformance suite and the client read every answer so."""
    with pytest.raises(ValidationError, match=next(iter(said))):
        ObservedState.model_validate({"session": "x", "observation": "", **said})
    with pytest.raises(ValidationError, match=next(iter(said))):
        Snapshot.model_validate(
            {
                "environment": "x",
                "version": "1",
                "steps": 0,
                "done": True,
                "observation": "",
                "reward": 0,
                "state": {},
                **said,
            }
        )
