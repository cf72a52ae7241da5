"""TextCraft: craft an item from recipes, with ``get``, ``craft`` and ``inventory``.

Two families of tasks share the world and its rules:

- ``agentgym/N``: AgentGym's numbering. Goals sorted by depth, recipes as they are, with tags. The original's order
  depends on the machine that it ran on and cannot be recovered, so N counts in *our* fixed order (depth, then name):
  same sizes, same structure, but not the same goal for each N as in published results.
- ``ITEM@SEED``: ours. SEED chooses the distractors and, in ``exact`` mode, which item stands for each tag. The splits
  divide the *goals*: no goal of ``dev`` or ``test`` is a goal of ``train``. The option ``goals`` puts goals of a user's
  files in their place. ``ITEM@SEED~COPY`` is the same task with its items under other items' names (``renamed``).

Known faults of the original that are not repeated: order by directory listing, recipe text ordered by hash seed, a
module-wide ``random.seed`` in every reset, a traversal that writes into the recipe table while reading it.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from env_servers.base import Environment, ExpertStep, Observation, TaskInfo, UnknownTask, read_spec
from env_servers.protocol import EnvironmentSpec, Split
from env_servers.textcraft.expert import Plan, make_plan
from env_servers.textcraft.files import load_goals
from env_servers.textcraft.world import Names, Recipe, World, display, item_id

#: The splits that are ours, and that a user's goals may take the place of.
OWN_SPLITS = ("train", "dev", "test")
#: Seeds of our own tasks for each goal in a split.
SEEDS_PER_GOAL = 8
#: Longest plan of our own tasks, in actions.
MAX_PLAN = 16
#: data_idx of AgentGym's 100 evaluation tasks (Agent-R's textcraft_test.json), by depth 31/41/25/3.
AGENTGYM_TEST = (*range(31), *range(140, 181), *range(420, 445), *range(533, 536))
#: Tasks of AgentGym's training list. Of the 544 goals, 100 are in `AGENTGYM_TEST` and 70 in neither list.
AGENTGYM_TRAIN_SIZE = 374


@dataclass
class TextCraftState:
    """Everything that changes in an episode; ``inventory`` keeps the order of first arrival, as the game prints it."""

    task: str
    goal: str
    inventory: dict[str, int]
    done: bool = False
    names: Names = field(default_factory=Names, compare=False)


class Parts(NamedTuple):
    """What a task's id says; ``copy`` is 0 for items under their own names."""

    goal: str
    seed: int
    copy: int = 0
    agentgym: bool = False


class TextCraft(Environment[TextCraftState]):
    """The environment.

    Args:
        recipes: ``original`` shows recipes with tags ("2 planks"), every alternative, as AgentGym does; ``exact`` shows
            one recipe for each needed item with concrete ingredients ("2 oak planks"): shorter prompts, the same rules.
        distractors: Most recipes shown that the goal does not need (10 in the original).
        goals: File of goals for each of the splits ``train``, ``dev`` and ``test`` (`files.py`); a single path stands
            for the test split. Of these splits there are then only those with a file. No goal may be in ``train`` and
            in another one.
        renamed: Copies of each task of ``train``, whose items all have other items' names, but not those of held-out
            goals. Tasks then have the label ``renamed``: 0, or the number of the copy.
    """

    folder = Path(__file__).parent
    fast = True

    def __init__(
        self,
        recipes: Literal["original", "exact"] = "original",
        distractors: int = 10,
        goals: str | Mapping[str, str] | None = None,
        renamed: int = 0,
    ) -> None:
        if recipes not in ("original", "exact"):
            raise ValueError(f"recipes must be 'original' or 'exact', not {recipes!r}")
        if distractors < 0:
            raise ValueError(f"distractors must not be negative, got {distractors}")
        if not 0 <= renamed < 1000 or (renamed and recipes != "exact"):
            raise ValueError(f"renamed must be from 0 to 999, and more than 0 needs recipes=exact; got {renamed}")
        self.world = World.minecraft()
        self.recipes = recipes
        self.max_distractors = distractors
        self.renamed = renamed
        self._goals = None if goals is None else self._checked({"test": goals} if isinstance(goals, str) else goals)

    def _checked(self, files: Mapping[str, str]) -> dict[str, list[tuple[str, int]]]:
        """The goals of each split's file.

        Raises:
            ValueError: A file cannot be used, a goal cannot be reached in an episode, or training and held-out goals
                are not apart.
        """
        if not files or (unknown := sorted(files.keys() - set(OWN_SPLITS))):
            raise ValueError(
                f"goals: name a file for {', '.join(OWN_SPLITS)}" + (f", not for {', '.join(unknown)}" if files else "")
            )
        found, limit = load_goals(files, self.world), read_spec(self.folder).step_limit
        for split, goals in found.items():
            for goal, seed in goals:
                plan = self._plan(goal, seed)
                if plan is None or len(plan.steps()) > limit:
                    needed = (
                        "cannot be crafted"
                        if plan is None
                        else f"takes {len(plan.steps())} actions, and an episode has {limit}"
                    )
                    raise ValueError(f"{files[split]}: {display(goal)} {needed}")
        trained = {goal for goal, _ in found.get("train", ())}
        if shared := sorted(
            {display(goal) for split in found if split != "train" for goal, _ in found[split] if goal in trained}
        ):
            raise ValueError(f"goals to train on and held-out goals must differ; both have {', '.join(shared[:3])}")
        return found

    @cached_property
    def spec(self) -> EnvironmentSpec:
        spec = super().spec
        if self._goals is None:
            return spec
        splits = {name: split for name, split in spec.splits.items() if name not in OWN_SPLITS}
        given = {
            name: Split(about="Goals from a file of the user's", train=name == "train")
            for name in OWN_SPLITS
            if name in self._goals
        }
        return spec.model_copy(update={"splits": given | splits})

    # tasks ------------------------------------------------------------------------------------------------------------

    def split(self, name: str) -> list[TaskInfo]:
        if name == "agentgym_test":
            return [self._agentgym_info(i) for i in AGENTGYM_TEST]
        if name == "agentgym_train":
            rest = [i for i in range(len(self.world.goals)) if i not in set(AGENTGYM_TEST)]
            return [self._agentgym_info(i) for i in sorted(random.Random(0).sample(rest, AGENTGYM_TRAIN_SIZE))]
        if name not in self.spec.splits:
            raise UnknownTask(f"TextCraft has no split {name!r}; it has {', '.join(self.spec.splits)}")
        if self._goals is not None:
            tasks = [(goal, seed, self._plan(goal, seed)) for goal, seed in self._goals[name]]
        else:
            every = ((goal, seed) for seed in range(SEEDS_PER_GOAL) for goal in goals_of_split(name))
            tasks = [(goal, seed, self._plan(goal, seed)) for goal, seed in every]
            tasks = [(goal, seed, plan) for goal, seed, plan in tasks if plan and len(plan.steps()) <= MAX_PLAN]
        copies = range(self.renamed + 1 if name == "train" else 1)
        return [self._info(goal, seed, copy, plan) for copy in copies for goal, seed, plan in tasks if plan]

    def _info(self, goal: str, seed: int, copy: int, plan: Plan) -> TaskInfo:
        called = display(self._names(goal, seed, copy).of(goal))
        labels: dict[str, int | float | str] = {
            "depth": plan.depth(),
            "plan_length": len(plan.steps()),
            "goal": called,
        }
        if self.renamed:
            labels["renamed"] = copy
        return TaskInfo(f"{display(goal)}@{seed}" + (f"~{copy}" if copy else ""), labels)

    @lru_cache(maxsize=4096)  # noqa: B019 - a server has one environment
    def _names(self, goal: str, seed: int, copy: int) -> Names:
        """What the items of a task's recipes are called in a copy of it."""
        if not copy:
            return Names()
        shown = self._shown(goal, seed, False)
        items = sorted({r.item for r in shown} | {i.name for r in shown for i in r.inputs})
        names = random.Random(f"names/{goal}/{seed}/{copy}").sample(self._free_names, len(items))
        return Names(dict(zip(items, names, strict=True)))

    @cached_property
    def _free_names(self) -> list[str]:
        """The items whose names others may have: all but the held-out goals."""
        held_out = self._goals or {name: [(goal, 0) for goal in goals_of_split(name)] for name in OWN_SPLITS}
        goals = {goal for name, found in held_out.items() if name != "train" for goal, _ in found}
        return sorted(self.world.items - goals)

    def _agentgym_info(self, index: int) -> TaskInfo:
        goal = self.world.goals[index]
        return TaskInfo(f"agentgym/{index}", {"depth": self.world.depth[goal], "goal": display(goal)})

    def _parse(self, task_id: str) -> Parts:
        if match := re.fullmatch(r"agentgym/(\d{1,9})", task_id):
            index = int(match[1]) % len(self.world.goals)
            return Parts(self.world.goals[index], index, agentgym=True)
        match = re.fullmatch(r"([a-z0-9 ]+)@(\d{1,9})(?:~([1-9]\d{0,2}))?", task_id)
        if match and item_id(match[1]) in self.world.by_item and int(match[3] or 0) <= self.renamed:
            return Parts(item_id(match[1]), int(match[2]), int(match[3] or 0))
        raise UnknownTask(f"TextCraft has no task {task_id!r}; ids look like 'stick@0' or 'agentgym/17' (see /splits)")

    def _plan(self, goal: str, seed: int) -> Plan | None:
        rng = random.Random(f"plan/{goal}/{seed}") if self.recipes == "exact" else None
        return _cached_plan(self.world, goal, None if rng is None else seed)

    def _shown(self, goal: str, seed: int, agentgym: bool) -> list[Recipe]:
        """The recipes in the first observation, in the order they are shown."""
        rng = random.Random(f"recipes/{goal}/{seed}")
        plan = None if agentgym or self.recipes == "original" else self._plan(goal, seed)
        if plan is None:
            needed = self.world.recipes_below(goal)
            others = self.world.distractors(needed, rng)
        else:
            needed = list(plan.recipes.values())
            others = [
                r
                for r in map(self._exact, self.world.distractors(needed, rng))
                if r is not None and r.item not in plan.recipes
            ]
        shown = needed + rng.sample(others, min(len(others), self.max_distractors))
        rng.shuffle(shown)
        return shown

    def _exact(self, recipe: Recipe) -> Recipe | None:
        """A distractor with its tags resolved, or None if that is not possible."""
        plan = self._plan(recipe.item, 0)
        return None if plan is None else plan.recipes.get(recipe.item)

    # the state machine ------------------------------------------------------------------------------------------------

    def reset(self, task_id: str) -> tuple[TextCraftState, Observation]:
        goal, seed, copy, agentgym = self._parse(task_id)
        names = self._names(goal, seed, copy)
        commands = "\n".join(str(names.recipe(recipe)) for recipe in self._shown(goal, seed, agentgym))
        return TextCraftState(task_id, goal, {}, names=names), Observation(
            f"Crafting commands:\n{commands}\n\nGoal: craft {display(names.of(goal))}."
        )

    def step(self, state: TextCraftState, action: str) -> Observation:
        action = action.strip()
        if match := re.match(r"craft (.*) using (.*)", action):
            return self._craft(state, match[1], match[2])
        if match := re.match(r"get ([0-9]{1,6}) (.*)", action):
            return self._get(state, int(match[1]), match[2].strip())
        if action.startswith("inventory"):
            carried = "".join(
                f"[{display(state.names.of(item))}] ({count}) " for item, count in state.inventory.items()
            )
            return Observation("Inventory: " + (carried or "You are not carrying anything."))
        return Observation.failed(f"Could not execute {action}")

    def _get(self, state: TextCraftState, count: int, text: str) -> Observation:
        item = state.names.item(item_id(text))
        if count == 0 or not self.world.fetchable(item):
            return Observation.failed(f"Could not find {text}")
        state.inventory[item] = state.inventory.get(item, 0) + count
        return self._made(state, item, f"Got {count} {text}")

    def _craft(self, state: TextCraftState, output: str, inputs: str) -> Observation:
        called = item_id(re.sub(r"^[0-9]+ ", "", output.strip()))
        item = state.names.item(called)
        wanted: dict[str, int] = {}
        for part in inputs.split(","):
            match = re.fullmatch(r"([0-9]{1,6}) (.*)", part.strip())
            if match is None:
                return Observation.failed(f"Wrong item format: {part.strip()}")
            name = state.names.item(item_id(match[2]))
            wanted[name] = wanted.get(name, 0) + int(match[1])
        if any(state.inventory.get(name, 0) < count for name, count in wanted.items()):
            return Observation.failed(f"Could not find enough items to craft {called}")
        recipe = self.world.match(item, wanted)
        if recipe is None:
            return Observation.failed(f"Could not find a valid recipe for {called}")
        for name, count in wanted.items():
            state.inventory[name] -= count
            if not state.inventory[name]:
                del state.inventory[name]
        state.inventory[item] = state.inventory.get(item, 0) + recipe.count
        return self._made(state, item, f"Crafted {recipe.count} {called}")

    def _made(self, state: TextCraftState, item: str, text: str) -> Observation:
        state.done = item == state.goal
        return Observation(text, reward=float(state.done), done=state.done)

    # copies -----------------------------------------------------------------------------------------------------------

    def fork(self, state: TextCraftState) -> TextCraftState:
        return TextCraftState(state.task, state.goal, dict(state.inventory), state.done, state.names)

    def snapshot(self, state: TextCraftState) -> dict[str, Any]:
        """The inventory as pairs in its order: who stores an object may sort its keys."""
        return {
            "task": state.task,
            "goal": state.goal,
            "inventory": [list(pair) for pair in state.inventory.items()],
            "done": state.done,
        }

    def restore(self, data: dict[str, Any]) -> TextCraftState:
        try:
            # once it was an object
            task, goal, inventory, done = data["task"], data["goal"], dict(data["inventory"]), data["done"]
            parts = self._parse(task)
            if parts.goal != goal or not isinstance(done, bool):
                raise ValueError("goal and task disagree")
            if any(
                item not in self.world.items or type(count) is not int or count < 1 for item, count in inventory.items()
            ):
                raise ValueError("the inventory holds unknown items or counts")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a TextCraft snapshot: {error}") from error
        return TextCraftState(task, goal, inventory, done, self._names(parts.goal, parts.seed, parts.copy))

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        plan = self._expert_plan(task_id)
        return None if plan is None else plan.steps()

    def expert_from(self, state: TextCraftState) -> list[ExpertStep] | None:
        plan = self._expert_plan(state.task)
        if plan is None:
            return None
        return plan.steps({state.names.of(item): count for item, count in state.inventory.items()})

    def _expert_plan(self, task_id: str) -> Plan | None:
        goal, seed, copy, agentgym = self._parse(task_id)
        plan = _cached_plan(self.world, goal, None) if agentgym else self._plan(goal, seed)
        return plan and plan.named(self._names(goal, seed, copy))


@cache
def _cached_plan(world: World, goal: str, seed: int | None) -> Plan | None:
    return make_plan(world, goal, None if seed is None else random.Random(f"plan/{goal}/{seed}"))


@cache
def goals_of_split(name: str) -> tuple[str, ...]:
    """Goals of ``train``, ``dev`` and ``test``: 70/15/15 % within each depth, by a fixed shuffle."""
    world = World.minecraft()
    chosen: list[str] = []
    for depth in sorted({world.depth[goal] for goal in world.goals}):
        goals = [goal for goal in world.goals if world.depth[goal] == depth and make_plan(world, goal) is not None]
        random.Random(f"split/{depth}").shuffle(goals)
        first, second = round(0.70 * len(goals)), round(0.85 * len(goals))
        chosen += {"train": goals[:first], "dev": goals[first:second], "test": goals[second:]}[name]
    return tuple(chosen)
