"""The tree: the record of everything that a policy did in one task.

A node is one turn of the agent and the environment's answer to it. A linear rollout is a tree with one branch, a
demonstration is one too, and a revision is a branch that was added later. Token ids are stored as they were generated,
so the prompt of any node is the concatenation of the turns on its path. ``agentr.search.stored`` says how a tree is
written to disk.

Invariants: node 0 is the root; a node's parent has a smaller id; ``visits`` of a node is the number of ended leaves
below it that were backed up, and ``value`` the sum of their returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentr.search.evolution import Evolution
from agentr.search.hiding import Hiding, Taken
from agentr.search.revision import Revision, Verdict
from agentr.types import REASONED, Asked, CallStatus, Cost, FinishReason, Message, Outcome, Task, messages_of
from env_servers.observation import OtherAnswer


class Origin(StrEnum):
    """Who took a turn."""

    ROOT = "root"
    POLICY = "policy"
    EXPERT = "expert"
    PREFIX = "prefix"
    """Taken over from another tree, to see how a policy goes on from there."""
    REVISION = "revision"
    """A good action taken over after a bad prefix, with a reflection in its thought."""
    CONTINUATION = "continuation"
    """The policy going on after a revision whose good actions no longer applied."""
    REPLAY = "replay"
    """A turn of another path of the tree, taken again where something before it was left out or rewritten."""
    REWRITE = "rewrite"
    """A turn that a teacher wrote, or a turn of the policy that begins with a hint."""


@dataclass(frozen=True, kw_only=True)
class Child:
    """One candidate turn with the environment's answer: what a strategy is told.

    Attributes:
        token_ids: Ids of the turn as generated.
        bridge_ids: Ids between this turn and the next one: the closing of this turn, the observation, the opening of
            the next.
        logprobs: Log-probability of each id, empty where unknown.
        reward: Return so far in [0, 1].
        valid: The environment understood the action, and it changed or revealed something.
        outcome: Why the episode ends here, or None if it goes on.
        status: How the action came out; of a turn without an action, error.
        scores: Of an answer that ended the episode, the environment's scores in [0, 1] by name.
        forgotten: How many of the oldest turns before this one the policy did not see when it drew it
            (``turns.full_context``).
        reasoning: How many ids the turn's reasoning has, from the first one on: up to ``</think>`` and the white space
            after it. All of them if it was opened and never closed; 0 if the turn has none.
        sent: What the environment was given, where that is another text than ``action``.
        asked: What the program asks after the turn, where one plays the agent's part.
        behind: Where ``bridge_ids`` stand, if they do not stand behind the turn: the number of an earlier turn on the
            path, from 1 on, and how many ids of its prompt and itself are kept. (0, 0) for a conversation that begins.
    """

    text: str
    token_ids: tuple[int, ...]
    bridge_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: FinishReason
    action: str
    observation: str
    reward: float
    valid: bool
    outcome: Outcome | None = None
    status: CallStatus = CallStatus.ok
    scores: Mapping[str, float] = field(default_factory=dict, hash=False)
    forgotten: int = 0
    reasoning: int = 0
    sent: str = ""
    asked: Asked | None = field(default=None, hash=False)
    behind: tuple[int, int] | None = None


@dataclass
class Node:
    """A turn in the tree. Attributes as in :class:`Child`, and:

    Attributes:
        depth: Actions taken up to and including this one; 0 at the root.
        terminal: The search has nothing left to do below: the episode ended here, or all children are terminal.
        visits: Ended leaves below that were backed up.
        value: Sum of their returns.
        expansions: How often this node was expanded.
        verdict: A judge's verdict on this turn, if it was judged.
        branch: Which of its parent's branches this turn is, for strategies that number them.
        draws: How often the policy drew this turn: itself, and the turns that were merged into it.
        worlds: What it earned when it was taken again in other worlds that fit what was observed before it, and the
            policy went on; empty if it was not.
    """

    id: int
    parent: int
    depth: int
    origin: Origin
    text: str = ""
    token_ids: tuple[int, ...] = ()
    bridge_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: FinishReason = FinishReason.STOP
    action: str = ""
    observation: str = ""
    reward: float = 0.0
    valid: bool = True
    outcome: Outcome | None = None
    terminal: bool = False
    visits: int = 0
    value: float = 0.0
    expansions: int = 0
    verdict: Verdict | None = None
    branch: int | None = None
    draws: int = 1
    status: CallStatus = CallStatus.ok
    scores: Mapping[str, float] = field(default_factory=dict)
    forgotten: int = 0
    reasoning: int = 0
    sent: str = ""
    asked: Asked | None = None
    behind: tuple[int, int] | None = None
    worlds: tuple[float, ...] = ()
    children: list[int] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Mean return of the ended leaves below, 0 if there are none."""
        return self.value / self.visits if self.visits else 0.0

    @property
    def played(self) -> str:
        """What the environment was given; empty for a turn that it was not."""
        return self.sent or self.action

    @property
    def is_leaf(self) -> bool:
        return not self.children

    def as_child(self) -> Child:
        """Returns the turn as a strategy was told it, to be added to another tree."""
        return Child(**{name: getattr(self, name) for name in Child.__dataclass_fields__})

    @property
    def answer(self) -> str:
        """The text without the turn's reasoning."""
        if not self.reasoning:
            return self.text
        return "" if self.reasoning == len(self.token_ids) else self.text.rpartition(REASONED)[2].lstrip("\n")


@dataclass(frozen=True)
class Spent:
    """What one expansion took, beside its tree: it differs from one run to the next.

    Attributes:
        node: The node that was expanded.
        attempt: How often it had been expanded before.
        drawn: Turns drawn.
        policy_s: Seconds until the policy had answered, waiting included.
        env_s: Seconds until the environment had carried out the actions, waiting included.
        cached_tokens: Prompt tokens that came from the prefix cache.
        starts: Programs that were begun again to come back to the node, where a program is the environment.
        replayed: Answers that they were given again.
        replay_s: Seconds of that, summed over programs.
    """

    node: int
    attempt: int
    drawn: int
    policy_s: float
    env_s: float
    cached_tokens: int = 0
    starts: int = 0
    replayed: int = 0
    replay_s: float = 0.0


@dataclass
class Tree:
    """All that happened in one task.

    Attributes:
        messages: The opening conversation, for people and exports.
        prompt_ids: The same as token ids, up to where the agent speaks.
        seed: Every random decision and every request's seed derives from it.
        policy: Version of the policy that grew the tree.
        search: The strategy's own state; its docstring says which keys. Nobody else reads it.
        revisions: Attempts to revise bad paths, in the order made.
        evolutions: Attempts to make better episodes of those that are there, in the order made.
        cost: What the tree cost.
        events: How often something happened that is no cost: duplicates, unparsed, not_repeated, redrawn,
            judge_malformed, revise_no_transition.
        spent: What each expansion took, in the order made. Not part of the tree's text.
        stage: Stage of a run that the tree was read from; empty for a tree in growth. Not part of the tree's text.
        hiding: How turns are shown once others follow, where their reasoning is left out then; None shows them as they
            were taken.
    """

    task: Task
    messages: tuple[Message, ...]
    prompt_ids: tuple[int, ...]
    seed: int
    policy: str = ""
    nodes: list[Node] = field(default_factory=list)
    search: dict[str, Any] = field(default_factory=dict)
    revisions: list[Revision] = field(default_factory=list)
    evolutions: list[Evolution] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    events: dict[str, int] = field(default_factory=dict)
    spent: list[Spent] = field(default_factory=list, compare=False)
    stage: str = field(default="", compare=False)
    hiding: Hiding | None = None

    @classmethod
    def start(
        cls,
        task: Task,
        messages: tuple[Message, ...],
        prompt_ids: tuple[int, ...],
        seed: int,
        policy: str = "",
        asked: Asked | None = None,
    ) -> Tree:
        """A tree with only its root."""
        tree = cls(task, messages, prompt_ids, seed, policy)
        tree.nodes.append(Node(0, -1, 0, Origin.ROOT, observation=messages[-1].content, asked=asked))
        return tree

    # growing ----------------------------------------------------------------------------------------------------------

    def add(self, parent: int, child: Child, origin: Origin) -> Node:
        """Appends a turn below ``parent``."""
        node = Node(
            id=len(self.nodes),
            parent=parent,
            depth=self.nodes[parent].depth + 1,
            origin=origin,
            terminal=child.outcome is not None,
            **vars(child),
        )
        self.nodes.append(node)
        self.nodes[parent].children.append(node.id)
        return node

    def cut(self, size: int) -> None:
        """Takes the last nodes off again, so that ``size`` are left. None of them may be backed up."""
        for node in self.nodes[size:]:
            if node.parent < size:
                self.nodes[node.parent].children.remove(node.id)
        del self.nodes[size:]

    def back_up(self, leaf: int) -> None:
        """Adds an ended leaf's return to all its ancestors and to itself, and closes ancestors that have nothing left
        open.

        One that did not end by what the agent did closes them alone.
        """
        reward, outcome = self.nodes[leaf].reward, self.nodes[leaf].outcome
        assert outcome is not None, "the leaf has not ended"
        counts = outcome.is_the_agents
        for node in self.path(leaf, root=True)[::-1]:
            node.visits += counts
            node.value += reward * counts
            if node.children and all(self.nodes[c].terminal for c in node.children):
                node.terminal = True

    def spend(self, cost: Cost) -> None:
        """Adds to what the tree cost."""
        self.cost = self.cost + cost

    def pay(self, spent: Spent) -> None:
        """Adds what an expansion took, the cached tokens to the cost too."""
        self.spent.append(spent)
        self.cost = self.cost + Cost(cached_tokens=spent.cached_tokens)

    def count(self, **events: int) -> None:
        """Adds to the counts of events."""
        for name, amount in events.items():
            self.events[name] = self.events.get(name, 0) + amount

    # reading ----------------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Node:
        return self.nodes[0]

    def path(self, node: int, *, root: bool = False) -> list[Node]:
        """Turns from the first action (or the root) down to ``node``."""
        found: list[Node] = []
        while node > 0:
            found.append(self.nodes[node])
            node = self.nodes[node].parent
        if root:
            found.append(self.nodes[0])
        return found[::-1]

    def prompt(self, node: int, forgotten: int = 0) -> list[int]:
        """Token ids that the policy sees when it is to speak after ``node``, without the ``forgotten`` oldest turns."""
        path, start = self.path(node), forgotten
        ids = list(self.prompt_ids)
        for number in range(len(path), 0, -1):
            if (behind := path[number - 1].behind) is not None:
                ids, start = [*self._kept(path, *behind), *path[number - 1].bridge_ids], number
                break
        for turn in path[start:]:
            self.show(ids, turn)
        return ids

    def _kept(self, path: list[Node], number: int, kept: int) -> list[int]:
        """The first ids of the prompt of a turn on a path, and of the turn."""
        if not number:
            return []
        turn = path[number - 1]
        return [*self.prompt(turn.parent), *turn.token_ids][:kept]

    def show(self, prompt: list[int], turn: Taken) -> None:
        """Adds to a prompt a turn that was taken after it, as the policy sees it from then on."""
        if self.hiding is not None:
            self.hiding.show(prompt, turn)
        else:
            prompt += turn.token_ids
            prompt += turn.bridge_ids

    def length(self, turn: Taken) -> int:
        """Returns how many tokens a turn and its bridge add to later prompts."""
        return len(turn.token_ids) + len(turn.bridge_ids) if self.hiding is None else self.hiding.length(turn)

    def conversation(self, node: int, forgotten: int = 0) -> list[Message]:
        """The same as text, with the opening's messages. An ended episode's last observation is included."""
        messages, path = list(self.messages), self.path(node)
        for turn in path[forgotten:]:
            said = turn.text if self.hiding is None else turn.answer
            if turn.asked is None or turn.asked.messages is None:
                messages += [Message("assistant", said), Message("user", turn.observation)]
            elif not (after := turn.asked.after):
                messages = messages_of(turn.asked.messages)
            elif turn.behind is None:
                messages += [Message("assistant", said), *messages_of(turn.asked.messages)]
            else:
                earlier = path[after - 1]
                answer = [Message("assistant", earlier.text)] * turn.asked.answered
                messages = [*self.conversation(earlier.parent), *answer, *messages_of(turn.asked.messages)]
        return messages

    def others(self, node: int) -> tuple[OtherAnswer, ...]:
        """Returns what other models answered a program up to a turn."""
        calls = [turn.asked for turn in (self.root, *self.path(node)) if turn.asked is not None]
        return tuple(answer for call in calls for answer in call.others)

    def ended(self) -> Iterator[Node]:
        """Leaves at which an episode ended for the agent's reasons, in order of id: what data may be made of."""
        return (n for n in self.nodes if n.outcome is not None and n.outcome.is_the_agents)

    def successes(self) -> list[Node]:
        """Leaves of successful episodes that this tree added: what it took over from another one is left out."""
        return [n for n in self.ended() if n.outcome is Outcome.SUCCESS and n.origin is not Origin.PREFIX]

    def identical(self) -> bool:
        """Returns whether more than one episode was drawn, and all are the same turns: there is nothing to choose
        from."""
        leaves = list(self.ended())
        drawn = len(leaves) > 1 or any(node.draws > 1 for node in self.nodes)
        return drawn and len({tuple(turn.text for turn in self.path(leaf.id)) for leaf in leaves}) == 1

    def common_ancestor(self, a: int, b: int) -> int:
        """Deepest node on both paths."""
        above = {n.id for n in self.path(a, root=True)}
        while b not in above:
            b = self.nodes[b].parent
        return b
