"""What the driver says in metrics."""

from typing import Any

from agentr.rounds.run_metrics import Gauges


def said(gauges: Gauges) -> dict[tuple[str, ...], float]:
    return {
        (sample.metric.name.removeprefix("agentr_"), *sample.labels.values()): sample.value
        for sample in gauges.samples()
    }


def test_the_stage_that_runs_is_the_innermost() -> None:
    gauges = Gauges()
    assert said(gauges) == {("round",): 0}
    gauges.event("stage_started", {"stage": "rounds/02/train"})
    gauges.event("stage_started", {"stage": "rounds/02/rollouts"})
    gauges.event("stage_stale", {"stage": "rounds/01/eval"})
    assert said(gauges) == {("round",): 2, ("stage", "rollouts"): 1}
    gauges.event("stage_sealed", {"stage": "rounds/02/rollouts"})
    assert said(gauges) == {("round",): 2, ("stage", "train"): 1}
    gauges.event("stage_stopped", {"stage": "rounds/02/train", "error": "x"})
    gauges.event("stage_started", {"stage": "model"})
    assert said(gauges) == {("round",): 2, ("stage", "model"): 1}


def collected(done: int, in_flight: int) -> dict[str, Any]:
    """Progress of a stage of 10 trees, of which one was given up."""
    ended = {"done": done, "failed": 1, "skipped": 0}
    return {"total": 10, "in_flight": in_flight, **ended, "counts": {"completions": 7}}


def test_trees_are_those_of_the_last_stage_of_trees() -> None:
    gauges = Gauges()
    gauges.collected(collected(2, 4))
    trees = {key[1]: value for key, value in said(gauges).items() if key[0] == "trees"}
    assert trees == {"growing": 4, "done": 2, "failed": 1, "skipped": 0, "to_come": 3}


def test_what_stands_still_does_so_until_it_moves_or_the_stage_ends() -> None:
    gauges = Gauges()

    def stands(*kinds: str, title: str = "rounds/01/collect") -> None:
        gauges.event("stands_still", {"title": title, "causes": [{"kind": kind} for kind in kinds]})

    def still() -> set[str]:
        return {key[1] for key, value in said(gauges).items() if key[0] == "stands_still" and value == 1}

    gauges.collected(collected(2, 4))
    stands("disk_full")
    gauges.collected(collected(2, 3))
    stands("engine_dead", "disk_full")
    assert still() == {"disk_full", "engine_dead"}
    gauges.collected(collected(3, 3))
    assert not still()
    stands("disk_full")
    gauges.collected({**collected(3, 3), "counts": {"completions": 8}})
    assert not still(), "a tree grew, and none ended"
    stands("disk_full")
    gauges.trained({"job": "a", "step": 1})
    assert not still()
    stands("disk_full")
    gauges.event("stage_stopped", {"stage": "rounds/01/collect"})
    assert not still()
    stands("mirror_failing", title="mirror")
    gauges.collected(collected(4, 3))
    assert still() == {"mirror_failing"}, "it stops nothing, and lasts until the mirror says so"
    gauges.event("moves_again", {"title": "mirror"})
    assert not still()


def test_a_part_was_restarted_when_it_was_started_again() -> None:
    gauges = Gauges()
    gauges.started("coordinator-0")
    assert said(gauges)["restarts", "coordinator-0"] == 0
    gauges.started("coordinator-0")
    gauges.started("coordinator-1")
    now = said(gauges)
    assert (now["restarts", "coordinator-0"], now["restarts", "coordinator-1"]) == (1, 0)


def test_the_last_step_of_a_training_stays() -> None:
    gauges = Gauges()
    gauges.trained({"step": 3, "loss": 0.5})
    gauges.event("stage_sealed", {"stage": "rounds/01/train"})
    assert said(gauges) == {("round",): 0, ("train_step",): 3, ("train_loss",): 0.5}
    gauges.trained({"step": 4, "loss": None})
    assert said(gauges) == {("round",): 0, ("train_step",): 4}
