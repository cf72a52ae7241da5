"""A small run as the pages see it, made without Ray: trees with revisions, their dataset, a training, two
evaluations."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from agentr.config.identity import Identity
from agentr.methods import load
from agentr.observe.comparison import write_plan
from agentr.search import Tree
from agentr.search.evolution import Evolution
from agentr.store.growing import GrowingForest
from agentr.store.run import RunStore
from agentr.store.summaries import TreeSummary
from agentr.types import Asked, Outcome, Task, messages_of
from agentr.ui.library import Library
from agentr.ui.server import app
from env_servers.observation import Answer, OtherAnswer, call_id
from tests.runs import dataset, measured_trees, round_of, small
from tests.support import tiny_model
from tests.trees import add, codec, door, episode, spoken

ORIGIN = "http://127.0.0.1:8300"

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a folder of runs; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("runs")
    small(folder / "first", tiny_model(tmp_path_factory.mktemp("model")))
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs"))


@pytest.fixture
def ask(made: Path) -> Ask:
    """Asks the server of the unchanged run: ``ask("tree", stage=..., key=...)`` returns the answer."""
    return asking(made)


def asking(folder: Path, run: str = "first") -> Ask:
    client = TestClient(app(Library([folder]), "127.0.0.1", 8300), base_url=ORIGIN)

    def ask(name: str, status: int = 200, **query: Any) -> Any:
        response = client.get(f"/api/{name}", params={"run": run, **query})
        assert response.status_code == status, response.text
        return response.json()

    return ask


class _KilledError(Exception):
    pass


def growing(run: Path, *trees: Any) -> tuple[GrowingForest, RunStore]:
    """Begins a stage of trees in a run, as a driver that was killed in it leaves it."""
    store, forests = RunStore(run), []
    store.open(Identity.of(load(run / "config.yaml", files=False)))

    def grow(folder: Path) -> TreeSummary:
        forests.append(GrowingForest(folder, epoch=store.lease.next_epoch()))
        for tree in trees:
            forests[0].write(tree)
        raise _KilledError

    with pytest.raises(_KilledError):
        store.stages.run("rounds/02/collect", TreeSummary, grow)
    return forests[0], store


def compared(runs: Path) -> Path:
    """Makes a comparison of two methods with two seeds of the run: under ``base`` its last policy is the warm start,
    and succeeds after no refusal, under ``other`` after each."""
    folder = runs / "compared"
    for method in ("base", "other"):
        for seed in (0, 1):
            run = Path(shutil.copytree(runs / "first", folder / method / f"seed-{seed}"))
            if method == "base":
                shutil.rmtree(run / "rounds/01/eval")
                shutil.copytree(run / "rounds/00/eval", run / "rounds/01/eval")
            won = Outcome.SUCCESS if method == "other" else Outcome.FAILURE
            begun = [episode(task, ["wait"], float(method == "other"), won, 1) for task in "abc"]
            measured_trees(RunStore(run), "rounds/01/after_refusal", begun)
    write_plan(folder, [(method, seed) for method in ("base", "other") for seed in (0, 1)])
    return folder


def lucky(root: Path) -> None:
    """A run of a round with two trees, one of whose four turns that were tried in other worlds was luck."""
    sure, guessed = door(), door()
    guessed.task = replace(guessed.task, id="lucky")
    for tree, worlds in ((sure, (1.0, 1.0)), (guessed, (0.0, 0.0, 1.0))):
        tree.nodes[1].worlds, tree.nodes[3].worlds = (1.0,), worlds
    method = ["method.type=agent_r", "method.revise.worlds=3", "method.revise.alpha=[0.5]"]
    round_ = round_of(root, method, collect=[door()], revise=[sure, guessed])
    dataset(round_)
    round_.experiment.store.close()


def retried() -> Tree:
    """A tree in which two episodes were tried again; of one there is no better episode."""
    tree = replace(door(), revisions=[])
    said, told = "I waited." * 9000, "Do not wait."
    tree.evolutions = [
        Evolution(parent=5, operator="retry", turn=1, kept=1, end=3, answer=said, guidance=told),
        Evolution(parent=6, operator="drop_redundant", reason="nothing was redundant"),
    ]
    return tree


REFUSED = "the program did not repeat itself: in call 3, messages.4.content: 'Done in 0.31 s', was 'Done in 0.29 s'"


def asked_by_program(mark: str = "", schema: str = "") -> Tree:
    """A program with tools: two calls in one turn, an answer that is dropped, a conversation beside, a return from it,
    and a branch that was left out.

    Args:
        mark: What all texts of the program end with.
        schema: What the schemas of its tools end with.
    """
    tools = tuple(json.dumps({"name": f"{n}{mark}", "parameters": {"about": schema}}) for n in ("find", "now"))

    def user(text: str) -> dict[str, Any]:
        return {"role": "user", "content": f"{text}{mark}"}

    others = (OtherAnswer(f"helper{mark}", "", 200, "application/json", f"I would begin.{mark}"),)
    narrowed = {"tool_choice": f"required{mark}", "stop": ["x", mark]}
    opening = Asked((user("Go."),), tools=tools, settings=narrowed, others=others)
    messages = tuple(messages_of(opening.messages or ()))
    task = Task("program", "asks", "train")
    tree = Tree.start(task, messages, tuple(codec().prompt(messages)), 0, asked=opening)

    def turn(node: int, text: str, asked: Asked, outcome: Outcome | None = None, *calls: str) -> int:
        made = tuple({"name": f"find{mark}", "arguments": arguments} for arguments in calls)
        said = [m["content"] for m in asked.messages or () if m["role"] != "assistant"]
        about = {"asked": asked, "sent": Answer(text, made, "stop", (3, 4)).text, "observation": "\n".join(said)}
        written = text + "".join(f"<tool_call>{arguments}" for arguments in calls)
        reward, valid = float(outcome is Outcome.SUCCESS), outcome is not Outcome.REFUSED
        return add(tree, node, spoken(written, reward, outcome, valid, **about)).id

    found = [{"role": "tool", "content": f"found {n}{mark}", "call_id": call_id(1, n)} for n in (1, 0)]
    one = turn(0, "So.", Asked((*found,), 1, True, tools), None, '{"q": 1}', f'{{"q": "é{mark}"}}')
    two = turn(one, "bad", Asked((user("No call."),), 2, False, tools))
    three = turn(two, "plan", Asked((user("Give a title."),)))
    four = turn(three, "title", Asked((user("On."),), 3, True, tools))
    turn(four, "end", Asked(), Outcome.SUCCESS)
    turn(four, "other", Asked(refused=f"{REFUSED}{mark}"), Outcome.REFUSED)
    return tree


@contextmanager
def served(folder: Path, opened: socket.socket) -> Iterator[str]:
    """Serves the pages of a folder from a thread, as ``agentr ui`` does; yields their address."""
    port = opened.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(app(Library([folder]), "127.0.0.1", port), log_level="error", lifespan="off")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def started(folder: Path, *arguments: str, **environment: str) -> Iterator[str]:
    """``agentr ui`` as a process that permissions hold for, even if the tests run as root; yields its address."""
    command = [sys.executable, "-m", "agentr.cli", "ui", str(folder), "--port", "0", *arguments]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *command]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment}
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"http://\S+", line):
                break
        else:
            pytest.fail(f"agentr ui ended: {said}")
        yield found[0]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def get(address: str, name: str, **headers: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address + name, headers=headers), timeout=120) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text) if text.startswith("{") else text
