"""What a configuration needs of a cluster, and whether nodes have it. Pure: Ray is not asked here."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from agentr.cluster.nodes import ClusterNode
from agentr.cluster.roles import LABEL, NODE_ROLES, Role, engines_on_gpu, matches, selector, values_of
from agentr.config.checks import Problem
from agentr.config.policy import PolicyBackend
from agentr.config.schema import Config
from agentr.config.training import Share


@dataclass(frozen=True)
class Need:
    """Places for one role.

    Attributes:
        count: How many processes there are.
        gpus: GPUs of each, on one node.
        threads: CPUs that each would use; they are shared, not reserved.
        labels: What its nodes must be labelled with.
        setting: The keys that say so.
    """

    role: Role
    count: int
    gpus: int
    threads: int
    labels: dict[str, str]
    setting: str


def needs(config: Config, gpus_there: float) -> list[Need]:
    """Returns what each role needs, in the order in which places are given out.

    Args:
        gpus_there: GPUs that the cluster has now, for ``policy.device=auto``.
    """
    policy, trainer = config.policy, config.trainer
    found = [
        Need(
            Role.trainer,
            trainer.workers,
            1 if trainer.use_gpu else 0,
            1 if trainer.use_gpu else trainer.threads,
            selector(config, Role.trainer),
            "trainer.workers",
        )
    ]
    if policy.backend is PolicyBackend.vllm:
        on_gpu = engines_on_gpu(config, gpus_there)
        size = policy.tensor_parallel_size
        setting = "policy.engines" + (" and policy.tensor_parallel_size" if on_gpu and size > 1 else "")
        labels = selector(config, Role.engine)
        found.append(Need(Role.engine, policy.engines, size if on_gpu else 0, 1 if on_gpu else policy.threads, labels, setting))
    found.append(Need(Role.coordinator, config.collect.coordinators, 0, 1, selector(config, Role.coordinator), "collect.coordinators"))
    if not config.env.url:
        found.append(Need(Role.environment, config.env.servers, 0, 1, selector(config, Role.environment), "env.servers"))
    return found


def shortages(config: Config, wanted: Sequence[Need], there: Sequence[ClusterNode]) -> list[Problem]:
    """Returns what cannot be placed: the role, what it wants, what there is, and the setting to change."""
    problems = []
    left = {node.id: node.gpus for node in there}
    for need in wanted:
        if config.trainer.share is not Share.split and need.role is Role.engine:
            left = {node.id: node.gpus for node in there}  # those of the trainer, in turns or together
        on = [node for node in there if matches(node.labels, need.labels)]
        where = f" on nodes with {_described(need.labels)}" if need.labels else ""
        key = f"cluster.nodes.{need.role.value}"
        if not on:
            labels = ", ".join(sorted({f"{k}={v}" for node in there for k, v in node.labels.items() if not k.startswith("ray.io/node")}))
            message = f"no node of {len(there)} can be a node of the role {need.role.value}: it wants {_described(need.labels)}"
            problems.append(Problem(key, message, f"Labels there: {labels or 'none'}."))
            continue
        if not need.gpus:
            continue
        largest = max(node.gpus for node in on)
        if largest < need.gpus:
            message = f"{need.role.value} wants {need.gpus} GPUs on one node{where}, and none has more than {largest:g}"
            problems.append(Problem(need.setting, message, f"Lower {need.setting}, or add larger nodes."))
            continue
        placed = 0
        for node in sorted(on, key=lambda node: left[node.id]):
            here = min(need.count - placed, int(left[node.id] // need.gpus))
            left[node.id] -= here * need.gpus
            placed += here
        if placed < need.count:
            have = ", ".join(f"{node.name}: {node.gpus:g}" for node in on)
            message = f"{need.role.value} wants {need.count} x {need.gpus} GPUs{where}, and there is room for {placed} ({have})"
            hint = f"Lower {need.setting}, add nodes, or set cluster.wait_s if the cluster grows."
            if config.trainer.share is Share.split and config.trainer.use_gpu:
                hint += " With trainer.share=time, engines and trainer take turns, with together they share GPUs."
            problems.append(Problem(need.setting, message, hint))
    return problems


def label_problems(config: Config, there: Sequence[ClusterNode]) -> list[Problem]:
    """Returns conditions on labels that nothing can mean: roles that there are not, labels that no node has."""
    problems = []
    known = {key for node in there for key in node.labels} | {LABEL}
    for role in Role:
        for key, condition in selector(config, role).items():
            at = f"cluster.nodes.{role.value}"
            if key not in known and not key.startswith("ray.io/"):
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"Did you mean {near[0]}?" if near else f"Labels there: {', '.join(sorted(known))}."
                problems.append(Problem(at, f"no node has a label {key!r}", hint))
            for value in values_of(condition) if key == LABEL else ():
                if value not in NODE_ROLES:
                    near = difflib.get_close_matches(value, NODE_ROLES, n=1)
                    hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(NODE_ROLES)}."
                    problems.append(Problem(at, f"{value!r} is no value of {LABEL}", hint))
    for node in there:
        value = node.labels.get(LABEL, "")
        if value and value not in NODE_ROLES:
            near = difflib.get_close_matches(value, NODE_ROLES, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(NODE_ROLES)}."
            problems.append(Problem("", f"the node {node.address} has {LABEL}={value}, which is no role", hint))
    return problems


def _described(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items()) or "any labels"
