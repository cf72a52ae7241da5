"""Passages from a user's file. Nothing is ever downloaded.

- ``.jsonl`` (or ``.jsonl.gz``): a passage a line, with ``id`` and either ``contents`` (first line = title, as in
  FlashRAG's and ET-Agent's Wikipedia dumps) or ``text`` and ``title``.
- ``.json``, a list: HotpotQA questions with their paragraphs in ``context``, as the authors publish them
  (``[[title, [sentence, ..]], ..]``) or as Hugging Face does (``{"title": [..], "sentences": [[..], ..]}``).
- ``.json``, an object: query -> text, as in ARPO's search cache; the query becomes the title.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from env_servers.records import read_json, read_records
from env_servers.retrieval.base import Passage
from env_servers.retrieval.passages import fiction

#: Where a Wikipedia of passages comes from, for messages.
WIKIPEDIA = (
    "the passage dumps of FlashRAG (https://github.com/RUC-NLPIR/FlashRAG, 'corpus'), as .jsonl with id and contents"
)


def load_corpus(path: str | None) -> tuple[Passage, ...]:
    """The passages of a file, each once; those of the fictional world without one.

    Raises:
        ValueError: The file is missing, or not of a form above; the message names the line.
    """
    if path is None:
        return fiction()
    file = Path(path).expanduser()
    if not file.is_file():
        raise ValueError(
            f"there is no corpus file {file}; give the path of a file of passages, for instance {WIKIPEDIA}"
        )
    passages: dict[tuple[str, str], Passage] = {}
    for passage in _read(file):
        passages.setdefault((passage.title, passage.text), passage)
    if not passages:
        raise ValueError(f"{file} holds no passages")
    return tuple(passages.values())


def _read(file: Path) -> Iterator[Passage]:
    if file.name.endswith((".jsonl", ".jsonl.gz")):
        for where, record in read_records(file):
            yield _passage(record, where)
        return
    if file.suffix != ".json":
        raise ValueError(f"{file}: a corpus is a .jsonl, .jsonl.gz or .json file")
    data = read_json(file)
    if isinstance(data, dict):
        for number, (query, text) in enumerate(data.items()):
            yield Passage(str(number), query, str(text))
    else:
        for number, record in enumerate(data):
            yield from _paragraphs(record, f"{file}, entry {number}")


def _passage(record: Any, where: str) -> Passage:
    if isinstance(record, dict) and "id" in record:
        if isinstance(record.get("contents"), str):
            return Passage.of_contents(str(record["id"]), record["contents"])
        if isinstance(record.get("text"), str):
            return Passage(str(record["id"]), str(record.get("title", "")), record["text"])
    raise ValueError(f"{where}: a passage needs 'id', and 'contents' or 'text'")


def _paragraphs(record: Any, where: str) -> Iterator[Passage]:
    try:
        context = record["context"]
        pairs = zip(context["title"], context["sentences"], strict=True) if isinstance(context, dict) else context
        for title, sentences in pairs:
            yield Passage(title, title, "".join(sentences).strip())
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: not a HotpotQA question with its paragraphs in 'context' ({error!r})") from error
