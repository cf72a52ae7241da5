"""How likely turns are under every policy: computed beside the server, kept beside the run."""

import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import agentr
from agentr.errors import DataError
from agentr.read.run import Run
from agentr.read.stage import Rows
from agentr.store.rows import Preference, Provenance, Rollout, Row
from agentr.ui import probing
from agentr.ui.probe import Prober
from agentr.ui.views.rows import row_view

STAGE = "rounds/01/revise"


def answered(prober: Prober, run: Run, node: int, key: str = "door") -> dict[str, Any]:
    for _ in range(1200):
        found = prober.ask(run, STAGE, key, node)
        if found["state"] != "running":
            break
        time.sleep(0.2)
    return found


def numbers(ids: Sequence[int], context: Sequence[int], folder: Path) -> list[float]:
    """The log-probability of each id after what stands before it, by the plain way: all logits of the whole."""
    import torch
    from transformers import AutoModelForCausalLM

    whole = torch.tensor([[*context, *ids]])
    with torch.inference_mode():
        likely = torch.log_softmax(
            AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(whole).logits[0], -1
        )
    return [float(likely[place - 1, whole[0, place]]) for place in range(len(context), whole.shape[1])]


def rows(kind: str) -> Row | Preference:
    """A row as each kind of dataset has them, with a first id that counts, and context between what is learnt."""
    made = Provenance("door", (1,), "made")
    if kind == "pair":
        return Preference((1, 2, 3), (4, 5, 6), (1, 0, 1), (7, 8), (0, 1), made)
    row = Row((1, 5, 9, 2, 7, 3), (1, 1, 0, 0, 1, 1), made)
    return row if kind == "row" else Rollout(row.input_ids, row.loss_mask, made, (-1.0,) * 6, (0.5,) * 6, "door", {})


@pytest.mark.parametrize("kind", ["row", "pair", "rollout"])
def test_each_learnt_token_of_a_row_has_a_probability_under_every_policy_whoever_wrote_it(
    kind: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, row = agentr.open(runs / "first"), rows(kind)
    monkeypatch.setattr(Rows, "__getitem__", lambda *_: row)
    probing.answer(probing.Asked(str(run.path), "rounds/01/dataset", "", 0, str(tmp_path / "out.json")))
    found = json.loads((tmp_path / "out.json").read_text())
    if isinstance(row, Preference):
        sides = [((), row.prompt_ids, (0, 0, 0))]
        sides += [
            (row.prompt_ids, row.chosen_ids, row.chosen_mask),
            (row.prompt_ids, row.rejected_ids, row.rejected_mask),
        ]
    else:
        sides = [((1,), row.input_ids[1:], row.loss_mask[1:])]
    assert found["state"] == "done" and found["siblings"] == [] and len(found["policies"]) == 3
    for policy, folder in zip(found["policies"], [policy.path for policy in run.policies(base=True)], strict=True):
        if kind != "pair":
            assert policy["logprobs"][0].pop(0) is None, "nothing stands before the first"
        for (context, ids, mask), values in zip(sides, policy["logprobs"], strict=True):
            for counts, value, right in zip(
                mask, values, numbers(ids, context, folder) if context else ids, strict=True
            ):
                assert value == (pytest.approx(right, abs=1e-3) if counts else None)


def test_the_rows_of_executed_revisions_are_asked_about_as_they_are_shown(runs: Path, tmp_path: Path) -> None:
    """Of a revision nobody drew the good actions: the row page has no log-probability of its own for them."""
    prober, run = Prober(tmp_path / "kept"), agentr.open(runs / "first")
    stage = "rounds/01/dataset"
    for index in range(len(run.stage(stage).rows)):
        view = row_view(run, stage, index)
        _, parts = probing.parts_of(run, stage, "", index)
        assert [list(mask) for _, _, mask in parts] == [side["mask"] for side in view["sides"]]
    with pytest.raises(DataError, match="row"):
        prober.ask(run, stage, "", 10_000)
    with pytest.raises(DataError, match="is no dataset"):
        prober.ask(run, STAGE, "", 0)


@pytest.mark.slow
def test_probes_are_kept_outside_the_run_and_one_process_answers_them(runs: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    prober, run = Prober(tmp_path / "kept"), agentr.open(runs / "first")
    found = answered(prober, run, 2)
    assert found["state"] == "done" and found["siblings"] == [2, 4], found
    assert [policy["title"] for policy in found["policies"]] == ["base model", "warm start", "round 1"]
    assert all(value < 0 for policy in found["policies"] for value in policy["logprobs"]), (
        "all three are one model here"
    )
    assert len({tuple(policy["logprobs"]) for policy in found["policies"]}) == 1
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before
    assert prober.ask(run, STAGE, "door", 4)["siblings"] == [2, 4], "siblings share an answer"
    first = prober._process
    assert prober.ask(run, STAGE, "door", 1)["state"] == "running"
    assert prober.ask(run, STAGE, "door", 7)["problem"] == "waiting for another probe"
    assert answered(prober, run, 7)["state"] == answered(prober, run, 1)["state"] == "done" and prober._process is first
    assert first is not None and first.stdin is not None
    first.stdin.close()
    assert first.wait(60) == 0, "it ends with who asks"
    assert Prober(tmp_path / "kept").ask(run, STAGE, "door", 1)["state"] == "done", "and its answers are kept"


def test_a_process_that_died_is_said_and_asked_anew(runs: Path, tmp_path: Path) -> None:
    prober, run = Prober(tmp_path / "kept"), agentr.open(runs / "first")
    assert prober.ask(run, STAGE, "door", 2)["state"] == "running"
    assert prober._process is not None
    prober._process.kill()
    prober._process.wait()
    found = prober.ask(run, STAGE, "door", 2)
    assert found["state"] == "failed" and "enough memory" in found["problem"]
    assert prober.ask(run, STAGE, "door", 2)["state"] == "running"
    assert prober._process.stdin is not None
    prober._process.kill()


def test_a_policy_without_weights_is_named_and_the_others_are_measured(runs: Path, tmp_path: Path) -> None:
    run, out = agentr.open(runs / "first"), tmp_path / "out.json"
    for path in (run.path / "rounds/00/train/model").glob("*.safetensors"):
        path.unlink()
    shutil.rmtree(run.path / "rounds/01/train/model")
    probing.answer(probing.Asked(str(run.path), STAGE, "door", 2, str(out)))
    found = json.loads(out.read_text())
    base, *trained = found["policies"]
    assert found["state"] == "done" and base["problem"] == "" and all(base["logprobs"])
    assert "has no weights (*.safetensors)" in trained[0]["problem"] and "has no config.json" in trained[1]["problem"]
    assert trained[0]["logprobs"] == [None, None]


def test_a_question_that_cannot_be_answered_says_why(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    for asked, said in (
        (probing.Asked(str(runs / "gone"), STAGE, "door", 2, str(out)), "holds no run"),
        (probing.Asked(str(runs / "first"), STAGE, "nobody", 2, str(out)), "no tree 'nobody'"),
        (probing.Asked(str(runs / "first"), STAGE, "door", 99, str(out)), "no turn 99"),
    ):
        probing.answer(asked)
        assert said in out.read_text()


def test_a_small_model_is_computed_by_one_thread(runs: Path, tmp_path: Path) -> None:
    import torch

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        probing.answer(probing.Asked(str(runs / "first"), STAGE, "door", 2, str(tmp_path / "out.json")))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
