"""What a coordinator's trees took, as its metrics say it."""

from typing import Any

from agentr.cluster import metrics
from agentr.collect.meter import Meter, unseen
from agentr.collect.units import StageProgress
from agentr.search import Tree
from agentr.search.hiding import Hiding
from agentr.search.tree import Origin
from agentr.types import Cost, Message, Task


def grown() -> Tree:
    """A root with a prompt of 100 tokens, and a chain of turns of 10 tokens with answers of 7."""
    tree = Tree.start(Task("env", "1", "train"), [Message("user", "x")], tuple(range(100)), 0, "policy")
    for parent, origin in ((0, Origin.POLICY), (1, Origin.EXPERT), (2, Origin.POLICY)):
        node = tree.nodes[parent]
        made: Any = type(node)(
            id=parent + 1,
            parent=parent,
            depth=parent + 1,
            origin=origin,
            token_ids=tuple(range(10)),
            bridge_ids=tuple(range(7)),
        )
        tree.nodes.append(made)
    return tree


def test_what_a_perfect_cache_computes_of_a_prompt() -> None:
    tree = grown()
    assert unseen(tree, 0) == 100
    # A turn that was decoded is there but for its last token; an expert's is not.
    assert [unseen(tree, node) for node in (1, 2, 3)] == [108, 108 + 17, 108 + 17 + 8]
    tree.nodes[0].expansions = 1
    assert [unseen(tree, node) for node in (0, 1, 2, 3)] == [0, 8, 25, 33]
    tree.nodes[2].expansions = 1
    assert [unseen(tree, node) for node in (2, 3)] == [0, 8]


def test_what_stood_after_reasoning_that_is_left_out_is_computed_anew() -> None:
    tree = grown()
    tree.nodes[0].expansions = 1
    tree.nodes[1].reasoning, tree.hiding = 4, Hiding()
    assert [unseen(tree, node) for node in (1, 2)] == [6 + 7, 6 + 7 + 17]
    tree.hiding = Hiding(opened=2, instead=(5,))
    assert unseen(tree, 1) == 1 + 6 + 7, "what is put in place of the opening, the answer, the bridge"


def values(meter: Meter, policy: Any = None) -> dict[tuple[str, ...], float]:
    return {
        (sample.metric.name.removeprefix("agentr_"), *sample.labels.values()): sample.value
        for sample in meter.samples(policy, 0.25)
    }


def test_turns_are_counted_with_what_was_computed_again() -> None:
    meter, tree = Meter(), grown()
    meter.turns(tree, 0, Cost(calls=1, prompt_tokens=100, cached_tokens=64, completion_tokens=9), 2.0, 0.02)
    tree.nodes[0].expansions = 1
    meter.turns(tree, 0, Cost(calls=1, prompt_tokens=100, cached_tokens=64, completion_tokens=9), 2.0, 0.02)
    meter.turns(tree, 1, Cost(), 0.0, 5.0)  # an expert's turn draws nothing
    said = values(meter)
    assert said["expansions_total",] == 2
    assert (
        said["tokens_total", "prefilled"] == 72
        and said["tokens_total", "cached"] == 128
        and said["tokens_total", "generated"] == 18
    )
    assert said["prefilled_again_tokens_total",] == 36, "all of the second call's, nothing of the first's"
    assert said["policy_seconds_bucket_total", "1.0"] == 0 and said["policy_seconds_bucket_total", "3.0"] == 2
    assert said["environment_seconds_bucket_total", "+Inf"] == 2
    assert said["event_loop_lag_seconds",] == 0.25


def test_retries_are_those_of_all_stages() -> None:
    meter = Meter()
    assert {cause for name, cause in (key for key in values(meter) if key[0] == "retries_total")} == set(metrics.CAUSES)
    meter.begin(StageProgress(retried=3))
    meter.causes["server_down"] += 2
    assert values(meter)["retries_total", "tree"] == 3
    meter.begin(StageProgress(retried=1))
    said = values(meter)
    assert said["retries_total", "tree"] == 4 and said["retries_total", "server_down"] == 2
