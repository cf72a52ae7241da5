"""Checks before the first stage: what a run needs is there, on every node that needs it, before hours are spent."""

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentr.cluster.needs import label_problems, shortages
from agentr.cluster.nodes import ClusterNode, nodes, on_node
from agentr.cluster.places import Need, Places
from agentr.cluster.roles import Role, matches
from agentr.config.checks import Problem
from agentr.config.model import ModelConfig, ModelSource
from agentr.config.schema import EnvConfig
from agentr.errors import ConfigError
from agentr.store.files import make_folder, remove, write_bytes

#: Deadline of what a node is asked, and how much longer one that is late is waited for, visibly: a busy machine takes
#: its time.
ANSWER_S, LATE_S = 25.0, 60.0
#: Sessions that a server holds at a time (its own default), and those that a tree of a search keeps open.
SESSIONS_OF_A_SERVER, SESSIONS_OF_A_TREE = 20_000, 32
#: Free space below which a node is mentioned.
LITTLE_BYTES = 5 * 2**30
#: Seconds between two looks at a cluster that grows.
GROW_POLL_S = 2.0


@dataclass(frozen=True)
class Look:
    """What a node is asked.

    Attributes:
        canary: A file that the driver wrote into the run directory; the node writes another one beside it.
        word: What is in it.
        models: Folders of models that must be there.
        python: Interpreter of environment servers; empty where none will run, or for the node's own.
        environment: Its name, where servers will run.
    """

    canary: str
    word: str
    node: str
    models: tuple[str, ...] = ()
    environment: str = ""
    python: str = ""


@dataclass
class Seen:
    """What a node answered."""

    sees_run: bool = False
    problem: str = ""
    free_bytes: int = 0
    python: str = ""
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """What a preflight found.

    Attributes:
        problems: What would stop the run.
        notes: What would not, and should be known.
    """

    there: list[ClusterNode]
    wanted: list[Need]
    seen: dict[str, Seen]
    problems: list[Problem]
    notes: list[str]

    def require(self) -> None:
        """Raises ConfigError if anything is wrong, with all of it."""
        if not self.problems:
            return
        texts = [str(problem).removeprefix(": ") for problem in self.problems]
        if len(texts) == 1:
            raise ConfigError(texts[0])
        raise ConfigError(
            f"{len(texts)} things are missing on the cluster:\n" + "\n".join(f"- {text}" for text in texts)
        )


def preflight(
    places: Places, run_dir: Path, joined: bool, notify: Callable[[str], None], missing: Iterable[Problem] = ()
) -> Report:
    """Checks the cluster that this process has joined. Waits for nodes up to ``cluster.wait_s``.

    Args:
        run_dir: It must exist.
        joined: Whether the cluster was there before; of one that this process started on its own machine, less can be
            wrong.
        missing: What is missing besides.
    """
    problems = [*missing, *_sessions(places.env, places.in_flight)]
    there, wanted, short = _nodes_with(places, notify)
    problems += [*label_problems(places, there), *short]
    seen: dict[str, Seen] = {}
    notes: list[str] = []
    if joined and there:
        seen = _look_everywhere(places.env, _models(places.model), run_dir, there, wanted, notify)
        problems += _of_nodes(run_dir, there, seen)
        notes += [
            f"{node.name} has {seen[node.id].free_bytes / 2**30:.1f} GiB left in {run_dir}"
            for node in there
            if node.id in seen and 0 < seen[node.id].free_bytes < LITTLE_BYTES
        ]
    notes += [
        f"{need.count} x {need.threads} threads of {need.role.value}s share {cpus:g} CPUs"
        for need in wanted
        if not need.gpus
        and need.count * need.threads > (cpus := sum(n.cpus for n in there if matches(n.labels, need.labels))) > 0
    ]
    return Report(there, wanted, seen, problems, notes)


def look(request: Look) -> Seen:
    """Answers on a node what a preflight asks of it."""
    canary = Path(request.canary)
    seen = Seen(python=sys.executable)
    deadline = time.monotonic() + 5.0  # shared file systems may show a new file late
    while True:
        try:
            seen.sees_run = canary.read_text(encoding="utf-8") == request.word
        except OSError as error:
            seen.problem = f"{canary.parent}: {error.strerror}"
        if seen.sees_run or time.monotonic() > deadline:
            break
        time.sleep(0.25)
    if seen.sees_run:
        seen.free_bytes = shutil.disk_usage(canary.parent).free
        try:
            (canary.parent / f"{canary.name}-{request.node}").write_text(request.word, encoding="utf-8")
            seen.problem = ""
        except OSError as error:
            seen.problem = f"{canary.parent} cannot be written: {error.strerror}"
    seen.missing = [f"the model {folder}" for folder in request.models if not (Path(folder) / "config.json").is_file()]
    if request.environment:
        seen.missing += _environment(request.environment, request.python)
    return seen


# ----------------------------------------------------------------------------------------------------------------------


def _environment(name: str, python: str) -> list[str]:
    """What an environment's servers lack on this node."""
    if python:
        if not os.access(python, os.X_OK):
            return [f"the interpreter {python}"]
        asked = subprocess.run(
            [python, "-c", "import env_servers"], capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
        return [] if asked.returncode == 0 else [f"env_servers in {python}: {asked.stderr.strip().splitlines()[-1:]}"]
    from env_servers import registry

    try:
        known = registry.about(name)
    except registry.UnknownEnvironment as error:
        return [f"the environment {name}: {error}"]
    return [f"{need.name} for {name} ({need.how})" for need in known.missing]


def _sessions(env: EnvConfig, in_flight: int) -> list[Problem]:
    if env.url:
        return []
    needed, most = in_flight * SESSIONS_OF_A_TREE, env.servers * SESSIONS_OF_A_SERVER
    if needed <= most:
        return []
    servers = -(-needed // SESSIONS_OF_A_SERVER)
    message = f"{in_flight} trees at a time keep up to {needed} sessions open, and {env.servers} server(s) hold {most}"
    return [Problem("env.servers", message, f"Set env.servers={servers}, or lower collect.in_flight.")]


def _nodes_with(places: Places, notify: Callable[[str], None]) -> tuple[list[ClusterNode], list[Need], list[Problem]]:
    """The nodes, what is needed, and what is missing once the cluster has grown as far as it does."""
    deadline = time.monotonic() + places.cluster.wait_s
    said = ""
    while True:
        there = nodes()
        wanted = places.needs(sum(node.gpus for node in there))
        short = shortages(places, wanted, there)
        if not short or time.monotonic() >= deadline:
            break
        if said != (said := "; ".join(problem.message for problem in short)):
            left = deadline - time.monotonic()
            notify(f"waiting up to {left:.0f} s for nodes: {said}")
            _ask_for(wanted)
        time.sleep(GROW_POLL_S)
    if said:
        _ask_for([])
        notify("the nodes are there" if not short else "the nodes did not come")
    return there, wanted, short


def _ask_for(wanted: Sequence[Need]) -> None:
    """Tells the autoscaler what the run needs; nothing takes that back."""
    from ray.autoscaler.sdk import request_resources

    each = [(need, {"GPU": need.gpus} if need.gpus else {"CPU": 1}) for need in wanted for _ in range(need.count)]
    request_resources(
        bundles=[bundle for _, bundle in each],
        bundle_label_selectors=[need.labels for need, _ in each] if each else None,
    )


def _look_everywhere(
    env: EnvConfig,
    on_all: tuple[str, ...],
    run_dir: Path,
    there: Sequence[ClusterNode],
    wanted: Sequence[Need],
    notify: Callable[[str], None],
) -> dict[str, Seen]:
    """Asks every node.

    Args:
        on_all: Folders of models that each node which uses a model must have.
    """
    import ray

    folder = run_dir / ".canary"
    make_folder(folder)
    word = secrets.token_hex(8)
    canary = folder / word
    write_bytes(canary, word.encode())
    labels = {need.role: need.labels for need in wanted}
    asked: dict[Any, ClusterNode] = {}
    task: Any = ray.remote(look)
    for node in there:
        serves = Role.environment in labels and matches(node.labels, labels[Role.environment])
        models = any(
            matches(node.labels, labels[role])
            for role in (Role.engine, Role.trainer, Role.coordinator)
            if role in labels
        )
        request = Look(
            canary=str(canary),
            word=word,
            node=node.id,
            models=on_all if models else (),
            environment=env.name if serves and ":" not in env.name else "",
            python=env.python if serves else "",
        )
        asked[task.options(num_cpus=0, max_retries=0, scheduling_strategy=on_node(node.id)).remote(request)] = node
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_S)
    if late:
        notify(f"waiting up to {LATE_S:g} s more for {', '.join(asked[ref].name for ref in late)} to answer")
        more, late = ray.wait(late, num_returns=len(late), timeout=LATE_S)
        ready += more
    seen = {asked[ref].id: _answer(ref) for ref in ready}
    for ref in late:
        ray.cancel(ref, force=True)
    for node in there:
        found = seen.get(node.id)
        if found is not None and found.sees_run and not found.problem and not (folder / f"{word}-{node.id}").exists():
            found.problem = "what it wrote there cannot be seen from the driver's node"
    remove(folder)
    return seen


def _answer(ref: Any) -> Seen:
    import ray
    from ray.exceptions import RayError

    from agentr.cluster.failures import cause_of

    try:
        return ray.get(ref)
    except RayError as error:
        return Seen(problem=f"it cannot run agentr: {cause_of(error, 'a look').message}")


def _models(model: ModelConfig) -> tuple[str, ...]:
    """Folders of models outside the run directory."""
    is_folder = model.source is ModelSource.hf and Path(model.path).expanduser().is_dir()
    return (str(Path(model.path).expanduser().resolve()),) if is_folder else ()


def _of_nodes(run_dir: Path, there: Sequence[ClusterNode], seen: dict[str, Seen]) -> list[Problem]:
    problems = []
    silent = [node.name for node in there if node.id not in seen]
    if silent:
        message = f"{', '.join(silent)} did not answer within {ANSWER_S + LATE_S:g} s"
        problems.append(Problem("", message, "Are these nodes reachable, and not overloaded?"))
    broken = {
        node.name: seen[node.id].problem
        for node in there
        if node.id in seen and seen[node.id].problem.startswith("it cannot")
    }
    problems += [
        Problem("", f"{name}: {problem}", "Is agentr, with its packages, on every node?")
        for name, problem in broken.items()
    ]
    blind = [node.name for node in there if node.id in seen and node.name not in broken and not seen[node.id].sees_run]
    if blind:
        message = f"{run_dir} is not the same folder on {', '.join(blind)}"
        problems.append(Problem("run.dir", message, "It must be on storage that all nodes share, at the same path."))
    for node in there:
        found = seen.get(node.id)
        if found is None or node.name in broken or node.name in blind:
            continue
        if found.problem:
            problems.append(
                Problem("run.dir", f"on {node.name}: {found.problem}", "May this user write there, on every node?")
            )
        problems += [
            Problem("", f"{node.name} lacks {what}", "It must be on every node that uses it.") for what in found.missing
        ]
    return problems
