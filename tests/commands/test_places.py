"""A run directory that cannot be there is told in one sentence, whatever is asked of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentr.commands.run import run_dir
from agentr.config.identity import Identity
from agentr.errors import RunError
from agentr.methods import load
from agentr.store.run import RunStore


@pytest.mark.parametrize("place", ["x" * 300, "file", "file/run", "/proc/run", "loop/run", "/dev/null/run"])
def test_a_run_directory_that_cannot_be_made_is_one_sentence(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    config = load(None, [f"run.dir={tmp_path / place}"])
    with pytest.raises(RunError, match=r"cannot be (read or )?written") as raised:
        RunStore(run_dir(config.run)).open(Identity.of(config))
    assert place[-20:] in raised.value.message and raised.value.hint


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["run configs/smoke.yaml run.dir={}", "resume {}", "report {}", "status {}", "doctor {}", "pack {}", "ls {}"],
)
def test_no_command_answers_a_long_name_with_a_traceback(command: str, tmp_path: Path) -> None:
    arguments = command.format(tmp_path / ("x" * 300)).split()
    found = subprocess.run(
        [sys.executable, "-m", "agentr.cli", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode in (0, 1, 2) and "Traceback" not in found.stderr + found.stdout, found.stderr
