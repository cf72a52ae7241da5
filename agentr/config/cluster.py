"""Sections of the configuration about the cluster that a run is on, and about who watches it."""

from dataclasses import dataclass, field

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from agentr.config.checks import Section


@dataclass
class NodesConfig(Section):
    """Nodes on which each part runs: values of their Ray labels, such as agentr-role: env, in(env, head) or !rollout; a
    node without the label is none of them. Empty means any node."""

    driver: dict[str, str] = field(default_factory=dict)
    """The driver of a submitted job: a node that is not taken away."""
    coordinator: dict[str, str] = field(default_factory=dict)
    """Coordinators, which hold the growing trees: nodes that are not taken away, near the environment servers."""
    environment: dict[str, str] = field(default_factory=dict)
    """Environment servers; they are spread over these nodes."""
    engine: dict[str, str] = field(default_factory=dict)
    """Engines; each is on one node, and on CPUs they are spread."""
    trainer: dict[str, str] = field(default_factory=dict)
    """Workers of the trainer."""


@dataclass
class ClusterConfig(Section):
    """The Ray cluster that everything runs on.
    The key cluster itself names a set of values: local, gpu_node, gpu_cluster, cpu_cluster, or a YAML file."""

    address: str = ""
    """Ray cluster to join; empty starts one on this machine, 'auto' joins the one that runs here."""
    cpus: NonNegativeInt = 0
    """CPUs of a local cluster; 0 means all."""
    dashboard: bool = False
    """Start Ray's dashboard with a local cluster."""
    nodes: NodesConfig = field(default_factory=NodesConfig)
    """Where each part runs."""
    wait_s: NonNegativeFloat = 0.0
    """Longest wait for nodes that the cluster has yet to start; 0 for a cluster that does not grow."""
    actor_restarts: NonNegativeInt = 3
    """How often a dead engine, coordinator or supervisor of a server is started again within restart_window_s."""
    restart_window_s: PositiveFloat = 600.0
    """Seconds within which restarts are counted."""
    lease_s: PositiveFloat = 30.0
    """After so many seconds of silence a driver on another machine counts as dead, and the run may be taken over."""


@dataclass
class WatchdogConfig(Section):
    """Who looks for the cause when nothing moves."""

    after_s: PositiveFloat = 180.0
    """Seconds without progress after which the cause is looked for and said, in the terminal, the log and the
    events."""
