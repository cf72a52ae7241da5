"""The command line: what it prints, what it refuses, and that it dies with its parent."""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from env_servers.protocol import TOKEN_ENV
from env_servers.registry import ENVIRONMENTS, BadOptions, UnknownEnvironment, describe, load
from tests.env_servers.support import ROOT, child_server, http_client, running, wait_until

ENVIRON = {**{k: v for k, v in os.environ.items() if k != TOKEN_ENV}, "PYTHONPATH": str(ROOT)}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "env_servers", *arguments]


def test_list():
    listed = subprocess.run(command("list"), env=ENVIRON, capture_output=True, text=True, check=True)
    assert "textcraft\tTextCraft\n" in listed.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nothing"], "no environment is called 'nothing'; known: "),
        (["os:path"], "not a subclass of Environment"),
        (["no.such.module:X"], "cannot import"),
        (["textcraft", "--option", "colour=red"], "no option colour; it has recipes, distractors"),
        (["textcraft", "--option", "distractors=-1"], "must not be negative"),
        (["textcraft", "--option", "distractors=many"], "refuses the options"),
        (["textcraft", "--option", "distractors"], "not name=value"),
        (["textcraft", "--host", "0.0.0.0"], "set a token in AGENTR_ENV_TOKEN"),
        (["tests.env_servers.broken:Walk", "--agentgym"], "walk is no environment of AgentGym's"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(arguments: list[str], reason: str):
    done = subprocess.run(command("serve", *arguments), env=ENVIRON, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr and "Traceback" not in done.stderr


def test_a_taken_port_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            command("serve", "textcraft", "--port", port), env=ENVIRON, capture_output=True, text=True, timeout=30
        )
    assert done.returncode == 2 and "in use" in done.stderr


def test_without_a_token_on_loopback_everybody_may_enter():
    with child_server("textcraft", token=None) as (url, child), http_client(url, token=None) as client:
        assert url.startswith("http://127.0.0.1:")
        assert client.get("/v1/spec").status_code == 200
        child.send_signal(signal.SIGTERM)
        child.wait(10)
        assert child.stdout is not None and child.stdout.read() == b"", "one line and no more"


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_agentgym_on_loopback_warns_that_it_is_open(host: str, warned: bool):
    arguments = command("serve", "textcraft", "--agentgym", "--host", host)
    server = subprocess.Popen(
        arguments, env={**ENVIRON, TOKEN_ENV: "x"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert server.stdout is not None and server.stdout.readline().startswith('{"url"')
    server.terminate()
    assert ("AgentGym's paths need no token" in server.communicate(timeout=30)[1]) is warned


def test_agentgym_needs_the_token_beyond_loopback():
    with child_server("textcraft", "--agentgym", "--host", "0.0.0.0") as (url, _):
        local = url.replace("0.0.0.0", "127.0.0.1")
        with http_client(local, token=None) as stranger, http_client(local) as friend:
            assert stranger.post("/create", json={}).status_code == 401
            assert friend.post("/create", json={}).json()["id"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_it_dies_with_its_parent():
    script = (
        "import os, subprocess, sys\n"
        "arguments = [sys.executable, '-m', 'env_servers', 'serve', 'textcraft', '--die-with-parent', "
        "str(os.getpid())]\n"
        "child = subprocess.Popen(arguments, stdout=subprocess.PIPE, start_new_session=True)\n"
        "child.stdout.readline(); print(child.pid, flush=True); child.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], env=ENVIRON, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert running(child)
    parent.kill()
    parent.wait()
    wait_until(lambda: not running(child), "the server to die")


def test_what_cannot_be_imported_is_listed_with_the_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ENVIRONMENTS, "lost", "no.such.module:X")
    found = {description.name: description for description in describe()}
    assert not found["lost"].available and "cannot import no.such.module:X" in found["lost"].fault
    assert found["textcraft"].available and found["textcraft"].splits["train"]


def test_load():
    assert load("textcraft", {"distractors": 0}).fast
    assert load("tests.env_servers.support:Counter", {"can_fork": False}).spec.can_fork is False
    with pytest.raises(BadOptions, match="no option x"):
        load("textcraft", {"x": 1})
    with pytest.raises(UnknownEnvironment):
        load("tests.env_servers.support:TOKEN")


def test_nothing_is_imported_from_a_program():
    """A ``__main__`` module is run, not imported: what others need of it lives in a module with a name."""
    sources = [
        file for folder in ("agentr", "env_servers", "ray_jobs", "tests") for file in (ROOT / folder).rglob("*.py")
    ]
    assert len(sources) > 200
    assert [
        str(file)
        for file in sources
        if re.search(r"^\s*from \S*__main__ import ", file.read_text(encoding="utf-8"), re.MULTILINE)
    ] == []
