"""The three trajectories that a report shows, and why it shows these. The same run has the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from agentr.errors import DataError
from agentr.observe.heldout import PATTERNS, episodes_of, first_and_last, patterns_of, succeeded
from agentr.observe.page import plain
from agentr.read.run import Run
from agentr.read.stage import Dataset, Episodes, Rollouts, Trees
from agentr.read.trace import RowTrace, Side
from agentr.search.tree import Node, Origin, Tree
from agentr.store.layout import DATASET, MODEL, ROLLOUTS, stage_of
from agentr.store.rows import Preference

Decode = Callable[[Sequence[int]], str]

#: How many are shown.
SHOWN = 3

#: Most tokens of a row that are shown, and most turns of an episode: its beginning, and more of its end.
TOKENS, TURNS = 3000, 24

#: Which rows say most about a method, in order; then those of any kind.
_TELLING = ("revision", "trajectory", "step", "sibling")


@dataclass(frozen=True)
class ShownTurn:
    """A turn as a report shows it.

    Attributes:
        number: In its episode, from 1 on.
        about: What there is to say of it: who took it if that was not the policy, and whether it was refused.
    """

    number: int
    text: str
    observation: str
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """A trajectory of a report.

    Attributes:
        title: What it is.
        why: Why it was chosen.
        outcome: How it ended, in words.
        turns: Its turns; of a long one the first and the last.
        left_out: Turns that are left out in the middle.
        marked: Of a row, its text as HTML in which what is learnt is marked; in place of turns.
    """

    title: str
    why: str
    policy: str
    task: str
    outcome: str
    stage: str
    key: str
    length: int
    turns: list[ShownTurn] = field(default_factory=list)
    left_out: int = 0
    marked: Markup = field(default_factory=Markup)


def trajectories(run: Run, decode: Decode | None) -> list[Trajectory]:
    """Returns at most ``SHOWN`` trajectories of a run, each another one: what was won, what was lost, what was learnt; in place of what a
    run does not have, the most frequent pattern of its failures, and others of its episodes.

    Args:
        decode: Returns the text of token ids, special tokens included; without it a row is shown by the turns it was made of.
    """
    found: dict[tuple[str, str], Trajectory] = {}
    for choose in (_won, _lost, lambda run: _learnt(run, decode), _frequent, _solved, _failed, _explored):
        try:
            new = next((one for one in choose(run) if (one.stage, one.key) not in found), None)
        except (DataError, OSError):  # not written yet, damaged, or of before trees were kept: others are shown
            continue
        if new is not None:
            found[new.stage, new.key] = new
        if len(found) == SHOWN:
            break
    return list(found.values())


# held-out episodes ----------------------------------------------------------------------------------------------------


def _won(run: Run) -> Iterator[Trajectory]:
    yield from _changed(run, 1, "A held-out task that was won", "gained the most between the first and the last policy")


def _lost(run: Run) -> Iterator[Trajectory]:
    yield from _changed(run, -1, "A held-out task that was lost", "lost the most between the first and the last policy")


def _changed(run: Run, sign: int, title: str, what: str) -> Iterator[Trajectory]:
    measured = first_and_last(run)
    if len(measured) < 2:
        return
    (before, one), (after, two) = measured
    scores, later = one.evaluation.per_task, two.evaluation.per_task
    changes = {key: later[key] - scores[key] for key in sorted(scores) if key in later and sign * (later[key] - scores[key]) > 0}
    if not changes:
        return
    key = max(changes, key=lambda key: sign * changes[key])
    alike = sum(change == changes[key] for change in changes.values())
    path, earlier = _episode(two[key], sign > 0), _episode(one[key], sign < 0)
    parts = next((at + 1 for at, (a, b) in enumerate(zip(earlier, path, strict=False)) if a.text != b.text), None)
    why = (
        f"Of {len(changes)} held-out tasks that were {'won' if sign > 0 else 'lost'}, this one {what}"
        f"{f', as did {alike - 1} more; it is the first of them by name' if alike > 1 else ''}. "
        f"Under {before} it {_said(earlier)}{f'; the first turn that differs is turn {parts}' if parts else ''}."
    )
    yield _shown(two, two[key], path, title, why, after)


def _frequent(run: Run) -> Iterator[Trajectory]:
    for title, stage in first_and_last(run)[-1:]:
        failing = {pattern["name"]: pattern["episodes"] - pattern["succeeded"] for pattern in patterns_of(stage, len(stage))["patterns"]}
        name = max(failing, key=lambda name: failing[name])
        about, shows = next((about, shows) for known, about, shows in PATTERNS if known == name)
        for tree in stage if failing[name] else ():
            for path in episodes_of(tree):
                if shows(path) and not succeeded(path):
                    why = f"What recurs most in failures of {title}: {about}, in {failing[name]} of its episodes. This is the first."
                    yield _shown(stage, tree, path, f"The most frequent failure: {name}", why, title)
                    return


def _solved(run: Run) -> Iterator[Trajectory]:
    yield from _any(run, True, "A held-out task that was solved", "The first of them by name that the last policy solved.")


def _failed(run: Run) -> Iterator[Trajectory]:
    yield from _any(run, False, "A held-out task that was not solved", "The first of them by name that the last policy did not solve.")


def _any(run: Run, solved: bool, title: str, why: str) -> Iterator[Trajectory]:
    for policy, stage in first_and_last(run)[-1:]:
        scores = stage.evaluation.per_task
        for key in sorted(scores):
            if (scores[key] > 0) is solved:
                yield _shown(stage, stage[key], _episode(stage[key], solved), title, why, policy)


# training and exploration ---------------------------------------------------------------------------------------------


def _learnt(run: Run, decode: Decode | None) -> Iterator[Trajectory]:
    """A row of the last round that has one: of the kind that says most about the method."""
    for round_ in reversed(run.rounds):
        stages = round_.stages()
        rollouts = stages.get(ROLLOUTS)
        datasets = [step.dataset for _, step in sorted(rollouts.steps.items(), reverse=True)] if isinstance(rollouts, Rollouts) else []
        for dataset in [*datasets, stages.get(DATASET)]:
            if not isinstance(dataset, Dataset) or not dataset.sealed:
                continue
            kinds = [made.kind for made in dataset.rows.origins()]
            kind = next((kind for kind in _TELLING if kind in kinds), kinds[0] if kinds else "")
            if kind:
                yield _row(run, dataset.rows.trace(kinds.index(kind)), kind, kinds.count(kind), decode)
                return


def _row(run: Run, traced: RowTrace, kind: str, alike: int, decode: Decode | None) -> Trajectory:
    row, side = traced.row, traced.chosen
    pair = isinstance(row, Preference)
    nodes = [node for node in side.nodes if node is not None]
    what = "pair" if pair else "row"
    why = f"The first of {alike} {what}s of the kind {kind!r} in {traced.dataset}, the last dataset that was trained on that has one."
    if traced.rejected is not None and traced.rejected.nodes:
        why += f" The other side {_said([node for node in traced.rejected.nodes if node is not None])}."
    turns, left_out = _turns(nodes)
    return Trajectory(
        title=f"A {what} that was trained on",
        why=why,
        policy=policy_title(side.policy) if side.policy else "none: an expert's, or from a file",
        task=side.tree.task.id if side.tree else side.key,
        outcome=_ending(side, nodes),
        stage=f"{traced.dataset}, {what} {traced.index}",
        key=side.key,
        length=len(side.nodes),
        turns=[] if decode else turns,
        left_out=0 if decode else left_out,
        marked=_marked(row, decode) if decode else Markup(),
    )


def _marked(row: object, decode: Decode) -> Markup:
    if isinstance(row, Preference):
        prompt = mark_up(row.prompt_ids, (0,) * len(row.prompt_ids), decode)
        sides = [(name, mark_up(ids, mask, decode)) for name, ids, mask in (
            ("chosen", row.chosen_ids, row.chosen_mask), ("rejected", row.rejected_ids, row.rejected_mask)
        )]  # fmt: skip
        return Markup(f"<p>prompt</p><pre>{prompt}</pre>") + Markup("").join(
            Markup(f"<p>{name}</p><pre>{text}</pre>") for name, text in sides
        )
    return Markup("<pre>{}</pre>").format(mark_up(row.input_ids, row.loss_mask, decode))  # type: ignore[attr-defined]


def mark_up(ids: Sequence[int], mask: Sequence[int], decode: Decode) -> Markup:
    """Returns tokens as HTML in which the trained ones are marked; of a long sequence the beginning and the end."""
    if len(ids) > TOKENS:
        head, tail = TOKENS // 4, TOKENS - TOKENS // 4
        left_out = Markup('<span class="faint">\n[{} tokens are left out]\n</span>').format(len(ids) - TOKENS)
        return mark_up(ids[:head], mask[:head], decode) + left_out + mark_up(ids[-tail:], mask[-tail:], decode)
    parts: list[Markup] = []
    start = 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or mask[end] != mask[start]:
            text = plain(decode(ids[start:end]))
            parts.append(Markup(f'<mark class="learnt">{text}</mark>' if mask[start] else f'<span class="context">{text}</span>'))
            start = end
    return Markup("").join(parts)


def _explored(run: Run) -> Iterator[Trajectory]:
    for round_ in reversed(run.arms):
        for name, stage in round_.exploration().items():
            for tree in stage:
                for path in sorted(episodes_of(tree), key=lambda path: -path[-1].reward)[:1]:
                    why = f"Of the first tree of {stage.name}, the episode that earned most: no other was measured or trained on."
                    yield _shown(stage, tree, path, f"An episode of {name}", why, policy_title(tree.policy))


# in words -------------------------------------------------------------------------------------------------------------


def policy_title(stage: str) -> str:
    """Returns the title of a policy by the stage that trained it."""
    name, _, step = stage.partition("@")
    place = stage_of(name)
    title = place[0].title if place else "base model" if name in (MODEL, "") else name
    return f"{title}, step {step}" if step else title


def _episode(tree: Tree, won: bool) -> list[Node]:
    """The first episode of a tree that succeeded, or that did not; if there is none, the first."""
    paths = list(episodes_of(tree))
    if not paths:
        raise DataError(f"the tree {tree.task.key!r} has no episode")
    return next((path for path in paths if succeeded(path) is won), paths[0])


def _shown(stage: Trees | Episodes, tree: Tree, path: list[Node], title: str, why: str, policy: str) -> Trajectory:
    turns, left_out = _turns(path)
    return Trajectory(
        title=title,
        why=why,
        policy=policy,
        task=tree.task.id,
        outcome=_outcome(path),
        stage=stage.name,
        key=tree.task.key,
        length=len(path),
        turns=turns,
        left_out=left_out,
    )


def _turns(path: Sequence[Node]) -> tuple[list[ShownTurn], int]:
    told = [ShownTurn(number, node.text, node.observation, _about(node)) for number, node in enumerate(path, 1)]
    head = TURNS // 3
    return (told, 0) if len(told) <= TURNS else ([*told[:head], *told[head - TURNS :]], len(told) - TURNS)


def _about(node: Node) -> str:
    who = "" if node.origin in (Origin.POLICY, Origin.ROOT) else str(node.origin)
    return ", ".join(word for word in (who, "" if node.valid else "refused") if word)


def _outcome(path: Sequence[Node]) -> str:
    last = path[-1]
    return f"{str(last.outcome or 'it goes on').replace('_', ' ')}, return {last.reward:.2f}"


def _ending(side: Side, nodes: list[Node]) -> str:
    if not nodes:
        return f"unknown: {side.problem}" if side.problem else "unknown"
    return _outcome(nodes)


def _said(path: list[Node]) -> str:
    if not path:
        return "is unknown"
    return f"ended after {len(path)} turn{'s' * (len(path) != 1)}: {_outcome(path)}"
