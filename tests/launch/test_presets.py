"""Every preset of every method starts in each of its environments, and comes to the rows of a dataset.

The presets' own lengths hold, with a tokenizer that makes about as many tokens of a text as a large model's. Only what takes long is
made smaller: how much is explored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentr.envs.server import EnvServer
from agentr.policy.chat import ChatCodec
from agentr.recipes import load, recipes
from agentr.store.dataset import read_manifest
from tests.launch.test_first_tree import server_of
from tests.presets import SMALL, configured, datasets, fluent_tokenizer, small

PRESETS = [(name, preset, env) for name, recipe in recipes().items() for preset in recipe.presets for env in recipe.environments]
LARGE = sorted((Path(__file__).parents[2] / "configs").glob("*_[78]b.yaml"))


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, EnvServer]]:
    running: dict[str, EnvServer] = {}
    yield running
    for server in running.values():
        server.stop()


@pytest.mark.parametrize(("method", "preset", "env"), PRESETS)
def test_a_preset_comes_from_its_opening_to_rows(
    method: str, preset: str, env: str, servers: dict[str, EnvServer], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = configured(method, preset, env)
    server = server_of(config.env, servers, tmp_path_factory.mktemp("server"))
    made = datasets(config, server.url(), tmp_path, ChatCodec(fluent_tokenizer()))
    assert made.keys() == {1, *config.from_round}
    for number, dataset in made.items():
        assert isinstance(dataset, Path), f"round {number}: {dataset}"
        assert read_manifest(dataset)["rows"] > 0


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

    for name, recipe in recipes().items():
        assert bool(recipe.presets) == bool(recipe.environments), name
        assert all(registry.about(env).name == env for env in recipe.environments)
