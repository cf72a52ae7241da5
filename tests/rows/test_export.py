"""Whole rounds in the formats of other tools, and what the formats do not carry, counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import agentr
from agentr.commands.export import export
from agentr.errors import DataError
from agentr.methods.eto.rows import ContrastConfig, contrast_rows
from agentr.rows.export import FORMATS, export_rows
from agentr.rows.export_trees import export_trees
from agentr.rows.imports import import_file
from agentr.rows.revision import good_rows, revision_rows
from agentr.rows.sequences import make_pair, recorded
from agentr.rows.targets import Targets
from agentr.search.revision import Splice
from agentr.search.tree import Origin, Tree
from agentr.store.dataset import write_rows
from agentr.store.rows import Preference, Provenance, Rollout, Row
from agentr.store.summaries import DatasetSummary
from agentr.tasks.formats import ReAct
from agentr.types import Message, task_id
from tests.policy.test_families import DRAWN, codec_of
from tests.reasoning import grown
from tests.runs import TINY, dataset, given, round_of
from tests.support import tiny_tokenizer
from tests.trees import codec, conversed, door, expert, explored, reasoned, tree_of

CODEC = codec()


def revisions(splice: Splice) -> list[Row]:
    found = revision_rows(door(), splice, CODEC, ReAct(), limit=0, targets=Targets())
    return [row for row in found if isinstance(row, Row)]


def good() -> Row:
    (row,) = (row for row in good_rows(door(), 0.5, limit=1, targets=Targets()) if isinstance(row, Row))
    return row


def whole_runs() -> list[Preference]:
    """Pairs with an expert's run: one whose sides part at the first turn, one at the second, one that is the other's
    beginning."""
    tree = explored(("wait sleep", 0.0), ("take wait", 0.5), ("take", 0.2))
    found = list(contrast_rows(tree, expert(), ContrastConfig(pairs_per_task=0), max_length=1000))
    return [pair for pair in found if isinstance(pair, Preference)]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def trained(ids: tuple[int, ...], mask: tuple[int, ...]) -> str:
    return CODEC.decode([i for i, m in zip(ids, mask, strict=True) if m], special=True)


def about(found: dict[str, Counter[str]], word: str) -> Counter[str]:
    """What was counted under the one sentence that has a word."""
    (counted,) = (kinds for what, kinds in found.items() if word in what)
    return counted


# what is in a file ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("splice", [Splice.executed, Splice.paper])
def test_sharegpt_says_which_turns_are_trained_on(tmp_path: Path, splice: Splice) -> None:
    path = tmp_path / "rows.json"
    made = export_rows(path, revisions(splice)[:1], CODEC, "sharegpt")
    assert about(made.changed, "context") == {"revision": 1}
    (entry,) = json.loads(path.read_text())
    said = [(t["value"].split("Action: ")[1], t["loss"]) for t in entry["conversations"] if t["from"] == "gpt"]
    middle = (
        [("take key", True), ("unlock", True)]
        if splice is Splice.executed
        else [("wait", True), ("take key", True), ("unlock", True)]
    )
    assert said == [("open", False), ("wait", False), *middle]
    assert entry["conversations"][0] == {"from": "human", "value": "Open the door."}


def test_an_acknowledgement_in_the_opening_is_context_for_every_reader(tmp_path: Path) -> None:
    tree = tree_of(
        "pull: 1.0",
        into=conversed(Message("user", "A game."), Message("assistant", "OK"), Message("user", "Go.")),
        make=turn,
    )
    (row,) = (row for row in good_rows(tree, 0.5, limit=1, targets=Targets()) if isinstance(row, Row))
    export_rows(tmp_path / "rows.json", [row], CODEC, "sharegpt")
    (back,), _ = import_file(tmp_path / "rows.json", "sharegpt", CODEC, 1000)
    assert (
        isinstance(back, Row) and trained(back.input_ids, back.loss_mask) == "Thought: on pull\nAction: pull<|im_end|>"
    )


def turn(tree: Tree, text: str, reward: float, outcome: Any) -> Any:
    return reasoned(text, reward, outcome)


def test_trl_export_is_masked_by_token(tmp_path: Path) -> None:
    (row,) = revisions(Splice.executed)
    changed = export_rows(tmp_path / "rows.jsonl", [row], None, "trl").changed
    assert list(changed) == [
        "have log-probabilities, returns or other facts of how they were made, for which the format has no place"
    ]
    (entry,) = lines(tmp_path / "rows.jsonl")
    assert [label for label in entry["labels"] if label != -100] == [
        i for i, m in zip(row.input_ids, row.loss_mask, strict=True) if m
    ]


def test_agent_rs_lines_have_the_originals_keys_and_say_where_a_tree_is_not_known(tmp_path: Path) -> None:
    rows = [*revisions(Splice.executed), good()]
    assert not about(
        export_rows(tmp_path / "rows.jsonl", rows, CODEC, "agent_r", find=lambda made: door()).changed, "context"
    )["good"]
    revised, imitated = lines(tmp_path / "rows.jsonl")
    assert set(revised) == {
        "task_num",
        "revise_log",
        "high_log",
        "low_log",
        "task_description",
        "revise",
        "revise_feedback",
    }
    assert set(imitated) == {"task_num", "revise_log", "revise"}
    assert [turn["content"] for turn in revised["high_log"] if turn["role"] == "user"][-1] == "It opens."
    made = export_rows(tmp_path / "rows.jsonl", rows, CODEC, "agent_r")
    assert about(made.changed, "do not name the tree") == {"revision": 1}
    assert "1 of them (1 revision) do not name the tree they were made from" in str(made)


@pytest.mark.parametrize("family", ["Qwen 3", "DeepSeek V3", "GLM 4.5", "Nemotron 3"])
def test_rows_with_reasoning_are_written_as_the_policy_saw_them_and_what_text_does_not_say_is_counted(
    family: str, tmp_path: Path
) -> None:
    """Earlier turns are there without their reasoning, the last one with it; that it is context only the format by
    token says."""
    reasoner, thought = codec_of(family), DRAWN[family]
    said = [ReAct().compose("hm", action) for action in ("open", "look", "go")]
    tree = grown(reasoner, [thought + turn for turn in said], ["A door.", "A hall.", "The end."])
    rows = list(good_rows(tree, 1.0, limit=1, targets=Targets(reasoning=False)))
    path = tmp_path / "rows.jsonl"
    made = export_rows(path, rows, reasoner, "messages")
    assert about(made.changed, "begin with reasoning that is context") == {"good": 3}
    assert about(made.changed, '"loss": false') == {"good": 2}
    for number, entry in enumerate(lines(path)):
        *before, last = [turn["content"] for turn in entry["messages"]]
        assert before == ["Open the door.", said[0], "A door.", said[1], "A hall."][: 2 * number + 1]
        assert last == thought + said[number]
    export_rows(path, rows, None, "trl")
    for entry, turn in zip(lines(path), said, strict=True):
        assert reasoner.decode([label for label in entry["labels"] if label != -100]) == turn
    made = export_rows(path, rows, reasoner, "messages", per_turn=True)
    assert len(lines(path)) == 3 and about(made.changed, "begin with reasoning") == {"good": 3}
    whole = good_rows(tree, 1.0, limit=1, targets=Targets())
    assert not any("begin with reasoning" in what for what in export_rows(path, whole, reasoner, "messages").changed)


def test_pairs_with_reasoning_that_is_context_are_counted(tmp_path: Path) -> None:
    reasoner = codec_of("Qwen 3")
    tree = grown(reasoner, [DRAWN["Qwen 3"] + ReAct().compose("hm", action) for action in ("open", "go")])
    better, worse = ((tree, recorded([node], trained=True, on_reasoning=False)) for node in tree.nodes[1:])
    pair = make_pair(tree.prompt_ids, better, worse, "sibling")
    made = export_rows(tmp_path / "pairs.jsonl", [pair], reasoner, "messages")
    assert about(made.changed, "begin with reasoning") == {"sibling": 1}


def test_rollouts_are_in_no_format(tmp_path: Path) -> None:
    rollout = Rollout((1, 2), (0, 1), Provenance("t", (), "rollout"), (None, -0.5), advantages=(0.0, 1.0))
    with pytest.raises(DataError, match="advantages"):
        export_rows(tmp_path / "x", [rollout], CODEC, "messages")
    online = round_of(tmp_path / "run", [], rollouts=[door()])
    online.experiment.store.close()
    with pytest.raises(DataError, match=r"round 1 trained online.*advantages"):
        export(tmp_path / "run", 1, "trl", tmp_path / "x")


# whole rounds ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose second round has rows of all kinds: its own, of the round before it, of demonstrations and of a file.
    Both rounds have explored the task with the same key, and their trees differ in what was observed."""
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "model/config.json").write_text('{"model_type": "llama"}')
    general = [{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}]
    (tmp_path / "general.json").write_text(json.dumps(general))
    mixture = f"{{demonstrations: 0.5, earlier_rounds: 1, general_path: {tmp_path / 'general.json'}, eta: 0.8}}"
    method = [*TINY, f"method.mixture={mixture}"]
    first = round_of(tmp_path / "run", method, model=tmp_path / "model", revise=[door()])
    shown = Row(
        good().input_ids,
        good().loss_mask,
        Provenance("shown", (1, 2, 3), "demonstration", stage="rounds/00/demonstrations"),
    )

    def demonstrated(folder: Path) -> DatasetSummary:
        return DatasetSummary.read(write_rows(folder, [shown]))

    first.experiment.store.stages.run("rounds/00/dataset", DatasetSummary, demonstrated)
    dataset(first)
    first.experiment.store.close()
    later = door()
    for node in later.nodes:
        node.observation = f"later: {node.observation}"
    second = round_of(tmp_path / "run", method, model=tmp_path / "model", number=2, collect=[later])
    given(second.experiment.store, "rounds/02/revise", [later], includes="rounds/02/collect")
    given(second.experiment.store, "rounds/02/steps", [explored(("take", 0.0))])
    dataset(second)
    second.experiment.store.close()
    return tmp_path / "run"


@pytest.mark.parametrize("kind", [kind for kind, places in FORMATS.items() if Row in places])
def test_a_whole_round_is_written_in_every_format(run: Path, tmp_path: Path, kind: str) -> None:
    kinds = agentr.open(run).rounds[2].dataset.summary.kinds
    assert set(kinds) == {"revision", "good", "demonstration", "general"} and kinds["revision"] == 2
    made = export(run, 2, kind, tmp_path / "out" / "rows")
    assert (made.written, made.left_out) == (kinds, {})
    assert f"{sum(kinds.values())} rows in" in str(made)


def test_each_row_has_what_its_own_rounds_tree_has(run: Path, tmp_path: Path) -> None:
    export(run, 2, "agent_r", tmp_path / "rows.jsonl")
    logs = [entry["high_log"] for entry in lines(tmp_path / "rows.jsonl") if entry["revise"]]
    assert sorted(log[2]["content"] for log in logs) == ["It is locked.", "later: It is locked."]


def test_unknown_formats_and_forms_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no form for one turn"):
        export(run, 2, "agent_r_trees", tmp_path / "trees", per_turn=True)
    with pytest.raises(DataError, match=r"unknown export format 'csv'"):
        export(run, 2, "csv", tmp_path / "x")


# turn by turn ---------------------------------------------------------------------------------------------------------


def test_turn_by_turn_each_target_is_an_answer(tmp_path: Path) -> None:
    """What a loss mask said is a prompt and a completion: the same targets after the same ids, and none besides."""
    rows = [*revisions(Splice.executed), good()]
    made = export_rows(tmp_path / "rows.jsonl", rows, CODEC, "messages", per_turn=True)
    assert (made.what, made.written) == ("turn", {"revision": 2, "good": 3}) and not any(
        "context" in what for what in made.changed
    )
    entries = lines(tmp_path / "rows.jsonl")
    assert all(len(entry["completion"]) == 1 and entry["prompt"][-1]["role"] == "user" for entry in entries)
    back, _ = import_file(tmp_path / "rows.jsonl", "auto", CODEC, 1000)
    for row, turns in ((rows[0], back[:2]), (rows[1], back[2:])):
        targets = [0] * len(row.input_ids)
        for turn in turns:
            assert isinstance(turn, Row) and turn.input_ids == row.input_ids[: len(turn.input_ids)]
            targets[: len(turn.input_ids)] = map(max, zip(targets, turn.loss_mask, strict=False))
        assert tuple(targets) == row.loss_mask


def test_turn_by_turn_llamafactory_must_mask_the_history(tmp_path: Path) -> None:
    made = export_rows(tmp_path / "rows.json", [good()], CODEC, "llamafactory", per_turn=True)
    assert made.written == {"good": 3} and about(made.changed, "mask_history: true") == {"good": 2}
    last = [entry["conversations"][-1] for entry in json.loads((tmp_path / "rows.json").read_text())]
    assert [(turn["value"].split("Action: ")[1], turn["loss"]) for turn in last] == [
        ("open", True),
        ("take key", True),
        ("unlock", True),
    ]


def test_observations_in_whole_runs_are_counted_or_the_sides_are_cut_where_they_part(tmp_path: Path) -> None:
    pairs = whole_runs()
    assert len(pairs) == 3
    made = export_rows(tmp_path / "whole.jsonl", pairs, CODEC, "messages")
    assert (made.what, made.written) == ("pair", {"trajectory": 3}) and about(made.changed, "observations") == {
        "trajectory": 3
    }
    made = export_rows(tmp_path / "parted.jsonl", pairs, CODEC, "messages", per_turn=True)
    assert made.written == {"trajectory": 2} and about(made.changed, "part") == {"trajectory": 2}
    assert about(made.left_out, "is a target on both") == {"trajectory": 1}
    assert f"left out: 1 (1 trajectory): {next(iter(made.left_out))}" in str(made)
    prompts = [entry["prompt"] for entry in lines(tmp_path / "parted.jsonl")]
    assert sorted(turn["content"] for prompt in prompts for turn in prompt[3:]) == ["saw take", "take"]
    answers = [
        tuple(turn["content"] for side in ("chosen", "rejected") for turn in entry[side])
        for entry in lines(tmp_path / "parted.jsonl")
    ]
    assert sorted(answers) == [("take", "wait"), ("unlock", "wait")]


def test_llamafactory_leaves_whole_runs_out_and_counts_them(tmp_path: Path) -> None:
    prompt, yes, no = CODEC.prompt([Message("user", "?")]), CODEC.turn("yes"), CODEC.turn("no")
    step = Preference(
        tuple(prompt), tuple(yes), (1,) * len(yes), tuple(no), (1,) * len(no), Provenance("t", (), "step")
    )
    made = export_rows(tmp_path / "pairs.json", [*whole_runs(), step], CODEC, "llamafactory")
    assert made.written == {"step": 1} and about(made.left_out, "one answer on each side") == {"trajectory": 3}


# Agent-R's trees ------------------------------------------------------------------------------------------------------


@dataclass
class Loaded:
    """A node as the original's loader makes it: it takes these keys and no others."""

    visits: int
    value: float
    prior: float
    puct_value: float
    obs: str
    llm_response: str
    depth: int
    is_terminal: bool
    recent_actions: list[list[str]]
    action: str
    env_score: float
    disaster: bool
    state: list[dict[str, str]]
    children: list[Loaded]


def loaded(data: dict[str, Any]) -> Loaded:
    return Loaded(**{**data, "children": [loaded(child) for child in data["children"]]})


def as_the_original_reads(folder: Path) -> list[tuple[int, Loaded]]:
    """All files that end in .json, sorted by the number between the last underscore and the dot."""
    names = [path.name for path in folder.iterdir() if path.name.endswith(".json")]
    numbers = {name: int(name.split("_")[-1].split(".")[0]) for name in names}
    return [
        (numbers[name], loaded(json.loads((folder / name).read_text())))
        for name in sorted(names, key=numbers.__getitem__)
    ]


def leaves(node: Loaded) -> Iterator[Loaded]:
    if node.is_terminal and not node.children:
        yield node
    for child in node.children:
        yield from leaves(child)


SYSTEM, INSTRUCTION, OK = (
    Message("system", "Be brief."),
    Message("user", "You play a game."),
    Message("assistant", "OK"),
)
EXAMPLE = (Message("user", "Task: a"), Message("assistant", "b"))


@pytest.mark.parametrize(
    ("before", "read", "changed"),
    [
        ((), ["", "", ""], 1),
        ((SYSTEM,), ["Be brief.", "", ""], 1),
        ((INSTRUCTION, OK), ["", "You play a game.", "OK"], 1),
        ((SYSTEM, INSTRUCTION, OK), ["Be brief.", "You play a game.", "OK"], 0),
        ((SYSTEM, INSTRUCTION, OK, *EXAMPLE), ["Be brief.", "You play a game.\n\nOK\n\nTask: a", "b"], 1),
    ],
)
def test_the_original_finds_the_task_in_the_fourth_message(
    tmp_path: Path, before: tuple[Message, ...], read: list[str], changed: int
) -> None:
    tree = tree_of(
        "open / pull: 1.0", "wait: 0.0", into=conversed(*before, Message("user", "Open the door.")), make=turn
    )
    made = export_trees(tmp_path / "trees", [tree])
    assert sum(kinds.total() for kinds in made.changed.values()) == changed
    ((number, root),) = as_the_original_reads(tmp_path / "trees")
    assert number == 0 and root.llm_response == root.action == "ROOT"
    assert [m["role"] for m in root.state] == ["system", "user", "assistant", "user"]
    assert [m["content"] for m in root.state] == [*read, "Open the door."]
    for leaf in leaves(root):
        assert leaf.state[3]["content"] == "Open the door."
        assert [m["content"] for m in leaf.state[4::2]] == [
            f"Thought: on {a}\nAction: {a}" for a, _ in leaf.recent_actions
        ]


def test_the_original_pairs_the_leaves_that_the_search_has_ended_at(tmp_path: Path) -> None:
    tree = door()
    assert export_trees(tmp_path / "trees", [tree]).left_out == {"turns that no policy searched": {"revision turns": 2}}
    ((_, root),) = as_the_original_reads(tmp_path / "trees")
    assert (root.visits, root.value) == (3, pytest.approx(1.2))
    assert [(leaf.value / leaf.visits, leaf.recent_actions[-1]) for leaf in leaves(root)] == [
        (1.0, ["unlock", "It opens."]),
        (0.0, ["sleep", "You sleep."]),
        (pytest.approx(0.2), ["give up", "You leave."]),
    ]


def test_file_names_are_numbers_and_a_list_says_which_tasks_they_are(tmp_path: Path) -> None:
    trees = [
        tree_of("a: 1.0", into=conversed(Message("user", "?"), name=name))
        for name in ("bread@0", "agentgym/7", "agentgym/0")
    ]
    played = tree_of("b: 1.0", into=conversed(Message("user", "?"), name="played"), origin=Origin.EXPERT)
    made = export_trees(tmp_path / "trees", [*trees, played])
    assert [number for number, _ in as_the_original_reads(tmp_path / "trees")] == [0, 1, 7]
    assert {entry["task"]: entry["number"] for entry in lines(tmp_path / "trees/tasks.jsonl")} == {
        "bread@0": 0,
        "agentgym/7": 7,
        "agentgym/0": 1,
    }
    assert about(made.left_out, "holds no turn").total() == 1, "the expert's"
    with pytest.raises(DataError, match="Name another folder"):
        export_trees(tmp_path / "trees", trees)
    with pytest.raises(DataError, match=r"is a file.*Name a folder\."):
        export_trees(tmp_path / "trees/tasks.jsonl", trees)


def test_openings_of_more_messages_than_the_original_has_are_folded(tmp_path: Path) -> None:
    talk = [Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("user", "d")]
    trees = [tree_of("a: 1.0", into=conversed(*talk[:number], name=f"t{number}")) for number in (3, 4)]
    made = export_trees(tmp_path / "trees", trees)
    assert about(made.changed, "worked examples in one message").total() == 1


def test_trees_that_a_later_stage_includes_are_written_once(run: Path, tmp_path: Path) -> None:
    made = export(run, 2, "agent_r_trees", tmp_path / "trees")
    assert made.written == {"rounds/02/revise": 1, "rounds/02/steps": 1}
    assert [number for number, _ in as_the_original_reads(tmp_path / "trees")] == [0, 1]


@pytest.mark.parametrize("name", ["bread@0", "a~b/ü c", "~40~"])
def test_the_id_of_a_task_is_read_from_its_key(name: str) -> None:
    assert task_id(conversed(Message("user", "?"), name=name).task.key) == name
