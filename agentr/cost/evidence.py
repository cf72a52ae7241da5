"""How many turns and tokens a stage takes: of the run itself so far, of an earlier run of the same method and
environment, of a pilot, or a guess. Never measured twice: each figure says where it is from, and how far it may be
off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from agentr.config.model import ModelConfig
from agentr.config.policy import SamplingConfig
from agentr.config.schema import BuildConfig
from agentr.config.text import read_yaml
from agentr.errors import AgentrError
from agentr.read.run import Run, RunRound
from agentr.read.stage import Dataset, Trees
from agentr.rounds.plan import Plan
from agentr.store.layout import DATASET, EVAL, MODEL
from agentr.types import Cost

#: How far counts may be off, as a factor up and down.
SAME_RUN, EARLIER_RUN, OTHER_METHOD, OTHER_MODEL, GUESS = 1.1, 1.3, 2.0, 3.0, 4.0


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """What a tree or an episode takes, on average.

    Attributes:
        calls: Requests to the policy.
        completions: Turns drawn in them.
        prompt: Prompt tokens.
        computed: Those of them that were not in the prefix cache.
        drawn: Tokens that were generated.
        actions: Actions that the environment carried out.
    """

    calls: float = 0.0
    completions: float = 0.0
    prompt: float = 0.0
    computed: float = 0.0
    drawn: float = 0.0
    actions: float = 0.0

    @classmethod
    def of(cls, cost: Cost, trees: int) -> Amounts:
        found = cls(
            calls=cost.calls + cost.judge_calls,
            completions=cost.completions + cost.judge_calls,
            prompt=cost.prompt_tokens,
            computed=cost.prompt_tokens - cost.cached_tokens,
            drawn=cost.completion_tokens,
            actions=cost.env_steps,
        )
        return found * (1 / trees) if trees else cls()

    def __mul__(self, factor: float) -> Amounts:
        return Amounts(**{f.name: getattr(self, f.name) * factor for f in fields(self)})

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(frozen=True, kw_only=True)
class RowCounts:
    """A dataset.

    Attributes:
        each: Rows for a tree.
        tokens: Mean tokens of a row that goes through the model; of a pair, of a side.
        trained: Share of them that are targets.
    """

    each: float
    tokens: float
    trained: float


@dataclass(frozen=True)
class Evidence:
    """What is known of a run's counts.

    Attributes:
        source: Where it is from, in words.
        factor: How far it may be off, up and down.
        stages: Of a tree, by the name of the stage in its round.
        rows: Of the dataset of a round; of the warm start, 0.
    """

    source: str
    factor: float
    stages: dict[str, Amounts] = field(default_factory=dict)
    rows: dict[bool, RowCounts] = field(default_factory=dict)

    def of_any_method(self) -> Evidence:
        """Returns what does not depend on the method: held-out episodes, and the rows of the warm start."""
        stages = {name: each for name, each in self.stages.items() if name == EVAL}
        rows = {warm: each for warm, each in self.rows.items() if warm}
        return replace(self, factor=max(self.factor, OTHER_METHOD), stages=stages, rows=rows)


def evidence(plan: Plan) -> list[Evidence]:
    """Returns what there is about a run, what is least far off first: its own directory, runs beside it in the same
    environment, the newest first, and this project's own there; of another method what does not depend on it."""
    run_, method, env = plan.config.run, plan.config.method.type, plan.config.env.name
    own = Path(run_.dir or f"runs/{run_.name}")
    found = []
    for path in [own, *_beside(own)]:
        try:
            run = Run(path)
        except AgentrError:
            continue
        theirs = [(run.config.get(section) or {}).get(key) for section, key in (("method", "type"), ("env", "name"))]
        if path != own and theirs[1] != env:
            continue
        alike = _same_model(run.config.get(MODEL) or {}, plan.config.model)
        factor = SAME_RUN if path == own else EARLIER_RUN if alike else OTHER_MODEL
        found.append((method if path == own else theirs[0], of_run(run, factor)))
    found += _shipped(env, plan.config.model.source.value)
    useful = [known if name == method else known.of_any_method() for name, known in found]
    return sorted((known for known in useful if known.stages or known.rows), key=lambda known: known.factor)


def of_run(run: Run, factor: float) -> Evidence:
    """Returns what a run's sealed stages took."""
    stages: dict[str, list[Amounts]] = {}
    rows: dict[bool, list[RowCounts]] = {}
    for arm in run.arms:
        for name, amounts in _trees(arm):
            stages.setdefault(name, []).append(amounts)
        dataset = arm.stages().get(DATASET)
        if isinstance(dataset, Dataset) and dataset.sealed and dataset.summary.rows:
            rows.setdefault(arm.number == 0, []).append(_rows(dataset, arm))
    other = run.config.get(MODEL, {})
    return Evidence(
        f"{run.path} ({other.get('path') or other.get('source')})",
        factor,
        {name: sum(each, Amounts()) * (1 / len(each)) for name, each in stages.items()},
        {
            warm: RowCounts(**{f.name: sum(getattr(r, f.name) for r in each) / len(each) for f in fields(RowCounts)})
            for warm, each in rows.items()
        },
    )


def _shipped(env: str, model: str) -> Iterator[tuple[str, Evidence]]:
    """Yields the methods and counts of this project's runs in an environment (``counts.yaml``)."""
    for entry in _counts():
        if entry["env"] != env:
            continue
        yield (
            entry["method"],
            Evidence(
                entry["said"],
                EARLIER_RUN if entry["model"] == model else OTHER_MODEL,
                {
                    name: Amounts.of(Cost(**{k: v for k, v in spent.items() if k != "trees"}), spent["trees"])
                    for name, spent in entry["stages"].items()
                },
                {
                    warm: RowCounts(
                        each=rows["rows"] / rows["trees"],
                        tokens=rows["tokens"] / rows["rows"],
                        trained=rows["trained_tokens"] / rows["tokens"],
                    )
                    for warm, rows in ((True, entry["warm_start"]), (False, entry.get("round")))
                    if rows
                },
            ),
        )


@cache
def _counts() -> list[dict[str, Any]]:
    return read_yaml(Path(__file__).with_name("counts.yaml"))


def guess(model: ModelConfig, sampling: SamplingConfig, bound: int, turns: int) -> Amounts:
    """Returns what a tree may take where nothing is known: a fifth of the most turns, of an episode half of them, and
    turns of two fifths of the most tokens.

    Args:
        bound: Most completions of a tree.
        turns: Most actions in a row.
    """
    drawn = 0.2 * bound if bound > turns else 0.5 * bound
    calls = drawn / 4 if bound > turns else drawn
    each = 0.4 * sampling.max_tokens
    prompt = 0.5 * min(model.max_model_len, 300 + turns * (each + 60))
    return Amounts(
        calls=calls,
        completions=drawn,
        prompt=calls * prompt,
        computed=calls * prompt * 0.2,
        drawn=drawn * each,
        actions=drawn / 2,
    )


def guessed_rows(build: BuildConfig) -> RowCounts:
    """Returns what a dataset may be where nothing is known."""
    return RowCounts(each=2.0, tokens=0.4 * build.max_length, trained=0.3)


class Counts:
    """What is known of a run's counts, and guesses of the rest.

    Attributes:
        used: What was asked for, by where it is from, in words.
    """

    def __init__(self, known: Sequence[Evidence], model: ModelConfig, build: BuildConfig) -> None:
        self.known, self.model, self.build = known, model, build
        self.used: dict[str, list[str]] = {}

    def amounts(self, stage: str, sampling: SamplingConfig, bound: int, turns: int) -> tuple[Amounts, float, str]:
        """Returns what a tree of a stage takes, how far that may be off, and where it is from.

        Args:
            bound: Most completions of a tree.
            turns: Most actions in a row.
        """
        for one in self.known:
            if (found := one.stages.get(stage)) is not None:
                return found, one.factor, self._from(stage, one.source)
        return guess(self.model, sampling, bound, turns), GUESS, self._from(stage, "a guess")

    def rows(self, warm: bool) -> tuple[RowCounts, float, str]:
        """Returns the same of a round's dataset, or of the warm start's."""
        for one in self.known:
            if (found := one.rows.get(warm)) is not None:
                return found, one.factor, self._from("rows", one.source)
        return guessed_rows(self.build), GUESS, self._from("rows", "a guess")

    def _from(self, what: str, source: str) -> str:
        names = self.used.setdefault(source, [])
        if what not in names:
            names.append(what)
        return source


def _trees(arm: RunRound) -> Iterator[tuple[str, Amounts]]:
    before: dict[str, Cost] = {}
    for name, stage in arm.stages().items():
        if not (isinstance(stage, Trees) and stage.sealed and stage.summary.trees):
            continue
        summary = stage.summary
        before[stage.name] = summary.cost
        spent = summary.cost - before[summary.includes] if summary.includes in before else summary.cost
        yield name, Amounts.of(spent, summary.trees)


def _rows(dataset: Dataset, arm: RunRound) -> RowCounts:
    summary = dataset.summary
    sides = 2 if summary.type == "preferences" else 1
    trees = max((s.summary.trees for s in arm.exploration().values() if s.sealed), default=0) or summary.tasks
    tokens = summary.tokens / summary.rows / sides
    return RowCounts(
        each=summary.rows / max(trees, 1), tokens=tokens, trained=summary.trained_tokens / max(summary.tokens, 1)
    )


def _beside(own: Path) -> list[Path]:
    if not own.parent.is_dir():
        return []
    runs = [path for path in own.parent.iterdir() if (path / "manifest.json").is_file() and path != own]
    return sorted(runs, key=lambda path: (path / "manifest.json").stat().st_mtime, reverse=True)


def _same_model(other: dict[str, Any], ours: ModelConfig) -> bool:
    return (other.get("source"), other.get("path") or "") == (ours.source.value, ours.path)
