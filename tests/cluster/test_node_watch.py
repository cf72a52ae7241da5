"""Nodes on hosts of their own: one whose disk is full, one whose link is cut, one that is dead."""

import sys
from pathlib import Path

import pytest

from tests.hosts import Hosts, RayHosts, needs_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(600), needs_hosts]

#: Looks whenever it is told to, and says what it found in a line.
LOOK = """
import json, sys
from pathlib import Path
import ray
from agentr.cluster.checks import check_disks, check_nodes
from agentr.cluster.node_watch import Lookouts
from agentr.cluster.nodes import nodes

ray.init(address="auto", log_to_driver=False)
lookouts, known = Lookouts(), nodes()
lookouts.post(known)
for line in sys.argv[2:]:
    wanted, _, mark = line.partition("@")
    while not Path(mark).exists():
        ray.wait([ray.put(0)], timeout=0.1)
        __import__("time").sleep(0.1)
    for _ in range(60):
        causes = [*check_nodes(known, nodes()), *check_disks(Path(sys.argv[1]), lookouts)]
        if [cause.kind for cause in causes] == ([wanted] if wanted != "well" else []):
            break
        __import__("time").sleep(1)
    Path(mark + ".seen").write_text(json.dumps([str(cause) for cause in causes]))
"""


def test_a_full_disk_a_cut_link_and_a_dead_node_are_told_apart(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with Hosts(2, shared=tmp_path) as hosts:
        ray = RayHosts(hosts, tmp_path / "ray")
        ray.head(hosts[0], labels={"agentr-role": "head"}, dashboard=False)
        ray.worker(hosts[1], labels={"agentr-role": "env"})
        ray.wait(2)
        wanted = ["well", "disk_full", "well", "node_unreachable", "well", "node_lost"]
        marks = [tmp_path / f"mark{number}" for number in range(len(wanted))]
        lines = [f"{kind}@{mark}" for kind, mark in zip(wanted, marks, strict=True)]
        log = tmp_path / "look.log"
        look = hosts[0].start(sys.executable, "-c", LOOK, str(run), *lines, env=ray.environment(), log=log)

        def seen(number: int) -> str:
            marks[number].touch()
            answer = Path(f"{marks[number]}.seen")
            wait_until(answer.exists, look, log)
            return answer.read_text()

        assert seen(0) == "[]"
        hosts[1].run("sh", "-c", "mount -o remount,size=$(( $(df -k /tmp | awk 'NR==2{print $3}') + 20000 ))k /tmp")
        full = seen(1)
        assert "on 127.9.0.12 (env) is full (" in full and "/tmp/ray/session_" in full and "--temp-dir" in full
        hosts[1].run("mount", "-o", "remount,size=8g", "/tmp")
        assert seen(2) == "[]"
        hosts[1].cut()
        cut = seen(3)
        assert (
            "the node 127.9.0.12 (env) is alive for Ray, and does not answer (127.9.0.12:" in cut
            and "takes no connection within 10 s" in cut
        )
        hosts[1].join()
        assert seen(4) == "[]"
        hosts[1].kill()
        assert "lost: the node 127.9.0.12 (env) (1 of 2 nodes are alive)" in seen(5)


def wait_until(condition, process, log: Path, timeout_s: float = 180.0) -> None:
    import time

    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() in (None, 0), log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)
