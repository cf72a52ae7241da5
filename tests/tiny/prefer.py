"""A run of each task, preferred to the same tokens backwards."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.rounds.method import PreferenceConfig, Preferring
from agentr.rounds.round import Round
from agentr.rows.dataset import Candidate
from agentr.rows.sequences import make_rows, recorded
from agentr.search import Sample
from agentr.store.rows import Preference


@dataclass
class PreferConfig(PreferenceConfig):
    """Preference of what was done."""

    type: str = "prefer"


class Prefer(Preferring[PreferConfig]):
    """Runs, pairs with their reversals, preference optimisation."""

    name = "prefer"
    title = "Prefer"
    config_class = PreferConfig

    def exploration(self, round_: int) -> Mapping[str, Work]:
        return {"collect": Grow(Sample(1))}

    def rows(self, round_: Round) -> Iterator[Candidate]:
        for tree in round_.trees("collect"):
            for leaf in tree.ended():
                (run,) = make_rows(tree, recorded(tree.path(leaf.id), trained=True), "run")
                start = len(tree.prompt_ids)
                ids, mask = run.input_ids[start:], run.loss_mask[start:]
                yield Preference(run.input_ids[:start], ids, mask, ids[::-1], mask[::-1], run.provenance)


METHOD = Prefer
