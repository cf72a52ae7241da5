"""Configuration: every checked-in file validates, every mistake is named, and all of them at once."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentr.config.identity import at_default, changed_keys, flatten, plain, to_yaml
from agentr.config.schema import Config
from agentr.config.text import dump_yaml
from agentr.config.training import TrainConfig
from agentr.errors import ConfigError
from agentr.methods import load, methods, plan_of
from agentr.methods.agent_r import AgentRConfig
from agentr.methods.rft import RFTConfig
from tests.docs.configuration import reference, undescribed

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(path for path in (ROOT / "configs").rglob("*.yaml") if path.parent.name not in ("compare", "parts"))
METHODS = sorted((ROOT / "configs" / "compare").glob("*.yaml"))

#: An online method.
OPENENV = ["env.protocol=openenv", "env.url=http://127.0.0.1:9"]
GRPO = ["method.type=grpo", "train=[{batch_size: 256}]"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_every_configuration_is_valid(path: Path) -> None:
    assert isinstance(load(path), Config)


@pytest.mark.parametrize("path", METHODS, ids=lambda p: p.stem)
@pytest.mark.parametrize("base", sorted((ROOT / "configs/compare/tasks").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_method_of_a_comparison_is_valid_over_every_task(path: Path, base: Path) -> None:
    assert isinstance(load(path, base=base), Config)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        # keys
        (["run.sed=1"], r"the command line: unknown key 'run\.sed'\. Did you mean 'run\.seed'\?"),
        (["colect.in_flight=1"], r"unknown key 'colect\.in_flight'.* Did you mean 'collect\.in_flight'\?"),
        (
            ["method.revise.xyz=1"],
            r"unknown key 'method\.revise\.xyz'\. Keys of method\.revise of agent_r: .*alpha_inclusive",
        ),
        (["seed"], r"'seed' is not of the form key=value"),
        (["train=[{dpo: {bta: 1}}]"], r"unknown key 'train\[0\]\.dpo\.bta'\. Did you mean 'train\.dpo\.beta'\?"),
        # keys of other methods, and old ones
        (
            ["method.type=eto", "method.search.width=99"],
            r"unknown key 'method\.search\.width'\. Keys of method of eto: .*episodes",
        ),
        (["method.episodes=2"], r"unknown key 'method\.episodes'\. Keys of method of agent_r: .*search, revise"),
        # types and choices
        (["run.seed=many"], r"the command line: run\.seed: 'many' is refused\. It should be a valid integer"),
        (
            ["run.rounds=1.5"],
            r"run\.rounds: 1\.5 is refused\. It should be a valid integer, got a number with a fractional part",
        ),
        (
            ["method.revise.splice=glue"],
            r"method\.revise\.splice: 'glue' is refused\. It should be 'executed', 'paper' or 'direct'",
        ),
        (
            ["trainer.continue_from=prevoius"],
            r"trainer\.continue_from: 'prevoius' is refused\. It should be 'previous' or 'warm_start'",
        ),
        (
            ["train=[{schedule: cosin}]"],
            r"train\[0\]\.schedule: 'cosin' is refused\. It should be 'cosine', 'linear' or",
        ),
        (["train=[{}, {schedule: cosin}]"], r"the command line: train\[1\]\.schedule: 'cosin'"),
        (["warm_start.train.schedule=foo"], r"warm_start\.train\.schedule: 'foo' is refused"),
        (
            ["model.dtype=bfloat61"],
            r"model\.dtype: 'bfloat61' is refused\. It should be 'float32', 'bfloat16' or 'float16'",
        ),
        (["method=3"], r"the command line: method holds 3, not keys with values"),
        (["methods={agent_r: 5}"], r"methods\.agent_r holds 5, not keys with values"),
        (["methods=[]"], r"methods holds \[\], not keys with values"),
        (["method.type=5"], r"method\.type = '5' is not known"),
        (["method.type=[eto]"], r"method\.type = .*eto.* is not known"),
        # ranges
        (["train=[{dpo: {beta: -1}}]"], r"train\[0\]\.dpo\.beta: -1 is refused\. It should be greater than 0"),
        (
            ["warm_start.train.lora.rank=-3"],
            r"warm_start\.train\.lora\.rank: -3 is refused\. It should be greater than or equal to 0",
        ),
        (["train=[{lora: {rank: -3}}]"], r"train\[0\]\.lora\.rank: -3 is refused"),
        (["method.revise.beta=2"], r"method\.revise\.beta: 2 is refused\. It should be less than or equal to 1"),
        (["method.revise.alpha=[0.5,1.5]"], r"the command line: method\.revise\.alpha\[1\]: 1\.5 is refused"),
        (["policy.timeout_s=.nan"], r"policy\.timeout_s: nan is refused"),
        (["collect.tasks.limit=0"], r"collect\.tasks\.limit: 0 is refused"),
        (
            ["method.type=dense_policy", "method.search.temperatures=[-1.0]"],
            r"method\.search\.temperatures\[0\]: -1 is refused",
        ),
        (["run.seed=yes"], r"run\.seed: 'yes' is refused\. It should be a valid integer"),
        (["run=5"], r"the command line: run: 5 is no section\. Give keys with values"),
        # endpoints that several roles name
        (
            ["policy.openai=big"],
            r"the command line: policy\.openai: there is no endpoint 'big'\. The section endpoints has: none",
        ),
        (["endpoints={big: {model: x}}", "eval.judge.openai=bg"], r"eval\.judge\.openai: .* 'bg'\. Did you mean 'big'"),
        (["endpoints={big: {modle: x}}", "policy.openai=big"], r"unknown key 'policy\.openai\.modle'"),
        # rules between keys
        (
            ["warm_start.train.batch_size=7"],
            r"warm_start\.train\.batch_size: 7 is no multiple of micro_batch_size x .* = 16 x 1",
        ),
        (["train=[{batch_size: 24}]"], r"train\[0\]\.batch_size: 24 is no multiple of .* = 16 x 1"),
        (["trainer.workers=3"], r"train\[0\]\.batch_size: 16 is no multiple of .* = 16 x 3"),
        (["train=[{epochs: 0}]"], r"train\[0\]\.steps: neither steps nor epochs is positive"),
        (["train=[]"], r"train: the list is empty"),
        (["train=[{max_length: 8}]"], r"train\[0\]\.max_length: 8 is less than build\.max_length = 1024"),
        (["model.path=/a/model"], r"model\.path is set, but model\.source = nano would not use it"),
        (["method.revise.alpha=[]"], r"method\.revise\.alpha: the list is empty\. Give one threshold for each round"),
        (["method.revise.alpha_inclusive=false"], r"accepts no path at all"),
        (["method.revise.reflections=[]"], r"method\.revise\.reflections: the list is empty"),
        (["model.source=hf"], r"model\.source = hf needs model\.path"),
        (["policy.backend=openai"], r"needs policy\.openai\.model"),
        (["eval.episodes=4"], r"temperature 0 would repeat the same episode"),
        (["build.max_length=99999"], r"build\.max_length = 99999 is longer than model\.max_model_len"),
        (
            ["collect.sampling.max_tokens=4000"],
            r"4000 tokens for a turn leave no room for a prompt in model\.max_model_len = 1024",
        ),
        (["run.control=true", "warm_start.enabled=false"], r"run\.control: the control trains on demonstrations"),
        (["eval.recovery=true", "eval.recovery_from=[]"], r"eval\.recovery_from: the list is empty"),
        (["run.ceiling=true", "warm_start.enabled=false"], r"run\.ceiling: the ceiling trains on demonstrations"),
        (["method.type=eto", "method.pairs.baseline=own"], r"method\.episodes = 1 makes only one"),
        (
            ["method.type=rft", "method.episodes=2", "collect.sampling.temperature=0"],
            r"2 episodes with temperature 0 would repeat",
        ),
        (
            ["method.mixture.demonstrations=0.5", "warm_start.enabled=false"],
            r"method\.mixture\.demonstrations: .* there is no warm start",
        ),
        (["method.type=dense_policy", "method.pairs.mix={a: 3}"], r"method\.pairs\.mix: mix needs mix_label"),
        (
            ["train=[{dpo: {label_smoothing: 0.1, length_normalized: true}}]"],
            r"train\[0\]\.dpo\.label_smoothing: .* contradict each other",
        ),
        (["collect.tasks=${warm_start.tasks[7]}"], r"Interpolation key 'warm_start\.tasks\[7\]' not found"),
        # online methods
        (
            [*GRPO, "train=[{batch_size: 16}]"],
            r"train\[0\]\.batch_size: 16 x 1 minibatches is not .* = 256\. Set it to 256",
        ),
        (
            ["method.type=arpo", "train=[{batch_size: 256}]", "method.initial=9"],
            r"9 rollouts from the opening are more than episodes = 8",
        ),
        (
            [*GRPO, "method.pareto.tasks=9", "method.pareto.episodes=1"],
            r"method\.pareto\.episodes: one episode of a task cannot differ",
        ),
        (["train[1].steps=3"], r"train\[1\] is not there\. The length of the list is 1"),
        (["train.steps=3"], r"train is a list, and 'steps' is no place in it\. Say train\[0\]\.steps"),
        (
            ["method.type=et_agent", "method.evolve.wrong=[hint]"],
            r"method\.evolve\.wrong: there is no operator 'hint'\. Did you mean",
        ),
        (
            ["method.type=et_agent", "method.filter.without=[slow]"],
            (
                r"method\.filter\.without\[0\]: 'slow' is refused\. It should be 'ok', 'empty', 'error', 'timeout' or "
                r"'limit'"
            ),
        ),
        (["method.type=et_agent", "method.filter.min_return=[]"], r"method\.filter\.min_return: the list is empty"),
        ([*GRPO, "method.episodes=1"], r"method\.episodes: 1 is refused\. It should be greater than or equal to 2"),
        ([*GRPO, "method.rewards=[]"], r"method\.rewards: the list is empty"),
        (
            [*GRPO, "method.rewards=[{name: outcom}]"],
            r"method\.rewards\[0\]\.name: there is no reward 'outcom'\. Did you mean 'outcome'",
        ),
        (
            [*GRPO, "method.rewards=[{name: et_agent, options: {sigma_tool: -1}}]"],
            r"rewards\[0\]\.options: .*must not be below 0",
        ),
        ([*GRPO, "method.advantages.trajectory=0"], r"method\.advantages\.trajectory: .* no rollout would be better"),
        (
            [*GRPO, "collect.sampling.temperature=0.7"],
            r"collect\.sampling\.temperature: 0\.7 draws from another distribution",
        ),
        (
            [*GRPO, "policy.backend=openai", "policy.openai.model=x"],
            r"policy\.backend: grpo trains the weights that collect",
        ),
        (
            [*GRPO, "method.validation.patience=2"],
            r"method\.validation\.patience: there are no measurements to wait for",
        ),
        (
            [*GRPO, "method.validation={every: 5, tasks: {split: test}}", "eval.tasks.split=test"],
            r"choosing by it would flatter",
        ),
        (
            [*GRPO, "method.validation.tasks.split=nope"],
            r"method\.validation\.tasks\.split: textcraft has no split 'nope'",
        ),
        (
            [*GRPO, "train=[{batch_size: 256, grpo: {dual_clip: 1.1}}]"],
            r"train\[0\]\.grpo\.dual_clip: .* within the clip of 1 \+ 0\.2",
        ),
        (
            [*GRPO, "train=[{batch_size: 256, grpo: {loss: cispo}}]"],
            r"train\[0\]\.grpo\.clip_high: .* cut every weight of cispo",
        ),
        # rounds that differ
        (["from_round.3.method.type=grpo"], r"from round 3: train\[0\]\.batch_size: 16 x 1 minibatches is not"),
        (["from_round.3.method.stepz=3"], r"from_round up to 3: unknown key 'method\.stepz'"),
        (["from_round.3.method.type=gro"], r"'gro' is not known\. Did you mean 'grpo'"),
        (["from_round.3.collect.tasks.split=test"], r"from round 3: collect\.tasks\.split: .* is held out"),
        (["from_round.1.build.max_length=8"], r"from_round\.1: round 1 is not one of the rounds 2 to 3"),
        (["from_round.4.build.max_length=8"], r"from_round\.4: round 4 is not one of the rounds 2 to 3"),
        (
            ["from_round.2.env.name=webshop"],
            r"from_round\.2: env cannot change by round\. Give sections of method, collect",
        ),
        (["from_round.2=5"], r"from_round\.2: 5 cannot change by round"),
        # names
        (["method.type=agentr"], r"method\.type = 'agentr' is not known\. Did you mean 'agent_r'\?"),
        (["method.type=nowhere.py"], r"there is no file .*nowhere\.py"),
        (
            ["method.preset=best"],
            r"method\.preset = 'best' is not known for agent_r\. Presets: default, paper, released",
        ),
        (["env.name=nosuch"], r"env\.name: no environment is called 'nosuch'"),
        (["env.name=textcraf"], r"env\.name: .*did you mean 'textcraft'"),
        (
            ["env.options={distrctors: 3}"],
            r"env\.options\.distrctors: textcraft has no such option\. Did you mean 'distractors'\?",
        ),
        (
            ["eval.tasks.split=tset"],
            r"eval\.tasks\.split: textcraft has no split 'tset'\. Its splits: train, dev, test",
        ),
        (["warm_start.tasks=[{}, {split: nope}]"], r"warm_start\.tasks\[1\]\.split: textcraft has no split 'nope'"),
        (["collect.tasks.split=test"], r"collect\.tasks\.split: the split 'test' of textcraft is held out"),
        (["eval={tasks: {split: test}, select: test}"], r"eval\.select: 'test' is the split that is reported"),
        (["eval.select=nope"], r"eval\.select: textcraft has no split 'nope'"),
        # servers of other protocols
        (["env.protocol=openenv"], r"env\.url: env\.protocol = openenv needs a server that runs already"),
        (OPENENV, r"env\.name: 'textcraft' is an environment of agentr's"),
        (
            [*OPENENV, "env.name=echo", "env.options.actoin_field=x"],
            r"env\.options: .*no option 'actoin_field'\. Did you mean",
        ),
        (
            [*OPENENV, "env.name=echo", "env.options.action=x"],
            r"env\.options: action is 'x', and must be fields with values",
        ),
        (
            [*OPENENV, "env.name=echo", "collect.tasks.split=test"],
            r"collect\.tasks\.split: the split 'test' of echo is held out",
        ),
        (
            [*OPENENV, "env.name=echo", "eval.tasks.split=tset"],
            r"eval\.tasks\.split: echo has no split 'tset'\. Its splits: train, dev, test",
        ),
        (["prompt.examples=9"], r"prompt\.examples: 9 are asked for, and textcraft has 1 worked examples"),
        (
            ["model.source=hf", "model.path=/nowhere"],
            r"model\.path: '/nowhere' is no folder with a model, and no name of one",
        ),
        (
            ["method.mixture.general_path=/nowhere.json"],
            r"method\.mixture\.general_path: there is no file '/nowhere\.json'",
        ),
        (["warm_start.files=[/nowhere.json]"], r"warm_start\.files: there is no file '/nowhere\.json'"),
        (
            ["method.type=eto", "method.extra_pairs=[{path: /nowhere.json}]"],
            r"method\.extra_pairs\.path: there is no file '/nowhere\.json'",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_named(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, overrides)
    assert re.search(message, str(caught.value).replace("\n", " ")), caught.value


def test_splits_of_a_server_that_has_its_own_are_not_known_when_the_configuration_is_read() -> None:
    config = load(None, [*OPENENV, "env.name=echo", "env.options.tasks=server", "eval.tasks.split=theirs"])
    assert config.eval.tasks.split == "theirs"


def test_all_problems_of_a_file_are_listed_in_one_go(tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(
        "run: {recipe: eto, sed: 3}\n"
        "method: {type: eto, search: {width: 9}, episodes: 2}\n"
        "env: {name: textcraft, options: {distrctors: 3}}\n"
        "eval: {tasks: {split: tset}, episodes: 2}\n"
        "warm_start: {train: {schedule: cosin, batch_size: 7}}\n"
        "train: [{schedule: linear}, {schedule: cosin, dpo: {beta: -1}}]\n"
        "trainer: {continue_from: prevoius}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file)
    text = str(caught.value)
    named = (
        "run.recipe",
        "run.sed",
        "method.search.width",
        "env.options.distrctors",
        "eval.tasks.split",
        "eval.episodes",
    )
    named += ("warm_start.train.schedule", "warm_start.train.batch_size", "train[1].schedule", "trainer.continue_from")
    assert [key for key in named if key not in text] == [], text
    assert text.startswith("1") and text.count("\n- ") >= len(named)
    assert text.count("broken.yaml") >= 6, "where a key stands is said with it"


def test_what_a_resumed_run_names_need_not_be_there() -> None:
    load(None, ["warm_start.files=[/nowhere.json]", "env.name=elsewhere"], files=False)


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        load(tmp_path / "none.yaml")
    (tmp_path / "broken.yaml").write_text("run: {seed: 1")
    with pytest.raises(ConfigError, match=r"broken\.yaml is not valid YAML"):
        load(tmp_path / "broken.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="holds a list, not a mapping"):
        load(tmp_path / "list.yaml")
    (tmp_path / "b.yaml").write_text("include: a.yaml")
    with pytest.raises(ConfigError, match=r"include holds 'a\.yaml', not a list of files"):
        load(tmp_path / "b.yaml")
    (tmp_path / "a.yaml").write_text("include: [a.yaml]")
    with pytest.raises(ConfigError, match="includes itself"):
        load((tmp_path / "a.yaml").resolve())


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("run: {seed: 1}\nmodel: {}\nrun: {rounds: 2}", "run", "1 and 3"),
        ("run:\n  seed: 1\n  rounds: 2\n  'seed': 3", "seed", "2 and 4"),
        ("train:\n- steps: 1\n  steps: 2", "steps", "2 and 3"),
        ("env:\n  options:\n    a: 1\n    a: 1", "a", "3 and 4"),
        ("run:\n  ? seed\n  : 1\n  ? seed\n  : 2", "seed", "2 and 4"),
    ],
)
def test_a_key_that_is_given_twice_is_refused(tmp_path: Path, text: str, key: str, lines: str) -> None:
    file = tmp_path / "twice.yaml"
    for beginning in ("", "\ufeff"):
        file.write_text(beginning + text, encoding="utf-8")
        with pytest.raises(
            ConfigError, match=rf"twice\.yaml is not valid YAML: the key '{key}' is given twice, on lines {lines}"
        ):
            load(file)
    file.write_text("env: {options: {base: &base {a: 1}, more: {<<: *base, a: 2}}}", encoding="utf-8")
    assert load(file, files=False).env.options["more"] == {"a": 2}, "what is merged in is no second key"


@pytest.mark.parametrize(
    "text", ["on", "off", "yes", "No", "true", "007", "0x1F", "1_000", "12:30", "1e3", "1.0", "2024-01-01", "name"]
)
def test_a_text_is_what_is_written(tmp_path: Path, text: str) -> None:
    """Where the key is a text, YAML's other readings do not count; where it may be anything, they do."""
    (tmp_path / "a.yaml").write_text(f"run: {{name: {text}}}\nwarm_start: {{files: [{text}]}}")
    from_file = load(tmp_path / "a.yaml", files=False)
    given = load(None, [f"run.name={text}", f"warm_start.files=[{text}]"], files=False)
    assert from_file.run.name == given.run.name == text
    assert from_file.warm_start.files == given.warm_start.files == [text]
    if text != "2024-01-01":  # which options cannot hold
        (tmp_path / "b.yaml").write_text(f"env: {{options: {{any: {text}}}}}")
        assert load(tmp_path / "b.yaml", files=False).env.options["any"] == yaml.safe_load(text)


def test_roles_name_an_endpoint(tmp_path: Path) -> None:
    """It is put in the place of its name; a text in it is what is written; a role may change a key of it."""
    (tmp_path / "a.yaml").write_text(
        "endpoints: {big: {model: 007, concurrency: 3}}\neval: {judge: {who: openai, openai: big}}\n"
        "policy: {openai: big}"
    )
    config = load(tmp_path / "a.yaml", ["endpoints.big.max_cost=2", "policy.openai.concurrency=9"])
    judge, policy = config.eval.judge.openai, config.policy.openai
    assert (judge.model, judge.concurrency, judge.max_cost) == ("007", 3, 2.0)
    assert (policy.model, policy.concurrency) == ("007", 9)
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert load(tmp_path / "config.yaml") == config, "what a run stores stands by itself"


def test_later_layers_win(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("run: {seed: 1, rounds: 5}\nmethod: {search: {width: 3}}")
    (tmp_path / "top.yaml").write_text("include: [base.yaml]\nrun: {seed: 2}\nmethod: {preset: paper}")
    config = load(tmp_path / "top.yaml", ["method.search.max_depth=9"])
    assert (config.run.seed, config.run.rounds) == (2, 5)
    assert isinstance(config.method, AgentRConfig)
    search = config.method.search
    assert (search.width, search.max_depth, search.iterations, search.stop_simulation_at_success) == (3, 9, 8, False)


def test_a_base_gives_values_by_method(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "methods:\n  agent_r: {search: {width: 7, max_depth: 3}}\n  rft: {max_invalid: 4}\n"
    )
    (tmp_path / "one.yaml").write_text("method: {type: agent_r, search: {width: 2}}")
    (tmp_path / "other.yaml").write_text("method: {type: rft}")
    one, other = (load(tmp_path / f"{name}.yaml", base=tmp_path / "base.yaml").method for name in ("one", "other"))
    assert isinstance(one, AgentRConfig) and (one.search.width, one.search.max_depth) == (2, 3)
    assert isinstance(other, RFTConfig) and other.max_invalid == 4
    (tmp_path / "base.yaml").write_text("methods: {rft: {serch: 3}}")
    with pytest.raises(ConfigError, match=r"base\.yaml, methods\.rft: unknown key 'method\.serch'"):
        load(tmp_path / "one.yaml", base=tmp_path / "base.yaml")
    (tmp_path / "base.yaml").write_text("methods: {rtf: {}}")
    with pytest.raises(ConfigError, match=r"'rtf' is not known.*'rft'"):
        load(tmp_path / "one.yaml", base=tmp_path / "base.yaml")


@pytest.mark.slow
def test_methods_follow_each_other_in_a_run(tmp_path: Path) -> None:
    """A round has what holds from the last change on; a method begins at its own defaults, preset and values by
    type."""
    (tmp_path / "base.yaml").write_text("methods: {rft: {max_invalid: 4, episodes: 3}}\ntrain: [{steps: 5}]")
    (tmp_path / "run.yaml").write_text(
        "include: [base.yaml]\nrun: {rounds: 5}\nmethod: {type: agent_r, search: {width: 7}}\n"
        "from_round:\n  2: {method: {search: {max_depth: 3}}}\n"
        "  3: {method: {type: rft, episodes: 2}, collect: {tasks: {limit: 9}}, train: [{steps: 8}, {steps: 9}]}\n"
        "  5: {method: {type: agent_r, preset: paper}}\n"
    )
    config = load(tmp_path / "run.yaml")
    first, second, third, fourth, fifth = plan_of(config).rounds[1:6]
    assert (first.method.search.width, first.method.search.max_depth) == (7, 20)
    assert (second.method.search.width, second.method.search.max_depth) == (7, 3)
    assert isinstance(third.method, RFTConfig) and (third.method.max_invalid, third.method.episodes) == (4, 2)
    assert third == fourth and third.collect.tasks.limit == 9 and [train.steps for train in third.train] == [8, 9]
    assert fifth.method.search.width == 4 and fifth.method.mixture.eta == 0.2, (
        "nothing is left of an earlier turn of the same method"
    )
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    again = load(tmp_path / "config.yaml")
    assert again == config and plan_of(again).at(4) == fourth


def test_a_key_that_came_later_is_no_change() -> None:
    config = load(None, ["train=[{steps: 3},{}]"])
    before = plain(config)
    for section in (before["train"][0], before["train"][1], before["warm_start"]["train"]):
        del section["grpo"]
    del before["from_round"], before["run"]["keep"]
    assert changed_keys(before, plain(config), at_default(config)) == []
    del before["train"][0]["steps"]
    assert changed_keys(before, plain(config), at_default(config)) == ["train[0].steps: None -> 3"]


def test_a_run_that_was_stored_before_a_key_came_has_its_default_and_not_the_presets(tmp_path: Path) -> None:
    stored = plain(load(None, ["method.preset=released"]))
    del stored["turns"], stored["method"]["dedupe_good"]
    (tmp_path / "config.yaml").write_text(dump_yaml(stored))
    config = load(tmp_path / "config.yaml", whole=True)
    assert (config.turns.full_context, config.method.dedupe_good) == ("end", True)  # type: ignore[attr-defined]
    assert (config.method.preset, config.env.one_line) == ("released", True), "what it says holds"
    assert changed_keys(stored, plain(config), at_default(config)) == []


def test_a_part_that_came_later_has_the_defaults_that_its_section_gives_it() -> None:
    """Searches of tree_grpo keep duplicates and a judge of et_agent is nobody, other than those classes say: older runs
    have neither."""
    tree_grpo = ["method.type=tree_grpo", "train=[{batch_size: 256}]"]
    for options, part in ((tree_grpo, "search"), (["method.type=et_agent"], "evolve.judge")):
        config = load(None, options, files=False)
        before = plain(config)
        section, _, name = f"method.{part}".rpartition(".")
        above = before
        for key in section.split("."):
            above = above[key]
        del above[name]
        assert changed_keys(before, plain(config), at_default(config)) == []
    config = load(None, [*tree_grpo, "method.search.dedupe=action"], files=False)
    before = plain(config)
    del before["method"]["search"]
    assert changed_keys(before, plain(config), at_default(config)) == ["method.search.dedupe: None -> 'action'"]


def test_paper_preset_has_the_papers_values() -> None:
    """Agent-R, sections 3 and 4.2: UCT without a rule that ends it early, Eq. 4 for pairs, each step judged by the
    actor, texts spliced."""
    values = dict(flatten(plain(load(None, ["method.preset=paper"]))))
    assert {key: values[key] for key in PAPER} == PAPER
    (fragment,) = (method.presets["paper"] for name, method in methods().items() if name == "agent_r")
    assert dict(flatten(fragment)).keys() == PAPER.keys(), "each value that the preset sets is looked at"


PAPER = {
    "method.search.iterations": 8,
    "method.search.max_depth": 20,
    "method.search.width": 4,
    "method.search.c_uct": 0.25,
    "method.search.dedupe": "none",
    "method.search.stop_simulation_at_success": False,
    "method.search.enough_good": 0,
    "method.search.stop_hopeless_after": 0,
    "method.search.max_invalid": 0,
    "method.revise.splice": "paper",
    "method.revise.alpha": [0.5, 0.7, 1.0],
    "method.revise.alpha_inclusive": True,
    "method.revise.beta": 0.2,
    "method.revise.pairing": "threshold",
    "method.revise.pairs_per_task": 0,
    "method.revise.judge": "actor",
    "method.revise.judge_sampling.temperature": 1.0,
    "method.revise.judge_sampling.max_tokens": 500,
    "method.revise.judge_shared_prefix": True,
    "method.revise.audit": False,
    "method.revise.reflection_for": "pair",
    "method.good_per_task": 1_000_000,
    "method.revisions_per_task": 0,
    "method.dedupe_good": False,
    "method.dedupe_revisions": False,
    "method.mixture.eta": 0.2,
    "collect.sampling.temperature": 1.0,
    "collect.sampling.max_tokens": 500,
    "build.train_on_invalid": True,
}


def test_released_preset_differs_from_the_paper_where_the_released_code_does() -> None:
    changes = {
        "method.preset": "released",
        "method.search.dedupe": "normalised",
        "method.revise.pairing": "gap",
        "turns.without_action": "last_line",
        "turns.cut_off": "run",
        "turns.full_context": "truncate",
        "env.one_line": True,
        "prompt.system": "You are a helpful assistant.",
        "method.revise.alpha_inclusive": False,
        "method.revise.alpha": [0.5, 0.7, 0.99],
    }
    paper, released = (dict(flatten(plain(load(None, [f"method.preset={name}"])))) for name in ("paper", "released"))
    assert {key: value for key, value in released.items() if paper.get(key) != value} == changes


def test_the_released_presets_have_the_released_codes_values() -> None:
    """Of each switch: the default, the preset `paper`, the preset `released`."""
    found = {
        preset: dict(flatten(plain(load(None, [f"method.preset={preset}"]))))
        for preset in ("default", "paper", "released")
    }
    for key, values in {
        "turns.without_action": ("refused", "refused", "last_line"),
        "turns.cut_off": ("refused", "refused", "run"),
        "turns.full_context": ("end", "end", "truncate"),
        "env.one_line": (False, False, True),
        "prompt.system": ("", "", "You are a helpful assistant."),
        "method.search.dedupe": ("action", "none", "normalised"),
        "method.dedupe_good": (True, False, False),
        "method.dedupe_revisions": (True, False, False),
        "method.revise.alpha_inclusive": (True, True, False),
        "method.revise.reflection_for": ("transition", "pair", "pair"),
    }.items():
        assert tuple(found[preset][key] for preset in found) == values, key
    dense = load(None, ["method.type=dense_policy", "method.preset=released", "env.name=household"])
    assert plain(dense)["method"]["pairs"]["turns_left"] == "rollouts"


@pytest.mark.parametrize(
    ("method", "preset"), [(name, preset) for name, method in methods().items() for preset in method.presets]
)
def test_every_preset_is_valid(method: str, preset: str) -> None:
    config = load(None, [f"method.type={method}", f"method.preset={preset}", "env.name=household"])
    assert (config.method.type, config.method.preset) == (method, preset)


@pytest.mark.parametrize("overrides", [
    ["method.preset=released", "env.options={distractors: 3}", "train=[{steps: 3},{epochs: 2.0}]"],
    ["method.type=et_agent", "method.filter.without=[timeout, empty]"],
])  # fmt: skip
def test_round_trip_through_yaml(tmp_path: Path, overrides: list[str]) -> None:
    config = load(None, overrides)
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert load(tmp_path / "config.yaml") == config


def test_only_what_says_what_the_run_is_counts_as_a_change() -> None:
    before = load(None)
    assert (
        changed_keys(
            plain(before), plain(load(None, ["cluster.cpus=8", "collect.in_flight=3", "run.dir=/x", "run.rounds=9"]))
        )
        == []
    )
    changes = changed_keys(
        plain(before), plain(load(None, ["run.seed=3", "train=[{learning_rate: 0.1}]", "run.rounds=1"]))
    )
    assert [c.split(":")[0] for c in changes] == ["run.rounds", "run.seed", "train[0].learning_rate"]


def test_the_reference_is_that_of_the_schema() -> None:
    page = ROOT / "docs" / "configuration.md"
    assert page.read_text() == reference(), "run: python -m tests.docs.configuration > docs/configuration.md"


def test_what_looks_like_html_in_the_reference_is_shown() -> None:
    """In Markdown ``<name>`` is a tag, which nobody sees, and a bar begins another cell."""
    text = reference()
    assert (
        "empty means runs/\\<name>." in text and "such as \\<\\|return\\|>; empty" in text and "(``<think>`` to" in text
    )
    for row in re.findall(r"^\| `.*$", text, re.MULTILINE):
        assert len(re.findall(r"(?<!\\)\|", row)) == 5, row


def test_one_value_of_an_element_of_a_list_can_be_set(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "train: [{steps: 7, batch_size: 4, micro_batch_size: 4}, {steps: 9}]\nmethod: {type: rft}"
    )
    config = load(
        tmp_path / "c.yaml", ["train[0].learning_rate=0.5", "train[1].steps=11", "train[0].lora.rank=4"], files=False
    )
    first, second = config.train
    assert (first.steps, first.learning_rate, first.batch_size, first.lora.rank) == (7, 0.5, 4, 4)
    assert (second.steps, second.learning_rate) == (11, TrainConfig().learning_rate)


def test_every_key_is_described() -> None:
    assert undescribed() == []


@pytest.mark.parametrize(
    ("change", "free"),
    [
        ("eval.judge.openai.api_key_env=OTHER", True),
        ("method.evolve.teacher.openai.max_cost=5", True),
        ("method.evolve.judge.retries=9", True),
        ("policy.openai.concurrency=2", True),
        ("env.timeout_s=9", True),
        ("collect.infra_retries=9", True),
        ("env.options.retries=9", False),
        ("method.evolve.teacher.who=nobody", False),
        ("eval.judge.who=policy", False),
        ("policy.openai.base_url=http://x/v1", False),
    ],
)
def test_how_a_service_is_called_may_change_in_a_run_and_which_may_not(change: str, free: bool) -> None:
    method = ["method.type=et_agent", "method.evolve.wrong=[hint_end]", "method.evolve.right=[rollout]"]
    before, after = (plain(load(None, [*method, *more], files=False)) for more in ([], [change]))
    assert bool(changed_keys(before, after)) != free


@pytest.mark.parametrize("by", ["an including file", "the command line"])
def test_who_names_another_method_starts_from_its_defaults(tmp_path: Path, by: str) -> None:
    """Keys of the method that is replaced are no mistakes of the one in its place; those that are given beside it
    hold."""
    (tmp_path / "base.yaml").write_text(
        "method: {type: agent_r, search: {iterations: 3}, revise: {alpha: [0.5]}}\nrun: {seed: 4}"
    )
    (tmp_path / "more.yaml").write_text("include: [base.yaml]\nmethod: {search: {width: 3}}")
    (tmp_path / "other.yaml").write_text("include: [more.yaml]\nmethod: {type: rft, episodes: 5}")
    path, given = (
        ("other.yaml", []) if by == "an including file" else ("more.yaml", ["method.type=rft", "method.episodes=5"])
    )
    found = load(tmp_path / path, given, files=False)
    assert (
        plain(found.method) == plain(load(None, ["method.type=rft", "method.episodes=5"], files=False).method)
        and found.run.seed == 4
    )
    same = load(tmp_path / "more.yaml", ["method.type=agent_r"], files=False)
    assert plain(same.method)["search"]["iterations"] == 3 and plain(same.method)["search"]["width"] == 3, (
        "the same method is merged"
    )


@pytest.mark.parametrize("by", ["an including file", "the command line", "a base"])
def test_who_names_another_environment_starts_without_options(tmp_path: Path, by: str) -> None:
    """Options of the environment that is replaced are no mistakes of the one in its place; all else that is said of
    environments holds."""
    (tmp_path / "base.yaml").write_text("env: {name: textcraft, options: {distractors: 3}, timeout_s: 9.0}")
    (tmp_path / "more.yaml").write_text("include: [base.yaml]\nenv: {options: {more: 1}}")
    (tmp_path / "own.yaml").write_text("env: {name: babyai, options: {levels: [1]}}")
    (tmp_path / "other.yaml").write_text("include: [more.yaml, own.yaml]")
    given = ["env.name=babyai", "env.options.levels=[1]"]
    found = {
        "an including file": lambda: load(tmp_path / "other.yaml", files=False),
        "the command line": lambda: load(tmp_path / "more.yaml", given, files=False),
        "a base": lambda: load(tmp_path / "own.yaml", base=tmp_path / "more.yaml", files=False),
    }[by]().env
    assert (found.name, found.options, found.timeout_s) == ("babyai", {"levels": [1]}, 9.0)
    same = load(tmp_path / "more.yaml", ["env.name=textcraft"], files=False).env
    assert same.options == {"distractors": 3, "more": 1}, "of the same environment they are merged"


def test_what_is_said_of_no_method_holds_for_the_one_that_is_named_over_it(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("method: {episodes: 7}")
    (tmp_path / "own.yaml").write_text("include: [base.yaml]\nmethod: {type: rft}")
    assert plain(load(tmp_path / "own.yaml", files=False).method)["episodes"] == 7


def test_presets_of_papers_have_their_papers_rewards_and_losses_in_every_round() -> None:
    """Sigma falls by round for calls and for lengths; nobody's rewards have a gate; the loss does not depend on
    micro_batch_size."""
    for preset, sigmas in (("paper", [0.1, 0.1, 0.067, 0.033]), ("released", 0.0)):
        config = load(None, ["method.type=et_agent", f"method.preset={preset}"], files=False)
        assert [status.value for status in config.method.filter.without] == ["empty"]  # type: ignore[attr-defined]
        for round_ in (2, 4):
            later: Any = plan_of(config).at(round_)
            (reward,) = later.method.rewards
            assert (reward.options["sigma_tool"], reward.options["sigma_len"]) == (sigmas, sigmas)
            assert (later.method.gate.value, later.train[0].grpo.loss.value) == ("none", "dapo")
            assert later.method.own_first is (preset == "released")
    for method in ("arpo", "tree_grpo"):
        for name in methods()[method].presets:
            minibatches = {"arpo": 8, "tree_grpo": 1}[method]
            sizes = f"train=[{{batch_size: 256, grpo: {{loss: dapo, minibatches: {minibatches}}}}}]"
            other: Any = load(None, [f"method.type={method}", f"method.preset={name}", sizes], files=False)
            assert other.method.gate.value == "none"
