"""A real Prometheus looks at a real run: the dashboard, the alerts and the list of metrics are about what is there."""

import importlib.util
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import yaml

from agentr.cluster.metrics import METRICS
from tests.chaos.driver import DEMO, SMALL, wait_for

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
ALERTS = DOCKER / "prometheus/alerts.yml"
BIN = Path(sys.executable).parent
NEEDED = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs the commands of Debian's package prometheus"
)
#: What a run has no values of where nothing stands still and no GPU is there.
NOT_HERE = {"ray_agentr_stands_still", "ray_node_gpus_utilization"}


def dashboard_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dashboard", DOCKER / "grafana/dashboard.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dashboard"] = module
    spec.loader.exec_module(module)
    return module


def queries() -> list[str]:
    """The dashboard's expressions, as the committed file has them, with Grafana's variables filled in."""
    board = json.loads((DOCKER / "grafana/agentr.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    return [expression.replace("$__rate_interval", "10s").replace("$run", ".*") for expression in found]


def alerts() -> dict[str, str]:
    """The alerts' expressions by their names."""
    return {
        rule["alert"]: rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    }


def named(expression: str) -> set[str]:
    """The metrics that an expression is about."""
    return set(re.findall(r"\b(?:ray_\w+|up)\b", expression))


def test_the_dashboard_is_what_its_generator_makes() -> None:
    module = dashboard_module()
    assert module.FILE.read_text(encoding="utf-8") == module.text(), "say: python docker/grafana/dashboard.py"


def test_grafana_s_own_models_read_the_dashboard() -> None:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    given = json.loads((DOCKER / "grafana/agentr.json").read_text())
    read = Dashboard.from_json(given)
    assert read.panels is not None and len(read.panels) == len(given["panels"])
    again = json.loads(json.dumps(read, cls=JSONEncoder))
    assert [panel.get("targets") for panel in again["panels"]] == [panel.get("targets") for panel in given["panels"]]
    assert len({panel["id"] for panel in given["panels"]}) == len(given["panels"])


def test_every_metric_is_on_the_dashboard() -> None:
    shown = set().union(*map(named, queries()))
    assert {metric.series for metric in METRICS} <= shown
    assert {name for name in shown if name.startswith("ray_agentr_")} <= {metric.series for metric in METRICS}


def test_ray_has_the_metrics_of_nodes_that_are_asked_for() -> None:
    from ray.dashboard.modules.reporter.reporter_agent import METRICS_GAUGES

    asked = set().union(*map(named, [*queries(), *alerts().values()]))
    assert {name.removeprefix("ray_") for name in asked if name.startswith("ray_node_")} <= set(METRICS_GAUGES)


def test_alerts_are_about_metrics_that_there_are() -> None:
    known = {metric.series for metric in METRICS}
    for name, expression in alerts().items():
        assert {each for each in named(expression) if each.startswith("ray_agentr_")} <= known, name


@NEEDED
def test_alerts_fire_when_they_should_and_not_before() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", DOCKER / "prometheus/alerts_test.yml"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tested = yaml.safe_load((DOCKER / "prometheus/alerts_test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tested for case in test["alert_rule_test"] if case.get("exp_alerts")}
    silent = {case["alertname"] for test in tested for case in test["alert_rule_test"] if not case.get("exp_alerts")}
    assert fired == silent == set(alerts())


# a real run -----------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    """What a Prometheus has seen."""

    def __init__(self, port: int, since: float) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.since = since

    def get(self, path: str, **query: Any) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=query, timeout=60, trust_env=False).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def names(self) -> set[str]:
        return set(self.get("label/__name__/values"))

    def ever(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression had at any time since the run began, with those of their values that are
        numbers."""
        now = time.time()
        found = self.get(
            "query_range", query=expression, start=self.since, end=now, step=max(1, (now - self.since) / 2000)
        )["result"]
        for series in found:
            series["values"] = [(at, float(value)) for at, value in series["values"] if math.isfinite(float(value))]
        return [series for series in found if series["values"]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A whole small run on a cluster with a token, and a Prometheus with the configuration that ships, but faster."""
    folder = tmp_path_factory.mktemp("metrics")
    home = Path(tempfile.mkdtemp(prefix="h", dir="/tmp"))  # a Unix socket's path has 107 characters
    port, board, agent, own = free_port(), free_port(), free_port(), free_port()
    token = home / "token"
    token.write_text("0123456789abcdef" * 4)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environment |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_TMPDIR": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "180",
        "RAY_metrics_report_interval_ms": "1000",
        "PYTHONPATH": str(ROOT),
    }
    config = (DOCKER / "prometheus/prometheus.yml").read_text()
    changes = {
        "http://head:8265": f"http://127.0.0.1:{board}",
        "/run/secrets/ray_token": str(token),
        "10s": "1s",
        "30s": "2s",
    }
    for before, after in changes.items():
        assert before in config
        config = config.replace(before, after)
    (folder / "prometheus.yml").write_text(config)
    shutil.copy(ALERTS, folder)
    head = [
        "ray",
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        f"--port={port}",
        f"--dashboard-port={board}",
    ]
    head += [f"--dashboard-agent-listen-port={agent}", "--num-cpus=4", "--object-store-memory=200000000"]
    look = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--web.listen-address=127.0.0.1:{own}"]
    look += [f"--storage.tsdb.path={folder}/data"]
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        cluster = started(stack, [str(BIN / head[0]), *head[1:]], folder / "ray.log", environment)
        prometheus = started(stack, look, folder / "prometheus.log", environment)
        shown = Prometheus(own, time.time())
        wait_for(lambda: targets_up(shown), cluster, f"a node to be scraped; see {folder}", 300)
        overrides = [*SMALL, f"run.dir={folder}/run", f"cluster.address=127.0.0.1:{port}"]
        command = [sys.executable, "-m", "agentr.cli", "run", DEMO, *overrides]
        with (folder / "run.log").open("wb") as log:
            ran = subprocess.run(command, env=environment, stdout=log, stderr=log, cwd=ROOT, timeout=1200, check=False)
        assert ran.returncode == 0, (folder / "run.log").read_text()[-3000:]
        assert prometheus.poll() is None
        yield shown


def started(stack: ExitStack, command: list[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A process that ends with the stack."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)

    def end() -> None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)
    return process


def targets_up(prometheus: Prometheus) -> bool:
    try:
        return any(target["health"] == "up" for target in prometheus.get("targets")["activeTargets"])
    except (httpx.HTTPError, json.JSONDecodeError):  # it does not serve yet
        return False


def real(test: Any) -> Any:
    """Marks a test that needs the run."""
    return NEEDED(pytest.mark.cluster(pytest.mark.timeout(1800)(test)))


@real
def test_no_query_of_the_dashboard_is_empty_after_a_run(seen: Prometheus) -> None:
    assert {expression for expression in queries() if not seen.ever(expression)} <= {"ray_node_gpus_utilization"}


@real
def test_every_metric_of_the_list_is_there_with_its_labels(seen: Prometheus) -> None:
    there = seen.names()
    for metric in METRICS:
        if metric.series in NOT_HERE:
            continue
        assert metric.series in there, metric.name
        for series in seen.ever(metric.series):
            labels = {
                name
                for name in series["metric"]
                if name.islower() and not name.startswith(("otel_", "__")) and name not in ("job", "instance")
            }
            assert labels == {"run", "part", *metric.labels}, metric.name
            assert series["metric"]["run"] == "demo"


@real
def test_no_metric_is_there_that_the_list_does_not_know(seen: Prometheus) -> None:
    assert {name for name in seen.names() if name.startswith("ray_agentr_")} <= {metric.series for metric in METRICS}


@real
def test_every_expression_of_an_alert_is_about_what_is_there(seen: Prometheus) -> None:
    there = seen.names()
    for name, expression in alerts().items():
        assert named(expression) - NOT_HERE <= there, name
        seen.ever(expression)


@real
def test_the_numbers_are_those_of_the_run(seen: Prometheus) -> None:
    def last(expression: str) -> float:
        return max(value for series in seen.ever(expression) for _, value in series["values"])

    assert last("ray_agentr_round") == 1
    assert last("ray_agentr_train_step") >= 24
    assert last("ray_agentr_env_server_up") == 1
    stages = {series["metric"]["stage"] for series in seen.ever("ray_agentr_stage")}
    assert {"demonstrations", "train", "eval", "collect"} <= stages
    drawn = last("sum(ray_agentr_expansions_total)")
    assert drawn > 40
    assert last('sum(ray_agentr_policy_seconds_bucket_total{le="+Inf"})') == drawn
    assert last('sum(ray_agentr_tokens_total{kind="generated"})') > drawn
