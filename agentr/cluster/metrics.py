"""All metrics of a run, as Prometheus shows them.

Every metric has the labels ``run`` (``run.name``) and ``part`` (who reports: ``driver``, ``coordinator-0``,
``rollout-3``, ``env-1``), and what stands in its row. No label names a task or a tree: Prometheus keeps a series for
each combination. Ray puts ``ray_`` before a name, and adds the node and the process, so whoever asks sums over those.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from prometheus_client import Histogram

#: Labels that every metric has.
COMMON = ("run", "part")
#: Upper bounds of the buckets of seconds: from a step of a fast environment to a call that waits for an engine.
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)

#: Why something was tried again.
CAUSES = {
    "engine_timeout": "an engine has not answered within policy.timeout_s",
    "engine_lost": "an engine died, or failed at the call",
    "engine_stale": "an engine held other weights than were asked for: it was started again, or missed a reload",
    "server_down": "an environment server was not reached, or has not answered within env.timeout_s",
    "server_busy": "an environment server had no room, or the connection broke",
    "session_lost": "an environment server does not know the session any more: it is replayed",
    "tree": "a whole tree, from its journal, after the attempts above were used up",
}


class MetricKind(StrEnum):
    COUNTER = "counter"
    """Only grows while its process lives."""
    GAUGE = "gauge"
    """A state."""
    BUCKETS = "buckets"
    """How often a value was at most as large as the label ``le``: counters that ``histogram_quantile`` reads.
    Ray's own histograms take one call for each value, and take none that are counted elsewhere."""


class By(StrEnum):
    """Who reports a metric."""

    COORDINATOR = "coordinator"
    ENGINE = "engine"
    SUPERVISOR = "supervisor"
    DRIVER = "driver"
    ANY = "every part"


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        name: Without Ray's prefix; the name of a counter, or of buckets, ends in ``_total``.
        labels: Its labels besides `COMMON`.
    """

    name: str
    kind: MetricKind
    by: By
    help: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> str:
        """Its name in Prometheus."""
        return f"ray_{self.name}"


def histogram() -> Histogram:
    """Makes what counts seconds in buckets, as ``by_bucket`` reads it; known to no registry."""
    return Histogram("seconds", "Counted in this process", registry=None, buckets=SECONDS)


@dataclass(frozen=True)
class MetricSample:
    """A metric's value now: of a counter the sum so far.

    Attributes:
        labels: Values of the metric's labels; ``part`` may be among them, where one part speaks for another.
    """

    metric: Metric
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def by_label(metric: Metric, **values: float) -> Iterator[MetricSample]:
    """Yields the values of a metric with one label, by the label's value."""
    (label,) = metric.labels
    for which, value in values.items():
        yield MetricSample(metric, value, {label: which})


def by_bucket(metric: Metric, counted: Histogram) -> Iterator[MetricSample]:
    """Yields how many values were at most as large as each bound."""
    for family in counted.collect():
        yield from (MetricSample(metric, found.value, found.labels) for found in family.samples if "le" in found.labels)


def _counter(name: str, by: By, about: str, *labels: str) -> Metric:
    return Metric(f"agentr_{name}_total", MetricKind.COUNTER, by, about, labels)


def _gauge(name: str, by: By, about: str, *labels: str) -> Metric:
    return Metric(f"agentr_{name}", MetricKind.GAUGE, by, about, labels)


def _buckets(name: str, by: By, about: str) -> Metric:
    return Metric(f"agentr_{name}_bucket_total", MetricKind.BUCKETS, by, about, ("le",))


# The run.
ROUND = _gauge("round", By.DRIVER, "Round of the stage that runs; 0 is the warm start")
STAGE = _gauge("stage", By.DRIVER, "1 for the stage that runs", "stage")
STANDS_STILL = _gauge(
    "stands_still", By.DRIVER, "1 while nothing moves for this kind of cause (the watchdog's finding)", "kind"
)
TREES = _gauge(
    "trees", By.DRIVER, "Trees of the last stage of trees: growing, done, failed, skipped, or to_come", "state"
)
TRAIN_STEP = _gauge("train_step", By.DRIVER, "Last optimiser step of the last training")
TRAIN_LOSS = _gauge("train_loss", By.DRIVER, "Loss at that step")
RESTARTS = _gauge(
    "restarts",
    By.ANY,
    "How often a part was started again because it died: an engine, a supervisor, its server, a coordinator",
)
CPU = _counter("cpu_seconds", By.ANY, "CPU time of the part's process: its rate is the share of a core")

# Turns.
EXPANSIONS = _counter("expansions", By.COORDINATOR, "Expansions whose turns were drawn by the policy and carried out")
TOKENS = _counter(
    "tokens",
    By.COORDINATOR,
    "Tokens of turns: generated, prefilled (computed prompts) or cached (prompts not computed)",
    "kind",
)
AGAIN = _counter(
    "prefilled_again_tokens",
    By.COORDINATOR,
    "Prefilled tokens that the same tree's calls had computed before: a perfect cache has them",
)
POLICY_SECONDS = _buckets(
    "policy_seconds", By.COORDINATOR, "Seconds until the policy has answered a call, waiting and retries included"
)
ENV_SECONDS = _buckets(
    "environment_seconds", By.COORDINATOR, "Seconds until the environment has carried out an expansion's actions"
)
CALLS = _gauge("calls", By.COORDINATOR, "Calls to engines: running, or waiting for an engine that has room", "state")
ENGINES = _gauge("engines", By.COORDINATOR, "Engines as the coordinator sees them: ready, or out_of_service", "state")
RETRIES = _counter("retries", By.COORDINATOR, "Attempts that failed and were repeated", "cause")
LAG = _gauge(
    "event_loop_lag_seconds", By.COORDINATOR, "Longest delay of the event loop in the last looks, one a second"
)

# Engines.
ENGINE_SEQUENCES = _gauge(
    "engine_sequences", By.ENGINE, "Sequences in the engine, being decoded or waiting for room in the batch"
)
ENGINE_QUEUED = _gauge("engine_queued", By.ENGINE, "Requests and reloads that the engine has not taken yet")
ENGINE_BUSY = _counter(
    "engine_busy_seconds", By.ENGINE, "Seconds in which the engine computed: one minus its rate is the idle share"
)
ENGINE_STEP = _gauge("engine_step_seconds", By.ENGINE, "Duration of the decoding step in progress")
ENGINE_PREFIX = _counter(
    "engine_prefix_tokens", By.ENGINE, "Prompt tokens looked up in the prefix cache, of all sequences", "found"
)

# Environment servers: the supervisor reports what its server counts.
ENV_UP = _gauge("env_server_up", By.SUPERVISOR, "1 while the server answers")
ENV_SESSIONS = _gauge("env_sessions", By.SUPERVISOR, "Open sessions")
ENV_STUCK = _gauge("env_stuck_calls", By.SUPERVISOR, "Environment calls that passed their deadline and still run")
ENV_STEPS = _counter("env_steps", By.SUPERVISOR, "Actions carried out")
ENV_OPENED = _counter("env_sessions_opened", By.SUPERVISOR, "Sessions opened, forked or restored")
ENV_ENDED = _counter(
    "env_sessions_ended",
    By.SUPERVISOR,
    "Sessions that ended: closed, expired (nobody used them) or lost (a fault)",
    "how",
)
ENV_REQUESTS = _counter("env_requests", By.SUPERVISOR, "Answers", "status")
ENV_STEP_SECONDS = _buckets("env_step_seconds", By.SUPERVISOR, "Seconds of one action in the server")

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
