"""How engines are that do not get on: not placed, dead, stuck in a step, out of cache."""

from collections.abc import Iterator, Mapping
from typing import Any

from agentr.cluster import ray_private
from agentr.cluster.causes import Cause, CauseKind
from agentr.cluster.checks import check_places
from agentr.cluster.failures import cause_of
from agentr.cluster.places import Places
from agentr.cluster.roles import Role
from agentr.config.policy import PolicyBackend, PolicyConfig
from agentr.policy.base import EngineHealth

#: Seconds within which an engine says how it is, and longest decoding step that is not worth a word.
ANSWER_S = 10.0
#: Share of the cache in use from which sequences that wait, wait for it.
FULL_CACHE = 0.9


def check_engines(engines: Mapping[str, Any], places: Places) -> Iterator[Cause]:
    """Yields what is wrong with engines.

    Args:
        engines: Handles of their actors, by name.
    """
    import ray
    from ray.exceptions import RayError

    asked: dict[Any, tuple[str, str]] = {}
    for name, handle in engines.items():
        entry = ray_private.actor(handle)
        state, where = str(entry.get("State", "")) or "unknown", entry.get("Address", {}).get("IPAddress", "")
        if state in ("PENDING_CREATION", "DEPENDENCIES_UNREADY") and not entry.get("Pid"):
            yield check_places(places, Role.engine, name, f"its actor is {state}")
        elif state == "PENDING_CREATION":
            evidence = f"its process {entry['Pid']} on {where} is not ready yet"
            yield Cause(
                CauseKind.engine_starting,
                f"{name} is being started",
                evidence,
                "A large model takes minutes to load. See its log.",
            )
        elif state == "RESTARTING":
            evidence = f"its actor is {state}, the {entry.get('NumRestarts', 0)}. time"
            hint = "See its log for why it died; cluster.actor_restarts says how often it is started again."
            yield Cause(CauseKind.engine_dead, f"{name} died and is being started again", evidence, hint)
        elif state == "DEAD":
            why = str(entry.get("DeathCause") or "")[:200] or "no cause is known"
            yield Cause(
                CauseKind.engine_dead,
                f"{name} is dead and stays so",
                why,
                "Mend the cause and start the same run again.",
            )
        else:
            asked[handle.health.remote()] = name, where
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_S) if asked else ([], [])
    for ref, (name, where) in asked.items():
        if ref not in ready:
            evidence = f"its actor is alive on {where}, and does not answer how it is within {ANSWER_S:g} s"
            yield Cause(
                CauseKind.engine_stuck,
                f"{name} is stuck",
                evidence,
                "policy.timeout_s says when its calls are given to others.",
            )
            continue
        try:
            yield from _unwell(name, ray.get(ref, timeout=0))
        except RayError as error:
            evidence = cause_of(error, name).message
            yield Cause(
                CauseKind.engine_dead, f"{name} is not well", evidence, "It is ended and started again. See its log."
            )


def _unwell(name: str, health: EngineHealth) -> Iterator[Cause]:
    if health.stalled_s > ANSWER_S:
        evidence = (
            f"for {health.stalled_s:.0f} s in one decoding step, with {health.running} sequences and {health.queued} "
            "calls behind"
        )
        yield Cause(
            CauseKind.engine_stuck,
            f"{name} is stuck",
            evidence,
            "It is ended and started again after policy.timeout_s.",
        )
    if health.waiting and (health.preempted or health.cache_used >= FULL_CACHE):
        evidence = (
            f"{100 * health.cache_used:.0f} % are in use, {health.waiting} of {health.running} sequences wait for room"
        )
        evidence += f" and were thrown out {health.preempted} times" if health.preempted else ""
        hint = (
            "Lower policy.max_num_seqs or collect.in_flight, or raise policy.kv_cache_gib (on a GPU "
            "policy.gpu_memory_utilization)."
        )
        yield Cause(CauseKind.cache_thrash, f"the cache of {name} is too small for what it is asked", evidence, hint)


def check_problems(problems: Mapping[str, str], policy: PolicyConfig) -> Iterator[Cause]:
    """Yields what the policy itself says of what answers it (``problems`` of the router and of the API's client)."""
    api = policy.backend is PolicyBackend.openai
    for name, problem in problems.items():
        if api:
            hint = (
                f"Check policy.openai.base_url, the quota of the key in {policy.openai.api_key_env}, and "
                "policy.openai.concurrency."
            )
            yield Cause(CauseKind.api_refusing, f"{name} refuses the policy's calls", problem, hint)
        else:
            hint = "policy.timeout_s and policy.retries set how long it is waited for."
            yield Cause(CauseKind.engine_unavailable, f"{name} is out of service", problem, hint)
