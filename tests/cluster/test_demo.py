"""The whole demo on a cluster of three hosts: submitted, watched by a Prometheus, its head killed, submitted again.

By hand, half an hour on two cores: ``pytest tests/cluster/test_demo.py --by-hand``. It is compared with what ``make
demo`` left in ``runs/demo``, which is made first if it is not there.
"""

import json
import shutil
from pathlib import Path

import pytest

from agentr.store.forest import Forest
from tests.chaos.driver import DEMO, end, start, wait_for
from tests.hosts import Hosts, RayHosts, needs_hosts
from tests.tools.chaos.units import compare

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "docker/prometheus"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.by_hand,
    pytest.mark.timeout(7200),
    needs_hosts,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs the commands of Debian's package prometheus"),
]


@pytest.fixture
def undisturbed(tmp_path: Path) -> Path:
    made = ROOT / "runs/demo"
    if (made / "report.json").exists() and json.loads((made / "report.json").read_text())["complete"]:
        return made
    run = start(tmp_path / "undisturbed.log", "run", DEMO, f"run.dir={tmp_path}/undisturbed")
    try:
        assert run.wait(3600) == 0, (tmp_path / "undisturbed.log").read_text()[-3000:]
    finally:
        end(run)
    return tmp_path / "undisturbed"


def test_the_demo_on_three_hosts_whose_head_is_killed(undisturbed: Path, tmp_path: Path) -> None:
    root, watcher = tmp_path / "run", 5
    with Hosts(6, shared=tmp_path) as hosts:
        first = hosts[watcher].start(
            *submission(root), env=cluster(hosts, tmp_path, (1, 2)).environment(), log=tmp_path / "first.log"
        )
        hosts[watcher].start(*prometheus(hosts, tmp_path), log=tmp_path / "prometheus.log")
        collected = Forest(root / "rounds/01/collect")
        wait_for(lambda: len(collected.finished()) >= 20, first, f"trees of round 1; see {tmp_path}", 3000)
        old = collected.work
        hosts[0].kill()
        hosts[0].boot()
        again = cluster(hosts, tmp_path, (3, 4))
        assert old.exists(), "the old coordinator is stopped by the new one's driver, not by its head's death"
        done = hosts[watcher].run(*submission(root), env=again.environment(), timeout=3600, check=False)
        (tmp_path / "second.log").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        assert first.wait(300) == 1 and "Traceback" not in (tmp_path / "first.log").read_text(), (
            "who followed the dead head is told"
        )
        query = ("promtool", "query", "instant", "--format=json", "http://127.0.0.1:9090")
        seen = {
            name: json.loads(hosts[watcher].run(*query, f"max_over_time({name}[3h])", check=True).stdout)
            for name in (
                "ray_agentr_round",
                "ray_agentr_train_step",
                "ray_agentr_expansions_total",
                "ray_agentr_env_server_up",
            )
        }
    assert all(seen.values()), seen
    assert max(float(series["value"][1]) for series in seen["ray_agentr_round"]) == 2
    parts = {series["metric"]["instance"].rpartition(":")[0] for series in seen["ray_agentr_expansions_total"]}
    assert len(parts) == 2, "the coordinators of both clusters were scraped"
    differences = compare(undisturbed, root)
    assert len(differences) > 10 and all(each.same for each in differences), [
        str(each) for each in differences if not each.same
    ]


def cluster(hosts: Hosts, folder: Path, others: tuple[int, int]) -> RayHosts:
    """A cluster of the first host and two others, environment servers and engines each on their own."""
    ray = RayHosts(hosts, folder / "ray", settings={"RAY_metrics_report_interval_ms": "2000"})
    ray.head(hosts[0], labels={"agentr-role": "head"})
    for number, role in zip(others, ("env", "rollout"), strict=True):
        ray.worker(hosts[number], labels={"agentr-role": role})
    ray.wait(3, 300)
    return ray


def submission(root: Path) -> list[str]:
    return ["python", "-m", "agentr.cli", "submit", DEMO, "cluster=cpu_cluster", "cluster.lease_s=5", f"run.dir={root}"]


def prometheus(hosts: Hosts, folder: Path) -> list[str]:
    """The Prometheus that ships, of this cluster."""
    config = (PROMETHEUS / "prometheus.yml").read_text()
    for before, after in {
        "http://head:8265": f"http://{hosts[0].address}:8265",
        "/run/secrets/ray_token": f"{folder}/ray/token",
    }.items():
        assert before in config
        config = config.replace(before, after)
    (folder / "prometheus.yml").write_text(config)
    shutil.copy(PROMETHEUS / "alerts.yml", folder)
    return ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
