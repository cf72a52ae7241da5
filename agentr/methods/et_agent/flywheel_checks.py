"""ET-Agent's flywheel: which episode is chosen, what each operator makes of it, what passes the filter.

The policy, the teacher and the environment are scripted; the operators are agentr's own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from agentr.collect.evolver import Evolver
from agentr.collect.operators import apply
from agentr.collect.teacher_operators import rewritten
from agentr.methods.et_agent.evolve import Evolve, chosen
from agentr.methods.et_agent.rows import evolved_rows
from agentr.rounds.method import by_round
from agentr.rows.targets import Targets
from agentr.search import Node, Origin, Tree
from agentr.search.episode import EVOLVED, Episode, episodes
from agentr.search.evolution import Evolution
from agentr.search.revision import Rating, Verdict
from agentr.search.written import Turns, child_of, name_of, named, spoken, tree_of
from agentr.store.rows import Row
from agentr.tasks.formats import FORMATS, ReAct


@dataclass
class Scripted(Evolver):
    """The means of operators, without a model and a server.

    Attributes:
        policy: Continuations of the policy, in the order in which they are drawn; the last one holds for later draws.
            For an empty one there is no room.
        ends: Actions that end an episode, and what it earns then.
        needs: Actions without which such an action earns nothing.
        answers: The teacher's answers, by operator.
    """

    policy: Sequence[Sequence[str]] = ()
    ends: Mapping[str, float] = field(default_factory=dict)
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)

    async def replay(self, node: int, turns: Sequence[Node]) -> int:
        for turn in turns:
            node = self._take(node, turn.text, Origin.REPLAY)
            if self.tree.nodes[node].outcome is not None:
                break
        return node

    async def write(self, node: int, text: str) -> int:
        return self._take(node, text, Origin.REWRITE)

    async def go_on(self, node: int, hint: str | None = None) -> int:
        script = self.policy[min(self._drawn, len(self.policy) - 1)]
        self._drawn += 1
        for action in script:
            node = self._take(
                node, ReAct().compose(hint or "So.", action), Origin.POLICY if hint is None else Origin.REWRITE
            )
            hint = None
        return node if script else -1

    async def ask(self, question: str, label: str) -> str | None:
        return self.answers.get(label.partition("/")[0])

    def _take(self, node: int, text: str, origin: Origin) -> int:
        action = ReAct().parse(text).action or text
        before = [turn.action for turn in self.tree.path(node)]
        earned = self.ends.get(action)
        if earned is not None and not set(self.needs.get(action, ())) <= set(before):
            earned = 0.0
        spec = action if earned is None else f"{action}: {earned}"
        return self.tree.add(node, child_of(spec, len(self.tree.nodes), {action: {"text": text}}), origin).id


def scripted(method: Any, paths: Sequence[str], prefix: str, world: Mapping[str, Any]) -> Scripted:
    written = {
        name: {"text": ReAct().compose(f"About {name}.", name)}
        for path in paths
        for name in path.rpartition(":")[0].split(" / ")
    }
    tree = tree_of(paths, written)

    async def nothing(*_: Any) -> None: ...

    agent: Any = SimpleNamespace(
        format=ReAct(),
        spec=SimpleNamespace(answer_prefix=prefix),
        codec=SimpleNamespace(turn=lambda text: ()),
        sampler=SimpleNamespace(said=lambda text, ids: text, read=lambda text, ids: ReAct().parse(text)),
    )
    sessions: Any = SimpleNamespace(at=nothing, along=nothing, cut=tree.cut)
    evolve = method.evolve
    return Scripted(tree, agent, sessions, replace(evolve, hints=["I check this."]), 0, 100, 0, **world)


def choice(paths: Sequence[str], used: Sequence[str] = ()) -> str:
    tree = tree_of(paths)
    tree.evolutions += [Evolution(parent=named(tree, name).id) for name in used]
    found = chosen(tree, "")
    assert found is not None
    return name_of(found.leaf)


def operated(method: Any, operator: str, path: str, prefix: str = "", **world: Any) -> list[str] | str:
    """The turns of the episode that comes of an operator, or why none does."""
    tree, made, _ = _operated(method, operator, path, prefix, world)
    return [node.text for node in tree.path(made.end)] if made.end >= 0 else made.reason


def noted(method: Any, operator: str, path: str, prefix: str = "", **world: Any) -> dict[str, Any]:
    """What is noted of an operator: the turn that it names, counted from 1, how many turns it keeps, why nothing came
    of it; how often the policy goes on for it, and how many turns it leaves in the tree."""
    tree, made, drawn = _operated(method, operator, path, prefix, world)
    return {
        "turn": made.turn,
        "kept": made.kept,
        "reason": made.reason,
        "drawn": drawn,
        "left": len(tree.nodes) - made.parent - 1,
    }


def _operated(
    method: Any, operator: str, path: str, prefix: str, world: Mapping[str, Any]
) -> tuple[Tree, Evolution, int]:
    evolver = scripted(method, [path], prefix, world)
    (episode,) = episodes(evolver.tree, prefix)
    made = asyncio.run(apply(operator, evolver, episode))
    return evolver.tree, made, evolver._drawn


def reworded(format: str, text: str, thought: str) -> str | None:
    """A turn with another thought in place of "Old."; None if the format would not read it so."""
    return rewritten(FORMATS[format], text, "Old.", thought)


def operators(method: Any, path: str, **world: Any) -> list[str]:
    """The operators that are applied to an episode."""
    tree, _ = _evolved(method, path, world)
    return [made.operator for made in tree.evolutions if made.parent == tree.evolutions[0].parent]


def grown(method: Any, path: str, **world: Any) -> int:
    """How many episodes there are after all evolutions of one."""
    return len(list(episodes(_evolved(method, path, world)[0], "", EVOLVED)))


def evolutions(method: Any, path: str, **world: Any) -> list[Any]:
    """How often an episode is to be chosen, and the ends of episodes that a judge is asked about."""

    async def judged(*_: Any) -> str:
        return "Judgement: Good"

    tree, tried = _evolved(method, path, {**world, "judge": SimpleNamespace(ask=judged)})
    return [tried, [name_of(node) for node in tree.nodes if node.verdict]]


def _evolved(method: Any, path: str, world: Mapping[str, Any]) -> tuple[Tree, int]:
    evolver = scripted(method, [path], "", world)
    work, tried = Evolve(evolver.config), 0

    async def evolve() -> None:
        nonlocal tried
        for _ in range(evolver.config.evolutions):
            tried += 1
            if not await work._evolve(evolver):
                break

    asyncio.run(evolve())
    return evolver.tree, tried


def filtered(
    method: Any,
    paths: Sequence[str],
    turns: Turns | None = None,
    flawed: Mapping[str, str] | None = None,
    judged: Mapping[str, str] | None = None,
) -> list[Any]:
    """The episodes that are learnt: turns, and whether they are trained on.

    Args:
        flawed: Turns that an operator found to be wrong and went on after, and the ends of the episodes that came of
            it; empty if none did.
        judged: What the judge says of ends of episodes.
    """
    tree = tree_of(paths, turns)
    for end, rating in (judged or {}).items():
        named(tree, end).verdict = Verdict(Rating(rating), "")
    for turn, end in (flawed or {}).items():
        depth = named(tree, turn).depth
        tree.evolutions.append(
            Evolution(parent=named(tree, turn).id, turn=depth, kept=depth, end=named(tree, end).id if end else -1)
        )
    rules = method.filter
    found = evolved_rows(tree, rules, by_round(rules.min_return, 1), "", Targets(invalid=True))
    return sorted(_read(tree, row) for row in found if isinstance(row, Row))


def learnt(method: Any, paths: Sequence[str], made: Mapping[str, str]) -> list[list[Any]]:
    """The episodes that are learnt: what they are called, the operator that they came of, and their ends.

    Args:
        made: Ends of episodes, and the operators that made them; another operator made nothing.
    """
    tree, rules = tree_of(paths), method.filter
    tree.evolutions += [
        Evolution(parent=1, end=named(tree, end).id, operator=operator) for end, operator in made.items()
    ]
    tree.evolutions.append(Evolution(parent=1, operator="hint_end"))
    rows = [row for row in evolved_rows(tree, rules, 1.0, "", Targets()) if isinstance(row, Row)]
    return [
        [row.provenance.kind, row.provenance.detail["operator"], name_of(tree.nodes[row.provenance.nodes[-1]])]
        for row in rows
    ]


def _read(tree: Tree, row: Row) -> list[list[Any]]:
    return [
        turn for turn in spoken(tree, row.input_ids[3:], row.loss_mask[3:]) if not turn[0].startswith("see ") or turn[1]
    ]


def episode_of(tree: Tree, name: str, prefix: str) -> Episode:
    """Returns the episode that ends with a turn."""
    return Episode(tree, tuple(tree.path(named(tree, name).id)), prefix)
