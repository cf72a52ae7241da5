"""What is exported is imported: the same tokens and the same masks in every format, except what the export has
counted."""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.commands.export import TREES
from agentr.policy.chat import ChatCodec
from agentr.rows.conversations import ConversationReader, answers, by_turn, parting
from agentr.rows.entries import FORMATS as READ
from agentr.rows.export import FORMATS, PER_TURN, SPEAKERS, export_rows
from agentr.rows.imports import import_file
from agentr.store.rows import Preference, Provenance, Row
from agentr.tasks.tools import ACT, schema
from agentr.types import Message
from tests.policy.test_tools import calls_of, tooled
from tests.rows.test_export import run  # noqa: F401  # a fixture
from tests.test_cli import agentr
from tests.trees import codec

DOCS = Path(__file__).parents[2] / "docs/your_own_trajectories.md"
FAMILIES = ("plain", "Qwen 2.5", "Llama 3.1", "Mistral 7B 0.3")
WAYS = [(kind, per_turn) for kind in FORMATS for per_turn in ((False, True) if kind in PER_TURN else (False,))]
#: Formats in which a reader cannot be told which turns are context: all of them are learnt.
UNMARKED = [("verl", False)]


@cache
def codec_of(family: str) -> ChatCodec:
    return codec() if family == "plain" else tooled(family)


def ids_of(row: Any) -> tuple[Any, ...]:
    if isinstance(row, Row):
        return row.input_ids, row.loss_mask
    return row.prompt_ids, row.chosen_ids, row.chosen_mask, row.rejected_ids, row.rejected_mask


words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=10).filter(str.strip)
spoken = words | st.sampled_from(["<|im_end|>", '"}', "####", "a\u2028b", "</tool_call>", "[/INST]", " x ", "[1]"])
episode = st.lists(st.tuples(spoken, spoken, st.booleans(), st.booleans()), min_size=1, max_size=4)


def said(family: str, steps: list[tuple[str, str, bool, bool]]) -> tuple[list[Message], list[bool]]:
    """Turns of the agent, in a tool's codec some of them calls, with what is observed between them; and which are
    learnt."""
    made, learnt = codec_of(family), []
    turns: list[Message] = []
    for text, seen, target, calls in steps:
        turn = made.calls.compose("I look." if calls else "", text.strip()) if made.calls else text
        role = made.answered_by(turn)
        turns += [Message("assistant", turn), Message(role, seen)]
        learnt += [target, False]
    return turns[:-1], learnt[:-1]


def row_of(family: str, steps: list[tuple[str, str, bool, bool]], system: bool, number: int = 0) -> Row:
    made = codec_of(family)
    turns, learnt = said(family, steps)
    learnt[-1] = learnt[-1] or not any(learnt)
    prompt = made.prompt([Message("system", "Be brief.")] * system + [Message("user", "Go.")])
    ids, mask = answers(made, turns, learnt)
    return Row((*prompt, *ids), (*[0] * len(prompt), *mask), Provenance("toy/t~1", (number,), "good", {"reward": 0.5}))


def written(path: Path, rows: list[Any], family: str, kind: str, per_turn: bool = False) -> Any:
    return export_rows(path, rows, codec_of(family), kind, per_turn=per_turn)


def read(path: Path, family: str, kind: str, outside: bool) -> list[Any]:
    """Imports with the codec of a run, or as 'agentr import' does, which knows the model and no environment."""
    made = codec_of(family)
    rows, dropped = import_file(path, kind, made.plain if outside else made, 100_000)
    assert not dropped
    return [ids_of(row) for row in rows]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("kind", "per_turn"), [way for way in WAYS if Row in FORMATS[way[0]]])
def test_sequences(tmp_path_factory: pytest.TempPathFactory, family: str, kind: str, per_turn: bool) -> None:
    """``verl`` and ``agent_r`` hold no tools, so they are read by the run's own codec alone; what ``verl`` learns more
    is counted."""

    @settings(max_examples=5, derandomize=True, deadline=None)
    @given(episodes=st.lists(episode, min_size=1, max_size=3), system=st.booleans())
    def check(episodes: list[Any], system: bool) -> None:
        rows = [row_of(family, steps, system and family != "Mistral 7B 0.3", n) for n, steps in enumerate(episodes)]
        path = tmp_path_factory.mktemp("rows") / "out"
        made = written(path, rows, family, kind, per_turn)
        assert not any("spelled" in what or "no whole turns" in what for what in made.changed)
        wanted = [
            part for row in rows for part in (by_turn(row, ConversationReader(codec_of(family))) if per_turn else [row])
        ]
        assert made.entries == len(wanted) and not made.left_out
        counted: Counter[str] = sum(
            (kinds for what, kinds in made.changed.items() if "context" in what), Counter[str]()
        )
        ids = [ids_of(row) for row in wanted]
        for outside in {False, kind not in ("verl", "agent_r") or family == "plain"}:
            got = read(path, family, kind, outside)
            if (kind, per_turn) in UNMARKED:
                assert [i for i, _ in got] == [i for i, _ in ids]
                assert sum(a != b for a, b in zip(got, ids, strict=True)) == counted["good"]
            else:
                assert got == ids

    check()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("kind", "per_turn"), [way for way in WAYS if Preference in FORMATS[way[0]]])
def test_pairs(tmp_path_factory: pytest.TempPathFactory, family: str, kind: str, per_turn: bool) -> None:
    """Pairs that a format has no place for are counted; all others come back."""

    @settings(max_examples=5, derandomize=True, deadline=None)
    @given(sides=st.lists(st.tuples(episode, episode), min_size=1, max_size=3))
    def check(sides: list[Any]) -> None:
        made_by, pairs = codec_of(family), []
        for better, worse in [*sides, ([("yes", "", True, False)], [("no", "", True, False)])]:
            (one, _), (other, _) = said(family, better), said(family, worse)
            if one != other:
                sides_ = (answers(made_by, side, [True] * len(side)) for side in (one, other))
                (a, am), (b, bm) = sides_
                pairs.append(
                    Preference(
                        tuple(made_by.prompt([Message("user", "Go.")])), a, am, b, bm, Provenance("t", (), "step")
                    )
                )
        path = tmp_path_factory.mktemp("pairs") / "out"
        made = written(path, pairs, family, kind, per_turn)
        reader = ConversationReader(made_by)
        wanted: list[Any] = [parting(pair, reader) for pair in pairs] if per_turn else pairs
        if kind == "llamafactory":
            wanted = [
                p
                for p in wanted
                if p is None or not any(len(reader.continuation(ids)) > 1 for ids in (p.chosen_ids, p.rejected_ids))
            ]
        wanted = [pair for pair in wanted if pair is not None]
        assert made.entries == len(wanted) == len(pairs) - sum(kinds.total() for kinds in made.left_out.values())
        for outside in (False, True):
            assert read(path, family, kind, outside) == [ids_of(pair) for pair in wanted]

    check()


def test_a_reward_and_the_tools_are_kept_and_what_is_not_is_counted_by_kind(tmp_path: Path) -> None:
    row = row_of("Qwen 2.5", [("look", "A door.", True, True), ("open", "", True, False)], False)
    drawn = Row(
        row.input_ids, row.loss_mask, Provenance("t", (), "revision", {"return": 1.0}), (0.0,) * len(row.input_ids)
    )
    for kind, tools, facts in (
        ("messages", {}, {"revision": 1}),
        ("sharegpt", {"good": 1, "revision": 1}, {"revision": 1}),
        ("eto-sft", {"good": 1, "revision": 1}, {"revision": 1}),
        ("llamafactory", {"good": 1, "revision": 1}, {"revision": 1}),
        ("verl", {"good": 1, "revision": 1}, {"revision": 1}),
        ("agent_r", {"good": 1, "revision": 1}, {"good": 1, "revision": 1}),
        ("trl", {}, {"good": 1, "revision": 1}),
    ):
        made = written(tmp_path / kind, [row, drawn], "Qwen 2.5", kind)
        assert sum((kinds for what, kinds in made.changed.items() if "offer tools" in what), Counter()) == tools, kind
        assert (
            sum((kinds for what, kinds in made.changed.items() if "log-probabilities" in what), Counter()) == facts
        ), kind
        if kind in ("messages", "sharegpt", "eto-sft", "llamafactory"):
            rows, _ = import_file(tmp_path / kind, "auto", codec_of("Qwen 2.5").plain, 10_000)
            assert rows[0].provenance.detail["reward"] == 0.5
    (entry, _) = map(json.loads, (tmp_path / "messages").read_text().splitlines())
    assert entry["tools"] == [schema(ACT)] and [turn["role"] for turn in entry["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


def test_an_empty_turn_that_is_learnt_is_counted_where_nothing_says_so(tmp_path: Path) -> None:
    row = row_of("plain", [("", "A door.", True, False), ("open", "", True, False)], False)
    for kind, per_turn in WAYS:
        if Row in FORMATS[kind]:
            made = written(tmp_path / "out", [row], "plain", kind, per_turn)
            _, dropped = import_file(tmp_path / "out", "auto", codec(), 1000)
            counted = sum(kinds.total() for what, kinds in made.changed.items() if "empty turns" in what)
            assert dropped.total() == counted == ((kind == "messages" and per_turn) or kind == "verl"), kind


# the documentation's table --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_format_of_the_table_is_started_and_read_back(run: Path, tmp_path: Path) -> None:  # noqa: F811
    ways = re.findall(
        r"^\| `([a-z_]+[a-z_-]*)(?:`, `([a-z-]+))?( --per-turn)?` \|",
        DOCS.read_text().partition("## And out again")[2],
        re.MULTILINE,
    )
    named = {(kind, bool(more)) for first, second, more in ways for kind in (first, second) if kind}
    assert named == {*WAYS, (TREES, False)} and {kind for kind, _ in WAYS} == {*READ}
    for kind, per_turn in sorted(named):
        out = tmp_path / f"{kind}{per_turn}"
        shown = agentr(
            "export", run, "--round", "2", "--format", kind, "--out", out, *(["--per-turn"] if per_turn else [])
        )
        if kind == "eto-dpo":
            assert "no place for sequences" in str(shown.exception)
            continue
        assert shown.exit_code == 0, (kind, shown.exception)
        if kind != TREES:
            rows, dropped = import_file(out, kind, codec(), 1000)
            assert rows and not dropped and f"{len(rows)} {'turns' if per_turn else 'rows'} in" in shown.stdout


def test_every_role_that_an_export_writes_has_a_speaker_that_is_read() -> None:
    from agentr.rows.entries import _ROLES

    assert {role: _ROLES[speaker] for role, speaker in SPEAKERS.items()} == {role: role for role in SPEAKERS}
    assert calls_of(codec_of("Qwen 2.5")).dialect.name == "hermes"
