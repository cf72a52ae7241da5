"""Says whether a cluster has what a run needs, without starting any of it."""

from pathlib import Path

from rich.table import Table

from agentr.cluster.connect import connect, joined, leave
from agentr.cluster.preflight import Report, preflight
from agentr.cluster.roles import matches
from agentr.commands.run import run_dir
from agentr.config.secrets import missing_secrets
from agentr.observe.progress import Reporter
from agentr.rounds.plan import Plan


def check(plan: Plan, reporter: Reporter) -> None:
    """Shows where each part of a run may be.

    Raises:
        ConfigError: Something is missing: role, what it wants, what is there, the setting.
        InfraError: The cluster cannot be joined.
    """
    root = run_dir(plan.config.run)
    root.mkdir(parents=True, exist_ok=True)
    ray = connect(plan.places.cluster)
    try:
        report = preflight(
            plan.places, root, joined(plan.places.cluster), reporter.message, missing_secrets(plan.config)
        )
    finally:
        leave(ray)
    reporter.show(table(report, root))
    for note in report.notes:
        reporter.message(note, "yellow")
    report.require()
    reporter.message("the cluster has what the run needs", "green")


def table(report: Report, root: Path) -> Table:
    """Returns the nodes, and which parts may be on each."""
    shown = Table("node", "CPUs", "GPUs", "may run", f"free in {root}", title="The cluster")
    for node in report.there:
        roles = ", ".join(
            f"{need.count} {need.role.value}" for need in report.wanted if matches(node.labels, need.labels)
        )
        seen = report.seen.get(node.id)
        free = f"{seen.free_bytes / 2**30:.1f} GiB" if seen and seen.sees_run else "not seen" if report.seen else ""
        shown.add_row(node.name, f"{node.cpus:g}", f"{node.gpus:g}", roles or "-", free)
    return shown
