"""Search and imitation, with a second stage if it is asked for, which starts from the trees of the first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agentr.collect.grow import Grow
from agentr.collect.job import Unit, Work
from agentr.rounds.method import Imitation, ImitationConfig
from agentr.rounds.round import Round
from agentr.rows.dataset import Candidate
from agentr.rows.revision import good_rows, revision_rows
from agentr.rows.targets import Targets
from agentr.search import UCT, Tree, UCTConfig
from agentr.search.revision import Splice


@dataclass
class ImitateConfig(ImitationConfig):
    """Search and imitation."""

    type: str = "imitate"
    search: UCTConfig = field(default_factory=lambda: UCTConfig(iterations=1))
    """How a tree is searched."""
    least: float = 0.5
    """Least return of what is imitated."""
    revises: bool = False
    """Whether there is the second stage."""
    searches: bool = True
    """Without it no task is searched, and there is nothing to imitate."""


@dataclass(frozen=True)
class Revise(Work):
    """The trees of the first stage as they are."""

    kind = "revise"
    source = "collect"
    extends = True

    async def make(self, unit: Unit) -> Tree:
        return unit.begun()


class Imitate(Imitation[ImitateConfig]):
    """Search trees, imitation of good paths, and of revisions where trees have some."""

    name = "imitate"
    title = "Imitate"
    config_class = ImitateConfig

    def exploration(self, round_: int) -> Mapping[str, Work]:
        found = {"collect": Grow(UCT(self.config.search))} | ({"revise": Revise()} if self.config.revises else {})
        return found if self.config.searches else {}

    def rows(self, round_: Round) -> Iterator[Candidate]:
        targets = Targets.of(round_.config.build)
        for tree in round_.trees([*self.exploration(1)][-1]):
            yield from revision_rows(
                tree, Splice.executed, round_.codec, round_.action_format, limit=0, targets=targets
            )
            yield from good_rows(tree, self.config.least, limit=2, targets=targets)


METHOD = Imitate
