"""Whether nodes have what a run needs. Pure: Ray is not asked here."""

import difflib
from collections.abc import Sequence

from agentr.cluster.nodes import ClusterNode
from agentr.cluster.places import Need, Places
from agentr.cluster.roles import LABEL, NODE_ROLES, Role, matches, values_of
from agentr.config.checks import Problem
from agentr.config.training import Share


def shortages(places: Places, wanted: Sequence[Need], there: Sequence[ClusterNode]) -> list[Problem]:
    """Returns what cannot be placed: the role, what it wants, what there is, and the setting to change."""
    share = places.trainer.share
    problems = []
    left = {node.id: node.gpus for node in there}
    for need in wanted:
        if share is not Share.split and need.role is Role.engine:
            left = {node.id: node.gpus for node in there}  # those of the trainer, in turns or together
        on = [node for node in there if matches(node.labels, need.labels)]
        where = f" on nodes with {_described(need.labels)}" if need.labels else ""
        key = f"cluster.nodes.{need.role.value}"
        if not on:
            labels = ", ".join(
                sorted(
                    {f"{k}={v}" for node in there for k, v in node.labels.items() if not k.startswith("ray.io/node")}
                )
            )
            message = (
                f"no node of {len(there)} can be a node of the role {need.role.value}: it wants "
                f"{_described(need.labels)}"
            )
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
            message = (
                f"{need.role.value} wants {need.count} x {need.gpus} GPUs{where}, and there is room for {placed} "
                f"({have})"
            )
            hint = f"Lower {need.setting}, add nodes, or set cluster.wait_s if the cluster grows."
            if share is Share.split and places.trainer.use_gpu:
                hint += " With trainer.share=time, engines and trainer take turns, with together they share GPUs."
            problems.append(Problem(need.setting, message, hint))
    return problems


def label_problems(places: Places, there: Sequence[ClusterNode]) -> list[Problem]:
    """Returns conditions on labels that nothing can mean: roles that there are not, labels that no node has."""
    problems = []
    known = {key for node in there for key in node.labels} | {LABEL}
    for role in Role:
        for key, condition in places.labels[role].items():
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
