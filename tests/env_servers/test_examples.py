"""The worked examples of the specifications are plays of the expert, and the environment still answers them so."""

import re
from typing import Any

import pytest
import yaml

from agentr.tasks.formats import action_format
from env_servers.base import Environment
from env_servers.protocol import Turn
from env_servers.registry import ENVIRONMENTS, describe, load
from tests.env_servers.support import ROOT

DESCRIBED = {found.name: found for found in describe()}
#: Files beside spec.yaml that replace its examples under an option.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mathtool/tags": ("mathtool/tags.yaml", {"format": "tags"}),
    "searchqa/python": ("searchqa/python.yaml", {"python": True}),
}
#: ALFWorld's example is one of the household's, which plays the same texts (`test_alfworld.py`) and needs no download.
PLAYED_BY = {"alfworld": "household"}
#: Whatever Gymnasium can make, and a program of the user's, have no expert of ours, and no example.
WITHOUT = {"gym", "program"}


def played(name: str, file: str, options: dict[str, Any]) -> tuple[Environment, str, list[Turn]]:
    """The environment, the task of the first example in a file, and the example."""
    text = (ROOT / "env_servers" / file).read_text(encoding="utf-8")
    comment = re.search(r"# the expert on (?:household's )?([^,\n]+)(?:, with (\w+)=(\d+))?", text)
    assert comment is not None, f"{file} says which task the expert played"
    if comment[2]:
        options = {**options, comment[2]: int(comment[3])}
    name = PLAYED_BY.get(name, name)
    if not DESCRIBED[name].available:
        pytest.skip(f"{name} is not available here; `agentr list environments` says why")
    return load(name, options), comment[1], [Turn.model_validate(turn) for turn in yaml.safe_load(text)["examples"][0]]


#: Environments that take seconds to start or to play.
SLOW = {"sciworld", "searchqa", "searchqa/python"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
        for name in (*sorted(ENVIRONMENTS.keys() - WITHOUT), *VARIANTS)
    ],
)
def test_a_worked_example_is_what_the_environment_answers(name: str):
    file, options = VARIANTS.get(name, (f"{name}/spec.yaml", {}))
    environment, task, example = played(name.partition("/")[0], file, options)
    assert [turn.role for turn in example] == ["user", "assistant"] * (len(example) // 2)
    written = action_format(environment.spec.action_format)
    state, observed = environment.reset(task)
    said = []
    for question, answer in zip(example[::2], example[1::2], strict=True):
        assert question.content == observed.observation
        assert not observed.done
        parsed = written.parse(answer.content)
        assert parsed.action is not None and answer.content == written.compose(parsed.thought, parsed.action)
        said.append((parsed.thought, parsed.action))
        observed = environment.step(state, parsed.action)
        assert observed.valid
    scale = environment.spec.reward
    assert observed.done and (observed.reward - scale.low) / (scale.high - scale.low) >= scale.success
    assert said == [(step.thought, step.action) for step in environment.expert(task) or ()], "it is the expert's play"


@pytest.mark.parametrize("name", [*sorted(ENVIRONMENTS.keys() - WITHOUT), *VARIANTS])
def test_the_problem_of_a_worked_example_is_trained_on_and_held_out_nowhere(name: str):
    file, options = VARIANTS.get(name, (f"{name}/spec.yaml", {}))
    environment, task, _ = played(name.partition("/")[0], file, options)
    splits, identity = environment.spec.splits, environment.spec.identity
    labels = {info.id: info.labels for info in environment.split("train")}
    held_out = {
        info.labels[identity] for split, s in splits.items() if not s.train for info in environment.split(split)
    }
    assert labels[task][identity] not in held_out
