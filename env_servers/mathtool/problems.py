"""Problems: what one is, and the generated ones that stand in where the user gives no file."""

import hashlib
import random
import re
from dataclasses import dataclass
from functools import cache

from env_servers.mathtool.families import FAMILIES

LEVELS = (1, 2, 3)
#: Of twenty generated problems 14 are for training, 3 for dev and 3 for test.
_SPLITS = ["train"] * 14 + ["dev"] * 3 + ["test"] * 3


@dataclass(frozen=True)
class Problem:
    """A question and its answer.

    Attributes:
        answer: A number, LaTeX, or words.
        family: Kind of problem; for one from a file, the file's name.
        difficulty: 1 to 3 for a generated problem, as the file says for others; 0 if unknown.
        code: Python that prints the answer; empty where none is known.
        thought: Why that code solves it.
    """

    question: str
    answer: str
    family: str
    difficulty: int = 0
    code: str = ""
    thought: str = ""

    @property
    def digest(self) -> str:
        """The same for the same question, whatever its id."""
        return hashlib.blake2b(" ".join(self.question.split()).encode(), digest_size=8).hexdigest()


def generated(task_id: str) -> Problem | None:
    """The problem of ``FAMILY/LEVEL/SEED``, or None if the id is not of that form."""
    match = re.fullmatch(r"([a-z]+)/([123])/(0|[1-9][0-9]{0,8})", task_id)
    if match is None or match[1] not in FAMILIES:
        return None
    family, level = match[1], int(match[2])
    question, answer, code, thought = FAMILIES[family](random.Random(task_id), level)
    return Problem(question, str(answer), family, level, code, thought)


@cache
def generated_splits(seeds: int) -> dict[str, dict[str, Problem]]:
    """The problems of ``train``, ``dev`` and ``test`` by id, families and levels in turn.

    The split follows from the question, so that the same question, should two seeds pose it, is never in two splits;
    within one, the first id has it. More seeds add problems and move none.

    Args:
        seeds: Of each family and level, in all splits together.
    """
    splits: dict[str, dict[str, Problem]] = {name: {} for name in _SPLITS}
    seen = set()
    for task_id in (f"{family}/{level}/{seed}" for seed in range(seeds) for level in LEVELS for family in FAMILIES):
        problem = generated(task_id)
        if problem is not None and problem.digest not in seen:
            seen.add(problem.digest)
            splits[_SPLITS[int(problem.digest, 16) % len(_SPLITS)]][task_id] = problem
    return splits
