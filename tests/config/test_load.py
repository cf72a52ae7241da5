"""Configuration: every checked-in file validates, and every mistake is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from agentr.config.plan import most_completions
from agentr.config.reference import reference

from agentr.config.load import changed_keys, config_hash, load, plain, to_yaml
from agentr.config.schema import Config
from agentr.errors import ConfigError

CONFIGS = sorted(path for path in (Path(__file__).parents[2] / "configs").rglob("*.yaml") if path.parent.name != "compare")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_configuration_is_valid(path: Path) -> None:
    assert isinstance(load(path), Config)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["run.sed=1"], r"the command line: unknown key 'run\.sed'\. Did you mean 'run\.seed'\?"),
        (["colect.in_flight=1"], r"unknown key 'colect'.* Did you mean 'collect'\?"),
        (["run.seed=many"], r"could not be converted to Integer \(key 'run\.seed'\)"),
        (["run.rounds=1.5"], r"could not be converted to Integer"),
        (["revise.splice=glue"], r"revise\.splice"),
        (["model.path=/a/model"], r"model\.path is set, but model\.source = nano would not use it"),
        (["revise.beta=2"], r"revise\.beta = 2\.0 is outside \[0, 1\]"),
        (["revise.alpha=[]"], r"revise\.alpha is empty"),
        (["revise.alpha_inclusive=false"], r"accepts no path at all"),
        (["model.source=hf"], r"model\.source = hf needs model\.path"),
        (["policy.backend=openai"], r"needs policy\.openai\.model"),
        (["eval.episodes=4"], r"temperature 0 would repeat the same episode"),
        (["build.max_length=99999"], r"build\.max_length = 99999 is longer than model\.max_model_len"),
        (["build.general_path=/nowhere.json"], r"build\.general_path: there is no file '/nowhere\.json'"),
        (["warm_start.files=[/nowhere.json]"], r"warm_start\.files: there is no file '/nowhere\.json'"),
        (["build.extra_pairs=[{path: /nowhere.json}]"], r"build\.extra_pairs: there is no file '/nowhere\.json'"),
        (["run.preset=best"], r"run\.preset = 'best' is not known"),
        (["seed"], r"'seed' is not of the form key=value"),
        (["collect.tasks=${warm_start.tasks[7]}"], r"the command line: Interpolation key 'warm_start\.tasks\[7\]' not found"),
    ],
)
def test_mistakes_are_named(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, overrides)
    assert re.search(message, str(caught.value).replace("\n", " ")), caught.value


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        load(tmp_path / "none.yaml")
    (tmp_path / "broken.yaml").write_text("run: {seed: 1")
    with pytest.raises(ConfigError, match=r"broken\.yaml is not valid YAML"):
        load(tmp_path / "broken.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="holds a list, not a mapping"):
        load(tmp_path / "list.yaml")
    (tmp_path / "a.yaml").write_text("include: [a.yaml]")
    with pytest.raises(ConfigError, match="includes itself"):
        load((tmp_path / "a.yaml").resolve())


def test_later_layers_win(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("run: {seed: 1, rounds: 5}\ncollect: {search: {width: 3}}")
    (tmp_path / "top.yaml").write_text("include: [base.yaml]\nrun: {seed: 2, preset: paper}")
    config = load(tmp_path / "top.yaml", ["collect.search.max_depth=9"])
    assert (config.run.seed, config.run.rounds) == (2, 5)
    search = config.collect.search
    assert (search.width, search.max_depth, search.iterations, search.stop_dive_at_success) == (3, 9, 8, False)


def test_paper_preset_has_the_papers_values() -> None:
    config = load(None, ["run.preset=paper"])
    search = config.collect.search
    assert (search.iterations, search.max_depth, search.width, search.c_uct) == (8, 20, 4, 0.25)
    assert (config.revise.alpha, config.revise.beta, config.build.eta) == ([0.5, 0.7, 1.0], 0.2, 0.2)
    assert most_completions(config) == 628


def test_round_trip_through_yaml(tmp_path: Path) -> None:
    config = load(None, ["run.preset=released", "env.options={distractors: 3}", "train=[{steps: 3},{epochs: 2.0}]"])
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert load(tmp_path / "config.yaml") == config


def test_only_what_says_what_the_run_is_counts_as_a_change() -> None:
    before = load(None)
    assert changed_keys(plain(before), plain(load(None, ["cluster.cpus=8", "collect.in_flight=3", "run.dir=/x", "run.rounds=9"]))) == []
    assert config_hash(before) == config_hash(load(None, ["cluster.cpus=8", "policy.engines=4"]))
    changes = changed_keys(plain(before), plain(load(None, ["run.seed=3", "train=[{learning_rate: 0.1}]", "run.rounds=1"])))
    assert [c.split(":")[0] for c in changes] == ["run.rounds", "run.seed", "train[0].learning_rate"]
    assert config_hash(before) != config_hash(load(None, ["run.seed=3"]))


def test_the_reference_is_that_of_the_schema() -> None:
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert page.read_text() == reference(), "run: python -m agentr.config.reference > docs/configuration.md"
