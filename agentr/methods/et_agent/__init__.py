"""ET-Agent (arXiv 2601.06860): a data flywheel and fine-tuning on what survives it, then reinforcement learning on chosen tasks.

A round of this method: **explore** each task a few times; **evolve** its episodes, right ones to be shorter, wrong ones to be right;
**filter** what is right, well formed and economical; **imitate** it. The rounds of reinforcement learning that follow are those of another
method (``grpo``, ``tree_grpo``), which ``from_round`` names: they choose their tasks by ``method.pareto`` and their reward is ``et_agent``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from agentr.build.dataset import Candidate
from agentr.build.evolved import FilterConfig, count_agreement, count_operators, count_verdicts, evolved_rows
from agentr.build.targets import Targets
from agentr.collect.evolve import Evolve
from agentr.collect.evolver import EvolveConfig
from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.collect.operators import operator_problems
from agentr.config.checks import Problem, number
from agentr.config.policy import Who
from agentr.config.schema import Config
from agentr.methods.eto import sampling_problems
from agentr.observe.flywheel import judge_warning
from agentr.rounds.method import Imitation, ImitationConfig, by_round
from agentr.rounds.round import Round
from agentr.search import Sample


@dataclass
class ETAgentConfig(ImitationConfig):
    """ET-Agent's flywheel (docs/et_agent.md)."""

    type: str = "et_agent"
    episodes: int = number(1, least=1)
    """First episodes of each task."""
    max_steps: int = number(0, least=0)
    """Actions in an episode; 0 means the environment's own limit."""
    max_invalid: int = number(0, least=0)
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
                "filter.min_return", "the list is empty", "Give one threshold for each round; the last one holds for later rounds."
            )


class ETAgent(Imitation[ETAgentConfig]):
    """Episodes that are evolved, imitation of those that are right and economical."""

    name = "et_agent"
    title = "ET-Agent (arXiv 2601.06860)"
    environments = ("mathtool", "searchqa")
    page = "docs/et_agent.md"
    Config = ETAgentConfig

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
            round_.experiment.reporter.say(f"        {warning}", "yellow")
        facts = {
            "operators": {name: asdict(operated) for name, operated in operators.items()},
            "agreement": count_agreement(trees),
            "verdicts": verdicts,
        }
        return {name: found for name, found in facts.items() if found or name == "operators"}

    # The paper: three evolutions by a teacher; 3 epochs at 5e-6; then three rounds, each of which takes 8000 tasks by 16 rollouts and goes
    # through them three times. Both sigmas fall by round; the paper gives their first value (0.1) and no other.
    _SIGMA: ClassVar[list[float]] = [0.1, 0.1, 0.067, 0.033]
    _evolve: ClassVar[Mapping[str, Any]] = {
        "right": ["rollout", "refine_redundant", "rewrite_thoughts"],
        "wrong": ["correct_step", "hint_step", "hint_end"],
    }
    _paper: ClassVar[Mapping[str, Any]] = {
        "run": {"rounds": 4},
        "warm_start": {"enabled": False},
        "method": {
            "evolve": _evolve,
            "filter": {"fewest_calls": False, "per_task": 0, "train_on_flawed": True, "without": ["empty"]},
        },
        "collect": {"tasks": {"limit": None}, "sampling": {"temperature": 1.0, "top_p": 0.95, "max_tokens": 4096}},
        "train": [{"epochs": 3.0, "learning_rate": 5e-6, "schedule": "cosine", "warmup_ratio": 0.1, "batch_size": 32, "max_length": 10000}],
        "build": {"max_length": 10000},
        "model": {"max_model_len": 16384},
        "from_round": {
            2: {
                "method": {
                    "type": "arpo",
                    "preset": "paper",
                    "steps": 375,
                    "tasks": 64,
                    "pareto": {"tasks": 8000, "episodes": 16, "dispersion": "std", "settled": "after"},
                    "rewards": [{"name": "et_agent", "options": {"sigma_tool": _SIGMA, "sigma_len": _SIGMA, "scale": 1.0}}],
                    "gate": "none",
                },
                "collect": {"sampling": {"top_p": 1.0}},
                "train": [
                    {
                        "learning_rate": 1e-6,
                        "schedule": "constant_with_warmup",
                        "warmup_ratio": 0.0,
                        "weight_decay": 0.01,
                        "batch_size": 64,
                        "max_length": 10000,
                        "grpo": {"loss": "dapo", "clip": 0.2, "dual_clip": 3.0, "minibatches": 16},
                    }
                ],
            }
        },
    }
    # The released scripts: sigma is 0 in all three stages, 8 rollouts are looked at, variances are compared, lengths count observations,
    # and fine-tuning learns the tools' answers.
    _released: ClassVar[Mapping[str, Any]] = {
        **_paper,
        "method": {**_paper["method"], "filter": {**_paper["method"]["filter"], "train_on_observations": True}},
        "from_round": {
            2: {
                **_paper["from_round"][2],
                "method": {
                    **_paper["from_round"][2]["method"],
                    "preset": "released",
                    "pareto": {"tasks": 8000, "episodes": 8, "dispersion": "variance", "settled": "after"},
                    "rewards": [
                        {"name": "et_agent", "options": {"sigma_tool": 0.0, "sigma_len": 0.0, "decay": True, "observations": True}}
                    ],
                },
            }
        },
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": _paper, "released": _released}


METHOD = ETAgent
