"""Synthetic pretraining text that teaches reading: made-up recipes, and questions about them.

A document is one conversation. Its first turn shows commands in the layout of TextCraft's prompt, but every recipe is
drawn at random: which items are crafted, from what and how many. The other turns ask questions that only these commands
answer. The corpus takes the *names* of items from the game and nothing else: no recipe, no goal, no episode and no
demonstration.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: How many pieces a command makes, and how many it takes of an ingredient; small numbers are frequent.
YIELDS = (1, 1, 1, 1, 1, 2, 2, 3, 4, 4, 6, 8, 16)
COUNTS = (1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 6, 7, 8, 8, 9)


@dataclass(frozen=True)
class Turn:
    """A question and its answer, which follows from the commands or from the question."""

    question: str
    answer: str


@dataclass(frozen=True)
class Command:
    """A recipe: ``inputs`` (item, count) become ``count`` pieces of ``item``."""

    item: str
    count: int
    inputs: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"craft {self.count} {self.item} using {listed(self.inputs)}"


def listed(inputs: Sequence[tuple[str, int]]) -> str:
    """Formats items and counts as ``2 A, 1 B``."""
    return ", ".join(f"{count} {item}" for item, count in inputs)


class MadeUpWorld:
    """A set of random commands without cycles.

    Args:
        names: Names of items to draw from.
        size: Number of commands.
    """

    def __init__(self, rng: random.Random, names: Sequence[str], size: int) -> None:
        self.rng = rng
        self.items = rng.sample(list(names), size + max(3, rng.randint(size // 2, 2 * size)))
        crafted = self.items[:size]
        self.commands = [self._command(i) for i in range(size)]
        self.by_item = dict(zip(crafted, self.commands, strict=True))
        rng.shuffle(self.commands)
        self.used = list(dict.fromkeys(item for c in self.commands for item in (c.item, *(i for i, _ in c.inputs))))

    def _command(self, index: int) -> Command:
        """Draws a command for item ``index``. Ingredients come later in the list, so no item is made of itself."""
        later = self.items[index + 1 :]
        kinds = min(self.rng.choice((1, 1, 2, 2, 2, 3, 4)), len(later))
        chosen = self.rng.sample(later, kinds)
        return Command(
            self.items[index], self.rng.choice(YIELDS), tuple((item, self.rng.choice(COUNTS)) for item in chosen)
        )

    def any_command(self) -> Command:
        return self.rng.choice(self.commands)

    def prompt(self) -> str:
        lines = "\n".join(map(str, self.commands))
        return f"Crafting commands:\n{lines}\n\nGoal: craft {self.rng.choice(self.commands).item}."


# Questions ------------------------------------------------------------------------------------------------------------


def which_command(world: MadeUpWorld) -> Turn:
    command = world.any_command()
    return Turn(f"which command makes {command.item}?", str(command))


def what_needed(world: MadeUpWorld) -> Turn:
    command = world.any_command()
    return Turn(f"what items make {command.item}?", listed(command.inputs))


def for_several(world: MadeUpWorld) -> Turn:
    """Asks for the ingredients of several crafts: counts times the number of crafts."""
    command, times = world.any_command(), world.rng.choice((1, 2, 2, 3, 3, 4, 6, 8))
    return Turn(
        f"what to get to make {command.item} {times} times?", listed([(i, n * times) for i, n in command.inputs])
    )


def next_ingredient(world: MadeUpWorld) -> Turn:
    command = world.any_command()
    index = world.rng.randrange(len(command.inputs) + 1)
    before = "the first" if index == 0 else f"after {command.inputs[index - 1][0]}"
    after = listed(command.inputs[index : index + 1]) or "no more"
    return Turn(f"{before} item to make {command.item}?", after)


def can_craft(world: MadeUpWorld) -> Turn:
    item = world.any_command().item if world.rng.random() < 0.5 else world.rng.choice(world.used)
    return Turn(f"is {item} crafted?", "yes" if item in world.by_item else "no")


def which_crafted(world: MadeUpWorld) -> Turn:
    items = world.rng.sample(world.used, min(len(world.used), world.rng.randint(2, 4)))
    crafted = [i for i in items if i in world.by_item]
    return Turn(
        f"which are crafted, {', '.join(items)}?", f"crafted are {', '.join(crafted)}" if crafted else "nothing"
    )


def missing(world: MadeUpWorld) -> Turn:
    command = world.any_command()
    have = [i for i, _ in command.inputs if world.rng.random() < 0.5]
    left = [(i, n) for i, n in command.inputs if i not in have]
    return Turn(
        f"I have {', '.join(have) or 'nothing'}. what is missing to make {command.item}?", listed(left) or "nothing"
    )


def repeat(world: MadeUpWorld) -> Turn:
    text = listed([(world.rng.choice(world.items), world.rng.randint(1, 64)) for _ in range(world.rng.randint(2, 6))])
    return Turn(f"repeat {text}", text)


def number_times(world: MadeUpWorld) -> Turn:
    a, b = world.rng.randint(1, 9), world.rng.randint(1, 10)
    return Turn(f"{a} times {b}?", str(a * b))


QUESTIONS: tuple[tuple[float, Callable[[MadeUpWorld], Turn]], ...] = (
    (4.0, which_command),
    (3.0, what_needed),
    (2.0, for_several),
    (3.0, next_ingredient),
    (2.0, can_craft),
    (1.5, which_crafted),
    (2.0, missing),
    (1.0, repeat),
    (0.5, number_times),
)


def document(rng: random.Random, names: Sequence[str], turns: int, max_commands: int = 10) -> tuple[str, list[Turn]]:
    """Draws a world of 2 to ``max_commands`` commands; returns its prompt and ``turns`` questions about it."""
    world = MadeUpWorld(rng, names, rng.randint(2, max_commands))
    weights, kinds = zip(*QUESTIONS, strict=True)
    return world.prompt(), [kind(world) for kind in rng.choices(kinds, weights, k=turns)]
