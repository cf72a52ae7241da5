"""Prometheus metrics of one server."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

#: Seconds; a fast environment steps in microseconds, a slow one in seconds.
BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Metrics:
    """Counters, in a registry of their own so that several servers can live in one process (as in tests)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.opened = self._counter("sessions_opened", "Sessions opened, forked or restored")
        self.closed = self._counter("sessions_closed", "Sessions closed by a client")
        self.expired = self._counter("sessions_expired", "Sessions closed because nobody used them")
        self.lost = self._counter("sessions_lost", "Sessions closed because the environment failed or took too long")
        self.steps = self._counter("steps", "Actions carried out")
        self.forks = self._counter("forks", "Copies of a state")
        self.step_seconds = Histogram("env_step_seconds", "Time of one action", registry=self.registry, buckets=BUCKETS)
        self.requests = Counter("env_requests", "Answers", ["endpoint", "status"], registry=self.registry)
        self.request_seconds = Histogram(
            "env_request_seconds",
            "Time to the first byte of an answer",
            ["endpoint"],
            registry=self.registry,
            buckets=BUCKETS,
        )

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"env_{name}", about, registry=self.registry)

    def gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        """A value that is read whenever the metrics are."""
        Gauge(f"env_{name}", about, registry=self.registry).set_function(read)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
