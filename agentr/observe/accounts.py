"""What a run began, and what became of it: counts that add up, stage by stage."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentr.observe.problems import PageProblem, read_or
from agentr.outside import typed
from agentr.read.run import Run
from agentr.read.stage import Dataset, Rollouts, Stage, Trees
from agentr.store.layout import Arm, stage_of, title_of


@dataclass(frozen=True)
class Account:
    """What became of what a stage began: ``begun`` is the sum of what was finished, failed and left out.

    Attributes:
        title: The stage.
        of: What is counted: a task, or a candidate for a row.
        begun: How many there were.
        finished: Those of them that became a tree, or a row.
        succeeded: Finished trees with a success; None of rows.
        failed: Those that were given up because the machinery failed.
        left_out: Those that nothing was made of, by reason.
    """

    title: str
    of: str
    begun: int
    finished: int
    succeeded: int | None
    failed: int
    left_out: Mapping[str, int]


@dataclass
class _Progress:
    total: int = 0
    failed: int = 0
    skipped: int = 0
    successes: int = 0


@dataclass
class _Forest:
    trees: int = 0
    progress: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Rows:
    rows: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


def accounts(run: Run, problems: list[PageProblem], arms: Collection[Arm] = ()) -> Iterator[Account]:
    """Yields an account of each stage of trees or rows that is sealed, in the order in which they ran; of online
    training one of all its steps' trees, and one of all their rows.

    Args:
        problems: Collects stages that cannot be read, which have none.
        arms: Whose stages; by default all.
    """
    for stage in run.stages().values():
        place = stage_of(stage.name)
        if not stage.sealed or (arms and (place is None or place[0] not in arms)):
            continue
        yield from read_or([], lambda stage=stage: list(_accounts(stage)), problems, title_of(stage.name))


def _accounts(stage: Stage) -> Iterator[Account]:
    if isinstance(stage, Rollouts):
        steps = list(stage.steps.values())
        yield _trees(stage, [step.trees for step in steps])
        yield _rows(f"{title_of(stage.name)}, rows", [step.dataset for step in steps])
    elif isinstance(stage, Trees):
        yield _trees(stage, [stage])
    elif isinstance(stage, Dataset):
        yield _rows(title_of(stage.name), [stage])


def _trees(stage: Stage, parts: list[Trees]) -> Account:
    read = [typed(_Forest, part.forest.manifest, str(part.path)) for part in parts]
    grown = [typed(_Progress, one.progress, str(stage.path)) for one in read]
    finished, failed = sum(one.trees for one in read), sum(one.failed for one in grown)
    skipped = sum(one.skipped for one in grown)
    # a stage that was merged from parts may not have noted how many there were
    begun = max(sum(one.total for one in grown), finished + failed + skipped)
    lost = begun - finished - failed - skipped
    left_out = {name: count for name, count in (("skipped", skipped), ("unaccounted for", lost)) if count}
    succeeded = sum(one.successes for one in grown)
    return Account(title_of(stage.name), "task", begun, finished, succeeded, failed, left_out)


def _rows(title: str, parts: list[Dataset]) -> Account:
    read = [typed(_Rows, part.manifest, str(part.path)) for part in parts]
    dropped = sum((Counter(one.dropped) for one in read), Counter[str]())
    rows = sum(one.rows for one in read)
    return Account(title, "candidate", rows + dropped.total(), rows, None, 0, dict(dropped))
