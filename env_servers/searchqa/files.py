"""Questions from a user's file.

- ``.parquet``: ARPO's and verl's tables (``reward_model.ground_truth``, ``prompt``, ``extra_info.question``); math rows are left out.
- ``.json``: a list, ``.jsonl`` (or ``.jsonl.gz``): one a line, of objects with ``question`` (``input`` in ET-Agent's) and ``answer`` (or
  ``golden_answers``, as FlashRAG names it), a text or a list of texts; ``type``, ``level`` and ``hops`` become labels. HotpotQA's files
  are of this form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from env_servers.records import read_json, read_jsonl
from env_servers.searchqa.answers import normalise
from env_servers.searchqa.questions import Question

LABELS = ("type", "level", "hops")


def load_questions(files: Mapping[str, str]) -> tuple[Question, ...]:
    """The questions of each split's file, in the order of the file. Ids are ``SPLIT/NUMBER``, where the number counts the file's entries
    from 0, those left out included.

    Raises:
        ValueError: A file is missing, or holds what is no question; the message names the entry.
    """
    return tuple(question for split, path in files.items() for question in _load(split, Path(path).expanduser()))


def _load(split: str, file: Path) -> Iterator[Question]:
    if not file.is_file():
        raise ValueError(
            f"there is no question file {file}; HotpotQA's are at https://hotpotqa.github.io, ARPO's at https://github.com/dongguanting/ARPO"
        )
    for number, record in enumerate(_records(file)):
        try:
            text, golds = _read(record)
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{file}, entry {number}: not a question with its answer ({error!r})") from error
        if text:
            labels = tuple((name, record[name]) for name in LABELS if isinstance(record.get(name), str | int))
            yield Question(f"{split}/{number}", split, text, golds, normalise(text), labels)


def _records(file: Path) -> Iterator[Any]:
    if file.suffix == ".parquet":
        import pyarrow.parquet

        yield from pyarrow.parquet.read_table(file).to_pylist()
    elif file.name.endswith((".jsonl", ".jsonl.gz")):
        yield from (record for _, record in read_jsonl(file))
    elif file.suffix == ".json":
        yield from read_json(file)
    else:
        raise ValueError(f"{file}: questions are in a .parquet, .jsonl, .jsonl.gz or .json file")


def _read(record: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Text and answers; an empty text for an entry that is none of ours."""
    if "reward_model" in record:
        if record.get("ability") == "math":
            return "", ()
        golds = record["reward_model"]["ground_truth"]
        text = (record.get("extra_info") or {}).get("question") or record["prompt"][-1]["content"]
    else:
        text = record["question"] if "question" in record else record["input"]
        golds = record["golden_answers"] if "golden_answers" in record else record["answer"]
    answers = (golds,) if isinstance(golds, str) else tuple(golds)
    if not isinstance(text, str) or not answers or not all(isinstance(answer, str) and answer.strip() for answer in answers):
        raise TypeError("question and answers must be texts, and not empty")
    return text.strip(), answers
