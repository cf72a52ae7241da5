"""What users of other software reported, tried on agentr: `tests.try_inputs`, with what is right of that which it only
shows."""

import json
import re
from pathlib import Path

import pytest

from tests import try_inputs
from tests.try_inputs import INPUTS, KINDS, tried

#: Of what is shown and not compared, by its id: a pattern that is found in it.
RIGHT = {
    "thread": r"late 42",
    "exit-message": r"no solution",
    "blank-lines": r"^'7'$",
    "mask-weight": r"^trained: \['(?!.*push).*unlock|^DataError.*weight",
    "mask-trainable": r"^trained: \['(?!.*push).*unlock|^DataError.*trainable",
    "label-trl": r"^trained: \['(?!.*kick).*push|^DataError.*label",
    "label-llamafactory": r"^trained: \['(?!.*kick).*push|^DataError.*kto_tag",
    "calls-empty": r"^trained: \['.*push|^trained: \[\] left out: \{'|^DataError.*tool_calls",
    "roles-observation": r"^trained: \['Action: a.*Action: b",
    "pairs-without-prompt": r"^trained: \['a pair'\]",
    "empty-turn": r"^trained: \[\] left out: \{'|^DataError",
    "parts-text": r"^'Thought: I look what I have\.\\nAction: inventory'",
    "error-200": r"the model is warming up",
    "quota": r"exceeded your current quota",
    "filter-400": r"^(?!ConfigError)(?!.*base_url).*content policy",
    "context-vllm": r"^ContextOverflow",
    "cut-by-filter": r"^(?!.*' stop$)",
    "usage-nan": r"^'Thought: I look what I have",
    "arguments-object": r"parsed Parsed\(action='inventory'",
    "parameters": r"max_completion_tokens",  # the provider's own words; a key of policy.openai then says so
    "half-character agentgym": r"^observed 'Nice \ufffd'$",
    "half-character openenv": r"^observed 'Nice \ufffd'$",
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "others"])
def test_what_users_reported_elsewhere_is_right_here(kind: str) -> None:
    found = list(tried(INPUTS, kind))
    shown = {each.id: each.text.split(" | right:")[0] for each in found if each.fine is None}
    assert found and shown.keys() <= RIGHT.keys()
    wrong = [id for id, text in shown.items() if not re.search(RIGHT[id], text)]
    assert [each.line for each in found if each.fine is False or each.id in wrong] == []


def test_inputs_of_a_folder_are_printed_with_what_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = {"format": "bare", "text": "look", "note": ""}
    cases = [{"id": "a", **same, "action": "look"}, {"id": "b", **same, "action": "go"}]
    (tmp_path / "turns.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    (tmp_path / "others.jsonl").write_text(json.dumps({"id": "c", "do": "look", "right": "seen"}), encoding="utf-8")
    assert try_inputs.main(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["a", "'look'"], ["!!", "b"], ["see", "c"], ["1", "not"]]
    assert try_inputs.main(tmp_path / "none") == 0
