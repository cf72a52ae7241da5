"""What says what a run is: the configuration as plain data, and which keys may differ when a run is continued."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from agentr.config.schema import Config
from agentr.config.text import dump_yaml

#: Keys that may change between two starts of the same run: they set where and how fast, not what.
_FREE = ("run.dir", "run.keep", "run.mirror", "cluster.", "watchdog.", "trainer.start_timeout_s",
         "trainer.max_failures", "trainer.threads",
         "trainer.share", "policy.device", "policy.engines", "policy.threads", "policy.sync", "env.servers", "env.url",
         "env.token_env", "env.python", "collect.in_flight", "collect.coordinators", "collect.infra_retries",
         "collect.max_failed",
         "eval.in_flight", "tracking")  # fmt: skip

#: The same wherever they stand: deadlines, attempts, and how an API is paid and called. Options of an environment or a
#: reward may mean anything by such a name.
_FREE_ENDS = (".timeout_s", ".retries", ".openai.api_key_env", ".openai.max_cost", ".openai.concurrency")


def is_free(key: str) -> bool:
    """Returns whether a full key may change between two starts of the same run."""
    return key.startswith(_FREE) or (key.endswith(_FREE_ENDS) and ".options." not in key)


def plain(config: Any) -> Any:
    """Returns dataclasses as plain data, enums as their values."""
    if is_dataclass(config) and not isinstance(config, type):
        config = asdict(config)
    if isinstance(config, dict):
        return {k: plain(v) for k, v in config.items()}
    if isinstance(config, list | tuple):
        return [plain(v) for v in config]
    return config.value if isinstance(config, Enum) else config


@dataclass(frozen=True)
class Identity:
    """What a run directory keeps of a configuration, and knows its run by.

    Attributes:
        name: Of the run.
        values: The whole configuration as plain data.
        defaults: Full keys of what has its default value.
    """

    name: str
    values: dict[str, Any]
    defaults: frozenset[str]

    @classmethod
    def of(cls, config: Config) -> Identity:
        return cls(config.run.name, plain(config), frozenset(at_default(config)))

    def changes(self, stored: dict[str, Any]) -> list[str]:
        """Lists what says what a run is and is another in a stored configuration (`changed_keys`)."""
        return changed_keys(stored, self.values, self.defaults)


def to_yaml(config: Config) -> str:
    """Returns the whole configuration as YAML that ``load`` reads back equal."""
    return dump_yaml(plain(config))


def changed_keys(old: dict[str, Any], new: dict[str, Any], at_default: Collection[str] = ()) -> list[str]:
    """Lists ``key: old -> new`` for everything that says what the run is. More rounds than before are no change.

    Args:
        at_default: Keys of ``new`` that have their default value. That ``old`` does not have one of them is no change:
            the key came later.
    """
    before, after = dict(flatten(old)), dict(flatten(new))
    changes = []
    for key in sorted(before.keys() | after.keys()):
        if key not in before and key in at_default:
            continue
        grown = key == "run.rounds" and after.get(key, 0) >= before.get(key, 0)
        if before.get(key) != after.get(key) and not is_free(key) and not grown:
            changes.append(f"{key}: {before.get(key)!r} -> {after.get(key)!r}")
    return changes


def at_default(config: Any, prefix: str = "", defaults: Any = None) -> set[str]:
    """Returns the full keys of what has its default value in a dataclass, or in a mapping or list of dataclasses.

    Args:
        defaults: Has the default values, if they are others than those of the dataclass itself: a section may give its
            parts their own.
    """
    if isinstance(config, Mapping | list | tuple):
        items = config.items() if isinstance(config, Mapping) else enumerate(config)
        keys = {f"{prefix}[{k}]" if isinstance(k, int) else f"{prefix}.{k}".lstrip("."): v for k, v in items}
        return {found for key, value in keys.items() for found in at_default(value, key)}
    if not is_dataclass(config) or isinstance(config, type):
        return set()
    found: set[str] = set()
    for each in fields(config):
        key, value = f"{prefix}.{each.name}".lstrip("."), getattr(config, each.name)
        inner = is_dataclass(value) or (isinstance(value, list) and any(map(is_dataclass, value)))
        if type(defaults) is type(config):
            default = getattr(defaults, each.name)
        else:
            default = each.default_factory() if each.default_factory is not MISSING else each.default
        if inner:
            found |= at_default(value, key, default)
        elif plain(value) == plain(default):
            found |= {name for name, _ in flatten(plain(value), key)}
    return found


def flatten(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the full key and the value of each leaf: ``a.b``, ``c[0].d``."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from flatten(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(data, list) and any(isinstance(v, dict) for v in data):
        for index, value in enumerate(data):
            yield from flatten(value, f"{prefix}[{index}]")
    elif prefix:
        yield prefix, data
