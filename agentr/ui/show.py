"""One file that shows one thing of a run, or all of it (``agentr.ui.report``): the page with its answers in itself,
which asks nobody."""

import base64
import hashlib
import html
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentr.errors import DataError
from agentr.observe.heldout import tasks
from agentr.observe.problems import PageProblem, read_or
from agentr.read.run import Run
from agentr.ui.texts import LONGEST, Texts, as_json
from agentr.ui.views.program import fit, shortened_view
from agentr.ui.views.rows import row_view
from agentr.ui.views.run import run_page
from agentr.ui.views.tree import tree_view, turns_view
from agentr.words import seen

STATIC = Path(__file__).parent / "static"
#: The run's id in a file that holds one run.
RUN = "run"
#: Bytes of the answers of a file with so many turns or fewer; one with more may have as many for each. Bytes of an
#: answer's address.
ROOM, TURNS, ADDRESS = 1_650_000, 500, 150
#: Characters to which texts are cut, if with longer ones the turns do not fit.
LENGTHS = (LONGEST, 4_000, 1_000, 250)


def show_tree(run: Run, stage: str, key: str) -> str:
    """Returns a page with one tree, all its turns, and what is learnt of them by which row.

    Raises:
        DataError: There is no such tree, or it is damaged.
    """
    run = run.at_once()
    answers = fitted(run, [(stage, key)], {address("run", run=RUN): _run(run)})
    return page(f"{key} of {stage}", _route("tree", stage=stage, key=key), answers)


def show_task(run: Run, key: str) -> str:
    """Returns a page with the held-out episodes of one task under every policy that was measured.

    Raises:
        DataError: No policy was measured on such a task.
    """
    run = run.at_once()
    scores = tasks(run)
    wanted = [task for task in scores["tasks"] if key in (task["key"], task["task"])]
    if not wanted:
        raise DataError(
            f"{run.path} has no held-out task {key!r}",
            hint="'agentr ui' lists them; --tree shows a tree of an exploration.",
        )
    name = wanted[0]["key"]
    measured = [
        policy["stage"]
        for policy, score in zip(scores["policies"], wanted[0]["scores"], strict=True)
        if score is not None
    ]
    needed = {address("run", run=RUN): _run(run), address("tasks", run=RUN): {**scores, "tasks": wanted}}
    return page(
        f"{key} under every policy",
        _route("episodes", task=name),
        fitted(run, [(stage, name) for stage in measured], needed),
    )


def fitted(run: Run, trees: Sequence[tuple[str, str]], needed: dict[str, Any]) -> dict[str, Any]:
    """Returns the answers of a file: those that it needs, trees with their turns, and of the rest as much as there is
    room for.

    First come the texts of the turns, then which tokens of them are learnt, then the tokens by themselves. What is left
    out is said in the problems of its tree.

    Args:
        trees: Each by its stage and key.
        needed: Further answers, by their addresses.
    """
    held = [HeldTree(run, stage, key) for stage, key in trees]
    turns = sum(len(tree.turns) for tree in held)
    room = ROOM * max(1.0, turns / TURNS) - sum(
        size_of(answer) for answer in (*needed.values(), *(tree.view for tree in held))
    )
    longest = next((n for n in LENGTHS if sum(tree.size(n) for tree in held) <= room), LENGTHS[-1])
    answers = dict(needed)
    for tree in held:
        room -= tree.size(longest)
    for tree in held:
        room = tree.take_rows(answers, room)
    for tree in held:
        room = tree.take_turns(answers, room, longest)
        answers[address("tree", **tree.where)] = tree.view
    return answers


class HeldTree:
    """A tree on its way into a file."""

    def __init__(self, run: Run, stage: str, key: str, *, tokens: bool = True) -> None:
        self._run = run
        self.where = {"run": RUN, "stage": stage, "key": key}
        self.view = tree_view(run, stage, key)
        turns = range(len(self.view["nodes"]["parent"]))
        if not tokens:  # of many trees that offer the same tools
            self.view["tools"] = fit(self.view["tools"], 0)
        found = turns_view(run, stage, key, turns, limit=0, texts=None if tokens else Texts(None))
        self.turns, self._problem = found["turns"], found["problem"]

    def size(self, longest: int) -> int:
        """Bytes of the turns without their tokens, their texts cut."""
        return sum(size_of(self._turn(_without_tokens(turn), longest)) for turn in self.turns)

    def take_rows(self, answers: dict[str, Any], room: float) -> float:
        """Adds which tokens the rows teach that were made of this tree, and returns the room that is left."""
        rows = dict.fromkeys((use["dataset"], use["index"]) for use in self.view["uses"] if use["index"] is not None)
        left = 0
        for dataset, index in rows:
            name = address("row", run=RUN, stage=dataset, index=index)
            answer = (
                None
                if room <= 0
                else read_or(None, partial(_learnt, self._run, dataset, index), self.view["problems"], f"row {index}")
            )
            if name in answers or answer is None or size_of(answer) > room:
                left += name not in answers
                continue
            answers[name] = answer
            room -= size_of(answer)
        if left:
            self._leave_out(f"which tokens are learnt by {left} of {len(rows)} rows")
        return room

    def take_turns(self, answers: dict[str, Any], room: float, longest: int) -> float:
        """Adds each turn by itself, since which ones the page asks for together depends on where it is scrolled to;
        those with few tokens keep them as long as there is room. Returns the room that is left."""
        left = cut = 0
        for turn in sorted(self.turns, key=lambda turn: len(turn["tokens"] or ())):
            whole, bare = self._turn(turn, longest), self._turn(_without_tokens(turn), longest)
            more = size_of(whole) - size_of(bare)
            fits = more <= room
            room -= more if fits else 0
            left += not fits
            cut += _cut(bare["turns"][0]) > _cut(turn)
            answers[address("turns", **self.where, nodes=turn["id"])] = whole if fits else bare
        if cut:
            self._leave_out(f"the ends of the texts of {cut} of {len(self.turns) - 1} turns")
        if left:
            self._leave_out(f"the tokens of {left} of {len(self.turns) - 1} turns")
        return room

    def _turn(self, turn: dict[str, Any], longest: int) -> dict[str, Any]:
        cut = {}
        for name, beyond in (("text", "cut"), ("observation", "observationCut")):
            cut |= {name: turn[name][:longest], beyond: turn[beyond] + max(0, len(turn[name]) - longest)}
        if turn["program"] is not None:
            cut["program"] = shortened_view(turn["program"], longest)
        return {"turns": [{**turn, **cut, "action": turn["action"][:longest]}], "problem": self._problem}

    def _leave_out(self, what: str) -> None:
        self.view["problems"].append(left_out(what))


def left_out(what: str) -> PageProblem:
    """Returns what a page says of something that its file has no room for."""
    return {"message": f"this file leaves out {what}, to be small", "hint": "'agentr ui' shows the whole run."}


def _without_tokens(turn: dict[str, Any]) -> dict[str, Any]:
    return {**turn, "tokens": None, "logprobs": []}


def _cut(turn: dict[str, Any]) -> int:
    return turn["cut"] + turn["observationCut"] + (turn["program"] or {"cut": 0})["cut"]


def _learnt(run: Run, dataset: str, index: int) -> dict[str, Any]:
    """A row as a tree shows it: which tokens of its turns are learnt, without the tokens."""
    row = row_view(run, dataset, index, Texts(None))
    sides = []
    for side in row["sides"]:
        spans, mask = [], []
        for node, begin, end in side["spans"]:
            spans.append((node, len(mask), len(mask) + end - begin))
            mask += side["mask"][begin:end]
        sides.append({**side, "logprobs": [], "advantages": [], "spans": spans, "mask": mask})
    return {**row, "sides": sides}


def size_of(answer: Any) -> int:
    """Returns the bytes of an answer in a file, with those of its address."""
    return len(_escaped(answer).encode()) + ADDRESS


def _escaped(answer: Any) -> str:
    """An answer in a script element, which "<" could end, or open a comment in it: JSON may write it otherwise."""
    return as_json(answer).replace("<", "\\u003c")


def page(title: str, route: str, answers: dict[str, Any]) -> str:
    """Returns a page that has its answers in itself.

    Args:
        title: For the window.
        route: Where it opens.
        answers: By their addresses (``address``).

    Raises:
        DataError: The page was not built.
    """
    script, style = (_static(name) for name in ("app.js", "app.css"))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    held = _escaped({"route": route, "answers": answers})
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light '
        'dark">'
        f"<title>{html.escape(seen(title))}</title><style>{style}</style></head>"
        '<body><div id="app"></div><script type="application/json" '
        f'id="answers">{held}</script><script>{script}</script></body></html>\n'
    )


def address(name: str, **query: str | int) -> str:
    """Returns the address of an answer as the page asks for it: parameters in order, escaped as browsers do."""
    return f"api/{name}" + "".join(
        f"{'&' if n else '?'}{k}={quote(str(v), safe=_KEPT)}" for n, (k, v) in enumerate(sorted(query.items()))
    )


#: What a browser's encodeURIComponent leaves as it is, beside letters, digits and -_.
_KEPT = "!~*'()"


def _run(run: Run) -> dict[str, Any]:
    """The run's page, without its configuration, logs and curves: they are not shown."""
    answer = run_page(RUN, run)
    return {**answer, "config": "", "logs": [], "arms": [{**arm, "curve": []} for arm in answer["arms"]]}


def _route(view: str, **query: str) -> str:
    return f"#/run/{RUN}/{view}?" + "&".join(f"{name}={quote(value, safe=_KEPT)}" for name, value in query.items())


def _static(name: str) -> str:
    path = STATIC / name
    if not Path(path).exists():
        raise DataError(f"{path} is missing", hint="Build the page with 'make ui'.")
    return path.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
