"""Agent-R: search, pairs, transition, splices, rows, mixture."""

import asyncio
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from agentr.evaluate.metrics import repeated, revision_length
from agentr.methods.agent_r import revise
from agentr.rounds.method import by_round
from agentr.rows.mixture import mix_rows
from agentr.rows.revision import demonstrated_rows, good_rows, revision_rows
from agentr.rows.targets import Targets
from agentr.search import UCT, Node, Origin
from agentr.search.pairs import Pair, pair_paths
from agentr.search.revision import Revision
from agentr.search.written import Turns, child_of, name_of, named, names, new_tree, searched, spoken, tree_of
from agentr.store.rows import Row
from agentr.tasks.formats import ReAct
from agentr.types import Completion, FinishReason, Outcome


def uct(method: Any, **changes: Any) -> UCT:
    return UCT(replace(method.search, **changes))


def score(method: Any, value: float, visits: int, parent: int) -> float:
    above = Node(0, -1, 0, Origin.ROOT, visits=parent)
    return uct(method).score(above, Node(1, 0, 1, Origin.POLICY, visits=visits, value=value))


def descend(method: Any, paths: Sequence[str]) -> str | None:
    tree = tree_of(paths)
    reached = uct(method).descend(tree, 0)
    return None if reached is None else name_of(tree.nodes[reached])


def backed_up(method: Any, width: int, depth: int, answers: Mapping[str, Sequence[str]]) -> dict[str, list[float]]:
    tree, _ = searched(uct(method, width=width, max_depth=depth), answers)
    return {name_of(node): [node.visits, node.value] for node in tree.nodes}


def drawn(
    method: Any, width: int, depth: int, iterations: int, answers: Mapping[str, Sequence[str]] | None = None
) -> int:
    asked = searched(uct(method, width=width, max_depth=depth, iterations=iterations), answers or {})[1]
    return sum(turns for ask in asked for _, turns in ask)


def closed(paths: Sequence[str]) -> list[str]:
    """The turns below which nothing is left to do."""
    return sorted(name_of(node) for node in tree_of(paths).nodes if node.terminal)


def siblings(method: Any, turns: Turns) -> dict[str, int]:
    """How often each of the turns that became nodes was drawn; in front the turns that became none."""
    strategy, tree = uct(method, width=len(turns)), new_tree()
    (expansion,) = strategy.ask(tree)
    strategy.tell(tree, expansion, [child_of(name, place, turns) for place, name in enumerate(turns)])
    return {"merged": tree.events.get("duplicates", 0), **{name_of(node): node.draws for node in tree.nodes[1:]}}


def alpha(method: Any, rounds: Sequence[int]) -> list[float]:
    return [by_round(method.revise.alpha, round_) for round_ in rounds]


def pairs(
    method: Any,
    paths: Sequence[str],
    alpha: float,
    turns: Turns | None = None,
    executed: Sequence[str] = (),
    **changes: Any,
) -> list[list[str]]:
    tree = tree_of(paths, turns)
    tree_of(executed, origin=Origin.REVISION, into=tree)
    found = pair_paths(tree, replace(method.revise, **changes), alpha)
    return sorted([name_of(tree.nodes[pair.bad]), name_of(tree.nodes[pair.good])] for pair in found)


def transition(method: Any, paths: Sequence[str], bad: str, good: str, verdicts: Mapping[str, str]) -> str | None:
    """The last turn of the bad prefix, where the judge answers for each turn what stands in ``verdicts``."""
    tree = tree_of(paths)

    async def generate(request: Any) -> list[Completion]:
        judged = re.search(r"Step to judge:\nAction: (.+)", request.messages[0].content)
        assert judged is not None
        return [Completion(verdicts[judged[1]], (), (), FinishReason.STOP)]

    policy = SimpleNamespace(generate=generate)
    codec = SimpleNamespace(prompt=lambda messages: [1], reply=lambda text: text, stop_ids=())
    codec.plain = codec
    agent: Any = SimpleNamespace(policy=policy, codec=codec, max_model_len=8192)
    pair = Pair(
        named(tree, bad).id, named(tree, good).id, tree.common_ancestor(named(tree, bad).id, named(tree, good).id)
    )
    last = asyncio.run(revise.transition(tree, pair, agent, method.revise))
    return None if last is None else name_of(last)


def revised(
    method: Any,
    paths: Sequence[str],
    revisions: Sequence[Mapping[str, Any]],
    executed: Sequence[str] = (),
    limit: int | None = None,
    reasoning: bool = True,
) -> list[Any]:
    """The revision trajectories: turns, and whether they are trained on.
    A turn that was put in stands there with its answer. Of what became none, why.

    Args:
        revisions: Names of ``bad``, ``good`` and ``transition``, and of the ``end`` of one that was executed.
        executed: Paths that were executed as revisions.
    """
    tree = tree_of(paths)
    tree_of(executed, origin=Origin.REVISION, into=tree)
    for about in revisions:
        places: dict[str, Any] = {name: named(tree, about[name]).id for name in ("bad", "good", "transition")}
        above = tree.common_ancestor(places["bad"], places["good"])
        end = named(tree, about["end"]).id if "end" in about else -1
        tree.revisions.append(Revision(**places, ancestor=above, reflection="That was wrong.", end=end))
    put_in: list[str] = []

    def kept(text: str) -> list[int]:
        put_in.extend([text] if text not in put_in else [])
        return [1000 + put_in.index(text)]

    codec: Any = SimpleNamespace(
        turn=kept, bridge=lambda text, role: kept(text), answered_by=lambda text: "user", reasoning=lambda ids: 0
    )
    rows = revision_rows(
        tree,
        method.revise.splice,
        codec,
        ReAct(),
        limit=method.revisions_per_task if limit is None else limit,
        targets=Targets(invalid=True, reasoning=reasoning),
    )
    return [_read(tree, row, put_in) if isinstance(row, Row) else row.reason for row in rows]


def _read(tree: Any, row: Row, put_in: Sequence[str]) -> list[list[Any]]:
    found: list[list[Any]] = []
    for token, trained in zip(row.input_ids[3:], row.loss_mask[3:], strict=True):
        found += [[put_in[token - 1000], bool(trained)]] if token >= 1000 else spoken(tree, [token], [trained])
    return [turn for turn in found if not str(turn[0]).startswith("see ") or turn[1]]


def good(
    method: Any,
    build: Any,
    paths: Sequence[str],
    alpha: float,
    turns: Turns | None = None,
    executed: Sequence[str] = (),
    at_once: bool = False,
) -> list[Any]:
    """The good trajectories: turns, and whether they are trained on. Of what is none, why, and its turns.

    Args:
        executed: Paths that were executed as revisions.
        at_once: The task is over, and solved, before any turn.
    """
    tree = tree_of(paths, turns)
    tree_of(executed, turns, origin=Origin.REVISION, into=tree)
    if at_once:
        tree.root.outcome, tree.root.reward = Outcome.SUCCESS, 1.0
    rows = good_rows(
        tree,
        alpha,
        limit=method.good_per_task,
        targets=Targets.of(build),
        inclusive=method.revise.alpha_inclusive,
        dedupe=method.dedupe_good,
    )
    return [
        _read(tree, row, ())
        if isinstance(row, Row)
        else [row.reason, *names(tree.nodes[node] for node in row.provenance.nodes)]
        for row in rows
    ]


def sampled(paths: Sequence[str], turns: Turns | None = None, by: str = "policy") -> list[Any]:
    """The trajectories that rejection sampling learns with a least return of 0.5, or of demonstrations: return, turns,
    and how many tokens' probabilities are known. Of what is not learnt, why, and its turns."""
    tree, targets = tree_of(paths, turns, origin=Origin(by)), Targets()
    rows = good_rows(tree, 0.5, limit=9, targets=targets) if by == "policy" else demonstrated_rows(tree, targets)
    return [
        [
            row.provenance.detail["good_return"] if isinstance(row, Row) else row.reason,
            names(tree.nodes[node] for node in row.provenance.nodes),
            *([len(row.logprobs) - row.logprobs.count(None)] if isinstance(row, Row) else []),
        ]
        for row in rows
    ]


def mixed(method: Any, agent: int, general: int, shown: int = 0) -> list[int]:
    """How many rows are the agent's, how many general, and how many of ``shown`` demonstrations."""
    codec: Any = SimpleNamespace(prompt=lambda messages: [1], turn=lambda text: [2], calls=None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "general.json"
        path.write_text(
            json.dumps(
                [{"conversations": [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Hello."}]}] * general
            )
        )
        mixture, own, others = replace(method.mixture, general_path=str(path)), ["agent"] * agent, ["shown"] * shown
        made: Any = {"demonstrations": others, "earlier": [], "keep": lambda row: "general", "codec": codec}
        found: Any
        found, _ = mix_rows(cast(Any, own), mixture, max_length=9, seed=0, **made)
    return [found.count(kind) for kind in ("agent", "general", "shown")]


def repeats(actions: Sequence[str], lengths: Sequence[int]) -> list[int]:
    tree = tree_of(
        [" / ".join(f"{place}" for place, _ in enumerate(actions))],
        {str(p): {"action": a} for p, a in enumerate(actions)},
    )
    return [repeated(tree.nodes[1:], length) for length in lengths]


def first_error(paths: Sequence[str], transitions: Sequence[str]) -> float:
    tree = tree_of(paths)
    for name in transitions:
        place = named(tree, name).id
        tree.revisions.append(Revision(bad=place, good=place, ancestor=0, transition=place, reflection=""))
    return revision_length([tree])[0]
