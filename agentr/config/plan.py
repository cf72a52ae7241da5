"""What a configuration would do, in numbers: the answer of ``agentr run --dry-run``."""

from __future__ import annotations

from agentr.config.methods import Unit
from agentr.config.schema import Config


def most_completions(config: Config) -> int:
    """Most completions that one search can ask for: each dive expands once at every depth that it has not expanded before.

    The first dive expands ``max_depth + 1`` nodes, each of the next ``width - 1`` one less, and so on, one level lower after each
    full turn (Agent-R's cost: 628 at 8 dives, depth 20, width 4).
    """
    search = config.collect.search
    expansions, level, left = 0, 0, search.iterations
    dives_at_level = 1
    while left > 0 and level <= search.max_depth:
        dives = min(left, dives_at_level)
        expansions += dives * (search.max_depth + 1 - level)
        left -= dives
        dives_at_level = search.width - 1 if level == 0 else dives_at_level * search.width
        level += 1
    return expansions * search.width


def exploration(config: Config) -> str:
    """What a round does with a task, and what that may cost."""
    collect, contrast = config.collect, config.build.contrast
    match config.run.recipe:
        case "dense_policy":
            dense = collect.dense
            return f"one tree of at most {dense.stop_rollouts} rollouts of {dense.max_depth} turns"
        case "eto" if contrast.unit != Unit.trajectory:
            return f"{collect.episodes} run(s) from each turn of the expert's episode"
        case "eto" | "rft":
            return f"{collect.episodes} run(s)"
        case "sft":
            return "no exploration"
    return f"one search of at most {most_completions(config)} completions"


def describe(config: Config) -> str:
    """A few lines for a person."""
    tasks = config.collect.tasks.limit
    per_round = "all tasks" if tasks is None else f"{tasks} tasks"
    lines = [
        f"# {config.run.recipe} on {config.env.name}: {config.run.rounds} rounds, preset {config.run.preset.value}, seed {config.run.seed}",
        f"# each round: {per_round} of split {config.collect.tasks.split!r}, for each {exploration(config)}",
        f"# policy: {config.policy.engines} x {config.policy.backend.value}, model {config.model.path or config.model.source.value}",
        f"# held-out: split {config.eval.tasks.split!r}, {config.eval.tasks.limit or 'all'} tasks",
    ]
    return "\n".join(lines)
