"""DensePolicy (Zhao et al. 2024): grow one wide tree for each task and prefer, turn by turn, what led further."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.methods.dense_policy.dense import Dense, DenseConfig
from agentr.methods.dense_policy.rows import SiblingsConfig, mix_pairs, preference_rows
from agentr.rounds.method import PreferenceConfig, Preferring, read_presets
from agentr.rounds.round import Round
from agentr.rows.dataset import Candidate, Keep
from agentr.store.spool import Kept


@dataclass
class DensePolicyConfig(PreferenceConfig):
    """DensePolicy (docs/dense_policy.md)."""

    type: str = "dense_policy"
    search: DenseConfig = field(default_factory=DenseConfig)
    """How a tree grows."""
    pairs: SiblingsConfig = field(default_factory=SiblingsConfig)
    """Which sibling turns are a pair, and how many are used."""


class DensePolicy(Preferring[DensePolicyConfig]):
    """Adaptive wide trees, pairs of sibling turns, preference optimisation."""

    name = "dense_policy"
    title = "DensePolicy (released code)"
    environments = ("mathtool",)
    page = "docs/dense_policy.md"
    config_class = DensePolicyConfig
    presets = read_presets(__file__)

    def exploration(self, round_: int) -> Mapping[str, Work]:
        return {"collect": Grow(Dense(self.config.search, self.config.pairs.rule()))}

    def rows(self, round_: Round) -> Iterator[Candidate]:
        build = round_.config.build
        for tree in round_.trees("collect"):
            yield from preference_rows(
                tree,
                self.config.pairs,
                build.max_length,
                train_on_invalid=build.train_on_invalid,
                train_on_reasoning=build.train_on_reasoning,
            )

    def mix(self, own: Sequence[Kept], round_: Round, keep: Keep) -> tuple[Sequence[Kept], Counter[str]]:
        by_key: dict[str, list[Kept]] = {}
        for pair in own:
            by_key.setdefault(pair.tree, []).append(pair)
        by_task = {task: by_key.get(task.key, []) for task in round_.trees("collect").tasks()}
        return super().mix(mix_pairs(by_task, self.config.pairs, round_.seed), round_, keep)


METHOD = DensePolicy
