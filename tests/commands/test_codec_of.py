"""What is read of a run that is over, without its services."""

from pathlib import Path

import pytest

import agentr
from agentr.commands.run import codec_of
from agentr.config.turns import TurnFormat, TurnsConfig
from agentr.models.nano import WEIGHTS
from agentr.store.growing import GrowingForest
from agentr.store.summaries import TreeSummary
from agentr.tasks.tools import ACT, described
from agentr.types import Outcome
from env_servers.textcraft import TextCraft
from tests.runs import round_of
from tests.trees import episode


@pytest.mark.parametrize(
    ("stage", "step"), [("collect", ""), ("rollouts", "000001")], ids=["a stage of trees", "online: a step"]
)
def test_the_codec_of_a_run_by_tool_calls_has_the_tools_that_its_stages_keep(
    tmp_path: Path, stage: str, step: str
) -> None:
    made = round_of(
        tmp_path, ["model.source=nano", "model.chat_template=hermes", "turns.format=tool_calls"], model=WEIGHTS
    )
    store = made.experiment.store

    def write(folder: Path) -> TreeSummary:
        forest = GrowingForest(folder / step, epoch=store.lease.next_epoch())
        forest.write(episode("a", ["look"], 1.0, Outcome.SUCCESS, 1))
        manifest = forest.seal(stage=described(TextCraft().spec, TurnsConfig(format=TurnFormat.tool_calls)))
        return TreeSummary(trees=1, trees_hash=manifest["trees_hash"])

    assert codec_of(agentr.open(tmp_path)).calls is None  # no stage has said yet what tools there were
    store.stages.run(made.arm.stage(stage), TreeSummary, write)
    calls = codec_of(agentr.open(tmp_path)).calls
    assert calls is not None and calls.dialect.name == "hermes"
    assert [tool.model_dump_json() for tool in calls.tools] == [ACT.model_dump_json()], (
        "the order of keys is part of every prompt"
    )
