"""What the pages take on large runs."""

from pathlib import Path

import pytest

from agentr.errors import RunError
from agentr.store import forest as stored
from tests.tools.bench import ui


def test_answers_are_counted_in_bytes_and_decoded_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "from_bytes", stored.from_bytes)  # what is counted is put back
    monkeypatch.setattr(ui, "DEEP", 50)
    ui._make(tmp_path / "run", 30, 300, 0)

    def asked(name: str, **query: object) -> tuple[int, int]:
        return ui._ask(tmp_path / "run", name, query)[1]

    size, decoded = asked("forest", stage=ui.MANY)
    assert decoded == 0 and 2_000 < size < 20_000, "thirty lines, and no tree"
    size, decoded = asked("tree", stage=ui.LARGE, key="large")
    assert decoded == 1 and size < 100 * 300
    assert asked("turns", stage=ui.LARGE, key="wordy", nodes=[1])[0] < 30_000 < ui.WORDS
    assert asked("tree", stage=ui.LARGE, key="deep")[1] == 1


def test_an_answer_that_needs_too_much_is_an_error() -> None:
    fine = ui.Asked("a page", size=10, decoded=0, peak_mb=10.0, seconds=1.0, limit=(10, 10, 0))
    ui.check([fine])
    for wrong in ({"size": 11}, {"decoded": 1}, {"peak_mb": 10.5}):
        with pytest.raises(RunError, match=r"1 answers .* a page"):
            ui.check([fine, ui.Asked(**{**vars(fine), **wrong})])
