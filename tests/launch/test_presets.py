"""Every preset of every method starts in each of its environments, and comes to the rows of a dataset.

The presets' own lengths hold, with a tokenizer that makes about as many tokens of a text as a large model's. Only what takes long is
made smaller: how much is explored.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentr.config.schema import Config
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
    check(config, server_of(config.env, servers, tmp_path_factory.mktemp("server")), tmp_path)


@pytest.mark.parametrize("path", LARGE, ids=lambda path: path.stem)
def test_a_shipped_configuration_of_a_large_model_comes_to_rows(
    path: Path, servers: dict[str, EnvServer], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    method = load(path).method.type
    config = small(load(path, SMALL.get(method, [])))
    check(config, server_of(config.env, servers, tmp_path_factory.mktemp("server")), tmp_path)


def check(config: Config, server: EnvServer, folder: Path) -> None:
    made = datasets(config, server.url(), folder, ChatCodec(fluent_tokenizer()))
    assert made.keys() == {1, *config.from_round}
    for number, dataset in made.items():
        assert isinstance(dataset, Path), f"round {number}: {dataset}"
        assert read_manifest(dataset)["rows"] > 0


def test_every_method_with_presets_says_its_environments() -> None:
    from env_servers import registry

    for name, recipe in recipes().items():
        assert bool(recipe.presets) == bool(recipe.environments), name
        assert all(registry.about(env).name == env for env in recipe.environments)
