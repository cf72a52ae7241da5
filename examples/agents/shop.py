"""A shop for the agents beside this file: its stock is a file in the folder that the agent works in."""

import json
import os
from pathlib import Path

STOCK = Path("stock.json")


def opened() -> str:
    """Opens the shop as the task says, and returns what is asked of the agent."""
    task = json.loads(Path(os.environ["AGENTR_TASK"]).read_text())
    STOCK.write_text(json.dumps(task["stock"]))
    return task["ask"]


def count(item: str) -> str:
    """Says how many of an item are in stock.

    Args:
        item: Its name.
    """
    return str(json.loads(STOCK.read_text()).get(item, 0))


def take(item: str, number: int) -> str:
    """Takes some of an item out of the stock.

    Args:
        item: Its name.
        number: How many.
    """
    stock = json.loads(STOCK.read_text())
    if not 0 < number <= stock.get(item, 0):
        return f"There are {stock.get(item, 0)} {item}."
    stock[item] -= number
    STOCK.write_text(json.dumps(stock))
    return f"{stock[item]} left."


def score(task: dict, folder: str, transcript: list) -> float:
    """The reward: whether the stock is what was asked for."""
    return float(json.loads((Path(folder) / STOCK).read_text()) == task["want"])
