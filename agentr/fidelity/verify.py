"""Asks agentr's code for the golden vectors, once with the published values of the rule's switches and once as it is by
default."""

import importlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from omegaconf import OmegaConf

from agentr.config.identity import plain
from agentr.config.schema import Config
from agentr.errors import ConfigError
from agentr.fidelity.rules import Rule, read_rules
from agentr.methods import load, methods
from agentr.rewards import known
from env_servers.registry import UnknownEnvironment


@dataclass(frozen=True)
class Finding:
    """What came of a rule.

    Attributes:
        difference: How agentr's answer differs, with the published values of the switches; empty if it does not.
        missing: What this installation lacks to ask for an answer; empty if nothing.
        default: The default values of the rule's switches if agentr deviates with them; empty if it does not.
    """

    rule: Rule
    difference: str = ""
    missing: str = ""
    default: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """equal, differs or not run."""
        return "not run" if self.missing or self.rule.omitted else "differs" if self.difference else "equal"

    @property
    def result(self) -> str:
        """The result in words."""
        if self.rule.omitted:
            return "not run: no switch"
        return (
            f"not run: {self.missing}"
            if self.missing
            else f"differs by {self.difference}"
            if self.difference
            else "equal"
        )

    @property
    def ours(self) -> str:
        """What agentr does by default, in words."""
        if self.missing or self.rule.omitted:
            return self.rule.omitted
        return _keys({key.rpartition(".")[2]: value for key, value in self.default.items()}) or "the same"

    @property
    def switch(self) -> str:
        """The keys that a user sets to follow the rule; empty if agentr does so by default."""
        return _keys({key: self.rule.switches[key] for key in self.default})

    def as_dict(self) -> dict[str, Any]:
        rule = self.rule
        about = {"method": rule.section, "name": rule.name, "rule": rule.says, "paper": rule.paper, "where": rule.where}
        switches = {key: rule.switches[key] for key in self.default}
        found = {
            "result": self.state,
            "why": self.difference or self.missing or rule.omitted,
            "default": dict(self.default),
        }
        return {**about, **found, "switches": switches}


def _keys(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={shown(value)}" for key, value in values.items())


def select(method: str = "") -> list[Rule]:
    """Returns the rules of a method; all of them without one.

    Raises:
        ConfigError: No rule is of this method.
    """
    rules = [rule for rule in read_rules() if rule.method in methods()]  # a rule may be one of another method's, too
    found = [rule for rule in rules if method in ("", rule.section, rule.method)]
    if not found:
        names = sorted({name for rule in rules for name in (rule.section, rule.method)})
        raise ConfigError(f"there are no rules of {method!r}", hint=f"Methods: {', '.join(names)}.")
    return found


def verify(rules: Sequence[Rule]) -> list[Finding]:
    """Asks agentr for every rule's vectors."""
    return [find(rule) for rule in rules]


def find(rule: Rule) -> Finding:
    """Asks agentr for a rule's vectors."""
    if rule.omitted:
        return Finding(rule)
    try:
        difference = differs(rule, published=True)
    except UnknownEnvironment as error:
        return Finding(rule, missing=str(error))
    if not rule.switches:
        return Finding(rule, difference)
    if not differs(rule, published=False):
        return Finding(
            rule,
            difference
            or f"a default that follows it by itself: {_keys(rule.switches)} is listed as what has to be set",
        )
    return Finding(rule, difference, default=ours_of(rule, plain(configured(rule.method, rule.settings))))


def differs(rule: Rule, *, published: bool) -> str:
    """Returns how agentr's answers differ from the expected ones; empty if they do not.

    Args:
        published: With the published values of the rule's switches, or with agentr's defaults.

    Raises:
        UnknownEnvironment: It is not installed.
    """
    try:
        config = configured(rule.method, {**rule.settings, **(rule.switches if published else {})})
        for case in rule.cases:
            if difference := compare(ask(rule, config, case.given), case.expected, rule.tolerance):
                return difference
    except UnknownEnvironment:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a changed formula raises is another answer, and the other rules are still asked
        return f"an error, {type(error).__name__}: {error}"
    return ""


def ours_of(rule: Rule, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a configuration's values of a rule's switches, as far as the published ones speak of them."""
    return {key: _alike(value_at(config, key), published) for key, published in rule.switches.items()}


def ask(rule: Rule, config: Config, given: Mapping[str, Any]) -> Any:
    """Asks agentr: a check takes what a vector gives, and the sections of the configuration that it names."""
    check = check_of(rule)
    sections = {
        name: getattr(config, name)
        for name in ("method", "build", "env", "train")
        if name in inspect.signature(check).parameters
    }
    return check(**sections, **given)


def check_of(rule: Rule) -> Callable[..., Any]:
    """Returns the function that asks agentr."""
    module, _, name = rule.check.rpartition(".")
    own = module.startswith(".")
    package = f"agentr.methods.{rule.section}" if own else "agentr.fidelity.checks"
    return getattr(importlib.import_module(f"{package}.{module.removeprefix('.')}"), name)


def compare(found: Any, expected: Any, tolerance: float) -> str:
    """Returns how an answer differs; empty if it does not.
    Numbers may differ by ``tolerance``, all else must be equal."""
    if isinstance(expected, bool) or not isinstance(expected, int | float | list | dict):
        return "" if found == expected else f"{shown(found)} in place of {shown(expected)}"
    if isinstance(expected, int | float):
        if not isinstance(found, int | float):
            return f"{shown(found)} in place of {shown(expected)}"
        same = found == expected or math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance)
        return "" if same else f"{found - expected:.3g}"
    if isinstance(expected, dict):
        if not isinstance(found, Mapping) or found.keys() != expected.keys():
            return f"{shown(found)} in place of {shown(expected)}"
        pairs = [(found[key], expected[key]) for key in expected]
    elif not isinstance(found, list | tuple) or len(found) != len(expected):
        return f"{shown(found)} in place of {shown(expected)}"
    else:
        pairs = list(zip(found, expected, strict=True))
    return next((difference for one, other in pairs if (difference := compare(one, other, tolerance))), "")


def configured(method: str, settings: Mapping[str, Any]) -> Config:
    """Returns the configuration of a method with its defaults, and keys set as on the command line."""
    return _loaded((f"method.type={method}", *(f"{key}={shown(value)}" for key, value in settings.items())))


@cache
def _loaded(overrides: tuple[str, ...]) -> Config:
    return load(None, overrides, files=False)


def value_at(config: Mapping[str, Any], key: str) -> Any:
    """Returns the value of a key, such as ``method.search.c_uct``; of a reward's option that is not set, the reward's
    default."""
    value = OmegaConf.select(OmegaConf.create(dict(config)), key)
    if value is None and key.startswith("method.rewards"):
        reward, _, option = key.partition(".options.")
        name = OmegaConf.select(OmegaConf.create(dict(config)), f"{reward}.name")
        value = inspect.signature(known()[name]).parameters[option].default
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _alike(ours: Any, published: Any) -> Any:
    if isinstance(ours, list) and isinstance(published, list) and isinstance(published[0], dict):
        return [{key: entry[key] for key in published[0]} for entry in ours]
    return ours


def shown(value: Any) -> str:
    """Returns a value as a command line takes it."""
    if value is None:
        return "(not set)"
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
