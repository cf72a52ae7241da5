"""Makes the Grafana dashboard of a run: ``python docker/grafana/dashboard.py`` writes ``agentr.json`` beside this file.

A test compares the two, and asks a real Prometheus every query after a real run.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableOption, VariableRefresh

from agentr.cluster import metrics
from agentr.cluster.metrics import Metric

FILE = Path(__file__).parent / "agentr.json"
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True)
class Panel:
    """A panel.

    Attributes:
        queries: Expressions of PromQL, by the legend of their lines.
        unit: As Grafana names it.
        stat: Shows the last value instead of a line.
    """

    title: str
    queries: dict[str, str]
    unit: str = "short"
    about: str = ""
    stat: bool = False


def of(metric: Metric, **labels: str) -> str:
    """Returns the selector of a metric of the chosen runs."""
    more = "".join(f', {name}="{value}"' for name, value in labels.items())
    return f'{metric.series}{{run=~"$run"{more}}}'


def rate(metric: Metric, *by: str, **labels: str) -> str:
    """Returns the growth of a counter a second, summed over everything but ``by``."""
    return f"sum by ({', '.join(('run', *by))}) (rate({of(metric, **labels)}[$__rate_interval]))"


def total(metric: Metric, *by: str, **labels: str) -> str:
    """Returns a gauge, summed over everything but ``by``."""
    return f"sum by ({', '.join(('run', *by))}) ({of(metric, **labels)})"


def largest(metric: Metric, *by: str) -> str:
    """Returns the largest value of a gauge over everything but ``by``."""
    return f"max by ({', '.join(('run', *by))}) ({of(metric)})"


def quantile(share: float, metric: Metric) -> str:
    """Returns a quantile of values that were counted in buckets."""
    return f"histogram_quantile({share}, {rate(metric, 'le')})"


def quantiles(metric: Metric, name: str) -> dict[str, str]:
    """Returns the median and a high quantile."""
    return {f"{name} p50": quantile(0.5, metric), f"{name} p95": quantile(0.95, metric)}


ROWS: dict[str, Sequence[Panel]] = {
    "Run": (
        Panel("Round", {"{{run}}": largest(metrics.ROUND)}, stat=True),
        Panel("Stage", {"{{stage}}": largest(metrics.STAGE, "stage")}, about="The stage that runs."),
        Panel("Trees of the stage", {"{{state}}": total(metrics.TREES, "state")}),
        Panel(
            "Stands still",
            {"{{kind}}": f"{largest(metrics.STANDS_STILL, 'kind')} or 0 * {largest(metrics.ROUND)}"},
            about="1 while the watchdog sees no progress, by the kind of cause.",
        ),
    ),
    "Throughput": (
        Panel("Expansions a second", {"expansions": rate(metrics.EXPANSIONS)}),
        Panel("Tokens a second", {"{{kind}}": rate(metrics.TOKENS, "kind")}),
        Panel(
            "Computed again",
            {"of the prefill": f"{rate(metrics.AGAIN)} / {rate(metrics.TOKENS, kind='prefilled')}"},
            "percentunit",
            "Share of the computed prompt tokens that a perfect prefix cache of each tree would have had.",
        ),
    ),
    "Engines": (
        Panel(
            "Latency of a call",
            quantiles(metrics.POLICY_SECONDS, "call"),
            "s",
            "Waiting for an engine and retries included.",
        ),
        Panel(
            "Calls",
            {"{{state}}": total(metrics.CALLS, "state"), "engines {{state}}": largest(metrics.ENGINES, "state")},
        ),
        Panel(
            "Sequences",
            {
                "{{part}}": total(metrics.ENGINE_SEQUENCES, "part"),
                "{{part}} queued": total(metrics.ENGINE_QUEUED, "part"),
            },
        ),
        Panel(
            "Idle",
            {"{{part}}": f"1 - ({rate(metrics.ENGINE_BUSY, 'part')} and {total(metrics.ENGINE_SEQUENCES, 'part')})"},
            "percentunit",
            "Share of the time in no decoding step. Ray goes on showing the counters of engines that are gone; they "
            "are left out.",
        ),
        Panel(
            "Prefix cache",
            {"{{part}}": f"{rate(metrics.ENGINE_PREFIX, 'part', found='yes')} / {rate(metrics.ENGINE_PREFIX, 'part')}"},
            "percentunit",
            "Share of the prompt tokens, over all sequences, that were in the engine's cache.",
        ),
        Panel("Step in progress", {"{{part}}": largest(metrics.ENGINE_STEP, "part")}, "s"),
        Panel("GPUs", {"{{instance}} {{GpuIndex}}": "ray_node_gpus_utilization"}, "percent"),
    ),
    "Environment": (
        Panel(
            "Latency of an expansion's actions",
            quantiles(metrics.ENV_SECONDS, "actions"),
            "s",
            "Retries and replays included.",
        ),
        Panel("Latency of an action in the server", quantiles(metrics.ENV_STEP_SECONDS, "action"), "s"),
        Panel("Sessions", {"{{part}}": total(metrics.ENV_SESSIONS, "part")}),
        Panel("Actions a second", {"{{part}}": rate(metrics.ENV_STEPS, "part")}),
        Panel("Sessions a second", {"opened": rate(metrics.ENV_OPENED), "{{how}}": rate(metrics.ENV_ENDED, "how")}),
        Panel("Answers a second", {"{{status}}": rate(metrics.ENV_REQUESTS, "status")}),
        Panel(
            "Servers",
            {
                "{{part}} up": largest(metrics.ENV_UP, "part"),
                "{{part}} stuck calls": largest(metrics.ENV_STUCK, "part"),
            },
        ),
    ),
    "Trouble": (
        Panel("Restarts", {"{{part}}": largest(metrics.RESTARTS, "part")}),
        Panel("Retries a second", {"{{cause}}": rate(metrics.RETRIES, "cause")}),
    ),
    "Processes": (
        Panel("Cores", {"{{part}}": rate(metrics.CPU, "part")}, about="A coordinator's event loop has one."),
        Panel("Lag of the event loop", {"{{part}}": largest(metrics.LAG, "part")}, "s"),
        Panel("CPUs of nodes", {"{{instance}}": "ray_node_cpu_utilization"}, "percent"),
        Panel("Memory of nodes", {"{{instance}}": "ray_node_mem_used / ray_node_mem_total"}, "percentunit"),
        Panel(
            "Disks of nodes", {"{{instance}}": "max by (instance) (ray_node_disk_utilization_percentage)"}, "percent"
        ),
    ),
    "Training": (
        Panel("Loss", {"{{run}}": largest(metrics.TRAIN_LOSS)}),
        Panel("Step", {"{{run}}": largest(metrics.TRAIN_STEP)}),
    ),
}


def build() -> Dashboard:
    """Builds the dashboard of `ROWS`."""
    runs = f"label_values({metrics.ROUND.series}, run)"
    board = (
        Dashboard("agentr")
        .uid("agentr")
        .tags(["agentr"])
        .description("A run of agentr. Made by docker/grafana/dashboard.py.")
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .with_variable(DatasourceVariable("datasource").label("Source").type("prometheus"))
        .with_variable(
            QueryVariable("run")
            .label("Run")
            .datasource(_SOURCE)
            .query(runs)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(VariableOption(text="All", value="$__all"))
        )
    )
    numbers = itertools.count(1)
    for title, panels in ROWS.items():
        board = board.with_row(Row(title).id(next(numbers)))
        for panel in panels:
            board = board.with_panel(_panel(panel).id(next(numbers)))
    return board


def _panel(panel: Panel) -> Stat | Timeseries:
    shown = Stat() if panel.stat else Timeseries().fill_opacity(10)
    shown = shown.title(panel.title).description(panel.about).unit(panel.unit).datasource(_SOURCE).span(8).height(7)
    if panel.unit == "percentunit":
        shown = shown.min(0).max(1)
    for number, (legend, expression) in enumerate(panel.queries.items()):
        query = Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + number)).datasource(_SOURCE)
        shown = shown.with_target(query)
    return shown


def text() -> str:
    """Returns the dashboard as Grafana imports it."""
    return json.dumps(build().build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
