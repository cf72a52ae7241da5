"""A run directory is copied, renamed and moved: what it holds is found where it is now."""

from pathlib import Path
from shutil import copytree, rmtree
from typing import cast

import pytest

import agentr
from agentr.commands.export import export
from agentr.commands.run import report
from agentr.config.identity import Identity
from agentr.errors import DataError
from agentr.methods import load, plan_of
from agentr.observe.progress import Reporter
from agentr.rounds.experiment import Experiment
from agentr.rounds.services import Services
from agentr.store.run import RunStore
from tests.one_part import OnePart
from tests.runs import dataset, round_of
from tests.trees import door


class Idle(OnePart):
    """Services of which nothing is asked."""

    model: Path | None = None


SMALL = ["model.max_model_len=1024"]


def with_model(root: Path) -> Path:
    """Makes the real base model of a run, unless it is there, and returns where it is."""
    store = RunStore(root)
    config = load(None, SMALL)
    store.open(Identity.of(config))
    path = Experiment(plan_of(config), store, cast(Services, Idle()), Reporter()).base_model().path
    store.close()
    return path


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A run with a round's trees and dataset and a model, at another place than the one where it was made."""
    assert with_model(tmp_path / "here") == tmp_path / "here/model/nano"
    round_ = round_of(tmp_path / "here", SMALL, revise=[door()])
    dataset(round_)
    round_.experiment.store.close()
    copytree(tmp_path / "here", tmp_path / "elsewhere/there", symlinks=True)
    rmtree(tmp_path / "here")
    return tmp_path / "elsewhere/there"


def test_a_moved_run_is_reported_exported_and_continued(moved: Path, tmp_path: Path) -> None:
    assert str(tmp_path / "here") not in (moved / "manifest.json").read_text()
    report(agentr.open(moved), Reporter())
    assert "revision" in (moved / "report.html").read_text()
    assert export(moved, 1, "trl", tmp_path / "rows.jsonl").entries == 2
    # The tree's tokens are not nano's; what matters is which tokenizer was loaded.
    with pytest.raises(DataError, match="elsewhere/there/model/nano"):
        export(moved, 1, "llamafactory", tmp_path / "rows.json")
    assert with_model(moved) == moved / "model/nano"


@pytest.mark.parametrize("own", ["models/llama", "models/model/llama", "another-run/rounds/00/train/model"])
def test_a_model_of_the_users_own_stays_where_it_is(moved: Path, tmp_path: Path, own: str) -> None:
    store = RunStore(moved)
    assert store.model_path(store.stored_path(tmp_path / own)) == tmp_path / own
    assert store.stored_path(moved / "model/nano") == "model/nano"
