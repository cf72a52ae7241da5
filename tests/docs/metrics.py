"""Makes docs/metrics.md: every metric and every alert. ``python -m tests.docs.metrics`` writes the page anew."""

import re
from collections.abc import Iterator

import yaml

from agentr.cluster.metrics import CAUSES, METRICS, By, MetricKind
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "metrics.md"
ALERTS = ROOT / "docker/prometheus/alerts.yml"

_HEAD = """# Metrics and alerts

What Prometheus sees of a run ([how it does](cluster.md#metrics)). This page is made of
`agentr/cluster/metrics.py` and `docker/prometheus/alerts.yml` by `python -m tests.docs.metrics`.

## Metrics

Every metric has the labels `run` (`run.name`) and `part`: who reports, such as `driver`, `coordinator-0`,
`rollout-3` (an engine), `env-1` (an environment server), `supervisor-1`. Ray adds the node and the process,
so sum over them: `sum by (run) (rate(ray_agentr_expansions_total[1m]))`. Nothing is labelled with a task or a
tree.

- A counter belongs to a process: when the process is replaced, its successor counts from 0, and Ray shows the
  old one's last value for as long as the node lives. Use `rate` and `increase`.
- A gauge disappears within 20 s of its process; a stage, or what stands still, likewise once it is over.
- Buckets are counters with the label `le`: `histogram_quantile(0.95, sum by (le) (rate(NAME[5m])))`.
"""

_BY = {
    By.DRIVER: "The run",
    By.COORDINATOR: "Coordinators",
    By.ENGINE: "Engines",
    By.SUPERVISOR: "Environment servers",
    By.ANY: "Every part",
}


def page() -> str:
    """Returns the page."""
    return "\n".join([_HEAD, *_metrics(), *_alerts()]) + "\n"


def _metrics() -> Iterator[str]:
    for by, title in _BY.items():
        yield f"### {title}\n\n| metric | | labels | |\n|---|---|---|---|"
        for metric in METRICS:
            if metric.by is by:
                kind = "" if metric.kind is MetricKind.GAUGE else metric.kind.value
                labels = ", ".join(f"`{label}`" for label in metric.labels)
                yield f"| `{metric.series}` | {kind} | {labels} | {metric.help} |"
        yield ""
    yield "Causes of retries:\n\n| `cause` | |\n|---|---|"
    yield from (f"| `{cause}` | {about} |" for cause, about in CAUSES.items())
    yield ""


def _alerts() -> Iterator[str]:
    yield "## Alerts\n\n| alert | severity | after | says | what to do |\n|---|---|---|---|---|"
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            notes = rule["annotations"]
            yield (
                f"| {rule['alert']} | {rule['labels']['severity']} | {rule.get('for', '')} | {_said(notes['summary'])} "
                f"| {notes['do']} |"
            )


def _said(summary: str) -> str:
    """Returns what an alert says with names in place of values."""
    named = re.sub(r"{{ \$labels\.(\w+) }}", r"*\1*", summary)
    return re.sub(r"{{ \$value.*?}}", "*n*", named)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
