"""Problems from the user's files: JSON lines (also gzipped), a JSON list and Parquet, in the forms that the usual sets come in.

Each record is recognised by its fields:

- ``question`` and ``answer`` whose last line is ``#### 42``: GSM8K;
- ``problem`` or ``question``, and ``answer``: MATH-500, AIME and their like, with ``level`` where there is one;
- ``problem`` and ``solution`` with the answer in ``\\boxed{}``: MATH;
- ``prompt`` and ``reward_model.ground_truth``: ARPO, ET-Agent and verl. Records whose ``ability`` is not math are left out.

``input`` may stand for ``question`` (ET-Agent), and of a list of answers the first one counts.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from env_servers.mathtool.problems import Problem
from env_servers.mathtool.signs import boxed


def stem(path: Path) -> str:
    """The name of a file without its endings: the first part of its tasks' ids."""
    return re.sub(r"[^\w-]+", "_", path.name.split(".")[0])


def read(path: Path) -> dict[str, Problem]:
    """The problems of a file by id, ``STEM/N`` for record N, counted from 0.

    Raises:
        ValueError: There is no such file, or a record of it is none of the known forms.
    """
    if not path.is_file():
        raise ValueError(
            f"there is no file {path}. GSM8K: github.com/openai/grade-school-math (grade_school_math/data); MATH-500, AIME and training "
            "problems: github.com/dongguanting/ARPO (evaluation/data, ARPO/rl_datasets)"
        )
    problems = {}
    for number, record in enumerate(_records(path)):
        try:
            problem = _problem(record, stem(path))
        except (KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
            raise ValueError(f"{path}, record {number}: no question with an answer in it ({error!r})") from error
        if problem is not None:
            problems[f"{stem(path)}/{number}"] = problem
    if not problems:
        raise ValueError(f"{path} holds no problems")
    return problems


def _records(path: Path) -> Iterator[Any]:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        yield from parquet.read_table(path).to_pylist()
        return
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    if path.suffix == ".json":
        yield from json.loads(text)
        return
    yield from (json.loads(line) for line in text.split("\n") if line.strip())  # a JSONDecodeError is a ValueError


def _problem(record: dict[str, Any], family: str) -> Problem | None:
    if "reward_model" in record:
        if record.get("ability", "math") != "math":
            return None
        return Problem(record["prompt"][-1]["content"].strip(), _first(record["reward_model"]["ground_truth"]).strip(), family)
    question = next(record[key] for key in ("problem", "question", "input") if record.get(key))
    if "answer" in record:
        answer = _first(record["answer"])
        answer = answer.rpartition("####")[2].strip().replace(",", "") if "\n#### " in answer else answer.strip()
    else:
        answer = boxed(record["solution"])
    if not answer:
        raise KeyError("answer")
    level = re.search(r"\d+", str(record.get("level", "")))
    return Problem(question.strip(), answer, family, int(level[0]) if level else 0)


def _first(answer: Any) -> str:
    found = answer[0] if isinstance(answer, list | tuple) else answer
    if found is None or not str(found).strip():
        raise KeyError("answer")
    return str(found)
