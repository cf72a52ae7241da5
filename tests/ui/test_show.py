"""Single files."""

import base64
import hashlib
import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import agentr
from agentr.cli import app
from agentr.errors import ConfigError, DataError
from agentr.types import Outcome
from agentr.ui.show import address, page, show_task, show_tree
from agentr.ui.views.rows import row_view
from tests.trees import episode, reasoned
from tests.ui.conftest import growing


class _Page(html.parser.HTMLParser):
    """The scripts and styles of a page, by what a browser takes for them, and the addresses that it names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self.kinds: list[str | None] = []
        self.asks: list[str] = []
        self.policy = ""
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.asks += [value or "" for key, value in attrs if key in ("src", "href", "action")]
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"] or ""
        if tag in self.texts:
            self._in = tag
            self.texts[tag].append("")
            self.kinds += [named.get("type")] if tag == "script" else []

    def handle_data(self, data: str) -> None:
        if self._in:
            self.texts[self._in][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._in = "" if tag == self._in else self._in


def _answers(text: str) -> dict[str, Any]:
    return json.loads(_Page(text).texts["script"][0])


def test_a_tree_in_a_file_has_all_its_turns_and_asks_nobody(made: Path) -> None:
    run = agentr.open(made / "first")
    text = show_tree(run, "rounds/01/revise", "door")
    held = _answers(text)
    assert held["route"] == "#/run/run/tree?stage=rounds%2F01%2Frevise&key=door"
    where = {"run": "run", "stage": "rounds/01/revise", "key": "door"}
    assert len(held["answers"][address("tree", **where)]["nodes"]["parent"]) == 9
    turns = [held["answers"][address("turns", **where, nodes=node)]["turns"][0]["action"] for node in range(1, 9)]
    assert turns == ["open", "take key", "unlock", "wait", "sleep", "give up", "take key", "unlock"]
    seen = _Page(text)
    assert seen.asks == [] and seen.kinds == ["application/json", None]
    for kind, source in (("script", seen.texts["script"][1]), ("style", seen.texts["style"][0])):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in seen.policy, "nothing else may run"
    assert "default-src 'none'" in seen.policy


def test_a_task_in_a_file_has_its_episodes_under_each_policy(made: Path) -> None:
    held = _answers(show_task(agentr.open(made / "first"), "c"))
    assert held["route"] == "#/run/run/episodes?task=c"
    assert [task["scores"] for task in held["answers"]["api/tasks?run=run"]["tasks"]] == [[1.0, 0.0]]
    assert {key for key in held["answers"] if key.startswith("api/tree")} == {
        f"api/tree?key=c&run=run&stage=rounds%2F0{number}%2Feval" for number in (0, 1)
    }
    with pytest.raises(DataError, match="no held-out task 'zz'"):
        show_task(agentr.open(made / "first"), "zz")


@pytest.mark.parametrize(
    "hostile", ["</script><script>alert(1)</script>", "<!--", "<script", "\u202e", "\0", "\u2028", "&lt;"]
)
def test_no_text_ends_the_data_or_begins_anything(hostile: str) -> None:
    text = page(hostile, "#/", {"api/x": {"text": hostile, hostile: 1}})
    seen = _Page(text)
    assert len(seen.texts["script"]) == 2 and json.loads(seen.texts["script"][0])["answers"]["api/x"] == {
        "text": hostile,
        hostile: 1,
    }
    assert "<" not in seen.texts["script"][0]


def test_addresses_are_escaped_as_browsers_do() -> None:
    kept = "-_.!~*'()"
    assert address("x", b=kept, a="a b/ü&=~20") == "api/x?a=a%20b%2F%C3%BC%26%3D~20&b=-_.!~*'()"
    assert address("home") == "api/home"


def test_the_last_stage_that_has_a_tree_is_shown(made: Path) -> None:
    run = agentr.open(made / "first")
    assert run.last_trees("door").name == "rounds/01/revise" and run.last_trees("t1").name == "rounds/01/collect"
    with pytest.raises(DataError, match=r"no stage .* has a tree 'zz'"):
        run.last_trees("zz")


def test_the_command_writes_the_file_and_says_where(made: Path, tmp_path: Path) -> None:
    run, runner = str(made / "first"), CliRunner()
    said = runner.invoke(app, ["report", run, "--tree", "door", "--out", str(tmp_path / "tree.html")])
    assert said.exit_code == 0 and re.search(r"tree\.html, \d\.\d\d MB", said.output), said.output
    assert _answers((tmp_path / "tree.html").read_text())["route"].startswith("#/run/run/tree")
    assert isinstance(runner.invoke(app, ["report", run, "--tree", "a", "--task", "b"]).exception, ConfigError)


def test_a_file_knows_which_tokens_are_learnt(made: Path) -> None:
    run = agentr.open(made / "first")
    answers = _answers(show_tree(run, "rounds/01/revise", "door"))["answers"]
    (tree,) = [answer for name, answer in answers.items() if name.startswith("api/tree")]
    assert tree["problems"] == [] and len([use for use in tree["uses"] if use["index"] is not None]) == 2
    for use in tree["uses"]:
        if use["index"] is None:
            continue
        held = answers[address("row", run="run", stage=use["dataset"], index=use["index"])]
        whole = row_view(run, use["dataset"], use["index"])
        for side, other in zip(held["sides"], whole["sides"], strict=True):
            of = {node: side["mask"][begin:end] for node, begin, end in side["spans"]}
            assert of == {node: other["mask"][begin:end] for node, begin, end in other["spans"]} and of
            assert side["tokens"] is None and len(side["mask"]) < len(other["mask"])
    turn = answers[address("turns", run="run", stage="rounds/01/revise", key="door", nodes=1)]["turns"][0]
    assert turn["tokens"] and len(turn["tokens"]) == len(turn["logprobs"])


@pytest.mark.slow
def test_a_file_of_five_hundred_wordy_turns_is_small_and_says_what_it_leaves_out(runs: Path) -> None:
    tree = episode("wordy", ["wait"], 0.0, Outcome.FAILURE, 1)
    for number in range(499):
        turn = tree.add(number % 40, reasoned(f"take thing {number}"), tree.nodes[1].origin)
        turn.text = turn.observation = f"{number} " + "word \u20ac " * 1500
        turn.token_ids, turn.logprobs = tuple(range(5, 305)), (-0.123456,) * 300
    _, store = growing(runs / "first", tree)
    store.close()
    text = show_tree(agentr.open(runs / "first"), "rounds/02/collect", "wordy")
    assert len(text.encode()) < 2_000_000
    answers = _answers(text)["answers"]
    view = answers[address("tree", run="run", stage="rounds/02/collect", key="wordy")]
    told = [problem["message"] for problem in view["problems"]]
    assert any("the ends of the texts of 499 of 500 turns" in message for message in told), told
    turns = [answer["turns"][0] for name, answer in answers.items() if name.startswith("api/turns")]
    bare = sum(turn["tokens"] is None for turn in turns if turn["id"])
    assert len(turns) == 501 and 0 < bare < 500 and any(f"the tokens of {bare} of" in message for message in told), told
    long = next(turn for turn in turns if turn["id"] == 400)
    assert len(long["text"]) + long["cut"] == len(tree.nodes[400].text) and long["text"]
