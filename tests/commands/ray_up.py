"""Checks files for ``ray up`` (``ray_jobs/clusters``): Ray's own check, and what that lets pass although no run could
use the cluster."""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from agentr.cluster.roles import LABEL, NODE_ROLES

#: Ray's label for what a node costs, and its values. A run keeps to itself what must not be taken away from nodes that
#: are not `spot`.
MARKET = "ray.io/market-type"
SPOT, ON_DEMAND = "spot", "on-demand"

#: Where Ray looks for the token if it is not told.
_TOKEN = "~/.ray/auth_token"
_RAY_START = re.compile(r"\bray start\b([^;&|]*)")


def check_cluster(path: Path) -> list[str]:
    """Returns what is wrong with a file for ``ray up``, a sentence for each problem.

    Nothing is started and no cloud is asked: whether an image, an instance type or a file system exists is not seen. If
    Ray itself refuses the file, that is the only problem that is returned.
    """
    try:
        text = path.read_text(encoding="utf-8")
        config = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return [f"it cannot be read: {error}"]
    if not isinstance(config, dict):
        return ["it holds no keys with values"]
    try:
        prepared = _prepared_by_ray(config)
    except ValueError as error:
        return [f"Ray refuses it: {error}"]
    problems = list(_starts(prepared))
    problems += _own_machines(prepared) if prepared["provider"]["type"] == "local" else _node_types(prepared)
    if re.search(r"\bRAY_AUTH_TOKEN=", text):
        problems.append(
            "it holds a token (RAY_AUTH_TOKEN=): name a file that file_mounts brings, in RAY_AUTH_TOKEN_PATH"
        )
    return problems


def _prepared_by_ray(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration with Ray's defaults.

    Raises:
        ValueError: Ray refuses it; says where and why.
    """
    import click
    import jsonschema
    from ray.autoscaler._private.util import prepare_config, validate_config

    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            prepared = prepare_config(config)
            validate_config(prepared)
    except jsonschema.ValidationError as error:
        raise ValueError(f"{'.'.join(map(str, error.absolute_path)) or 'the file'}: {error.message}") from error
    except click.ClickException as error:
        raise ValueError(error.format_message()) from error
    except KeyError as error:
        raise ValueError(f"the key {error} is missing") from error
    except (AssertionError, AttributeError, RuntimeError, TypeError) as error:
        raise ValueError(str(error)) from error
    return prepared


def _node_types(config: dict[str, Any]) -> Iterator[str]:
    """Yields what is wrong with the node types of a cloud."""
    types, head = config["available_node_types"], config["head_node_type"]
    for name, node in types.items():
        labels = node.get("labels", {})
        role = labels.get(LABEL)
        if role not in NODE_ROLES:
            yield f"node type {name}: its label {LABEL} is {role!r}, not one of {', '.join(NODE_ROLES)}"
        elif (role == "head") != (name == head):
            yield f"node type {name}: the role {role} is {'not ' if name == head else ''}the head's"
        for key in labels:
            if key != LABEL and key.startswith("agentr"):
                yield f"node type {name}: agentr knows no label {key}; it is {LABEL}"
        if node["min_workers"] > node["max_workers"]:
            yield f"node type {name}: min_workers {node['min_workers']} is more than max_workers {node['max_workers']}"
        yield from _market(name, node, labels.get(MARKET, ON_DEMAND), config["provider"]["type"])
    if types[head]["resources"].get("CPU") != 0:
        yield (
            f"node type {head}: the head needs resources {{CPU: 0}}, or work is scheduled beside the cluster's own "
            "processes"
        )
    yield from _missing({node.get("labels", {}).get(LABEL) for node in types.values() if node["max_workers"] > 0})
    most = sum(node["max_workers"] for node in types.values())
    if config["max_workers"] < most:
        yield (
            f"max_workers of the whole is {config['max_workers']}, less than the {most} that the node types allow "
            "together"
        )


def _market(name: str, node: dict[str, Any], labelled: str, provider: str) -> Iterator[str]:
    """Yields a disagreement of a node type's label with what the cloud is asked for."""
    if labelled not in (SPOT, ON_DEMAND):
        yield f"node type {name}: its label {MARKET} is {labelled!r}, not {SPOT} or {ON_DEMAND}"
        return
    asked = node["node_config"]
    if provider == "aws":
        spot = asked.get("InstanceMarketOptions", {}).get("MarketType") == "spot"
    elif provider == "gcp":
        scheduling = asked.get("scheduling", {})
        parts = scheduling if isinstance(scheduling, list) else [scheduling]
        spot = any(part.get("provisioningModel") == "SPOT" or part.get("preemptible") for part in parts)
    else:
        return
    if spot != (labelled == SPOT):
        yield (
            f"node type {name}: its machines are {SPOT if spot else ON_DEMAND}, its label {MARKET} says or means "
            f"{labelled}"
        )


def _own_machines(config: dict[str, Any]) -> Iterator[str]:
    """Yields what is wrong with roles that machines find themselves, in commands: ``--labels=agentr-role=NAME`` or
    ``role=NAME``."""
    head, worker = (" ".join(config[f"{kind}_start_ray_commands"]) for kind in ("head", "worker"))
    if f"{LABEL}=head" not in head:
        yield f"head_start_ray_commands: the head needs --labels={LABEL}=head"
    if not re.search(r"--num-cpus[= ]0\b", head):
        yield (
            "head_start_ray_commands: the head needs --num-cpus=0, or work is scheduled beside the cluster's own "
            "processes"
        )
    roles = re.findall(rf"(?:{LABEL}|\brole)=([^\s;$\"']+)", worker)
    for role in roles:
        if role not in NODE_ROLES or role == "head":
            yield f"worker_start_ray_commands: the role {role!r} is not one of {', '.join(NODE_ROLES[1:])}"
    yield from _missing({"head", *roles})
    for machine in config["provider"].get("worker_ips", []):
        if not re.search(rf"(?<![\w.]){re.escape(str(machine))}(?![\w.])", worker):
            yield f"worker_start_ray_commands: the machine {machine} of worker_ips has no role"


def _missing(roles: set[str | None]) -> Iterator[str]:
    for role in NODE_ROLES:
        if role != "head" and role not in roles:
            yield f"no machine can have the role {role}: what is to run there would wait for ever"


def _starts(config: dict[str, Any]) -> Iterator[str]:
    """Yields what is wrong with the commands that start Ray, and with the token that they need."""
    import click
    from ray.scripts.scripts import start

    docker = config.get("docker", {})
    for kind in ("head", "worker"):
        where, commands = f"{kind}_start_ray_commands", config[f"{kind}_start_ray_commands"]
        calls = [call for command in commands for call in _RAY_START.findall(command)]
        if not calls:
            yield f"{where}: there is no `ray start`"
        for call in calls:
            try:
                start.make_context("ray start", shlex.split(call))
            except click.ClickException as error:
                yield f"{where}: ray start: {error.format_message()}"
        environment = " ".join([*docker.get("run_options", []), *docker.get(f"{kind}_run_options", []), *commands])
        if "RAY_AUTH_MODE=token" not in environment:
            yield (
                f"{where}: RAY_AUTH_MODE=token is set neither there nor in docker.run_options, so Ray may start "
                "without a token"
            )
        named = re.search(r"RAY_AUTH_TOKEN_PATH=(\S+)", environment)
        token = named[1].rstrip(";") if named else _TOKEN
        if token not in config["file_mounts"]:
            yield f"file_mounts brings no token to {token}, where {kind} nodes look for it"
