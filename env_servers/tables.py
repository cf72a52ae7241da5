"""Reads questions with their answers, in the forms in which the usual sets come.

A record is known by its columns; one that no form has is refused, since it may be what decides: another name of the answers, a mark that
says that there is none.

- ``question`` (or ``problem``, ``input``) and a column of answers: GSM8K, MATH, AIME, HotpotQA, MuSiQue, FlashRAG, ET-Agent.
- ``reward_model.ground_truth`` with ``extra_info.question``, ``question`` or ``prompt``: the tables of verl, ARPO, DAPO, Search-R1.

Answers are a text, a number, a list of them, or one of the objects of Search-R1 (``target``), TriviaQA (``value``, ``aliases``) and SQuAD
(``text``). What is null, NaN or blank is not there.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_servers.records import read_records

log = logging.getLogger(__name__)

_QUESTIONS = ("question", "problem", "input")
_READ = frozenset({*_QUESTIONS, *"answer_aliases answerable ability prompt reward_model extra_info type level hops".split()})
#: Columns of the usual sets that say nothing about question and answer.
_NOT_READ = frozenset(
    "id _id idx index uuid qid question_id unique_id problem_idx problem_type question_type question_source data_source source "
    "source_prompt dataset split subset url year title subject category domain difficulty metadata context contexts passages paragraphs "
    "supporting_facts evidences evidences_id entity_ids answer_id question_decomposition entity_pages search_results solution messages "
    "agent_name tools_kwargs interaction_kwargs".split()
)
#: The objects in which answers come: their keys that hold answers, and those that do not.
_OBJECTS = (
    (("target",), frozenset[str]()),
    (("text",), frozenset({"answer_start"})),
    (
        ("value", "aliases"),
        frozenset({"type", "normalized_aliases", "normalized_value", "matched_wiki_entity_name", "normalized_matched_wiki_entity_name"}),
    ),
)


@dataclass(frozen=True)
class Entry:
    """A record with a question.

    Attributes:
        number: Of the record in its file, from 0.
        where: Its place, for errors.
        answers: Texts, none of them blank.
        column: Name of the column that they are from.
        record: All its columns that are there; their names in small letters.
    """

    number: int
    where: str
    question: str
    answers: tuple[str, ...]
    column: str
    record: Mapping[str, Any]


class LeftOut(Exception):
    """A record that is read and no task; the text says why."""


def read_table(
    file: Path, read: Callable[[Entry], Any], *, columns: Sequence[str], ability: Callable[[str], bool], numbers: bool = False
) -> dict[int, Any]:
    """What ``read`` makes of the entries of a file, by number. Records without question or answer are left out; how many, and which
    columns are not read, is logged.

    Args:
        columns: Names of the columns that may hold the answers; the first one that is not blank does.
        ability: Whether records of an ability (as verl's tables name it, in lower case) are meant.
        numbers: Whether answers may be numbers.

    Raises:
        ValueError: The file cannot be read, holds a record that is no such entry (the message names it), or none that is meant.
    """
    made: dict[int, Any] = {}
    left_out, not_read = Counter[str](), Counter[str]()
    for number, (where, record) in enumerate(read_records(file)):
        try:
            made[number] = read(_entry(number, where, record, columns, ability, numbers, not_read))
        except LeftOut as reason:
            left_out[str(reason)] += 1
        except ValueError as error:
            raise ValueError(f"{where}: no question with its answer: {error}") from error
    said = "".join(f"; left out, {reason}: {count:,}" for reason, count in left_out.items())
    if not made:
        raise ValueError(f"{file} holds no problems or questions{said}")
    if said or not_read:
        columns_ = ", ".join(f"{name} ({count:,})" for name, count in sorted(not_read.items())) or "none"
        log.warning("%s: read: %s%s; columns that are not read: %s", file, f"{len(made):,}", said, columns_)
    return made


def _entry(
    number: int, where: str, record: Any, columns: Sequence[str], ability: Callable[[str], bool], numbers: bool, not_read: Counter[str]
) -> Entry:
    if not isinstance(record, dict):
        raise ValueError(f"an object is wanted, not {type(record).__name__}")
    fields = {str(key).casefold(): value for key, value in record.items()}
    if len(fields) < len(record):
        raise ValueError("two of its columns have the same name but for capitals")
    there = {key: value for key, value in fields.items() if not _blank(value)}
    if unknown := sorted(there.keys() - _READ - _NOT_READ - {*columns}):
        raise ValueError(f"the column {unknown[0]!r} is not known; leave it out of the file, or rename it, if it holds the answer")
    not_read.update(there.keys() & _NOT_READ - {*columns})
    kind = _text(there.get("ability", ""), "ability").casefold()
    if kind and not ability(kind):
        raise LeftOut(f"of the ability {kind}")
    if (answerable := there.get("answerable", True)) not in (True, False):
        raise ValueError(f"answerable is true or false, not {answerable!r}")
    if not answerable:
        raise LeftOut("not answerable")
    if "reward_model" in there:
        column, found = "reward_model", _only(there["reward_model"], "reward_model", "ground_truth", "style").get("ground_truth")
    else:
        if not fields.keys() & {*columns}:
            raise ValueError(f"it has no column {' or '.join(columns)}")
        column = next((name for name in columns if name in there), "")
        found = there.get(column)
    answers = [*_answers(found, column, numbers), *_answers(there.get("answer_aliases"), "answer_aliases", numbers)]
    if not answers:
        raise LeftOut("without an answer")
    return Entry(number, where, _question(there, fields), tuple(dict.fromkeys(answers)), column, there)


def _question(there: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    about = there.get("extra_info", {})
    said = {_text(there[name], name) for name in _QUESTIONS if name in there}
    if isinstance(about, dict) and not _blank(about.get("question")):
        return _text(about["question"], "extra_info.question")
    if len(said) > 1:
        raise ValueError(f"its columns {', '.join(name for name in _QUESTIONS if name in there)} differ")
    if said:
        return said.pop()
    asked = there.get("prompt", ())
    if isinstance(asked, str):
        return _text(asked, "prompt")
    turns = [_only(turn, "prompt", "role", "content") for turn in asked] if isinstance(asked, list) else []
    asked = [_text(turn.get("content"), "prompt") for turn in turns if turn.get("role") == "user"]
    if len(asked) > 1:
        raise ValueError("its prompt has several turns of the user, and none of them is named as the question")
    if not asked and not fields.keys() & {*_QUESTIONS, "prompt"}:
        raise ValueError(f"it has no column {', '.join(_QUESTIONS)} or prompt")
    if not asked:
        raise LeftOut("without a question")
    return asked[0]


def _answers(value: Any, where: str, numbers: bool) -> list[str]:
    if _blank(value):
        return []
    if isinstance(value, list):
        return [answer for part in value for answer in _answers(None if _blank(part) else part, where, numbers)]
    if isinstance(value, dict):
        for names, others in _OBJECTS:
            if value.keys() <= {*names, *others} and names[0] in value:
                return [answer for name in names for answer in _answers(value.get(name), f"{where}.{name}", numbers)]
        raise ValueError(f"the answers in {where} are an object with the keys {', '.join(map(str, value))}, which is no form that is known")
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    text = _text(value, where)
    try:
        parsed = json.loads(text) if text[0] in "[{" else None
    except (ValueError, RecursionError):
        return [text]
    if isinstance(parsed, dict) or (isinstance(parsed, list) and any(isinstance(part, str | dict) for part in parsed)):
        raise ValueError(f"the answer in {where} is JSON written as a text; make lists and objects of it")
    return [text]


def _only(value: Any, where: str, *keys: str) -> dict[str, Any]:
    """Returns an object that has no other keys than these."""
    if not isinstance(value, dict):
        raise ValueError(f"{where}: an object is wanted, not {type(value).__name__}")
    if unknown := [key for key in value if key not in keys and not _blank(value[key])]:
        raise ValueError(f"{where}: the key {unknown[0]!r} is not known")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: a text is wanted, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where}: the text holds half a character (a lone surrogate)") from None
    return value.strip()


def _blank(value: Any) -> bool:
    return value is None or value != value or value in ([], {}) or (isinstance(value, str) and not value.strip())
