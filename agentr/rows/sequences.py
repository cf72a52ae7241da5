"""Converts paths of a tree to token sequences with loss masks.

A sequence is the opening prompt, then for each turn its own ids and the bridge to the next turn. The mask is 1 on the
ids of trained turns and 0 everywhere else: on the opening, on every observation and on every untrained turn, by
construction. Only a method that asks for it trains on observations (ET-Agent's original does).

Where the policy does not see the reasoning of earlier turns (``turns.keep_reasoning: false``), a path is no sequence:
`conversations` cuts it into sequences whose prompts are those that the policy saw.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.search.tree import Node, Tree
from agentr.store.rows import Dropped, Preference, Provenance, Row

#: Begins the names of counts in a row's provenance: turns that were chosen to be context, by reason.
CONTEXT = "context: "
#: Why a rollout is no row: no turn of it has log-probabilities.
NO_LOGPROBS = "no log-probabilities"


@dataclass(frozen=True)
class Turn:
    """A turn of a sequence.

    Attributes:
        token_ids: Its ids.
        bridge_ids: The ids to the next turn.
        trained: Whether it is trained on.
        node: Its node; -1 for inserted text.
        logprobs: Log-probability of each id; empty if no policy drew the turn.
        reasoning: How many ids its reasoning has, from the first one on.
        thinks: Whether that is trained on, too, if the turn is.
        behind: Where ``bridge_ids`` stand, as in :class:`agentr.search.Child`.
    """

    token_ids: tuple[int, ...]
    bridge_ids: tuple[int, ...]
    trained: bool
    node: int = -1
    logprobs: tuple[float, ...] = ()
    reasoning: int = 0
    thinks: bool = True
    behind: tuple[int, int] | None = None

    @property
    def mask(self) -> list[int]:
        """The loss mask of its ids, shape [L]."""
        context = 0 if self.thinks else self.reasoning
        return [0] * context + [int(self.trained)] * (len(self.token_ids) - context)


@dataclass(frozen=True)
class Joined:
    """Turns as one sequence: ids, loss mask and log-probabilities, all of shape [L]; no log-probabilities if no policy
    drew a turn."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float | None, ...]


def recorded(nodes: Iterable[Node], trained: bool, on_invalid: bool = True, on_reasoning: bool = True) -> list[Turn]:
    """Returns nodes of a tree as turns of a sequence.

    A turn that was drawn where the policy no longer saw the oldest ones is context: a sequence shows it more than that.

    Args:
        trained: Whether the turns are trained on.
        on_invalid: Whether turns that the environment did not understand are trained on, too
            (``build.train_on_invalid``).
        on_reasoning: Whether the reasoning of trained turns is, too (``build.train_on_reasoning``).
    """
    return [
        Turn(
            n.token_ids,
            n.bridge_ids,
            trained and not n.forgotten and (n.valid or on_invalid),
            n.id,
            n.logprobs,
            n.reasoning,
            on_reasoning,
            n.behind,
        )
        for n in nodes
    ]


def inserted(codec: ChatCodec, text: str, observation: str, trained: bool, on_reasoning: bool = True) -> Turn:
    """Returns a turn that was never taken, with an observation that the environment never gave, for the original's
    splices."""
    ids = tuple(codec.turn(text))
    bridge = tuple(codec.bridge(observation, role=codec.answered_by(text)))
    return Turn(ids, bridge, trained, reasoning=codec.reasoning(ids), thinks=on_reasoning)


def joined(turns: Sequence[Turn]) -> Joined:
    """Returns turns with the bridges between them as one sequence. The bridge after the last turn is left out."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float | None] = []
    for position, turn in enumerate(turns):
        ids += turn.token_ids
        mask += turn.mask
        logprobs += turn.logprobs or [None] * len(turn.token_ids)
        if position < len(turns) - 1:
            ids += turn.bridge_ids
            mask += [0] * len(turn.bridge_ids)
            logprobs += [None] * len(turn.bridge_ids)
    return Joined(tuple(ids), tuple(mask), tuple(logprobs) if any(turn.logprobs for turn in turns) else ())


def provenance(tree: Tree, turns: Sequence[Turn], kind: str, **detail: float | int | str) -> Provenance:
    """Returns what a row of these turns was made from."""
    return Provenance(tree.task.key, tuple(turn.node for turn in turns), kind, detail, stage=tree.stage)


def make_rows(
    tree: Tree,
    turns: Sequence[Turn],
    kind: str,
    observations: bool = False,
    context: Mapping[str, int] | None = None,
    **detail: float | int | str,
) -> list[Row]:
    """Makes rows of turns after the tree's opening: one for each of their conversations.

    Args:
        turns: From the first one after the opening on.
        observations: Whether observations are trained on, too.
        context: Turns that were chosen to be context, by reason; they are counted in the last row's provenance.

    Returns:
        The rows in which a token is trained on, in the order of their last turns.
    """
    found = [
        Row(whole.ids, whole.mask, provenance(tree, turns[: one.end], kind, **detail), whole.logprobs)
        for one in conversations(tree, turns, observations)
        for whole in [one.since(0)]
    ]
    if found and context:
        found[-1].provenance.detail.update({CONTEXT + reason: count for reason, count in context.items()})
    return found


@dataclass
class Conversation:
    """Tokens that the policy saw as one sequence, and those that it drew in it.

    Attributes:
        ids: Token ids, shape [L].
        mask: 1 where the token is a training target, shape [L].
        logprobs: Of each token, shape [L]; None where the policy drew none.
        starts: Where its turns begin, by their numbers in the episode, from 0.
    """

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """How many turns of the episode were taken when its last one was."""
        return max(self.starts) + 1

    def show(self, ids: Sequence[int], *, trained: bool) -> None:
        """Adds what is no turn."""
        self.ids += ids
        self.mask += [int(trained)] * len(ids)
        self.logprobs += [None] * len(ids)

    def take(self, number: int, turn: Turn) -> None:
        """Adds the turn of this number."""
        self.starts[number] = len(self.ids)
        self.ids += turn.token_ids
        self.mask += turn.mask
        self.logprobs += turn.logprobs or [None] * len(turn.token_ids)

    def since(self, start: int) -> Joined:
        """Returns what stands at a place and after it."""
        logprobs = self.logprobs[start:]
        known = any(value is not None for value in logprobs)
        return Joined(tuple(self.ids[start:]), tuple(self.mask[start:]), tuple(logprobs) if known else ())


def conversations(tree: Tree, turns: Sequence[Turn], observations: bool = False) -> list[Conversation]:
    """Returns the conversations of an episode: one, unless the policy saw less of earlier turns than they are, or a
    program began another.

    A turn goes on the conversation that its prompt begins with, so one ends with a turn that the policy saw otherwise
    later on, and one that is come back to is one. Every trained turn is a target in one of them.

    Args:
        turns: From the first one after the opening on.
        observations: Whether observations are trained on, too.

    Returns:
        Those in which a token is trained on, in the order of their last turns.
    """
    found: list[Conversation] = []
    prompts = [list(tree.prompt_ids)]
    for number, turn in enumerate(turns):
        prompt = prompts[-1]
        one = max(
            (other for other in found if prompt[: len(other.ids)] == other.ids),
            key=lambda other: len(other.ids),
            default=None,
        )
        one = one or Conversation()
        before = turns[number - 1] if number else None
        new, seen = prompt[len(one.ids) :], len(before.bridge_ids) if before and before.trained and observations else 0
        one.show(new[: len(new) - seen], trained=False)
        one.show(new[len(new) - seen :], trained=True)
        one.take(number, turn)
        found = [*(other for other in found if other is not one), one]
        if turn.behind is None:
            prompts.append([*prompt])
            tree.show(prompts[-1], turn)
        else:
            behind, kept = turn.behind
            begun = [*prompts[behind - 1], *turns[behind - 1].token_ids][:kept] if behind else []
            prompts.append([*begun, *turn.bridge_ids])
    return [one for one in found if any(one.mask)]


def make_pair(
    prompt_ids: Sequence[int],
    chosen: tuple[Tree, Sequence[Turn]],
    rejected: tuple[Tree, Sequence[Turn]],
    kind: str,
    **detail: float | int | str,
) -> Preference | None:
    """Makes a pair of continuations of one prompt; None if a side has no token to train on.

    Where a program began other conversations, the sides are whole runs, and the pair is of those conversations in which
    they first differ, from there on.

    Args:
        chosen: The tree of a side, and its turns.
        rejected: The same for the other side.

    Raises:
        DataError: The policy saw less of a side's earlier turns than they are.
    """
    sides = [chosen, rejected]
    for tree, turns in sides:
        if tree.hiding is not None and any(map(tree.hiding.changes, turns[:-1])):
            raise DataError(
                f"{tree.task.key}: turns {', '.join(str(turn.node) for turn in turns)} are no one sequence, because "
                "the policy did not see the reasoning of earlier ones (turns.keep_reasoning=false)",
                hint="Set turns.keep_reasoning=true, or use a method that learns single turns.",
            )
    if any(turn.behind for _, turns in sides for turn in turns[:-1]):
        prompt_ids, better, worse = _parted(chosen, rejected)
    else:
        better, worse = joined(chosen[1]), joined(rejected[1])
    if not any(better.mask) or not any(worse.mask):
        return None
    made = pair_provenance(chosen, rejected, kind, **detail)
    return Preference(
        tuple(prompt_ids), better.ids, better.mask, worse.ids, worse.mask, made, better.logprobs, worse.logprobs
    )


def _parted(
    chosen: tuple[Tree, Sequence[Turn]], rejected: tuple[Tree, Sequence[Turn]]
) -> tuple[tuple[int, ...], Joined, Joined]:
    """Returns the conversations in which two runs first differ: what both begin with, and how each goes on; sides
    without a target if there is no such turn."""
    pairs = enumerate(zip(chosen[1], rejected[1], strict=False))
    parted = next((number for number, (one, other) in pairs if one.token_ids != other.token_ids), -1)
    found = [
        (one.ids[:start], one.since(start))
        for tree, turns in (chosen, rejected)
        for one in conversations(tree, turns)
        if (start := one.starts.get(parted)) is not None
    ]
    if len(found) != 2 or found[0][0] != found[1][0]:
        return (), Joined((), (), ()), Joined((), (), ())
    (prompt, better), (_, worse) = found
    return tuple(prompt), better, worse


def pair_provenance(
    chosen: tuple[Tree, Sequence[Turn]], rejected: tuple[Tree, Sequence[Turn]], kind: str, **detail: float | int | str
) -> Provenance:
    """Returns what a pair of these sides was made from."""
    (tree, turns), (other, other_turns) = chosen, rejected
    return replace(
        provenance(tree, turns, kind, **detail),
        rejected=tuple(turn.node for turn in other_turns),
        rejected_tree=other.task.key,
        rejected_stage=other.stage,
    )


def dropped(
    tree: Tree, reason: str, nodes: Iterable[int] = (), rejected: Iterable[int] = (), other: Tree | None = None
) -> Dropped:
    """Returns a candidate that became no row.

    Args:
        nodes: The nodes that it would have been made from, as far as that was known; of a pair's better side.
        rejected: Of a pair's worse side.
        other: The tree of that side, if it is another one.
    """
    worse = tuple(rejected)
    theirs = (other or tree) if worse else None
    made = Provenance(tree.task.key, tuple(nodes), "", {}, worse, tree.stage)
    return Dropped(
        replace(made, rejected_tree=theirs.task.key, rejected_stage=theirs.stage) if theirs else made, reason
    )
