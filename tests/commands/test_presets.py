"""Every preset of every method starts in each of its environments, and comes to the rows of a dataset.

The presets' own lengths hold, with a tokenizer that makes about as many tokens of a text as a large model's. Only what
takes long is made smaller: how much is explored.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentr.envs.server import EnvServer
from agentr.methods import load, method_of, methods
from agentr.policy.chat import ChatCodec
from agentr.store.dataset import iter_rows, read_manifest
from agentr.store.forest import Forest
from agentr.store.rows import Preference
from tests.commands.test_first_tree import server_of
from tests.presets import CONTEXT, SMALL, configured, datasets, fluent_tokenizer, reasoning_tokenizer, small

PRESETS = [
    (name, preset, env)
    for name, method in methods().items()
    for preset in method.presets
    for env in method.environments
]
LARGE = sorted((Path(__file__).parents[2] / "configs").glob("*_[78]b.yaml"))


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, EnvServer]]:
    running: dict[str, EnvServer] = {}
    yield running
    for server in running.values():
        server.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "preset", "env"), PRESETS)
def test_a_preset_comes_from_its_opening_to_rows(
    method: str,
    preset: str,
    env: str,
    servers: dict[str, EnvServer],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = configured(method, preset, env)
    server = server_of(config.env, servers, tmp_path_factory.mktemp("server"))
    made = datasets(config, server.url(), tmp_path, ChatCodec(fluent_tokenizer()))
    assert made.keys() == {1, *config.from_round}
    for number, dataset in made.items():
        assert isinstance(dataset, Path), f"round {number}: {dataset}"
        assert read_manifest(dataset)["rows"] > 0


#: Methods whose rows are turns, or may be: what makes their exploration small, and an environment.
REASONING = {
    "agent_r": ("textcraft", ["method.search.iterations=3", "method.search.max_depth=6"]),
    "dense_policy": ("mathtool", ["method.search.stop_rollouts=40"]),
    "et_agent": ("mathtool", ["method.episodes=4", "method.filter.min_return=[0.0]", "method.filter.failed_calls=9"]),
}


@pytest.mark.parametrize("method", REASONING)
def test_a_policy_that_reasons_goes_from_its_opening_to_rows(
    method: str, servers: dict[str, EnvServer], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Earlier reasoning is in no prompt of a row, nothing of any reasoning is learnt, and each row is what a node's
    policy saw."""
    env, options = REASONING[method]
    switches = [
        "turns.keep_reasoning=false",
        "build.train_on_reasoning=false",
        "run.rounds=1",
        "collect.sampling.max_tokens=256",
    ]
    config = load(None, [f"method.type={method}", f"env.name={env}", *CONTEXT, *options, *switches])
    server = server_of(config.env, servers, tmp_path_factory.mktemp("server"))
    codec = ChatCodec(reasoning_tokenizer())
    (made,) = datasets(config, server.url(), tmp_path, codec).values()
    assert isinstance(made, Path), made
    stages = method_of(config.method).exploration(1)
    trees = {tree.task.key: tree for stage in stages for tree in Forest(made.parent / stage)}
    rows = list(iter_rows(made))
    assert rows
    for row in rows:
        tree, last = trees[row.provenance.tree], row.provenance.nodes[-1]
        if isinstance(row, Preference):
            prompt, sides = row.prompt_ids, [(row.chosen_ids, row.chosen_mask), (row.rejected_ids, row.rejected_mask)]
        else:
            prompt, sides = row.input_ids[: -len(tree.nodes[last].token_ids)], [(row.input_ids, row.loss_mask)]
        assert list(prompt) == tree.prompt(tree.nodes[last].parent) and "<think>" not in codec.decode(
            prompt, special=True
        )
        for ids, mask in sides:
            learnt = codec.decode([i for i, m in zip(ids, mask, strict=True) if m], special=True)
            assert "think>" not in learnt and learnt.endswith("<|im_end|>")
    assert any(tree.nodes[row.provenance.nodes[-1]].reasoning for row in rows for tree in [trees[row.provenance.tree]])


@pytest.mark.slow
@pytest.mark.parametrize("path", LARGE, ids=lambda path: path.stem)
def test_a_shipped_configuration_of_a_large_model_goes_through_its_first_task(
    path: Path, servers: dict[str, EnvServer], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """To rows, or to the reasons why the candidates of so little exploration became none."""
    config = small(load(path, SMALL.get(load(path).method.type, [])))
    server = server_of(config.env, servers, tmp_path_factory.mktemp("server"))
    made = datasets(config, server.url(), tmp_path, ChatCodec(fluent_tokenizer()))
    assert made.keys() == {1, *config.from_round}
    for dataset in made.values():
        if isinstance(dataset, Path):
            assert read_manifest(dataset)["rows"] > 0
        else:
            assert re.search(r"\d+ x siblings|Pareto sampling has chosen none", dataset), dataset


def test_every_method_with_presets_says_its_environments() -> None:
    from env_servers import registry

    for name, method in methods().items():
        assert bool(method.presets) == bool(method.environments), name
        assert all(registry.about(env).name == env for env in method.environments)
