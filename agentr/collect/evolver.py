"""What operators of the flywheel work with: a tree of episodes, and the means to go on in it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import NonNegativeInt, PositiveInt

from agentr.collect.advisor import Advisor
from agentr.collect.agent import Agent, Expanded, take_turn
from agentr.collect.sessions import Sessions
from agentr.config.checks import Section
from agentr.config.policy import AdvisorConfig, SamplingConfig, Who
from agentr.search.episode import Episode
from agentr.search.strategy import cut_off
from agentr.search.tree import Child, Node, Origin, Tree
from agentr.seeds import derived_seed
from agentr.tasks.formats import written
from agentr.types import Outcome


@dataclass
class EvolveConfig(Section):
    """How better episodes are made of those that are there."""

    evolutions: NonNegativeInt = 3
    """How often an episode of each task is chosen (ET-Agent: 3)."""
    right: list[str] = field(default_factory=lambda: ["rollout", "drop_redundant"])
    """Operators for an episode that is right: rollout, drop_redundant; asked of a teacher: refine_redundant,
    rewrite_thoughts; your own: module:name."""
    wrong: list[str] = field(default_factory=lambda: ["correct_flawed", "hint_step", "hint_end"])
    """Operators for one that is wrong: rollout, correct_flawed, hint_step, hint_end; asked of a teacher: correct_step;
    your own: module:name."""
    samples: PositiveInt = 2
    """Continuations that are drawn from a state to see whether the policy still succeeds from there."""
    hints: list[str] = field(
        default_factory=lambda: [
            "That may be wrong. I go through it once more.",
            "I should check this before I answer.",
            "This does not settle it. I look at it from another side.",
            "Something is missing. I find out what.",
            "I may have misread the question. I read it again.",
            "Another way may be better. I try it.",
        ]
    )
    """Openings of a thought after which the policy goes on; the tree's seed chooses one."""
    teacher: AdvisorConfig = field(default_factory=AdvisorConfig)
    """Who is asked by operators that ask."""
    judge: AdvisorConfig = field(
        default_factory=lambda: AdvisorConfig(who=Who.nobody, sampling=SamplingConfig(temperature=0.0, max_tokens=256))
    )
    """Who is asked whether episodes are right: those that operators start from, of which it is known, and those that
    come of them."""


@dataclass
class Evolver:
    """What operators work with: a tree, and the means to go on in it.

    Attributes:
        max_steps: Actions after which an episode ends.
        max_invalid: Invalid actions in a row after which it ends; 0 means never.
        teacher: Who is asked by operators that ask.
        judge: Who is asked whether an episode is right.
    """

    tree: Tree
    agent: Agent
    sessions: Sessions
    config: EvolveConfig
    seed: int
    max_steps: int
    max_invalid: int
    teacher: Advisor | None = None
    judge: Advisor | None = None
    _flaws: dict[int, tuple[int, int]] = field(default_factory=dict)
    _drawn: int = 0

    async def replay(self, node: int, turns: Sequence[Node]) -> int:
        """Takes turns again after ``node`` until the episode ends, and returns where they ended."""
        for turn in turns:
            taken = await self.agent.retake(self.tree, node, await self.sessions.at(node), turn)
            node = self._taken(node, taken, Origin.REPLAY)
            if self.tree.nodes[node].outcome is not None:
                break
        return node

    async def write(self, node: int, text: str) -> int:
        """Takes a turn that a teacher has written, and returns its node."""
        return self._taken(
            node, await self.agent.act(self.tree, node, await self.sessions.at(node), text), Origin.REWRITE
        )

    async def go_on(self, node: int, hint: str | None = None) -> int:
        """Lets the policy go on after ``node``, perhaps with a hint, until the episode ends, and returns where; -1 if
        there is no room, or the format cannot hold the hint."""
        opening, origin = (None, Origin.POLICY) if hint is None else (written(self.agent.format, hint), Origin.REWRITE)
        if hint is not None and opening is None:
            return -1
        self._drawn += 1
        label = f"evolve/{self._drawn}"
        while node == 0 or self.tree.nodes[node].outcome is None:
            taken = await take_turn(
                self.tree,
                node,
                self.agent,
                self.sessions,
                origin,
                label,
                opening,
                lambda child, at=node: self._cut_off(at, child),
            )
            if taken is None:
                return -1
            node, opening, origin = taken, None, Origin.POLICY
        return node

    async def flaw(self, episode: Episode) -> tuple[int, int]:
        """Returns the turn that was wrong, counted from 1, and the leaf of an episode that succeeds from before it.

        It is the last turn before which the policy still succeeds in one of ``samples`` attempts. If it never does, the
        first turn is given, and -1.
        """
        found = self._flaws.get(episode.leaf.id)
        if found is None:
            found = self._flaws[episode.leaf.id] = await self._find_flaw(episode)
        return found

    async def _find_flaw(self, episode: Episode) -> tuple[int, int]:
        for turn in range(len(episode.path), 0, -1):
            for _ in range(self.config.samples):
                end = await self.go_on(above(episode, turn))
                if self.tree.nodes[end].outcome is Outcome.SUCCESS:
                    return turn, end
        return 1, -1

    async def ask(self, question: str, label: str) -> str | None:
        """Asks the teacher about the tree; None if there is no answer."""
        assert self.teacher is not None, "an operator that asks needs a teacher"
        return await self.teacher.ask(self.tree, question, label)

    def hint(self) -> str:
        """Returns one of the hints."""
        return random.Random(derived_seed(self.seed, "hint", len(self.tree.nodes))).choice(self.config.hints)

    def _cut_off(self, node: int, child: Child) -> Child:
        return cut_off(self.tree, node, child, self.max_steps, self.max_invalid)

    def _taken(self, node: int, turns: Expanded, origin: Origin) -> int:
        turns.account(self.tree, node, 0)
        added = self.tree.add(node, self._cut_off(node, turns.children[0]), origin).id
        self.sessions.keep(added, turns.sessions[0])
        return added


def above(episode: Episode, turn: int) -> int:
    """Returns the node before a turn, counted from 1."""
    return episode.path[turn - 1].parent
