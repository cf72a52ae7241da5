"""ET-Agent (arXiv 2601.06860): a data flywheel and fine-tuning on what survives it, then reinforcement learning on
chosen tasks.

A round of this method: **explore** each task a few times; **evolve** its episodes, right ones to be shorter, wrong ones
to be right; **filter** what is right, well formed and economical; **imitate** it. The rounds of reinforcement learning
that follow are those of another method (``grpo``, ``tree_grpo``), which ``from_round`` names: they choose their tasks
by ``method.pareto`` and their reward is ``et_agent``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

from agentr.collect.evolver import EvolveConfig
from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.collect.operators import operator_problems
from agentr.config.checks import Problem
from agentr.config.policy import Who
from agentr.config.schema import Config
from agentr.methods.et_agent.evolve import Evolve
from agentr.methods.et_agent.rows import FilterConfig, count_agreement, count_operators, count_verdicts, evolved_rows
from agentr.observe.tables import judge_warning
from agentr.rounds.method import Imitation, ImitationConfig, by_round, read_presets, sampling_problems
from agentr.rounds.round import Round
from agentr.rows.dataset import Candidate
from agentr.rows.targets import Targets
from agentr.search import Sample


@dataclass
class ETAgentConfig(ImitationConfig):
    """ET-Agent's flywheel (docs/et_agent.md)."""

    type: str = "et_agent"
    episodes: PositiveInt = 1
    """First episodes of each task."""
    max_steps: NonNegativeInt = 0
    """Actions in an episode; 0 means the environment's own limit."""
    max_invalid: NonNegativeInt = 0
    """An episode ends after so many invalid actions in a row; 0 means never."""
    evolve: EvolveConfig = field(default_factory=EvolveConfig)
    """How episodes are evolved."""
    filter: FilterConfig = field(default_factory=FilterConfig)
    """Which of them are imitated."""

    def reflections(self) -> Sequence[str]:
        return self.evolve.hints

    def problems(self) -> Iterator[Problem]:
        yield from (problem.within("evolve") for problem in operator_problems(self.evolve))
        if self.filter.judged and self.evolve.judge.who is Who.nobody:
            yield Problem("filter.judged", "there is no judge", "Set method.evolve.judge.who.")
        if not self.filter.min_return:
            yield Problem(
                "filter.min_return",
                "the list is empty",
                "Give one threshold for each round; the last one holds for later rounds.",
            )


class ETAgent(Imitation[ETAgentConfig]):
    """Episodes that are evolved, imitation of those that are right and economical."""

    name = "et_agent"
    title = "ET-Agent (arXiv 2601.06860)"
    environments = ("mathtool", "searchqa")
    page = "docs/et_agent.md"
    config_class = ETAgentConfig
    presets = read_presets(__file__)

    @classmethod
    def check(cls, config: Config) -> Iterator[Problem]:
        yield from super().check(config)
        yield from sampling_problems(config)

    def exploration(self, round_: int) -> Mapping[str, Work]:
        config = self.config
        return {
            "collect": Grow(Sample(config.episodes, config.max_steps, config.max_invalid)),
            "evolve": Evolve(config.evolve, config.max_steps, config.max_invalid),
        }

    def rows(self, round_: Round) -> Iterator[Candidate]:
        least = by_round(self.config.filter.min_return, round_.number)
        # What was not understood is the filter's business (method.filter.failed_calls).
        targets = replace(Targets.of(round_.config.build), invalid=True)
        for tree in round_.trees("evolve"):
            yield from evolved_rows(tree, self.config.filter, least, round_.answer_prefix, targets)

    def facts(self, round_: Round) -> dict[str, Any]:
        trees = round_.trees("evolve")
        operators, verdicts = count_operators(trees, round_.answer_prefix), count_verdicts(trees, round_.answer_prefix)
        if warning := judge_warning(verdicts):
            round_.experiment.reporter.message(f"        {warning}", "yellow")
        facts = {
            "operators": {name: asdict(operated) for name, operated in operators.items()},
            "agreement": count_agreement(trees),
            "verdicts": verdicts,
        }
        return {name: found for name, found in facts.items() if found or name == "operators"}


METHOD = ETAgent
