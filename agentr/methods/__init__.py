"""The methods, a folder each, over the common pipeline.
One is found by its ``METHOD = ItsClass``, and goes with its folder.

A method elsewhere is named by its file: ``method: {type: best_of_n.py}`` (docs/add_a_method.md).
"""

import difflib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from agentr.cluster.connect import BY_VALUE
from agentr.cluster.places import Places
from agentr.config import load as loading
from agentr.config.identity import Identity
from agentr.config.load import Reading
from agentr.config.named import may_run, only_looks
from agentr.config.schema import Config, MethodConfig
from agentr.errors import ConfigError
from agentr.rounds.method import Method
from agentr.rounds.plan import Plan
from agentr.store.inside import check_folder
from agentr.store.layout import Layout
from agentr.store.trust import needs_trust


@cache
def methods() -> dict[str, type[Method]]:
    """Returns the methods in this package by their names."""
    modules = (importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__))
    found = [module.METHOD for module in modules if hasattr(module, "METHOD")]
    return {method.name: method for method in sorted(found, key=lambda method: method.name)}


def find_method(type: str) -> type[Method]:
    """Finds a method.

    Args:
        type: Name of a method, or a Python file that says ``METHOD = ItsClass``; empty for the default.

    Raises:
        ConfigError: There is no such method, or the file is not there or holds none.
    """
    if type.endswith(".py"):
        may_run(f"the method {type}")
        return _from_file(Path(type).resolve())
    name = type or next((name for name, method in methods().items() if method.default), "")
    if name not in methods():
        near = difflib.get_close_matches(name, methods(), n=1)
        hint = (
            f"Did you mean {near[0]!r}?"
            if near
            else f"Methods: {', '.join(methods())}; or a Python file (docs/add_a_method.md)."
        )
        raise ConfigError(f"method.type = {name!r} is not known", hint=hint)
    return methods()[name]


def method_of(section: MethodConfig) -> Method:
    """Returns the method that a section ``method`` configures."""
    return find_method(section.type)(section)


def plan_of(config: Config) -> Plan:
    """Derives what a run of a configuration is."""
    rounds = tuple(loading.at_round(config, round_, find_method) for round_ in range(config.run.rounds + 1))
    online = any(method_of(each.method).online for each in rounds[1:])
    return Plan(config, rounds, Places.of(config, online), Identity.of(config))


def methods_of(plan: Plan) -> list[Method]:
    """Returns the method of each round, from the warm start's configuration, 0, on."""
    return [method_of(each.method) for each in plan.rounds]


def read(
    path: Path | None,
    overrides: Sequence[str] = (),
    base: Path | None = None,
    *,
    files: bool = True,
    whole: bool = False,
) -> Reading:
    """Reads and checks a configuration; see ``agentr.config.load.load``.
    One that a run has stored is that run's to go on with.

    Raises:
        Untrusted: It is that of a run that may not be gone on with here.
    """
    for file in filter(None, (base, path)):
        if Layout(file.parent).manifest.exists():
            check_folder(file.parent)
            if not only_looks():
                needs_trust(file)
    return loading.load(path, overrides, base, find=find_method, files=files, whole=whole)


def load(
    path: Path | None,
    overrides: Sequence[str] = (),
    base: Path | None = None,
    *,
    files: bool = True,
    whole: bool = False,
) -> Config:
    """Returns the configuration that ``read`` reads."""
    return read(path, overrides, base, files=files, whole=whole).config


@cache
def _from_file(path: Path) -> type[Method]:
    if not path.is_file():
        raise ConfigError(
            f"method.type: there is no file {path}", hint="Give a path relative to the configuration file."
        )
    module = _executed(path)
    method = getattr(module, "METHOD", None)
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise ConfigError(
            f"{path} says no METHOD = ItsClass, a subclass of agentr.rounds.method.Method",
            hint="See docs/add_a_method.md.",
        )
    return method


def _executed(path: Path) -> ModuleType:
    """A module of the file.
    Its name says that its classes travel to other processes by value: they cannot import it."""
    name = f"{BY_VALUE}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises
        raise ConfigError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module
