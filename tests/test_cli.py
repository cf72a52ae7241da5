"""The command line as a person meets it."""

from __future__ import annotations

import sys

import pytest

from agentr.cli import main


def test_an_error_is_shown_letter_by_letter(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["agentr", "run", "none[red].yaml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "none[red].yaml" in capsys.readouterr().err
