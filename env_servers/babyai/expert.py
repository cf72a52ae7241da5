"""BabyAI's expert: minigrid's bot, its primitive moves gathered into our actions.

The bot plays the whole episode first. Then, from each state on, the action is taken that leads furthest along the bot's
way: into the latest state of that way, or straight to the end of the mission. What the bot was after at that point
becomes the thought.
"""

import re
from collections.abc import Iterator
from typing import Any

from env_servers.babyai import levels
from env_servers.babyai.moves import TOGGLE
from env_servers.babyai.scene import Scene
from env_servers.babyai.world import World
from env_servers.base import ExpertStep

#: Subgoals that the bot may push before a move; where it finds its way it needs some ten.
MAX_SUBGOALS = 100

_HOW = {
    "turn left": "I turn left.",
    "turn right": "I turn right.",
    "move forward": "I take a step forward.",
    "drop": "The floor in front of me is free, so I put it down here.",
    "toggle": "I am right in front of it, so I toggle it.",
}
_HOW_WITH = {
    "go to": "I see the {}, so I walk up to it.",
    "pickup": "I see the {}, so I get it.",
    "go through": "The {} leads on, so I go into its doorway.",
    "toggle and go through": "I can open the {}, so I do and go into its doorway.",
}


def demonstrate(name: str, seed: levels.Seed, moves: str = "") -> list[ExpertStep] | None:
    """Steps that accomplish the mission, or None where the bot gets stuck or runs out of moves.

    Args:
        moves: Primitive moves that somebody has made before. The bot looks on and remembers what it saw; where it
            does not know what to do then, it begins anew in that state.
    """
    start = World.start(levels.level(name, seed))
    for move in moves:
        start.move(int(move))
    seen = _demonstrated(start, _play(levels.make(name, seed), moves, "")) if moves else None
    return seen or _demonstrated(start, _play(levels.make(name, seed), "", moves))


def _demonstrated(start: World, play: Iterator[tuple[int, str]]) -> list[ExpertStep] | None:
    from minigrid.utils.baby_ai_bot import DisappearedBoxError

    world, reward = start.copy(), 0.0
    way, purposes = {world.fingerprint(): 0}, []
    try:
        for move, purpose in play:
            reward = world.move(move)
            purposes.append(purpose)
            way[world.fingerprint()] = len(purposes)
            if world.done:
                break
    except (AssertionError, DisappearedBoxError):  # how the bot says that it does not know what to do
        return None
    if reward <= 0:
        return None
    world, steps = start, []
    while not world.done:
        index, _, action, world = max(_outcomes(world, way, end=len(purposes)), key=lambda outcome: outcome[:2])
        purpose = purposes[index - 1]
        steps.append(ExpertStep(f"{purpose} {_how(action, purpose)}", action))
    return steps


def _outcomes(world: World, way: dict[tuple, int], end: int) -> Iterator[tuple[int, int, str, World]]:
    """For each action that leads back on the bot's way: where on it, minus its number of moves, the action, the world
    after it."""
    for action, moves in Scene.of(world).actions.items():
        after, reward = world.copy(), 0.0
        for move in moves:
            reward = after.move(move)
            if after.done:
                break
        index = end if reward > 0 else way.get(after.fingerprint())
        if index is not None and (reward > 0 or not after.done):
            yield index, -len(moves), action, after


def _how(action: str, purpose: str) -> str:
    """Words how the action serves the purpose."""
    verb = next((verb for verb in _HOW_WITH if action.startswith(verb + " ")), None)
    if verb is None:
        return _HOW[action]
    label = action.removeprefix(verb + " ")
    *words, _ = label.split()
    if verb == "go to" and not re.search(rf"\b({words[0]}|the|a) {words[-1]}\b", purpose):
        return f"The {label} lies in that direction, so I walk up to it."
    return _HOW_WITH[verb].format(label)


# the bot --------------------------------------------------------------------------------------------------------------


class _Plan(list):
    """The bot's stack of subgoals. In some levels it pushes subgoals for ever without a move; this makes it give up."""

    pushed = 0

    def append(self, subgoal: Any) -> None:
        self.pushed += 1
        assert self.pushed <= MAX_SUBGOALS, "the bot goes round in circles"
        super().append(subgoal)


def _play(environment: Any, looked_on: str, before: str) -> Iterator[tuple[int, str]]:
    """The bot's moves, each with its purpose; they may go on after the end of the episode.

    Args:
        looked_on: Moves of somebody else that it has seen from the beginning on.
        before: Moves of somebody else that it has not seen.
    """
    from minigrid.envs.babyai.core.verifier import PutNextInstr
    from minigrid.utils.baby_ai_bot import BabyAIBot

    for move in before:
        environment.step(int(move))
    if not looked_on:
        yield from _errands(environment)
    bot = BabyAIBot(environment)
    if environment.carrying is not None and isinstance(environment.instrs, PutNextInstr):
        # Some levels start with what is to be moved: the bot's plan goes on after its going there and picking it up.
        del bot.stack[2:]
    yield from _follow(bot, environment, looked_on)


def _errands(environment: Any) -> Iterator[tuple[int, str]]:
    """Subgoals that the bot cannot find by itself and has to be given: keys in boxes, and keys behind other locked
    doors."""
    from minigrid.envs.babyai.core.verifier import ObjDesc
    from minigrid.utils.baby_ai_bot import BabyAIBot, GoNextToSubgoal, OpenSubgoal

    things = [thing for thing in environment.grid.grid if thing is not None]
    if any(thing.contains is not None for thing in things):
        bot, box = BabyAIBot(environment), ObjDesc("box")
        box.find_matching_objs(environment)
        bot.stack = [GoNextToSubgoal(bot, box)]
        yield from _follow(bot, environment)
        environment.step(TOGGLE)
        yield TOGGLE, "The key that I need may be in the box."
    locked = [thing for thing in things if thing.type == "door" and thing.is_locked]
    room = environment.room_from_pos(*environment.agent_pos)
    at_hand = {thing.color for thing in things if thing.type == "key" and room.pos_inside(*thing.cur_pos)}
    for door in locked if len(locked) > 1 else ():
        if door.color in at_hand:
            bot = BabyAIBot(environment)
            bot.stack = [OpenSubgoal(bot), GoNextToSubgoal(bot, door, reason="Open")]
            yield from _follow(bot, environment)


def _follow(bot: Any, environment: Any, looked_on: str = "") -> Iterator[tuple[int, str]]:
    """Plays until the bot has nothing left to do, after moves of somebody else."""
    bot.stack = plan = _Plan(bot.stack)
    taken = None  # otherwise than it said
    for move in map(int, looked_on):
        plan.pushed = 0
        bot.replan(taken)
        environment.step(move)
        taken = move
    while True:
        plan.pushed = 0
        move, taken = int(bot.replan(taken)), None
        if not plan:
            return
        purpose = _purpose(bot, environment)
        environment.step(move)
        yield move, purpose


def _purpose(bot: Any, environment: Any) -> str:
    """Words the bot's current subgoal, in the first person."""
    from minigrid.utils.baby_ai_bot import CloseSubgoal, DropSubgoal, GoNextToSubgoal, OpenSubgoal, PickupSubgoal

    exploring = bot.stack[-1].is_exploratory()
    plan = [goal for goal in bot.stack if not goal.is_exploratory()]
    goal, following = plan[-1], plan[-2] if len(plan) > 1 else None
    carried = _described(environment.carrying)
    front = _described(environment.grid.get(*environment.front_pos))
    if isinstance(goal, GoNextToSubgoal):
        target = _target(goal.datum, environment)
        if isinstance(following, DropSubgoal):
            aim = (
                f"put {carried} next to {target}"
                if goal.reason == "PutNext"
                else f"put {carried} where it is not in the way"
            )
        elif isinstance(following, PickupSubgoal):
            aim = f"pick up {target}"
        elif isinstance(following, OpenSubgoal):
            aim = f"open {target}"
        else:
            aim = f"go to {target}"
        return f"I want to {aim}, but I have not found the way yet." if exploring else f"I want to {aim}."
    if isinstance(goal, PickupSubgoal):
        blocking = isinstance(following, GoNextToSubgoal) and not hasattr(following.datum, "type")
        return f"{front.capitalize()} is in my way." if blocking else f"I want to pick up {front}."
    if isinstance(goal, DropSubgoal):
        return f"I want to put down {carried}."
    if isinstance(goal, CloseSubgoal):
        return f"I have to close {front} before I can open it."
    return f"I want to open {front}."


def _described(thing: Any) -> str:
    """A thing, or a description of things, with an article."""
    if thing is None:
        return "the place"
    article = "a" if len(getattr(thing, "obj_set", ())) > 1 else "the"
    return f"{article} {thing.color + ' ' if thing.color else ''}{thing.type or 'object'}"


def _target(datum: Any, environment: Any) -> str:
    return _described(datum if hasattr(datum, "type") else environment.grid.get(*map(int, datum)))
