"""Summaries of sealed stages, as the manifest of a run keeps them: one type for each kind of stage.

In the manifest a summary is a flat table. Keys that a type does not know are kept in ``more``: other versions of agentr
wrote them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from agentr.outside import typed
from agentr.search.stored import split_counts, stored_counts
from agentr.types import Cost

S = TypeVar("S", bound="Summary")


@dataclass(kw_only=True)
class Summary:
    """What a stage came to."""

    #: Which files of the stage later stages read, as patterns; what they hold decides whether those stages are still
    #: true.
    content: ClassVar[tuple[str, ...]] = ("*",)

    more: dict[str, Any] = field(default_factory=dict)

    def outside(self) -> str:
        """Returns the hash of what later stages read besides those files; empty if there is nothing."""
        return ""

    def stored(self) -> dict[str, Any]:
        """Returns the table that the manifest keeps."""
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "more"}
        return {**{key: value for key, value in known.items() if value is not None}, **self.more}

    @classmethod
    def read(cls: type[S], stored: Mapping[str, Any]) -> S:
        """Reads what ``stored`` returned; what is missing has its default."""
        names = {f.name for f in fields(cls)} - {"more"}
        known = {key: value for key, value in stored.items() if key in names}
        return typed(
            cls,
            {**known, "more": {key: value for key, value in stored.items() if key not in names}},
            "the summary of a stage",
        )


@dataclass(kw_only=True)
class ModelSummary(Summary):
    """The base model.

    Attributes:
        path: Its folder, relative to the run directory if it lies there (``RunStore.model_path``).
        folder_hash: Of a folder outside the run directory: hash of its files, by which it can be found again at another
            place.
        remarks: What is so in conversations with it, and would be otherwise if its chat template rendered them.
    """

    path: str = ""
    folder_hash: str | None = None
    remarks: list[str] | None = None

    def outside(self) -> str:
        return self.folder_hash or ""


@dataclass(kw_only=True)
class TreeSummary(Summary):
    """A stage of trees.

    Attributes:
        trees: Finished trees.
        failed: Units given up for infrastructure reasons.
        solved: Trees with a success.
        events: Counts of what is no cost: duplicates, unparsed turns and so on.
        revision_length: Of a revised forest, mean actions to the first judged error (Agent-R, figure 5).
        judged_paths: Over how many paths.
        includes: Stage whose trees these are with more in them: its cost is part of this one's.
        trees_hash: Hash of the trees, without what was spent on them.
    """

    content = ()

    trees: int = 0
    failed: int = 0
    solved: int = 0
    cost: Cost = field(default_factory=Cost)
    events: dict[str, int] = field(default_factory=dict)
    revision_length: float | None = None
    judged_paths: int | None = None
    includes: str | None = None
    trees_hash: str | None = None

    def outside(self) -> str:
        return self.trees_hash or ""

    def stored(self) -> dict[str, Any]:
        flat = super().stored()
        cost, events = flat.pop("cost"), flat.pop("events")
        return {**flat, **stored_counts(cost, events)}

    @classmethod
    def read(cls: type[S], stored: Mapping[str, Any]) -> S:
        names = {f.name for f in fields(cls)} - {"more", "cost", "events"}
        known = {key: value for key, value in stored.items() if key in names}
        counts = {key: value for key, value in stored.items() if key not in names and isinstance(value, int)}
        cost, events = split_counts(counts)
        more = {key: value for key, value in stored.items() if key not in names and key not in counts}
        return typed(cls, {**known, "cost": cost, "events": events, "more": more}, "the summary of a stage")


@dataclass(kw_only=True)
class DatasetSummary(Summary):
    """A dataset; its manifest has more.

    Attributes:
        type: sequences or preferences.
        kinds: Rows by kind.
        tokens: Tokens that go through the model in one pass.
        trained_tokens: Those of them that are targets.
        dropped: Candidates left out, by reason.
        context: Turns in rows that were chosen not to be learnt, by reason (``agentr.rows.targets``).
        splices: Of Agent-R, revisions tried, failed as text and kept.
        operators: Of ET-Agent, what came of each operator (``agentr.methods.et_agent.rows.Operated``).
        agreement: How often execution and a teacher agree (``agentr.methods.et_agent.rows.count_agreement``).
        verdicts: What a judge said of episodes that are right and wrong
            (``agentr.methods.et_agent.rows.count_verdicts``).
        tasks: Tasks that own rows are from.
    """

    content = ("rows.parquet",)

    type: str = ""
    rows: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    trained_tokens: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    context: dict[str, int] = field(default_factory=dict)
    splices: dict[str, int] = field(default_factory=dict)
    operators: dict[str, dict[str, Any]] = field(default_factory=dict)
    agreement: dict[str, dict[str, int]] = field(default_factory=dict)
    verdicts: dict[str, dict[str, int]] = field(default_factory=dict)
    tasks: int = 0


@dataclass(kw_only=True)
class TrainSummary(Summary):
    """A training; ``agentr.train.job.TrainResult`` says what the figures are.

    Attributes:
        checkpoint: Folder of the trained model, relative to the run directory.
        online_steps: Of online training, the steps that were made.
        best_step: Of online training that was validated, the step whose weights these are.
    """

    content = ("model/*", "*/model/*")

    checkpoint: str = ""
    steps: int = 0
    epochs: float = 0.0
    rows: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    first_loss: float | None = None
    last_loss: float | None = None
    seconds: float = 0.0
    tokens_per_second: float = 0.0
    bf16: bool | None = None
    margin: float | None = None
    accuracy: float | None = None
    chosen_reward: float | None = None
    rejected_reward: float | None = None
    online_steps: int | None = None
    best_step: int | None = None


@dataclass(kw_only=True)
class EvalSummary(TreeSummary):
    """A stage of held-out episodes, with its main metrics; ``evaluation.json`` in its folder has all.

    Attributes:
        steps: Mean actions in an episode.
        within_answers: Success within so many answers, by their number.
    """

    success: float = 0.0
    success_low: float = 0.0
    success_high: float = 0.0
    best: float = 0.0
    tasks: int = 0
    reward: float = 0.0
    steps: float = 0.0
    invalid_rate: float = 0.0
    repeated_rate: float = 0.0
    within_answers: dict[int, float] = field(default_factory=dict)

    def stored(self) -> dict[str, Any]:
        flat = super().stored()
        within = flat.pop("within_answers")
        return {**flat, **{f"within_{k}_answers": share for k, share in within.items()}}

    @classmethod
    def read(cls: type[S], stored: Mapping[str, Any]) -> S:
        within = {
            int(k[1]): share for key, share in stored.items() if (k := re.fullmatch(r"within_(\d+)_answers", key))
        }
        rest = {key: value for key, value in stored.items() if not re.fullmatch(r"within_\d+_answers", key)}
        found = super().read(rest)  # type: ignore[misc]
        found.within_answers = within
        return found
