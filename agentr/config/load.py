"""Reading a configuration: schema, preset, included files, the file itself, command-line overrides; later ones win."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from agentr.config.presets import PRESETS
from agentr.config.schema import Config
from agentr.errors import ConfigError

#: Keys that may change between two starts of the same run: they say where and how fast, not what.
FREE_KEYS = ("run.dir", "cluster.", "trainer.start_timeout_s", "trainer.max_failures", "trainer.threads", "policy.engines",
             "policy.threads", "policy.timeout_s", "policy.retries", "policy.openai.api_key_env", "policy.openai.max_cost",
             "policy.openai.concurrency", "env.servers", "env.url", "env.token_env", "env.python", "env.timeout_s", "env.retries",
             "collect.in_flight", "collect.infra_retries", "collect.max_failed", "eval.in_flight")  # fmt: skip


def load(path: Path | None, overrides: Sequence[str] = (), base: Path | None = None, *, files: bool = True) -> Config:
    """Reads and validates a configuration.

    Args:
        path: YAML file; its key ``include`` lists files, relative to it, that are merged first. None means defaults.
        overrides: ``key=value`` pairs, as on the command line.
        base: Another such file, which ``path`` is laid over.
        files: Whether the data files that it names must be there, as at the start of a run.

    Raises:
        ConfigError: A file is missing or broken, a key is unknown, a value has the wrong type, or values contradict each other.
    """
    layers = [layer for file in (base, path) if file is not None for layer in _layers(file, ())]
    layers.append(("the command line", _dotlist(overrides)))
    merged: Any = OmegaConf.create({})
    for _, layer in layers:
        merged = OmegaConf.merge(merged, layer)
    preset = OmegaConf.select(merged, "run.preset", default="default")
    recipe = OmegaConf.select(merged, "run.recipe", default="agent_r")
    if recipe not in PRESETS:
        raise ConfigError(f"run.recipe = {recipe!r} is not known", hint=f"Recipes: {', '.join(PRESETS)}.")
    if preset not in PRESETS[recipe]:
        raise ConfigError(f"run.preset = {preset!r} is not known for {recipe}", hint=f"Presets: {', '.join(PRESETS[recipe])}.")
    config: Any = OmegaConf.structured(Config)
    for source, layer in [(f"preset {preset}", OmegaConf.create(PRESETS[recipe][preset])), *layers]:
        try:
            config = OmegaConf.merge(config, layer)
        except OmegaConfBaseException as error:
            raise _explained(source, error) from error
    try:
        result = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise _explained(str(path or base or "the command line"), error) from error
    assert isinstance(result, Config)
    validate(result)
    if files:
        _need_files(result)
    return result


def _need_files(config: Config) -> None:
    named = [("warm_start.files", file) for file in config.warm_start.files]
    named += [("build.extra_pairs", extra.path) for extra in config.build.extra_pairs]
    named += [("build.general_path", config.build.general_path)] if config.build.general_path else []
    for key, file in named:
        if not Path(file).is_file():
            raise ConfigError(f"{key}: there is no file {file!r}", hint="See docs/your_own_trajectories.md for what it should hold.")


def validate(config: Config) -> None:
    """Checks what types alone cannot say.

    Raises:
        ConfigError: With the key, the value, and what would be right.
    """

    def need(condition: bool, message: str, hint: str) -> None:
        if not condition:
            raise ConfigError(message, hint=hint)

    contrast, episodes = config.build.contrast, config.collect.episodes
    need(
        config.run.recipe != "eto" or contrast.against != "own" or episodes > 1,
        "build.contrast.against = own compares runs of one task, and collect.episodes = 1 makes only one",
        "Set collect.episodes=2 or more, and a temperature.",
    )
    need(
        config.run.recipe != "eto" or contrast.against != "own" or contrast.unit == "trajectory",
        f"build.contrast.unit = {contrast.unit.value} needs the expert's turns, and build.contrast.against = own does without",
        "Set build.contrast.against=expert, or build.contrast.unit=trajectory.",
    )
    need(
        config.run.recipe not in ("eto", "rft") or episodes == 1 or config.collect.sampling.temperature > 0,
        f"collect.episodes = {episodes} with temperature 0 would repeat the same run",
        "Set collect.sampling.temperature, or collect.episodes=1.",
    )
    dense = config.collect.dense
    sizes = {key: getattr(dense, key) for key in ("base", "max_depth", "window", "stop_rollouts", "stop_empty")}
    for key, size in sizes.items():
        need(size >= 1, f"collect.dense.{key} = {size} leaves nothing to draw", "Give at least 1.")
    need(bool(dense.temperatures), "collect.dense.temperatures is empty", "Give at least one temperature.")
    siblings = config.build.siblings
    need(
        not siblings.mix or bool(siblings.mix_label),
        "build.siblings.mix needs build.siblings.mix_label",
        "Name the task label of its groups.",
    )
    need(config.run.rounds >= 0, f"run.rounds = {config.run.rounds} is negative", "Use 0 to evaluate the warm start only.")
    need(bool(config.train), "train is empty", "Give at least one entry; the last one holds for later rounds.")
    need(
        bool(config.revise.alpha),
        "revise.alpha is empty",
        "Give one threshold for each round; the last one holds for later rounds.",
    )
    for key, value in (
        ("revise.beta", config.revise.beta),
        ("build.eta", config.build.eta),
        ("build.demonstrations", config.build.demonstrations),
    ):
        need(0 <= value <= 1, f"{key} = {value} is outside [0, 1]", "Rewards and shares are between 0 and 1.")
    need(bool(config.revise.reflections), "revise.reflections is empty", "Give at least one sentence.")
    need(
        all(0 <= a <= 1 for a in config.revise.alpha),
        f"revise.alpha = {config.revise.alpha} is outside [0, 1]",
        "Rewards are in [0, 1].",
    )
    need(
        config.revise.alpha_inclusive or all(a < 1 for a in config.revise.alpha),
        "revise.alpha = 1 with alpha_inclusive = false accepts no path at all (a fault of the released code)",
        "Set revise.alpha_inclusive=true, or lower the last alpha.",
    )
    need(
        config.model.source != "hf" or bool(config.model.path),
        "model.source = hf needs model.path",
        "Give a folder or a model name.",
    )
    need(
        config.model.source == "hf" or not config.model.path,
        f"model.path is set, but model.source = {config.model.source.value} would not use it",
        "Set model.source=hf, or remove model.path.",
    )
    need(
        config.policy.backend != "openai" or bool(config.policy.openai.model),
        "policy.backend = openai needs policy.openai.model",
        "Name the model.",
    )
    need(
        config.eval.episodes == 1 or config.eval.sampling.temperature > 0,
        f"eval.episodes = {config.eval.episodes} with temperature 0 would repeat the same episode",
        "Set eval.sampling.temperature, or eval.episodes=1.",
    )
    need(
        config.build.max_length <= config.model.max_model_len or config.policy.backend == "openai",
        f"build.max_length = {config.build.max_length} is longer than model.max_model_len = {config.model.max_model_len}",
        "No trajectory can be longer than the context.",
    )
    for index, train in enumerate(config.train):
        need(train.steps > 0 or train.epochs > 0, f"train[{index}] has neither steps nor epochs", "Set one of them.")
        need(train.batch_size % (train.micro_batch_size * config.trainer.workers) == 0,
             f"train[{index}].batch_size = {train.batch_size} is no multiple of micro_batch_size x trainer.workers "
             f"= {train.micro_batch_size} x {config.trainer.workers}", "Choose sizes that divide.")  # fmt: skip


def to_yaml(config: Config) -> str:
    """The whole configuration as YAML that ``load`` reads back equal."""
    return yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True)


def plain(config: Any) -> Any:
    """Dataclasses as plain data, enums as their values."""
    if is_dataclass(config) and not isinstance(config, type):
        config = asdict(config)
    if isinstance(config, dict):
        return {k: plain(v) for k, v in config.items()}
    if isinstance(config, list | tuple):
        return [plain(v) for v in config]
    return config.value if isinstance(config, Enum) else config


def config_hash(config: Config) -> str:
    """Hash of everything that says what the run is."""
    flat = {k: v for k, v in _flat(plain(config)) if not k.startswith(FREE_KEYS)}
    return hashlib.sha256(json.dumps(flat, sort_keys=True).encode()).hexdigest()[:16]


def changed_keys(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """``key: old -> new`` for everything that says what the run is. More rounds than before are no change."""
    before, after = dict(_flat(old)), dict(_flat(new))
    changes = []
    for key in sorted(before.keys() | after.keys()):
        grown = key == "run.rounds" and after.get(key, 0) >= before.get(key, 0)
        if before.get(key) != after.get(key) and not key.startswith(FREE_KEYS) and not grown:
            changes.append(f"{key}: {before.get(key)!r} -> {after.get(key)!r}")
    return changes


def _flat(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(data, list) and any(isinstance(v, dict) for v in data):
        for index, value in enumerate(data):
            yield from _flat(value, f"{prefix}[{index}]")
    else:
        yield prefix, data


def _layers(path: Path, above: tuple[Path, ...]) -> list[tuple[str, Any]]:
    if path in above:
        raise ConfigError(f"{path} includes itself", hint="Remove the circle from the 'include' lists.")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except FileNotFoundError as error:
        raise ConfigError(f"there is no configuration file {path}", hint="See configs/ for examples.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds a {type(data).__name__}, not a mapping of sections")
    included: list[tuple[str, Any]] = []
    for name in data.pop("include", None) or []:
        included += _layers((path.parent / name).resolve(), (*above, path))
    return [*included, (str(path), OmegaConf.create(data))]


def _dotlist(overrides: Sequence[str]) -> DictConfig:
    for item in overrides:
        if "=" not in item:
            raise ConfigError(f"{item!r} is not of the form key=value", hint="For example: run.seed=1")
    try:
        return OmegaConf.from_dotlist(list(overrides))
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(f"the overrides cannot be read: {error}") from error


def _explained(source: str, error: OmegaConfBaseException) -> ConfigError:
    message = str(error).splitlines()[0]
    if isinstance(error, ConfigKeyError):
        key = error.full_key or message
        near = difflib.get_close_matches(key.split("[")[0], list(_known_keys(Config)), n=1, cutoff=0.6)
        return ConfigError(f"{source}: unknown key {key!r}", hint=f"Did you mean {near[0]!r}?" if near else "See docs/configuration.md.")
    where = f" (key {error.full_key!r})" if error.full_key else ""
    return ConfigError(f"{source}: {message}{where}")


def _known_keys(schema: type, prefix: str = "") -> Iterator[str]:
    sections = {name: type(value) for name, value in vars(schema()).items() if is_dataclass(value)}
    for field in fields(schema):
        key = f"{prefix}{field.name}"
        yield key
        if field.name in sections:
            yield from _known_keys(sections[field.name], f"{key}.")
