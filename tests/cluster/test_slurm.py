"""A run on a real SLURM of two nodes, whose time limit is shorter than the run: it is requeued and goes on by
itself."""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentr.store.files import read_lines
from agentr.store.run import RunStore
from tests.hosts import Host, Hosts, needs_hosts

REPOSITORY = Path(__file__).parents[2]
DAEMONS = ("slurmctld", "slurmd", "sbatch", "scontrol")

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.chaos,
    pytest.mark.timeout(1500),
    needs_hosts,
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in DAEMONS), reason="SLURM (Debian's slurm-wlm) is not installed"
    ),
]

CONFIGURATION = """
ClusterName=agentr
SlurmctldHost={head.name}({head.address})
AuthType=auth/none
CredType=cred/none
CryptoType=crypto/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%h.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/backfill
JobRequeue=1
KillWait=5
OverTimeLimit=0
ReturnToService=2
SlurmctldParameters=enable_configless
MailProg=/bin/true
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP
"""


class Slurm:
    """A controller on the first host, and a daemon on each."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        (folder / "state").mkdir()
        nodes = "\n".join(
            f"NodeName={host.name} NodeAddr={host.address} CPUs=2 RealMemory=4000 State=UNKNOWN" for host in hosts
        )
        self.configuration = folder / "slurm.conf"
        self.configuration.write_text(CONFIGURATION.format(head=hosts[0], folder=folder, nodes=nodes))
        hosts[0].start("slurmctld", "-D", "-c", log=folder / "controller.log", env=self.environment)
        for host in hosts:
            host.start("slurmd", "-D", "-N", host.name, log=folder / f"{host.name}.log", env=self.environment)
        self.wait_for(lambda: self.call("sinfo", "-h", "-o", "%T %D") == f"idle {len(hosts)}", 120)

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.configuration)}

    def call(
        self, *command: str, check: bool = False, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> str:
        """What a command of SLURM's prints on the first host."""
        done = self.hosts[0].run(*command, env={**self.environment, **(env or {})}, cwd=cwd, check=check)
        return done.stdout.strip()

    def state(self, job: str) -> dict[str, str]:
        return dict(re.findall(r"(\w+)=(\S*)", self.call("scontrol", "show", "job", job)))

    def wait_for(self, condition: object, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.5)

    def told(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    with Hosts(2, shared=folder) as hosts:
        yield Slurm(hosts, folder)


def processes(host: Host) -> str:
    return host.run("ps", "-eo", "args", check=False).stdout


def test_a_time_limit_shorter_than_the_run(slurm: Slurm) -> None:
    run, log = slurm.folder / "run", slurm.folder / "job.log"
    # The limit is told by hand as soon as the run has something to lose: SLURM's own limits are whole minutes, which a
    # slow machine may need to start.
    options = ["--nodes=2", "--time=30", f"--output={log}", "--mem=2000"]
    script = REPOSITORY / "ray_jobs/slurm/agentr.sbatch"
    environment = {
        "RUN_DIR": str(run),
        "JOB": "smoke",
        "VENV": sys.prefix,
        "ADDRESS": slurm.hosts[0].address,
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    answer = slurm.call("sbatch", *options, str(script), "cluster.lease_s=5", env=environment, check=True)
    job = answer.rpartition(" ")[2]
    slurm.wait_for(
        lambda: list(run.glob("*/collect/work-*/finished/*")) or list(run.glob("*/*/collect/work-*/finished/*")), 400
    )
    slurm.call("scancel", "--batch", "--signal=USR1", job, check=True)
    slurm.wait_for(lambda: slurm.state(job).get("Restarts") == "1", 200)
    slurm.wait_for(lambda: slurm.state(job).get("JobState") in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"), 700)
    state = slurm.state(job)
    assert state["JobState"] == "COMPLETED" and state["ExitCode"] == "0:0", slurm.told()
    assert (run / "report.html").exists()
    events = read_lines(run / "events.jsonl")
    assert sum(event["event"] == "opened" for event in events) == 2, "the second start went on with the first one's run"
    sealed = [event["stage"] for event in events if event["event"] == "sealed"]
    assert len(sealed) == len(set(sealed)), "no stage was made twice"
    assert RunStore(run).owner() == ""
    assert not any("ray::" in processes(host) or "raylet" in processes(host) for host in slurm.hosts), (
        "nothing is left on the nodes"
    )
    assert not (slurm.folder / "run.slurm").exists()
    assert "the job goes into the queue again and continues the run" in log.read_text()
