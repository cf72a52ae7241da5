"""Questions from a user's file: ``.json`` (a list), ``.jsonl``, ``.jsonl.gz`` or ``.parquet``, in the forms of
`env_servers.tables`.

The answers are ``golden_answers`` (FlashRAG), ``answer`` or ``answers``, and ``answer_aliases`` (MuSiQue) besides;
``type``, ``level`` and ``hops`` become labels. Of verl's tables, math is left out.
"""

from collections.abc import Mapping
from pathlib import Path

from env_servers.searchqa.answers import normalise
from env_servers.searchqa.questions import Question
from env_servers.tables import Entry, read_table

LABELS = ("type", "level", "hops")


def load_questions(files: Mapping[str, str]) -> tuple[Question, ...]:
    """The questions of each split's file, in the order of the file.
    Ids are ``SPLIT/NUMBER``, where the number counts the file's entries from 0, those left out included.

    Raises:
        ValueError: A file is missing, or holds what is no question; the message names the entry.
    """
    return tuple(question for split, path in files.items() for question in _load(split, Path(path).expanduser()))


def _load(split: str, file: Path) -> list[Question]:
    if not file.is_file():
        raise ValueError(
            f"there is no question file {file}; HotpotQA's are at https://hotpotqa.github.io, ARPO's at https://github.com/dongguanting/ARPO"
        )

    def read(entry: Entry) -> Question:
        labels = tuple((name, entry.record[name]) for name in LABELS if isinstance(entry.record.get(name), str | int))
        return Question(
            f"{split}/{entry.number}", split, entry.question, entry.answers, normalise(entry.question), labels
        )

    return read_table(file, read, ("golden_answers", "answer", "answers"), math=False)
