"""Reads what an environment server counts (its ``/metrics``), for its supervisor to report.

Prometheus finds nodes, not the servers on them, and a server may listen on its node's loopback only.
"""

import http.client
from collections import defaultdict
from collections.abc import Iterator
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from agentr.cluster import metrics
from agentr.cluster.metrics import Metric, MetricSample
from agentr.secrets import Secret

#: What becomes of the server's own series; what is the same in ours is summed.
_SERIES: dict[str, tuple[Metric, dict[str, str]]] = {
    "env_sessions": (metrics.ENV_SESSIONS, {}),
    "env_stuck_calls": (metrics.ENV_STUCK, {}),
    "env_steps_total": (metrics.ENV_STEPS, {}),
    "env_sessions_opened_total": (metrics.ENV_OPENED, {}),
    "env_sessions_closed_total": (metrics.ENV_ENDED, {"how": "closed"}),
    "env_sessions_expired_total": (metrics.ENV_ENDED, {"how": "expired"}),
    "env_sessions_lost_total": (metrics.ENV_ENDED, {"how": "lost"}),
    "env_requests_total": (metrics.ENV_REQUESTS, {}),
    "env_step_seconds_bucket": (metrics.ENV_STEP_SECONDS, {}),
}


def fetch(url: str, token: Secret, timeout_s: float) -> str:
    """Returns a server's metrics in Prometheus' text format.

    Raises:
        OSError, http.client.HTTPException: There was no answer, or a refusal.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_s)
    try:
        connection.request("GET", "/metrics", headers=token.bearer())
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"{url}/metrics: {answer.status}")
        return answer.read().decode()
    finally:
        connection.close()


def samples(text: str) -> Iterator[MetricSample]:
    """Yields what a server counts as metrics of ours."""
    sums: dict[tuple[Metric, tuple[tuple[str, str], ...]], float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for line in family.samples:
            if line.name in _SERIES:
                metric, labels = _SERIES[line.name]
                kept = {name: value for name, value in line.labels.items() if name in metric.labels}
                sums[metric, tuple((labels | kept).items())] += line.value
    for (metric, labels), value in sums.items():
        yield MetricSample(metric, value, dict(labels))
