"""The reward of an episode: a function of the user's, in a process of its own, outside the program's world."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from env_servers.base import Failed

_RUN = """
import importlib.util, json, sys
file, name = sys.argv[1:]
asked, out = json.load(sys.stdin), sys.stdout
sys.stdout = sys.stderr
sys.path.insert(0, file.rpartition("/")[0])
spec = importlib.util.spec_from_file_location("grader", file)
grader = importlib.util.module_from_spec(spec)
spec.loader.exec_module(grader)
json.dump(getattr(grader, name)(**asked), out)
"""


def checked_grader(reward: str) -> tuple[Path, str] | None:
    """Returns file and function of ``FILE.py:FUNCTION``; None for an empty text.

    Raises:
        ValueError: It is none, or there is no such file.
    """
    if not reward:
        return None
    file, colon, name = reward.rpartition(":")
    path = Path(file).expanduser().resolve()
    if not colon or not name.isidentifier() or not path.is_file():
        raise ValueError(
            f"reward: {reward!r} is not FILE.py:FUNCTION" + ("" if path.is_file() else f": there is no file {path}")
        )
    return path, name


def grade(grader: tuple[Path, str], seconds: float, **asked: Any) -> tuple[float, dict[str, float]]:
    """Returns reward and scores of an episode.

    Raises:
        Failed: The function raised, took too long, or returned something else.
    """
    path, name = grader
    what = f"the grader {path.name}:{name}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RUN, str(path), name],
            input=json.dumps(asked, ensure_ascii=False),
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=seconds,
            cwd=asked["folder"],
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(
            f"{what} took longer than {seconds:g} s", "Raise env.options.grade_s, or make it faster."
        ) from error
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise Failed(f"{what} failed: {last}", "It takes task, folder and transcript, and returns the reward.")
    return read_reward(done.stdout, what)


def read_reward(text: str, what: str) -> tuple[float, dict[str, float]]:
    """Reads a reward from 0 to 1, or an object of a ``reward`` and ``scores``.

    Raises:
        Failed: It is something else; ``what`` names who said it.
    """
    try:
        said = json.loads(text)
    except ValueError as error:
        raise Failed(f"{what} returned no JSON: {text[:100]!r}") from error
    said = said if isinstance(said, dict) else {"reward": said}
    scores = said.get("scores") or {}
    numbers = [said.get("reward"), *(scores.values() if isinstance(scores, Mapping) else [None])]
    if not said.keys() <= {"reward", "scores"} or not all(map(is_share, numbers)):
        raise Failed(f"{what} returned {text.strip()[:200]}, and not a number from 0 to 1, or such a reward and scores")
    return float(said["reward"]), {str(key): float(value) for key, value in scores.items()}


def is_share(value: Any) -> bool:
    """Whether a value is a number from 0 to 1."""
    return isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= 1
