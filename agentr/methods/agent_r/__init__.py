"""Agent-R (Yuan et al. 2025, arXiv 2501.11425): train on revisions of one's own search trees, round after round.

A round: **search** a tree for each task by UCT; **pair** its good and bad paths; **judge** where the bad one went
wrong; **splice** a reflection and the good path's end to what came before; **execute** that in the environment;
**imitate** the revisions that earned the good path's return, and the good paths themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import NonNegativeInt

from agentr.collect.agent import Agent
from agentr.collect.grow import Grow
from agentr.collect.job import Unit, Work
from agentr.collect.sessions import Sessions
from agentr.collect.worlds import try_elsewhere
from agentr.errors import ConfigError
from agentr.methods.agent_r.revise import (
    Begin,
    End,
    ReviseConfig,
    Said,
    begun,
    carry_out,
    execute,
    good_turns,
    searched_on,
    splice,
    transition,
)
from agentr.rounds.experiment import Experiment
from agentr.rounds.method import Imitation, ImitationConfig, by_round, read_presets
from agentr.rounds.round import Round
from agentr.rows.dataset import Candidate
from agentr.rows.revision import (
    best_paths,
    count_luck,
    count_splices,
    demonstrated_rows,
    good_rows,
    instead,
    revision_rows,
)
from agentr.rows.targets import Targets
from agentr.search import UCT, Expansion, Node, Origin, Sample, Tree, UCTConfig
from agentr.search.pairs import Pair, pair_paths
from agentr.search.revision import Splice
from agentr.store.layout import arm_of
from agentr.store.rows import Dropped, Row


@dataclass
class AgentRConfig(ImitationConfig):
    """Agent-R (docs/agent_r.md)."""

    type: str = "agent_r"
    search: UCTConfig = field(default_factory=UCTConfig)
    """How a tree is searched."""
    revise: ReviseConfig = field(default_factory=ReviseConfig)
    """How bad paths become revisions."""
    good_per_task: NonNegativeInt = 2
    """Most good trajectories of a task (shortest first); 0 means none."""
    revisions_per_task: NonNegativeInt = 4
    """Most revision trajectories of a task; 0 means all."""
    dedupe_good: bool = True
    """Good trajectories of a task with the same actions are one; the original keeps all."""
    dedupe_revisions: bool = True
    """Equal revision trajectories of a task are one; the original keeps all, one for each pair."""
    false_reflections: bool = True
    """Also train on turns that reflect on a move that the environment carried out."""

    def reflections(self) -> Sequence[str]:
        return self.revise.reflections


@dataclass(frozen=True)
class Greedy(Sample):
    """Episodes in which the likeliest turn is taken."""

    kind = "greedy"

    def ask(self, tree: Tree) -> list[Expansion]:
        return [replace(asked, temperature=0.0) for asked in super().ask(tree)]


@dataclass(frozen=True)
class Revise(Work):
    """Add revisions of bad paths to the trees that they are in.

    Attributes:
        alpha: Least return of a good path in this round.
        search: How trees are searched; a revised path has no more actions than a searched one.
        good: Good trajectories of a task that are learnt, too.
    """

    config: ReviseConfig
    alpha: float
    search: UCTConfig
    good: int = 0

    kind = "revise"
    extends = True

    @property
    def source(self) -> str:  # type: ignore[override]
        return "collect" if self.config.begin is Begin.trees else "greedy"

    def max_completions(self, step_limit: int) -> int:
        steps = self.search.max_depth + 1
        pairs = self.config.pairs_per_task if self.config.begin is Begin.trees else 1
        elsewhere = (self.good + pairs) * steps * self.config.worlds * steps
        if self.config.end is not End.search:
            return elsewhere
        return elsewhere + pairs * UCT(replace(self.search, max_depth=2 * steps - 1)).max_completions

    async def make(self, unit: Unit) -> Tree:
        tree = unit.begun()
        sessions = Sessions(tree, unit.agent.env)
        try:
            if self.config.worlds:
                for path in best_paths(tree, self.alpha, self.good, inclusive=self.config.alpha_inclusive):
                    await self._try_elsewhere(tree, path, unit.agent, sessions)
            for pair in self._pairs(tree):
                # judge: the first bad step ends the bad prefix
                own = self.config.begin is Begin.greedy
                last = tree.nodes[pair.ancestor] if own else await transition(tree, pair, unit.agent, self.config)
                if last is None:
                    tree.count(revise_no_transition=1)
                    continue
                revision = splice(tree, pair, last, self.config)  # splice: bad prefix, reflection, good end
                goal = self.alpha if own else tree.nodes[pair.good].reward
                turns = await self._good_end(tree, pair, last, goal, unit.agent, sessions)
                if turns or self.config.end is End.path:  # execute: does it earn as much?
                    limit = self.search.max_depth
                    await execute(tree, revision, turns, goal, unit.agent, sessions, self.config, limit)
                if self.config.worlds and revision.end >= 0:
                    await self._try_elsewhere(tree, tree.path(revision.end)[last.depth :], unit.agent, sessions)
                if self.config.end is not End.path:
                    revision.good = revision.end if revision.end >= 0 else last.id
                tree.revisions.append(revision)
            if self.config.whole_episodes and tree.revisions:
                steps = await unit.agent.env.expert(unit.task) or []
                await carry_out(tree, 0, steps, unit.agent, sessions, Origin.EXPERT)
        finally:
            sessions.close()
        return tree

    async def _try_elsewhere(self, tree: Tree, turns: Sequence[Node], agent: Agent, sessions: Sessions) -> None:
        steps, invalid = self.search.max_depth + 1, self.search.max_invalid
        await try_elsewhere(tree, turns, agent, sessions, self.config.worlds, steps, invalid)

    def _pairs(self, tree: Tree) -> list[Pair]:
        """Pairs of a bad and a good path (Eq. 4); of a greedy episode, the bad one and where it is left."""
        if self.config.begin is Begin.trees:
            return pair_paths(tree, self.config, self.alpha)
        last = begun(tree, self.alpha)
        return [] if last is None else [Pair(next(iter(tree.ended())).id, last.id, last.id)]

    async def _good_end(
        self, tree: Tree, pair: Pair, last: Node, goal: float, agent: Agent, sessions: Sessions
    ) -> Sequence[Said]:
        match self.config.end:
            case End.path:
                return good_turns(tree, pair, agent)
            case End.search:
                return await searched_on(tree, last, agent, self.search, goal)
            case End.expert:
                return await (await sessions.at(last.id)).expert() or ()


class AgentR(Imitation[AgentRConfig]):
    """MCTS trees, revision trajectories with a reflection, imitation."""

    name = "agent_r"
    title = "Agent-R (arXiv 2501.11425)"
    default = True
    environments = ("webshop", "sciworld", "textcraft")
    page = "docs/agent_r.md"
    config_class = AgentRConfig
    presets = read_presets(__file__)

    def exploration(self, round_: int) -> Mapping[str, Work]:
        search, revise = self.config.search, self.config.revise
        greedy = Greedy(1, search.max_depth + 1, search.max_invalid)
        return {
            "collect": Grow(UCT(search)),  # search
            **({"greedy": Grow(greedy)} if revise.begin is Begin.greedy else {}),
            # pair, judge, splice, execute
            "revise": Revise(revise, by_round(revise.alpha, round_), search, self.config.good_per_task),
        }

    def before(self, experiment: Experiment, round_: int) -> None:
        revise = self.config.revise
        if not (revise.worlds or revise.end is End.expert) or experiment.store.sealed(arm_of(round_).stage("revise")):
            return
        spec = experiment.spec()
        if revise.end is End.expert and not spec.guides:
            message = f"method.revise.end=expert: {spec.name} has no expert that goes on from the middle of an episode"
            raise ConfigError(message, hint="Set method.revise.end=search, which asks the policy alone.")
        if revise.worlds and not spec.redraws:
            why = "does not say that it hides anything" if not spec.hidden else "draws no other worlds"
            raise ConfigError(f"method.revise.worlds: {spec.name} {why}", hint="Set method.revise.worlds=0.")

    def rows(self, round_: Round) -> Iterator[Candidate]:
        config = self.config
        reflections = () if config.false_reflections else config.reflections()
        targets = replace(Targets.of(round_.config.build, reflections), luck=config.revise.learn_luck)
        alpha = by_round(config.revise.alpha, round_.number)
        revised = self._revisions(round_, targets)  # imitate
        yield from instead(revised) if config.revise.whole_episodes else revised
        own = config.revise.begin is Begin.greedy
        for tree in round_.trees("collect" if own else "revise"):
            yield from good_rows(
                tree,
                alpha,
                limit=config.good_per_task,
                targets=targets,
                inclusive=config.revise.alpha_inclusive,
                dedupe=config.dedupe_good,
            )

    def _revisions(self, round_: Round, targets: Targets) -> Iterator[Row | Dropped]:
        config = self.config
        for tree in round_.trees("revise"):
            yield from revision_rows(
                tree,
                config.revise.splice,
                round_.codec,
                round_.action_format,
                limit=config.revisions_per_task,
                targets=targets,
                dedupe=config.dedupe_revisions,
            )
            if config.revise.whole_episodes:
                yield from demonstrated_rows(tree, targets)

    def facts(self, round_: Round) -> dict[str, Any]:
        revise = self.config.revise
        executed = revise.splice is Splice.executed or revise.audit
        splices = count_splices(round_.trees("revise")) if executed else {}
        if revise.worlds:
            splices |= count_luck(round_.trees("revise"))
        if revise.end is not End.path:  # there is no text splice that could fail
            splices.pop("text splice would fail", None)
        return {"splices": splices} if splices else {}


METHOD = AgentR
