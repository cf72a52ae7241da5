"""Rows of a dataset: token ids, loss masks and provenance.
``agentr.store.dataset`` says how they are written to disk."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agentr.errors import DataError


@dataclass(frozen=True)
class Provenance:
    """The nodes, the tree and the stage that a row was made from; of a pair, those of both sides.

    Attributes:
        tree: Key of the tree, or of the entry of a file; of a pair's chosen side.
        nodes: Node ids in row order, -1 for inserted text; of a pair's chosen side.
        kind: revision, good, demonstration, general or imported; of a pair: trajectory, step, sibling or imported.
        detail: Further facts: returns, depth of the divergence, step of the transition.
        rejected: Node ids of a pair's rejected side.
        stage: Stage of the run that the tree is of; empty for rows from files.
        rejected_tree: Key of the tree of a pair's rejected side.
        rejected_stage: Stage of that tree.
    """

    tree: str
    nodes: tuple[int, ...]
    kind: str
    detail: dict[str, float | int | str] = field(default_factory=dict, hash=False)
    rejected: tuple[int, ...] = ()
    stage: str = ""
    rejected_tree: str = ""
    rejected_stage: str = ""


@dataclass(frozen=True)
class Dropped:
    """A candidate that became no row.

    Attributes:
        provenance: What it would have been made from, as far as that was known.
        reason: Reason, as the dataset's manifest counts it.
    """

    provenance: Provenance
    reason: str


class TrainingRow(Protocol):
    """A row of any type, as far as the order of a training depends on it."""

    @property
    def provenance(self) -> Provenance: ...

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that goes through the model."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens that go through the model."""
        ...

    @property
    def targets(self) -> int:
        """Tokens that count in the loss."""
        ...

    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """Returns all token ids of the row, in pieces."""
        ...


@dataclass(frozen=True)
class Row:
    """One training sequence.

    Attributes:
        input_ids: Token ids, shape [L].
        loss_mask: 1 where the token is a training target, shape [L].
        logprobs: Log-probability of each token under the policy that drew it, shape [L]; None where it drew none. Empty
            if all are.
    """

    input_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    provenance: Provenance
    logprobs: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        _check(self.provenance, "", self.input_ids, self.loss_mask, self.logprobs)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Where each sequence that goes through the model begins and ends among its tokens."""
        return ((0, len(self.input_ids)),)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that goes through the model."""
        return max(end - begin for begin, end in self.spans)

    @property
    def tokens(self) -> int:
        """Tokens that go through the model."""
        return len(self.input_ids)

    @property
    def targets(self) -> int:
        """Tokens that count in the loss. The first token of a sequence has no prediction, so it never counts."""
        return sum(self.loss_mask[1:])

    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """Returns the ids of each sequence."""
        return tuple(self.input_ids[begin:end] for begin, end in self.spans)


@dataclass(frozen=True)
class Rollout(Row):
    """An episode whose targets have advantages: one sequence to the loss, of one conversation or of several.

    Attributes:
        input_ids: Token ids, those of its conversations one after the other.
        advantages: Of each token, shape [L]; only those of targets count.
        group: Rows that were compared with each other: the rollouts of one task in one step.
        rewards: Reward of the rollout by component, and in all (``total``).
        starts: Where its second conversation begins, and each further one.
    """

    advantages: tuple[float, ...] = ()
    group: str = ""
    rewards: Mapping[str, float] = field(default_factory=dict, hash=False)
    starts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self.provenance, "", self.input_ids, self.loss_mask, self.advantages)
        if any(begin >= end for begin, end in self.spans) or any(self.loss_mask[start] for start in self.starts):
            raise DataError(f"a row of {self.provenance.tree} has a conversation without a prompt")
        if not self.advantages or any(
            mask and logprob is None for mask, logprob in zip(self.loss_mask, self.logprobs, strict=False)
        ):
            raise DataError(f"a row of {self.provenance.tree} has targets without an advantage or a log-probability")
        if not self.logprobs:
            raise DataError(f"a row of {self.provenance.tree} has no log-probabilities: a policy must have drawn it")

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        return tuple(itertools.pairwise((0, *self.starts, len(self.input_ids))))

    @property
    def silent(self) -> bool:
        """Whether the row says nothing: all its advantages are 0."""
        return not any(advantage for advantage, mask in zip(self.advantages, self.loss_mask, strict=True) if mask)


@dataclass(frozen=True)
class Preference:
    """A pair of continuations of one prompt, the first preferred to the second.

    Attributes:
        prompt_ids: Token ids that both sides begin with, shape [P].
        chosen_ids: Token ids after the prompt, shape [C].
        chosen_mask: 1 where a token of the agent counts, shape [C]; observations and bridges are 0.
        rejected_ids: The same for the other side, shape [R].
        rejected_mask: Shape [R].
        chosen_logprobs: Log-probability of each token under the policy that drew it, shape [C]; None where it drew
            none. Empty if all are.
        rejected_logprobs: The same for the other side, shape [R].
    """

    prompt_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    chosen_mask: tuple[int, ...]
    rejected_ids: tuple[int, ...]
    rejected_mask: tuple[int, ...]
    provenance: Provenance
    chosen_logprobs: tuple[float | None, ...] = ()
    rejected_logprobs: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise DataError(f"a pair of {self.provenance.tree} has no prompt")
        _check(self.provenance, "chosen ", self.chosen_ids, self.chosen_mask, self.chosen_logprobs)
        _check(self.provenance, "rejected ", self.rejected_ids, self.rejected_mask, self.rejected_logprobs)

    @property
    def longest(self) -> int:
        """Tokens of the longer side, the prompt included."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))

    @property
    def tokens(self) -> int:
        """Tokens that go through the model: both sides, each with the prompt."""
        return 2 * len(self.prompt_ids) + len(self.chosen_ids) + len(self.rejected_ids)

    @property
    def targets(self) -> int:
        """Tokens that count in the loss, of both sides."""
        return sum(self.chosen_mask) + sum(self.rejected_mask)

    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """Returns the ids of the prompt and of both sides."""
        return self.prompt_ids, self.chosen_ids, self.rejected_ids


def _check(
    provenance: Provenance, side: str, ids: tuple[int, ...], mask: tuple[int, ...], *others: tuple[float | None, ...]
) -> None:
    if len(ids) != len(mask):
        raise DataError(f"a {side}row of {provenance.tree} has {len(ids)} ids and {len(mask)} mask values")
    if any(other and len(other) != len(ids) for other in others):
        raise DataError(
            f"a {side}row of {provenance.tree} has {len(ids)} ids and other numbers of log-probabilities or advantages"
        )
    if not any(mask):
        raise DataError(f"a {side}row of {provenance.tree} trains on nothing")
