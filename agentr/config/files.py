"""Files and models that a configuration names, as far as it can be seen whether they are there."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from agentr.config.checks import Problem
from agentr.config.model import ModelSource
from agentr.config.schema import Config


def file_problems(config: Config) -> Iterator[Problem]:
    """Files and models that are not there. Fields that name a file have ``path`` or ``files`` in their name."""
    for key, file in (
        *(("warm_start.files", f) for f in config.warm_start.files),
        *_method_files(config.method, "method"),
    ):
        if file and not Path(file).is_file():
            yield Problem(
                key, f"there is no file {file!r}", "See docs/your_own_trajectories.md for what it should hold."
            )
    path = config.model.path
    a_name = re.fullmatch(r"[\w.-]+/[\w.-]+", path) and not Path(path).exists()
    if config.model.source is ModelSource.hf and path and not (a_name or (Path(path) / "config.json").is_file()):
        hint = "Give a folder with config.json and weights, or a name such as Qwen/Qwen2.5-7B-Instruct."
        yield Problem("model.path", f"{path!r} is no folder with a model, and no name of one", hint)


def _method_files(config: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for each in fields(config):
        value = getattr(config, each.name)
        key = f"{prefix}.{each.name}"
        for inner in value if isinstance(value, list) else [value]:
            if is_dataclass(inner):
                yield from _method_files(inner, key)
            elif isinstance(inner, str) and (each.name == "path" or each.name.endswith("_path")):
                yield key, inner
