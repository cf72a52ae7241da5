"""Hosts that die, are cut off or are taken away under a run of online training: it comes to the units of an undisturbed
run.

Each test shows a table of the seconds until a fault was noticed and until there was new work. Hosts that are switched
off, together and each by itself, and links that are cut for three minutes are tried by hand: ``pytest
tests/chaos/test_hosts_die.py --by-hand -s``.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

from agentr.store.files import read_lines
from agentr.store.working import working
from tests.chaos.online import written
from tests.hosts import Host, Hosts, RayHosts, needs_hosts
from tests.tools.chaos.progress import Progress
from tests.tools.chaos.units import compare

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.by_hand, pytest.mark.timeout(1500), needs_hosts]

#: The parts of a run, each on a host of its own; ``spare`` may take any of them.
PARTS = ("coordinator", "environment", "engine", "trainer")
TRAIN, ROLLOUTS = "rounds/01/train", "rounds/01/rollouts"


class Cluster:
    """A head, a host for each part, and a spare one that joins later."""

    def __init__(self, hosts: Hosts, root: Path) -> None:
        self.root = root
        self.head, *others, self.spare = hosts
        self.of = dict(zip(PARTS, others, strict=True))
        self.ray = RayHosts(hosts, root / "ray")
        self.ray.head(self.head, labels={"part": "head"}, dashboard=False)
        for part, host in self.of.items():
            self.ray.worker(host, labels={"part": part})
        self.ray.wait(1 + len(PARTS), timeout_s=400)
        self.run = root / "run"
        self.log = root / "log"
        self.progress = Progress(self.run)
        self.table: list[str] = []
        self.driver: Popen[bytes]

    def start(self) -> None:
        """Starts the run; when its first step is done the spare host joins."""
        places = [f'cluster.nodes.{part}={{part: "in({part},spare)"}}' for part in PARTS]
        command = (
            "python",
            "-m",
            "agentr.cli",
            "run",
            str(written(self.root)),
            f"run.dir={self.run}",
            "cluster.address=auto",
            *places,
        )
        more = ("collect.infra_retries=20", "env.retries=20", "trainer.max_failures=4", "policy.device=cpu")
        self.driver = self.head.start(*command, *more, env=self.ray.environment(), log=self.log)
        self.wait(lambda: self.step() >= 1, "the first step")
        self.ray.worker(self.spare, labels={"part": "spare"})
        self.ray.wait(2 + len(PARTS), timeout_s=400)

    def step(self) -> int:
        notes = self.run / ROLLOUTS / "steps.jsonl"
        return max((line["step"] for line in read_lines(notes)), default=0) if notes.exists() else 0

    def trees(self) -> int:
        return self.progress.size(ROLLOUTS)[0]

    def trained(self) -> int:
        return self.progress.size(TRAIN)[1]

    def signs(self) -> list[str]:
        """What the run says of trouble, and what was started again."""
        found = [text for text in self.progress.said().split("; ") if text]
        for path in sorted((self.run / "logs").glob("starts-*.jsonl")):
            found += [f"{path.stem} started on {line['host']} at {line['time']}" for line in read_lines(path)]
        return [*found, f"attempt {work.name}"] if (work := working(self.run / TRAIN)) is not None else found

    def wait(self, condition: Callable[[], object], what: str, timeout_s: float = 400.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self.driver.poll() is None, f"ended while waiting for {what}: {self.log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"waited for {what}: {self.log.read_text()[-3000:]}"
            time.sleep(0.05)

    def strike(
        self,
        name: str,
        do: Callable[[], object],
        *,
        part: str = "",
        mend: Callable[[], None] | None = None,
        after_s: float = 0.0,
    ) -> None:
        """Does something to the cluster, and waits until there is new work after it was noticed, or after it was
        mended.

        Args:
            part: Whose work is waited for: trees, or optimiser steps of the trainer.
            mend: Undoes it, after so many seconds, at the latest at the end.
        """
        units = self.trained if part == "trainer" else self.trees
        before, started = set(self.signs()), time.monotonic()
        do()
        noticed: float | None = None
        sign, least, done = "", None, 0.0

        def recovered() -> bool:
            nonlocal noticed, sign, least, mend, done
            since = time.monotonic() - started
            if mend is not None and since >= after_s:
                mend()
                mend, done = None, since
            new = [text for text in self.signs() if text not in before]
            if noticed is None and new:
                noticed, sign = since, new[0]
            if noticed is None and not done:
                return False
            now = units()
            if least is not None and now > least:
                return True
            least = now if least is None else min(least, now)
            return False

        self.wait(recovered, f"new work after {name}")
        waited = time.monotonic() - started
        if mend is not None:
            time.sleep(max(0.0, after_s - waited))
            mend()
        first = f"{noticed:.1f}" if noticed is not None else "-"
        self.table.append(f"{name:40} noticed {first:>6} s ({sign[:60]}), new work after {waited:.1f} s")

    def finish(self, undisturbed: Path) -> None:
        """Waits for the end of the run and compares it."""
        assert self.driver.wait(600) == 0, self.log.read_text()[-3000:]
        print("\n" + "\n".join(self.table))
        assert [str(difference) for difference in compare(undisturbed, self.run) if not difference.same] == []
        assert json.loads((self.run / "report.json").read_text())["complete"]

    def hosts_of(self, part: str) -> list[str]:
        """The hosts on which engines or environment servers were started, in order."""
        (starts,) = (self.run / "logs").glob(
            {"engine": "starts-rollout-0-*.jsonl", "environment": "starts-env-*.jsonl"}[part]
        )
        return [line["host"] for line in read_lines(starts)]


@contextmanager
def cluster(root: Path) -> Iterator[Cluster]:
    with Hosts(6, shared=root) as hosts:
        found = Cluster(hosts, root)
        found.start()
        yield found


def test_the_host_of_each_part_is_switched_off(undisturbed_online: Path, tmp_path: Path) -> None:
    """Two at a time: the run is short, and a dead node is noticed after twenty seconds."""
    with cluster(tmp_path) as there:
        for step, pair in ((1, ("trainer", "engine")), (3, ("environment", "coordinator"))):
            there.wait(lambda step=step: there.step() >= step, f"step {step}")
            there.strike(
                f"hosts of {' and '.join(pair)} killed",
                lambda pair=pair: [there.of[part].kill() for part in pair],
                part=pair[0],
            )
        there.finish(undisturbed_online)
        assert there.hosts_of("engine")[-1] == there.hosts_of("environment")[-1] == there.spare.name


def test_what_is_on_nodes_that_are_taken_away_moves_before_their_deadline_and_a_link_is_cut_for_20_s(
    undisturbed_online: Path, tmp_path: Path
) -> None:
    with cluster(tmp_path) as there:
        deadline = time.monotonic() + 120
        drain(there, 120)
        there.wait(
            lambda: all(there.hosts_of(part)[-1] == there.spare.name for part in ("engine", "environment")),
            "engine and server to move",
        )
        there.wait(
            lambda: any("coordinator" in str(event["moved"]) for event in drained(there)), "the coordinator to move"
        )
        there.wait(lambda: not uses(there, there.of["trainer"]), "the trainer to move")
        assert time.monotonic() < deadline, "they moved too late"
        there.table.append(
            f"{'four nodes drain (120 s)':40} all had moved after {120 - (deadline - time.monotonic()):.1f} s"
        )
        for host in there.of.values():
            host.kill()
        there.strike("link of the spare host cut for 20 s", there.spare.cut, mend=there.spare.join, after_s=20.0)
        there.finish(undisturbed_online)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("cut_s", [0, 20, 180], ids=["killed", "20 seconds", "minutes"])
def test_one_host_is_switched_off_or_cut_off(undisturbed_online: Path, tmp_path: Path, part: str, cut_s: int) -> None:
    with cluster(tmp_path) as there:
        host = there.of[part]
        if cut_s:
            there.strike(
                f"link of the {part}'s host cut for {cut_s} s", host.cut, part=part, mend=host.join, after_s=cut_s
            )
        else:
            there.strike(f"host of the {part} killed", host.kill, part=part)
        there.finish(undisturbed_online)


def drain(there: Cluster, seconds: int) -> None:
    """Says that the nodes of all parts are taken away soon, as a cloud's notice would (``ray drain-node`` does the same
    for one)."""
    going = [host.address for host in there.of.values()]
    script = (
        "import os, time; from ray._raylet import GcsClient\n"
        "from ray.core.generated.autoscaler_pb2 import DrainNodeReason\n"
        "client, reason = GcsClient(address=os.environ['RAY_ADDRESS']), DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION\n"
        "for id, node in client.get_all_node_info(timeout=30).items():\n"
        f"    if node.node_manager_address in {going} and node.state == 0:\n"
        f"        print(client.drain_node(id.hex(), reason, 'spot', int(time.time() + {seconds}) * 1000))\n"
    )
    done = there.head.run("python", "-c", script, env=there.ray.environment())
    assert done.stdout.count("True") == len(PARTS), done.stdout


def drained(there: Cluster) -> list[dict]:
    return [event for event in read_lines(there.run / "events.jsonl") if event["event"] == "node_drains"]


def uses(there: Cluster, host: Host) -> bool:
    """Whether a worker of the trainer is on a host."""
    found = host.run("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -a 'Train[W]orker'", check=False)
    return "TrainWorker" in found.stdout
