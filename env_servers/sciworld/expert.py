"""ScienceWorld's expert: the actions of the simulator's own solver, with a thought for each."""

import re
from collections.abc import Sequence

from env_servers.base import ExpertStep
from env_servers.sciworld.machine import Game
from env_servers.sciworld.tasks import Problem

#: The solver looks for things in a random order, and does not always get there: how often it may try.
ATTEMPTS = 3
#: Tasks whose solutions have about 150 actions, which the solver takes a minute to find.
TOO_LONG = frozenset({"mendelian-genetics-known-plant", "mendelian-genetics-unknown-plant"})
#: What may be left out of a solution that is too long, in this order; it looks and examines more than it needs.
DISPENSABLE = ((), ("examine",), ("examine", "look around"))

#: Thoughts by the form of the action; groups of the pattern fill the braces.
THOUGHTS = (
    (r"open door to (.+)", "The door to the {0} is in my way. I open it."),
    (r"open (.+)", "What I need may be in the {0}, so I open it."),
    (r"close (.+)", "The {0} should stay closed from now on."),
    (r"(?:go|teleport) to (.+)", "What I have to do next is in or beyond the {0}. I go there."),
    (r"look around", "I look at what is here."),
    (r"look (?:at|in|on) (.+)", "I look closely at the {0}."),
    (r"inventory", "I check what I carry."),
    (r"focus on (.+?)(?: in inventory)?", "The task asks me to focus on the {0}, and it is here."),
    (r"pick up (.+)", "I will need the {0}, so I take it with me."),
    (r"(?:drop|put down) (.+)", "I do not have to carry the {0} any longer."),
    (r"move (.+?)(?: in inventory)? to (.+)", "The {0} belongs in the {1} now."),
    (r"pour (.+?)(?: in inventory)? into (.+)", "The {1} needs what is in the {0}."),
    (r"dunk (.+) into (.+)", "I dip the {0} into the {1}."),
    (r"mix (.+)", "Everything is in the {0}. I mix it."),
    (r"activate (.+)", "I need the {0} to run, so I turn it on."),
    (r"deactivate (.+)", "The {0} has done its work. I turn it off."),
    (r"use thermometer(?: in inventory)? on (.+)", "I have to know how warm the {0} is, so I measure it."),
    (r"use (.+?)(?: in inventory)? on (.+)", "The {0} is the right tool for the {1}."),
    (r"disconnect (.+)", "The {0} must be out of the circuit."),
    (r"connect (.+) to (.+)", "The circuit needs the {0} joined to the {1}."),
    (r"read (.+)", "The {0} may tell me what I need to know."),
    (r"examine (.+)", "I want to see in what state the {0} is."),
    (r"eat (.+)", "I eat the {0}."),
    (r"flush (.+)", "I flush the {0}."),
    (r"wait\d*", "This takes time. I wait."),
    (r"\d+", "Several things were meant by that. This is the one."),
)


def solve(
    game: Game, problem: Problem, simplifications: str, limit: int, not_understood: tuple[str, ...]
) -> list[str] | None:
    """Actions that solve the game in at most ``limit`` steps, or None where none were found."""
    if problem.task in TOO_LONG:
        return None
    for seed in range(ATTEMPTS):
        if actions := game.copy().solve(problem.task, problem.variation, simplifications, seed, 2 * limit):
            shortened = ([a for a in actions if not a.startswith(left_out)] for left_out in DISPENSABLE)
            checked = (_checked(game, candidate, not_understood) for candidate in shortened)
            return next((found for found in checked if found is not None and len(found) <= limit), None)
    return None


def _checked(game: Game, actions: Sequence[str], not_understood: tuple[str, ...]) -> list[str] | None:
    """The actions up to the full score, less those that the simulator does not understand (they change nothing); None
    if they fail."""
    copy, understood = game.copy(), []
    for action in actions:
        answer = copy.step(action)
        if not answer.text.startswith(not_understood):
            understood.append(action)
        if answer.completed or answer.score < 0 or answer.broken:
            return understood if answer.completed and answer.score == 1 else None
    return None


def demonstrate(description: str, actions: Sequence[str]) -> list[ExpertStep]:
    """The actions with thoughts; the first one says what the task is."""
    steps = [ExpertStep(_thought(action), action) for action in actions]
    task = re.sub(r"^Your task is to ", "I have to ", description.split(". ")[0].rstrip("."))
    return [ExpertStep(f"{task}. {steps[0].thought}", steps[0].action), *steps[1:]]


def _thought(action: str) -> str:
    for pattern, thought in THOUGHTS:
        if match := re.fullmatch(pattern, action):
            return thought.format(*match.groups())
    return f"The next thing to do is: {action}."
