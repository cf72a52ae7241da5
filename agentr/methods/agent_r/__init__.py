"""Agent-R (Yuan et al. 2025, arXiv 2501.11425): train on revisions of one's own search trees, round after round.

A round: **search** a tree for each task by UCT; **pair** its good and bad paths; **judge** where the bad one went
wrong; **splice** a reflection and the good path's end to what came before; **execute** that in the environment;
**imitate** the revisions that earned the good path's return, and the good paths themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import NonNegativeInt

from agentr.collect.grow import Grow
from agentr.collect.job import Unit, Work
from agentr.collect.sessions import Sessions
from agentr.methods.agent_r.revise import ReviseConfig, execute, splice, transition
from agentr.rounds.method import Imitation, ImitationConfig, by_round, read_presets
from agentr.rounds.round import Round
from agentr.rows.dataset import Candidate
from agentr.rows.revision import count_splices, good_rows, revision_rows
from agentr.rows.targets import Targets
from agentr.search import UCT, Tree, UCTConfig
from agentr.search.pairs import pair_paths
from agentr.search.revision import Splice


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
class Revise(Work):
    """Add revisions of bad paths to the searched trees.

    Attributes:
        alpha: Least return of a good path in this round.
        max_depth: Longest revised path, in actions.
    """

    config: ReviseConfig
    alpha: float
    max_depth: int

    kind = "revise"
    source = "collect"
    extends = True

    async def make(self, unit: Unit) -> Tree:
        tree = unit.begun()
        sessions = Sessions(tree, unit.agent.env)
        try:
            for pair in pair_paths(tree, self.config, self.alpha):  # pair: a bad and a good path of one tree (Eq. 4)
                # judge: the first bad step ends the bad prefix
                last = await transition(tree, pair, unit.agent, self.config)
                if last is None:
                    tree.count(revise_no_transition=1)
                    continue
                revision = splice(tree, pair, last, self.config)  # splice: bad prefix, reflection, good end
                # execute: does it earn as much?
                await execute(tree, pair, revision, unit.agent, sessions, self.config, self.max_depth)
                tree.revisions.append(revision)
        finally:
            sessions.close()
        return tree


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
        return {
            "collect": Grow(UCT(search)),  # search
            "revise": Revise(revise, by_round(revise.alpha, round_), search.max_depth),  # pair, judge, splice, execute
        }

    def rows(self, round_: Round) -> Iterator[Candidate]:
        config = self.config
        targets = Targets.of(round_.config.build, () if config.false_reflections else config.reflections())
        alpha = by_round(config.revise.alpha, round_.number)
        for tree in round_.trees("revise"):  # imitate
            yield from revision_rows(
                tree,
                config.revise.splice,
                round_.codec,
                round_.action_format,
                limit=config.revisions_per_task,
                targets=targets,
                dedupe=config.dedupe_revisions,
            )
            yield from good_rows(
                tree,
                alpha,
                limit=config.good_per_task,
                targets=targets,
                inclusive=config.revise.alpha_inclusive,
                dedupe=config.dedupe_good,
            )

    def facts(self, round_: Round) -> dict[str, Any]:
        executed = self.config.revise.splice is Splice.executed or self.config.revise.audit
        splices = count_splices(round_.trees("revise")) if executed else {}
        return {"splices": splices} if splices else {}


METHOD = AgentR
