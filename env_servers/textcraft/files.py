"""Goals from the user's files.

``.json``: a list, ``.jsonl`` (or ``.jsonl.gz``): one a line, of ``{"goal": "oak sign"}``, also with ``"seed": 3``. The
seed chooses distractors and, where recipes are exact, the items that stand for tags (`environment.py`); it is 0 if left
out. A goal without one may be a text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from env_servers.records import read_records
from env_servers.textcraft.world import World, display, item_id

#: Seeds are below this, as in task ids.
MAX_SEED = 10**9


def load_goals(files: Mapping[str, str], world: World) -> dict[str, list[tuple[str, int]]]:
    """The item and the seed of each entry, by split.

    Raises:
        ValueError: A file is missing, an entry is no goal that can be crafted, or is there twice; the message names the
            entry.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    for split, path in files.items():
        file, seen = Path(path).expanduser(), dict[tuple[str, int], int]()
        if not file.is_file():
            raise ValueError(f"there is no file of goals {file}")
        for number, (where, record) in enumerate(read_records(file)):
            try:
                goal = _goal(record, world)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
            if (first := seen.setdefault(goal, number)) != number:
                raise ValueError(f"{where}: {display(goal[0])} with seed {goal[1]} is record {first}, too")
        if not seen:
            raise ValueError(f"{file} holds no goals")
        found[split] = list(seen)
    return found


def _goal(record: Any, world: World) -> tuple[str, int]:
    record = {"goal": record} if isinstance(record, str) else record
    if not isinstance(record, dict) or not isinstance(record.get("goal"), str) or record.keys() - {"goal", "seed"}:
        raise ValueError('a goal is a text, or {"goal": "oak sign", "seed": 0}')
    item, seed = item_id(display(record["goal"].strip())), record.get("seed", 0)
    if type(seed) is not int or not 0 <= seed < MAX_SEED:
        raise ValueError(f"a seed is a whole number from 0 to {MAX_SEED - 1}, not {seed!r}")
    if item not in world.by_item:
        what = "is fetched, not crafted" if world.fetchable(item) else "is no item that can be crafted"
        raise ValueError(f"{record['goal']!r} {what}")
    return item, seed
