"""Problems from the user's files: ``.jsonl``, ``.jsonl.gz``, ``.json`` (a list) or ``.parquet``, in the forms of
`env_servers.tables`.

The answer of a problem is

- what stands behind ``####`` in ``answer`` (GSM8K), or in its ``\\boxed{}``, or else all of it (MATH-500, AIME and
  their like);
- without ``answer``, what is in the ``\\boxed{}`` of ``solution`` (MATH);
- ``reward_model.ground_truth`` (ARPO, DAPO, ET-Agent, verl); records of another ability than math are left out.

Of a list of answers the first one counts. ``level`` becomes the difficulty.
"""

import re
from pathlib import Path

from env_servers.boxed import boxed
from env_servers.mathtool.problems import Problem
from env_servers.tables import Entry, LeftOut, read_table


def stem(path: Path) -> str:
    """The name of a file without its endings: the first part of its tasks' ids."""
    return re.sub(r"[^\w-]+", "_", path.name.split(".")[0])


def read(path: Path) -> dict[str, Problem]:
    """The problems of a file by id, ``STEM/N`` for record N, counted from 0.

    Raises:
        ValueError: There is no such file, a record of it is none of the known forms, or it holds no problem.
    """
    if not path.is_file():
        raise ValueError(
            f"there is no file {path}. GSM8K: github.com/openai/grade-school-math (grade_school_math/data); MATH-500, "
            "AIME and training problems: github.com/dongguanting/ARPO (evaluation/data, ARPO/rl_datasets)"
        )

    def problem(entry: Entry) -> tuple[str, Problem]:
        level = re.search(r"\d+", str(entry.record.get("level", "")))
        return f"{stem(path)}/{entry.number}", Problem(
            entry.question, _answer(entry), stem(path), int(level[0]) if level else 0
        )

    return dict(read_table(path, problem, ("answer", "solution"), math=True))


def _answer(entry: Entry) -> str:
    text = entry.answers[0]
    _, marked, after = text.rpartition("####")
    if entry.column == "answer" and marked:
        text = re.sub(r"(?<=\d),(?=\d{3})", "", after.strip().split("\n")[0].strip())
    elif entry.column == "solution" or "\\boxed" in text or "\\fbox" in text:
        text = boxed(text)
    elif entry.column == "answer" and "\n" in text and "\\begin{" not in text:
        raise ValueError("answer has several lines, and neither #### nor \\boxed{} says which part of it is the answer")
    if not text:
        raise LeftOut(f"nothing behind #### or in a \\boxed{{}} of {entry.column}")
    return text
