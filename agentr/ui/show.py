"""One file that shows one thing of a run: the page with its answers in itself, opened from disk without any request."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentr.errors import DataError
from agentr.observe.heldout import tasks
from agentr.read.run import Run
from agentr.ui.server import STATIC
from agentr.ui.views.run import run_page
from agentr.ui.views.tree import tree_view, turns_view

#: The run's id in a file that holds one run.
RUN = "run"


def show_tree(run: Run, stage: str, key: str) -> str:
    """Returns a page with one tree and all its turns.

    Raises:
        DataError: There is no such tree, or it is damaged.
    """
    answers = {address("run", run=RUN): _run(run), **_tree(run, stage, key)}
    return page(f"{key} of {stage}", _route("tree", stage=stage, key=key), answers)


def show_task(run: Run, key: str) -> str:
    """Returns a page with the held-out episodes of one task under every policy that was measured.

    Raises:
        DataError: No policy was measured on such a task.
    """
    scores = tasks(run)
    wanted = [task for task in scores["tasks"] if key in (task["key"], task["task"])]
    if not wanted:
        raise DataError(f"{run.path} has no held-out task {key!r}", hint="'agentr ui' lists them; --tree shows a tree of an exploration.")
    name = wanted[0]["key"]
    answers = {address("run", run=RUN): _run(run), address("tasks", run=RUN): {**scores, "tasks": wanted}}
    for policy, score in zip(scores["policies"], wanted[0]["scores"], strict=True):
        if score is not None:
            answers |= _tree(run, policy["stage"], name)
    return page(f"{key} under every policy", _route("episodes", task=name), answers)


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
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    # Inside a script element "<" could end it or open a comment; JSON may say it otherwise.
    held = json.dumps({"route": route, "answers": answers}, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head>"
        f'<body><div id="app"></div><script type="application/json" id="answers">{held}</script><script>{script}</script></body></html>\n'
    )


def address(name: str, **query: str | int) -> str:
    """Returns the address of an answer as the page asks for it: parameters in order, escaped as browsers do."""
    return f"api/{name}" + "".join(f"{'&' if n else '?'}{k}={quote(str(v), safe=_KEPT)}" for n, (k, v) in enumerate(sorted(query.items())))


#: What a browser's encodeURIComponent leaves as it is, beside letters, digits and -_.
_KEPT = "!~*'()"


def _run(run: Run) -> dict[str, Any]:
    """The run's page, without its configuration, logs and curves: they are not shown."""
    told = run_page(RUN, run)
    return {**told, "config": "", "logs": [], "arms": [{**arm, "curve": []} for arm in told["arms"]]}


def _tree(run: Run, stage: str, key: str) -> dict[str, Any]:
    tree = tree_view(run, stage, key)
    where = {"run": RUN, "stage": stage, "key": key}
    nodes = range(len(tree["nodes"]["parent"]))
    return {address("tree", **where): tree, **dict(_turns(run, stage, key, nodes, lambda node: address("turns", **where, nodes=node)))}


def _turns(run: Run, stage: str, key: str, nodes: Iterable[int], named: Callable[[int], str]) -> Iterable[tuple[str, Any]]:
    """Each turn by itself: which ones the page asks for together depends on where it is scrolled to."""
    found = turns_view(run, stage, key, list(nodes), limit=0)
    for turn in found["turns"]:
        yield named(turn["id"]), {"turns": [turn], "problem": found["problem"]}


def _route(view: str, **query: str) -> str:
    return f"#/run/{RUN}/{view}?" + "&".join(f"{name}={quote(value, safe=_KEPT)}" for name, value in query.items())


def _static(name: str) -> str:
    path = STATIC / name
    if not Path(path).exists():
        raise DataError(f"{path} is missing", hint="Build the page with 'make ui'.")
    return path.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
