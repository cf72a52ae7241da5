"""The official files: WebShop's products and goals, and Agent-R's lists of task numbers."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from env_servers.webshop.goals import Goal, human_goals, synthetic_goals
from env_servers.webshop.products import Product, read_products

WHERE = (
    "run setup.sh of the repository princeton-nlp/WebShop (-d small for the 1,000 products, -d all for the full set)"
)
WHERE_LISTS = "they are in the repository bytedance/Agent-R, mcts_utils/webshop"

#: Size of the synthetic goal list of the 1,000 products, and the target products of goals 0 and 6, as trajectories that
#: others published show them: by these the numbering of AgentGym and Agent-R is recognised.
PUBLISHED_COUNT = 6910
PUBLISHED_TARGETS = {0: "B0743JKHBV", 6: "B09PYSKD7H"}


def load_shop(products: str, attributes: str | None, human: str | None) -> tuple[dict[str, Product], list[Goal]]:
    """Products by asin, and goals: the human ones if their file is given, else the synthetic ones.

    Raises:
        ValueError: A file is missing, is another file, or does not belong to the others; says where to get it.
    """
    if attributes is None:
        raise ValueError(f"the option products needs the option attributes (items_ins_v2*.json) beside it: {WHERE}")
    entries = read_json(attributes, WHERE)
    found = read_products(read_json(products, WHERE), entries)
    goals = (
        synthetic_goals(found.values(), entries)
        if human is None
        else human_goals(found.values(), read_json(human, WHERE))
    )
    if not goals:
        raise ValueError(
            f"no product of {products} has an instruction in {human or attributes}: the files belong to different sets"
        )
    return found, goals


def has_published_numbering(goals: Sequence[Goal]) -> bool:
    """Checks whether these are the synthetic goals that AgentGym's and Agent-R's task numbers count in."""
    return len(goals) == PUBLISHED_COUNT and all(
        goals[number].asin == asin for number, asin in PUBLISHED_TARGETS.items()
    )


def read_numbers(path: str) -> list[int]:
    """Task numbers of one of Agent-R's lists, ``[{"item_id": "webshop_17"}, ...]`` or ``{"17": ...}``.

    Raises:
        ValueError: There is no such file, or it is no such list.
    """
    listed = read_json(path, WHERE_LISTS)
    try:
        names = listed if isinstance(listed, dict) else [entry["item_id"] for entry in listed]
        numbers = [int(name.removeprefix("webshop_")) for name in names]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is no list of Agent-R's WebShop tasks ({error!r}); {WHERE_LISTS}") from error
    if beyond := [number for number in numbers if not 0 <= number < PUBLISHED_COUNT]:
        raise ValueError(f"{path} names task {beyond[0]}, and there are {PUBLISHED_COUNT}")
    return numbers


def read_json(path: str, where: str) -> Any:
    """The content of a ``.json`` or ``.jsonl`` file, either with ``.gz`` after it.

    Raises:
        ValueError: There is no such file, or it holds something else. ``where`` says in the message how to get it.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"no file {path}; {where}")
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as text:
            return [json.loads(line) for line in text if line.strip()] if ".jsonl" in file.suffixes else json.load(text)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); {where}") from error
