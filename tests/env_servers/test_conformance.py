"""Every registered environment passes the conformance suite, and the suite finds what it is there to find."""

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from agentr.methods import methods
from env_servers.app import create_app
from env_servers.conformance import Check, Effort, Outcome, run
from env_servers.registry import Description, describe, load
from tests.env_servers.broken import FAULTS, BegunAgain, RandomReset, Walk
from tests.env_servers.support import ROOT, TOKEN, child_server, http_client, serving, wait_until

DESCRIBED = {found.name: found for found in describe()}
SMALL = Effort(tasks=1, steps=6, sessions=24)


def skip_unless_available(found: Description) -> None:
    if not found.available:
        pytest.skip(found.fault or "; ".join(f"{r.name} is missing: {r.how}" for r in found.missing))


def faults(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.detail for check in checks if check.outcome is Outcome.FAILED}


#: Options under which an environment does other things than by default, and that no configuration uses.
OPTIONS: dict[str, dict[str, Any]] = {"mathtool": {"calls": {"python": 1}}, "sciworld": {"rewrite": True}}


def option_sets() -> list[tuple[str, str]]:
    """Every environment with its defaults, if it has them, with the options of every configuration that comes with
    agentr, and with `OPTIONS`; as JSON."""
    sections = [
        yaml.safe_load(path.read_text(encoding="utf-8")).get("env") for path in (ROOT / "configs").rglob("*.yaml")
    ]
    shipped = [(env["name"], env.get("options", {})) for env in sections if env and "name" in env]
    found = [*((name, {}) for name, described in DESCRIBED.items() if not described.needed), *shipped, *OPTIONS.items()]
    return sorted({(name, json.dumps(options, sort_keys=True)) for name, options in found})


def test_the_options_of_configurations_are_among_those_tried():
    assert {("textcraft", '{"distractors": 3, "recipes": "exact"}'), ("sciworld", '{"simplifications": "easy"}')} < set(
        option_sets()
    )
    presets = [preset for method in methods().values() for preset in method.presets.values()]
    assert not [preset for preset in presets if "options" in preset.get("env", {})], "presets name no options"


@pytest.mark.slow
@pytest.mark.timeout(900)  # ScienceWorld starts two virtual machines
@pytest.mark.parametrize(("name", "options"), option_sets())
def test_every_environment_conforms(name: str, options: str):
    skip_unless_available(DESCRIBED[name])
    given = json.loads(options)
    if missing := [
        r.name
        for r in DESCRIBED[name].requirements
        if not r.present and any(f"'{option}'" in r.name for option in given)
    ]:
        pytest.skip(f"{missing[0]} is missing")
    arguments = [name, *(f"--option={option}={json.dumps(value)}" for option, value in given.items())]
    with child_server(*arguments, hash_seed="1") as (url, _), child_server(*arguments, hash_seed="2") as (second, _):
        checks = run(url, TOKEN, second_url=second, effort=SMALL)
    assert not faults(checks)
    assert sum(check.outcome is Outcome.PASSED for check in checks) > len(checks) / 2


@pytest.mark.parametrize("sound", [Walk, BegunAgain])
def test_a_sound_environment_passes_every_check(sound: type[Walk]):
    with serving(create_app(sound(), token=TOKEN)) as url, serving(create_app(sound(), token=TOKEN)) as second:
        seen: list[Check] = []
        checks = run(url, TOKEN, second_url=second, effort=SMALL, report=seen.append)
    assert {check.outcome for check in checks} == {Outcome.PASSED} and checks == seen
    assert len({check.name for check in checks}) == len(checks)


@pytest.mark.parametrize("environment", FAULTS, ids=lambda cls: cls.__name__)
def test_each_fault_is_found_by_the_right_checks(environment: type[Walk]):
    with serving(create_app(environment(), token=TOKEN)) as url:
        found = faults(run(url, TOKEN, effort=Effort(tasks=1, steps=6, sessions=8)))
    assert set(found) == FAULTS[environment]
    assert all(found.values()), "a failure says what it saw"
    if environment is RandomReset:
        assert found["reset is deterministic"].endswith("; not the same: observation")


def test_a_server_that_lets_everybody_in_is_found():
    with serving(create_app(Walk(), token=None)) as url:
        checks = run(url, TOKEN, effort=SMALL)
    assert set(faults(checks)) == {"only the token opens the door"}


def test_without_a_server_each_check_fails_with_the_reason():
    checks = run("http://127.0.0.1:9", effort=SMALL)
    assert "did not answer" in checks[0].detail
    assert {check.outcome for check in checks} <= {Outcome.FAILED, Outcome.SKIPPED}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n, found in sorted(DESCRIBED.items()) if found.available and not found.needed])
def test_ten_thousand_abandoned_sessions_are_reclaimed_and_memory_comes_back(name: str):
    if not load(name).fast:
        pytest.skip("only environments whose forks are cheap")
    with child_server(name, "--idle-s", "1") as (url, child), http_client(url) as client:
        split = next(iter(client.get("/v1/spec").json()["splits"]))
        task = client.get(f"/v1/splits/{split}").json()["tasks"][0]["id"]
        sizes = []
        for _ in range(2):
            abandon(client, task, 10_000)
            assert resident_mib(child.pid) < 2_000
            wait_until(lambda: client.get("/health").json()["sessions"] == 0, "the sessions to expire", timeout_s=30)
            sizes.append(resident_mib(child.pid))
        assert sizes[-1] < sizes[0] * 1.2 + 5, f"resident MiB after each round: {sizes}"


def abandon(client: httpx.Client, task: str, count: int) -> None:
    opened = 0
    while opened < count:
        root = client.post("/v1/open", json={"task": task}).json()["session"]
        children = client.post("/v1/expand", json={"session": root, "actions": ["xyzzy"] * 249})
        assert children.status_code == 200, children.text
        opened += 250
    assert client.get("/health").json()["sessions"] > 0
    time.sleep(0.1)


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
