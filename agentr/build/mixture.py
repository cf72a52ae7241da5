"""What stands beside the agent's own rows: demonstrations, and general conversations (Agent-R Eq. 6)."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path

from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.store.rows import Provenance, Row
from agentr.types import Message

_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


def general_rows(path: Path, codec: ChatCodec, max_length: int) -> list[Row]:
    """Conversations of a ShareGPT file (JSON list or JSON lines), trained on all assistant turns; longer ones are left out.

    Raises:
        DataError: The file is missing or not in ShareGPT form; the error names the entry.
    """
    rows: list[Row] = []
    for number, entry in enumerate(_entries(path)):
        try:
            turns = [Message(_ROLES[t["from"]], t["value"]) for t in entry["conversations"]]  # type: ignore[arg-type]
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{path}, conversation {number + 1} is not in ShareGPT form ({error!r})",
                hint='Each entry needs "conversations": [{"from": "human" or "gpt", "value": text}, ...].',
            ) from error
        row = conversation_row(turns, codec, f"{path.name}#{number}", "general")
        if row is not None and len(row.input_ids) <= max_length:
            rows.append(row)
    return rows


def conversation_row(turns: Sequence[Message], codec: ChatCodec, name: str, kind: str) -> Row | None:
    """A row from a conversation in text form: opening up to the first assistant turn, then its turns with bridges between them."""
    first = next((i for i, t in enumerate(turns) if t.role == "assistant"), None)
    if first is None or first == 0:
        return None
    ids = codec.prompt(turns[:first])
    mask = [0] * len(ids)
    for position in range(first, len(turns), 2):
        answer = turns[position : position + 2]
        if answer[0].role != "assistant" or (len(answer) == 2 and answer[1].role != "user"):
            break
        own = codec.turn(answer[0].content)
        ids, mask = ids + own, mask + [1] * len(own)
        if len(answer) == 2 and position + 2 < len(turns):
            bridge = codec.bridge(answer[1].content)
            ids, mask = ids + bridge, mask + [0] * len(bridge)
    return Row(tuple(ids), tuple(mask), Provenance(name, (), kind)) if any(mask) else None


def mix(own: Sequence[Row], other: Sequence[Row], share: float, seed: int) -> list[Row]:
    """``own`` together with so many of ``other`` that they make up ``share`` of the result, drawn in a seeded order without gaps.

    If ``other`` has too few rows they are repeated; if ``share`` is 1 or ``own`` is empty the result is ``other``.
    """
    if not other or share <= 0:
        return list(own)
    if share >= 1 or not own:
        return list(other)
    wanted = round(len(own) * share / (1 - share))
    shuffled = list(other)
    random.Random(f"mix/{seed}").shuffle(shuffled)
    return [*own, *itertools.islice(itertools.cycle(shuffled), wanted)]


def _entries(path: Path) -> list[dict]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the conversations in {path} cannot be read: {error}", hint="Set build.general_path to a ShareGPT file."
        ) from error
    try:
        return json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not JSON: {error}", hint="Expected a JSON list or one JSON object a line.") from error
