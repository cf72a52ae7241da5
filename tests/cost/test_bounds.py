"""The dry run's estimate: bounds that hold, for every shipped configuration."""

from pathlib import Path

import pytest

from agentr.config.policy import Who
from agentr.cost.bounds import estimate
from agentr.methods import load, method_of, plan_of
from tests.commands.test_first_tree import ALONE, COMPARED

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "base"), sorted(ALONE) + sorted(COMPARED), ids=lambda p: p.stem if p else "")
def test_every_shipped_configuration_has_one(path: Path, base: Path | None) -> None:
    config = load(path, base=base)
    found = estimate(plan_of(config))
    for line in ("trees:", "completions:", "completion tokens:", "actions:", "optimiser steps:", "disk:", "needs:"):
        assert line in found.text()
    assert found.completions.value is not None, "the environments that ship say their limits"
    if config.collect.max_completions:
        works = method_of(config.method).exploration(1).values()
        begun = sum(work.max_completions(1) > 0 and not work.extends for work in works) or 1
        assert found.completions.value <= max(config.collect.max_completions, 12 * 100) * config.run.rounds * begun


def test_the_demos_estimate_is_above_what_the_demo_takes() -> None:
    found = estimate(plan_of(load(ROOT / "configs/demo.yaml")))
    assert found.trees.value == 2 * 300
    assert found.completions.value == 600 * 8 * 10 * 4
    assert found.episodes.value == 4 * 284
    assert found.optimiser_steps.value == 250 + 130 + 130 + 260
    # What the README's run took: requests with up to four completions each, and tokens.
    assert found.completions.value > 5563 + 4785 and (found.completion_tokens.value or 0) > 265806 + 318919


def test_what_cannot_be_known_is_said_to_be_unknown() -> None:
    elsewhere = ["train=[{epochs: 3}]", "env.url=http://127.0.0.1:1", "collect.tasks.limit=10", "eval.tasks.limit=5"]
    found = estimate(plan_of(load(None, elsewhere)))
    assert found.completions.value == 3 * 10 * 8 * 21 * 4, "UCT bounds itself, whatever the server's limit"
    assert "not known: the server's step limit" in str(
        estimate(plan_of(load(None, [*elsewhere, "method.type=rft"]))).completions
    )
    assert "not known: all tasks of the server's split" in str(estimate(plan_of(load(None, elsewhere[:2]))).completions)
    assert "not known: the server's step limit" in str(found.episode_turns)
    assert "not known: by epochs" in str(found.optimiser_steps)
    assert "http://127.0.0.1:1" in found.text()


@pytest.mark.slow
def test_what_is_measured_besides_is_counted_or_named() -> None:
    config = load(ROOT / "configs/grpo_textcraft.yaml")
    measured = (
        load(ROOT / "configs/grpo_textcraft.yaml", [f"method.validation.{key}"]) for key in ("every=0", "every=7")
    )
    never, every_seven = (estimate(plan_of(found)).episodes.value or 0 for found in measured)
    assert config.method.steps == 30 and every_seven - never == 5 * (config.method.validation.tasks.limit or 0) > 0
    assert "eval.conciseness" not in estimate(plan_of(config)).text()
    config.eval.conciseness, config.eval.judge.who = True, Who.policy
    for name in ("conciseness", "judge"):
        assert f"not counted: turns, verdicts and actions of eval.{name}" in estimate(plan_of(config)).text()


def test_gpus_are_shared_by_engines_and_trainer() -> None:
    config = load(ROOT / "configs/agent_r_llama3_8b.yaml")
    assert any(need.startswith("8 GPU(s)") for need in estimate(plan_of(config)).resources)
    config.policy.tensor_parallel_size = 2
    assert any(need.startswith("16 GPU(s)") for need in estimate(plan_of(config)).resources)


@pytest.mark.parametrize(
    ("file", "changes", "gpus", "said"),
    [
        ("et_agent_qwen2_5_7b", [], 8, "trainer on 8 all through round 2, 3, 4, online (engines sleep"),
        ("et_agent_qwen2_5_7b", ["trainer.share=split"], 16, "trainer on 8 for trainings on datasets (engines keep 8)"),
        ("grpo_textcraft", ["cluster=gpu_node"], 1, "all through round 1, online (engines sleep"),
        (
            "grpo_textcraft",
            ["cluster=gpu_node", "trainer.share=together"],
            1,
            "an engine takes 0.85 of a GPU's memory, a worker the rest",
        ),
        (
            "grpo_textcraft",
            ["cluster=gpu_node", "trainer.share=split"],
            2,
            "all through round 1, online (engines on 1 others)",
        ),
        (
            "demo",
            ["cluster=gpu_node", "trainer.share=split", "policy.engines=1", "trainer.workers=1"],
            2,
            "trainer on 1 for trainings on datasets (engines keep 1)",
        ),
        ("demo", ["policy.device=gpu"], 2, "engines on 2 while trees grow"),
    ],
)
def test_gpus_are_counted_by_what_is_up_at_the_same_time(file: str, changes: list[str], gpus: int, said: str) -> None:
    found = estimate(plan_of(load(ROOT / f"configs/{file}.yaml", changes))).resources
    assert f"{gpus} GPU(s)" in found and said in "; ".join(found)
