"""What a configuration needs of a cluster, on clusters that are made up."""

import re

import pytest

from agentr.cluster.needs import label_problems, shortages
from agentr.cluster.nodes import ClusterNode
from agentr.cluster.places import Places
from agentr.cluster.roles import Role, matches
from agentr.errors import ConfigError
from agentr.methods import load


def node(name: str, gpus: float = 0, role: str = "", **labels: str) -> ClusterNode:
    return ClusterNode(name, name, {**({"agentr-role": role} if role else {}), **labels}, 8.0, gpus)


CLUSTER = [
    node("h", role="head"),
    node("e", role="env"),
    node("r1", 4, "rollout"),
    node("r2", 4, "rollout"),
    node("t", 8, "train"),
]


def found(changes: list[str], there: list[ClusterNode]) -> list[str]:
    places = Places.of(load(None, changes))
    return [str(problem) for problem in shortages(places, places.needs(sum(n.gpus for n in there)), there)]


BATCH = "{batch_size: 16, micro_batch_size: 1}"
SPLIT = ["cluster=gpu_cluster", "trainer.workers=8", f"train=[{BATCH}]", f"warm_start.train={BATCH}"]


def test_what_fits_is_fine() -> None:
    assert found([*SPLIT, "policy.engines=8"], CLUSTER) == []
    assert found([*SPLIT, "policy.engines=2", "policy.tensor_parallel_size=4"], CLUSTER) == []
    assert found([], [node("one")]) == []
    assert found(["cluster=cpu_cluster", "policy.engines=9"], [node("a"), node("b")]) == [], "CPUs are shared"


@pytest.mark.parametrize(
    "changes, there, wanted",
    [
        (
            [*SPLIT, "policy.engines=9"],
            CLUSTER,
            (
                r"policy.engines: engine wants 9 x 1 GPUs on nodes with .*, and there is room for 8 (r1 (rollout): 4, "
                r"r2 (rollout): 4). Lower"
            ),
        ),
        (
            [*SPLIT, "policy.engines=1", "policy.tensor_parallel_size=8"],
            CLUSTER,
            "policy.tensor_parallel_size: engine wants 8 GPUs on one node on nodes with .*, and none has more than 4",
        ),
        ([*SPLIT, "trainer.workers=16"], CLUSTER, "trainer.workers: trainer wants 16 x 1 GPUs"),
        (
            ["cluster=gpu_node"],
            [node("one")],
            "policy.engines: engine wants 1 GPUs on one node, and none has more than 0",
        ),
        (
            ["cluster=gpu_node", "policy.engines=2", "trainer.share=split"],
            [node("one", 2)],
            "policy.engines: engine wants 2 x 1 GPUs, and there is room for 1 (one: 2). Lower policy.engines, add "
            "nodes, or set cluster.wait_s if the cluster grows. With trainer.share=time, engines and trainer take "
            "turns, with together they share GPUs.",
        ),
        (
            ["cluster=cpu_cluster", "cluster.nodes.engine={agentr-role: rollout}"],
            [node("a", role="env")],
            (
                "cluster.nodes.engine: no node of 1 can be a node of the role engine: it wants agentr-role=rollout. "
                "Labels there: .*role=env."
            ),
        ),
    ],
)
def test_what_does_not_fit_is_named_with_what_is_there_and_the_setting(
    changes: list[str], there: list[ClusterNode], wanted: str
) -> None:
    problems = " ".join(found(changes, there))
    for part in wanted.split(".*"):
        assert part in problems, problems


def test_engines_and_trainer_take_turns_or_have_their_own() -> None:
    one = [node("one", 2)]
    assert found(["cluster=gpu_node", "policy.engines=2"], one) == []
    assert len(found(["cluster=gpu_node", "policy.engines=2", "trainer.share=split"], one)) == 1
    assert found(["cluster=gpu_node", "policy.engines=1", "trainer.share=split"], one) == []


ONLINE = [
    "method.type=grpo",
    "method.tasks=2",
    "method.episodes=4",
    "train=[{batch_size: 8, micro_batch_size: 1}]",
    "trainer.use_gpu=true",
    "warm_start.enabled=false",
]


@pytest.mark.parametrize(
    ("changes", "online", "gpus"),
    [
        ([], False, (1, 1)),
        ([], True, (0.85, 0.15)),
        (["policy.gpu_memory_utilization=0.3"], True, (0.51, 0.49)),
        (["trainer.share=together"], False, (0.85, 0.15)),
        (["trainer.share=split"], True, (1, 1)),
        (["policy.device=cpu"], True, (1, 1)),
        (["trainer.use_gpu=false"], True, (1, 1)),
    ],
)
def test_what_is_up_at_the_same_time_on_a_gpu_books_no_more_than_it(
    changes: list[str], online: bool, gpus: tuple[float, float]
) -> None:
    assert Places.of(load(None, ["cluster=gpu_node", *ONLINE, *changes]), online).booked(1) == gpus


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            ["trainer.share=together", "policy.tensor_parallel_size=2"],
            "policy.tensor_parallel_size: 2: an engine on several GPUs",
        ),
        (["policy.tensor_parallel_size=2"], "policy.tensor_parallel_size: 2: an engine on several GPUs"),
        (
            ["trainer.share=together", "trainer.workers=2"],
            "trainer.workers: 2 share their GPUs with an engine each, and policy.engines = 1",
        ),
        (
            ["trainer.share=together", "policy.gpu_memory_utilization=1.0"],
            "leaves the trainer worker beside the engine nothing",
        ),
        (["method.max_staleness=1"], "engines that sleep while the trainer trains cannot be ahead of it"),
    ],
)
def test_what_cannot_share_a_gpu_is_refused(changes: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        load(None, [*ONLINE, *changes])
    load(None, [*ONLINE, *changes, "trainer.share=split"])


def test_two_engines_of_two_gpus_do_not_fit_where_each_node_has_three() -> None:
    three = [node("a", 3), node("b", 3)]
    assert found(["policy.device=gpu", "policy.engines=2", "policy.tensor_parallel_size=2"], three) == []
    assert "room for 2" in found(["policy.device=gpu", "policy.engines=3", "policy.tensor_parallel_size=2"], three)[0]


def test_the_configuration_says_what_engines_run_on_and_not_what_is_there_now() -> None:
    def engine(changes: list[str], gpus: float) -> int:
        return next(need.gpus for need in Places.of(load(None, changes)).needs(gpus) if need.role is Role.engine)

    assert (engine(["policy.device=gpu"], 0), engine(["policy.device=cpu"], 8)) == (1, 0)
    assert (engine([], 0), engine([], 8)) == (0, 1)
    api = ["policy.backend=openai", "policy.openai.model=m"]
    assert all(need.role is not Role.engine for need in Places.of(load(None, api)).needs(8))


@pytest.mark.parametrize(
    "changes, there, wanted",
    [
        (
            ["cluster.nodes.engine={agentr-role: rolout}"],
            CLUSTER,
            "cluster.nodes.engine: 'rolout' is no value of agentr-role. Did you mean rollout?",
        ),
        (
            ["cluster.nodes.engine={agentr-rol: rollout}"],
            CLUSTER,
            "no node has a label 'agentr-rol'. Did you mean agentr-role?",
        ),
        ([], [node("a", role="trian")], "the node a has agentr-role=trian, which is no role. Did you mean train?"),
    ],
)
def test_an_unknown_label_is_answered_with_the_nearest(
    changes: list[str], there: list[ClusterNode], wanted: str
) -> None:
    (problem,) = label_problems(Places.of(load(None, changes)), there)
    assert wanted in str(problem)
    assert label_problems(Places.of(load(None, ["cluster=gpu_cluster"])), CLUSTER) == []


@pytest.mark.parametrize(
    "condition, value, holds",
    [
        ("env", "env", True),
        ("env", "train", False),
        ("env", None, False),
        ("!env", "env", False),
        ("!env", None, True),
        ("in(env,head)", "head", True),
        ("!in(env,head)", "head", False),
        ("!in(env,head)", None, True),
    ],
)
def test_conditions_on_labels(condition: str, value: str | None, holds: bool) -> None:
    assert matches({} if value is None else {"role": value}, {"role": condition}) is holds
