"""Reads questions with their answers, in the forms in which the usual sets come.

- ``question`` (or ``problem``, ``input``) and a column of answers: GSM8K, MATH, AIME, HotpotQA, MuSiQue, FlashRAG,
  ET-Agent.
- ``reward_model.ground_truth`` with ``extra_info.question``, ``question`` or ``prompt``: the tables of verl, ARPO,
  DAPO, Search-R1.

Answers are a text, a number (of problems), a list of them, or an object of Search-R1, SQuAD or TriviaQA. What is null,
NaN or blank is not there. A column that no set has is refused: it may hold more answers, or say that there is none.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_servers.records import blank, checked, read_records, text_of

log = logging.getLogger(__name__)

_QUESTIONS = ("question", "problem", "input")
_READ = frozenset(
    {*_QUESTIONS, *"answer_aliases answerable ability prompt reward_model extra_info type level hops".split()}
)
#: Columns of the usual sets that say nothing about question and answer.
_NOT_READ = frozenset(
    "id _id idx index uuid qid question_id unique_id problem_idx problem_type question_type question_source "
    "data_source source source_prompt dataset split subset url year title subject category domain difficulty metadata "
    "context contexts passages paragraphs supporting_facts evidences evidences_id entity_ids answer_id "
    "question_decomposition entity_pages search_results solution messages agent_name tools_kwargs "
    "interaction_kwargs".split()
)
#: The keys that hold the answers in the objects of Search-R1, SQuAD and TriviaQA, and what else these have.
_ANSWERS = ({"target"}, {"text"}, {"value", "aliases"})
_NO_ANSWERS = frozenset(
    (
        "answer_start type normalized_value normalized_aliases matched_wiki_entity_name "
        "normalized_matched_wiki_entity_name"
    ).split()
)


@dataclass(frozen=True)
class Entry:
    """A record with a question: its number, from 0, its answers, the column that they are from, and all columns, in
    small letters."""

    number: int
    question: str
    answers: tuple[str, ...]
    column: str
    record: Mapping[str, Any]


class LeftOut(Exception):
    """A record that is read and no task; the text says why."""


def read_table(file: Path, read: Callable[[Entry], Any], columns: Sequence[str], *, math: bool) -> list[Any]:
    """What ``read`` makes of the entries of a file.
    What is left out, and which columns are not read, is counted and logged.

    Args:
        columns: Names of the columns that may hold the answers; the first one that is not blank does.
        math: Whether problems of mathematics are meant, by the ``ability`` of verl's tables, or all others.

    Raises:
        ValueError: The file cannot be read, holds a record that is no such entry (the message names it), or none that
            is meant.
    """
    made = []
    left_out, not_read = Counter[str](), Counter[str]()
    for number, (where, record) in enumerate(read_records(file)):
        try:
            made.append(read(_entry(number, record, columns, math, not_read)))
        except LeftOut as reason:
            left_out[str(reason)] += 1
        except ValueError as error:
            raise ValueError(f"{where}: no question with its answer: {error}") from error
    said = "".join(f"; left out, {reason}: {count:,}" for reason, count in left_out.items())
    if not made:
        raise ValueError(f"{file} holds no problems or questions{said}")
    said += "".join(f"; column not read, {name}: {count:,}" for name, count in sorted(not_read.items()))
    if said:
        log.warning("%s: read: %s%s", file, f"{len(made):,}", said)
    return made


def _entry(number: int, record: Any, columns: Sequence[str], math: bool, not_read: Counter[str]) -> Entry:
    fields = {str(key).casefold(): value for key, value in record.items()} if isinstance(record, dict) else record
    there = {
        key: value
        for key, value in checked(fields, "", _READ | {*columns}, _NOT_READ, not_read).items()
        if not blank(value)
    }
    if len(fields) < len(record):
        raise ValueError("two of its columns have the same name but for capitals")
    ability = text_of(there.get("ability", ""), "ability").strip().casefold()
    if ability and (ability == "math") is not math:
        raise LeftOut(f"of the ability {ability}")
    if there.get("answerable", True) not in (True, False):
        raise ValueError(f"answerable is true or false, not {there['answerable']!r}")
    if not there.get("answerable", True):
        raise LeftOut("not answerable")
    if "reward_model" in there:
        column, found = (
            "reward_model",
            checked(there["reward_model"], "reward_model", {"ground_truth", "style"}).get("ground_truth"),
        )
    elif fields.keys() & {*columns}:
        column = next((name for name in columns if name in there), "")
        found = there.get(column)
    else:
        raise ValueError(f"it has no column {' or '.join(columns)}")
    answers = [*_answers(found, column, math), *_answers(there.get("answer_aliases"), "answer_aliases", math)]
    if not answers:
        raise LeftOut("without an answer")
    return Entry(number, _question(there), tuple(dict.fromkeys(answers)), column, there)


def _question(there: Mapping[str, Any]) -> str:
    about, asked = there.get("extra_info"), there.get("prompt", [])
    said = [about["question"]] if isinstance(about, dict) and not blank(about.get("question")) else []
    if not said:
        said = [there[name] for name in _QUESTIONS if name in there]
    if not said and isinstance(asked, list):
        said = [
            turn.get("content")
            for turn in (checked(turn, "prompt", {"role", "content"}) for turn in asked)
            if turn.get("role") == "user"
        ]
    texts = {text_of(text, "the question").strip() for text in said or [asked] if not blank(text)}
    if len(texts) > 1:
        raise ValueError("it asks several questions: its columns differ, or its prompt has several turns of the user")
    if not texts:
        raise LeftOut("without a question")
    return texts.pop()


def _answers(value: Any, where: str, numbers: bool) -> list[str]:
    if blank(value):
        return []
    if isinstance(value, list):
        return [answer for part in value for answer in _answers(part, where, numbers)]
    if isinstance(value, dict):
        names = next(
            (names for names in _ANSWERS if value.keys() & names and value.keys() <= names | _NO_ANSWERS), None
        )
        if names is None:
            raise ValueError(
                f"the answers in {where} are an object with the keys {', '.join(value)}, which is no form that is known"
            )
        return [
            answer for name in value if name in names for answer in _answers(value[name], f"{where}.{name}", numbers)
        ]
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    text = text_of(value, where).strip()
    try:
        parsed = json.loads(text) if text[0] in "[{" else None
    except (ValueError, RecursionError):  # an interval or a set
        return [text]
    if isinstance(parsed, dict) or (isinstance(parsed, list) and any(isinstance(part, str | dict) for part in parsed)):
        raise ValueError(f"the answer in {where} is JSON written as a text; make lists and objects of it")
    return [text]
