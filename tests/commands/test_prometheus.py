"""A real Prometheus finds the nodes of a cluster with the configuration that ships."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.hosts import Hosts, RayHosts, needs_hosts

CONFIG = Path(__file__).parents[2] / "docker/prometheus/prometheus.yml"
ALERTS = CONFIG.with_name("alerts.yml")
NEEDED = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs the commands of Debian's package prometheus"
)
ASK = "import httpx; print(httpx.get('http://127.0.0.1:9090/api/v1/targets', trust_env=False).text)"


@NEEDED
@pytest.mark.parametrize("broken", ["", "scrape_interval: soon", "job_nam: ray", "alarms.yml"])
def test_promtool_takes_the_configuration_and_refuses_broken_ones(tmp_path: Path, broken: str) -> None:
    text = CONFIG.read_text()
    known = {
        "": "",
        "scrape_interval: soon": "scrape_interval: 10s",
        "job_nam: ray": "job_name: ray",
        "alarms.yml": "alerts.yml",
    }[broken]
    assert known in text
    changed = text.replace(known, broken) if broken else text
    (tmp_path / "token").write_text("x")
    shutil.copy(ALERTS, tmp_path)
    file = tmp_path / "prometheus.yml"
    file.write_text(changed.replace("/run/secrets/ray_token", str(tmp_path / "token")))
    checked = subprocess.run(
        ["promtool", "check", "config", file], capture_output=True, text=True, timeout=60, check=False
    )
    assert (checked.returncode == 0) == (not broken), checked.stdout + checked.stderr


@NEEDED
@needs_hosts
@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_every_node_is_scraped(tmp_path: Path) -> None:
    with Hosts(2, shared=tmp_path) as hosts:
        ray = RayHosts(hosts, tmp_path / "ray")
        ray.head(hosts[0])
        ray.worker(hosts[1])
        ray.wait(2)
        config = CONFIG.read_text().replace("http://head:8265", ray.environment()["RAY_API_SERVER_ADDRESS"])
        config = (
            config.replace("/run/secrets/ray_token", ray.environment()["RAY_AUTH_TOKEN_PATH"])
            .replace("10s", "1s")
            .replace("30s", "2s")
        )
        (tmp_path / "prometheus.yml").write_text(config)
        shutil.copy(ALERTS, tmp_path)
        arguments = [
            f"--config.file={tmp_path}/prometheus.yml",
            "--web.listen-address=127.0.0.1:9090",
            "--storage.tsdb.path=/tmp/prometheus",
        ]
        hosts[0].start("prometheus", *arguments, log=tmp_path / "prometheus.log")
        deadline, up = time.monotonic() + 90, set()
        while {host.address for host in hosts} - up:
            assert time.monotonic() < deadline, f"{up}: {(tmp_path / 'prometheus.log').read_text()[-2000:]}"
            time.sleep(1)
            asked = hosts[0].run("python", "-c", ASK, check=False)
            if asked.returncode == 0:
                targets = json.loads(asked.stdout)["data"]["activeTargets"]
                up = {target["labels"]["instance"].partition(":")[0] for target in targets if target["health"] == "up"}
