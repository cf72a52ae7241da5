"""The examples are started as a reader starts them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import read_a_run
from tests.support import tiny_tokenizer

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
#: A script's own folder is on its path, and not the one that it is started in.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def started(name: str, *arguments: str | Path, timeout_s: float = 60.0) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_an_expert_plays_in_this_process() -> None:
    assert started("play_an_environment.py").splitlines()[-1].endswith(": 1.0")


def test_a_policy_of_ones_own_searches() -> None:
    first = started("search_with_my_policy.py")
    assert re.fullmatch(r"\d+ nodes; \d+ of \d+ ended paths solve .+\n", first)
    assert started("search_with_my_policy.py") == first


def test_a_run_is_read(tmp_path: Path) -> None:
    model = tmp_path / "model"
    tiny_tokenizer().save_pretrained(model)
    (model / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    read_a_run.small(tmp_path / "run", model)
    told = started("read_a_run.py", tmp_path / "run")
    assert "rounds/01" in told and "a path that earned 1.0:" in told and told.count("\n> ") >= 1


@pytest.mark.slow
@pytest.mark.by_hand
@pytest.mark.timeout(1800)
def test_agent_r_in_one_file() -> None:
    """A whole round with a real engine and a real training; success is over 150 held-out tasks, with its interval."""
    assert len((EXAMPLES / "agent_r_in_one_file.py").read_text().splitlines()) <= 250
    told = started("agent_r_in_one_file.py", timeout_s=1700)
    # DeepSpeed says on standard output, too, which accelerator it takes.
    warm_start, searched, revised, after = re.findall(r"^ *\d+ s  (.+)$", told, re.MULTILINE)
    assert re.search(r"episodes: \d+\.\d \[\d+\.\d, \d+\.\d\] % of 150 held-out tasks", warm_start)
    assert re.fullmatch(r"searched 120 trees, [1-9]\d* of them with a success", searched)
    assert re.match(r"[1-9]\d* revisions earned what the good path did", revised)
    assert re.search(r"\d+\.\d \[\d+\.\d, \d+\.\d\] % of the same tasks", after)
