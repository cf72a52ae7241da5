"""Low-rank adapters as a trainer hands them over: a folder with the model's configuration and tokenizer, and in place
of its weights adapters in the format of peft, which say where the weights are that they change.

Whoever loads them adds them to those weights, so an engine answers as fast as without adapters, and needs no kernels
for them.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr.errors import ModelError
from agentr.store.files import disk, read_json, remove
from agentr.store.model_folder import WEIGHTS

if TYPE_CHECKING:
    import torch

#: The files of peft.
CONFIG, FILE = "adapter_config.json", "adapter_model.safetensors"

#: What peft puts before the names of a model's layers.
_PREFIX = "base_model.model."


def base_of(folder: Path) -> Path | None:
    """Returns the model whose weights the adapters in a folder change; None if it holds a whole model.

    Raises:
        DataError, ModelError: They do not say.
    """
    file = folder / CONFIG
    if not file.is_file():
        return None
    base = read_json(file).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ModelError(f"{file} does not say whose weights they change")
    return Path(base)


def can_be_merged(start: Path, adapters: Iterable[str]) -> bool:
    """Returns whether a model's files have the weights that adapters change under the names of the loaded model.

    Args:
        adapters: Their names in the loaded model.
    """
    from safetensors import safe_open

    stored: set[str] = set()
    for file in start.glob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            stored.update(weights.keys())
    return {f"{name.removeprefix(_PREFIX).partition('.lora_')[0]}.weight" for name in adapters} <= stored


def merged(folder: Path) -> Iterator[tuple[str, "torch.Tensor"]]:
    """Yields the weights of an adapted model by their names, one after another: W + alpha / rank * B A in float32 where
    an adapter changes them, and the others as they are stored.

    Raises:
        ModelError: There are no weights that they change.
        ValueError: They are for weights of other sizes.
    """
    for file in _weights_of(folder):
        yield from _merged_file(folder, file)


def write_merged(folder: Path, into: Path, dtype: str) -> None:
    """Replaces the weights in a model's folder by those of an adapted model.

    Args:
        dtype: Number format that they are written in, as torch calls it.
    """
    import torch
    from safetensors.torch import save_file

    files = _weights_of(folder)
    for old in [path for path in into.iterdir() if path.name.endswith(WEIGHTS)]:
        remove(old)
    for file in files:
        weights = {name: weight.to(getattr(torch, dtype)).contiguous() for name, weight in _merged_file(folder, file)}
        aside = into / f".{file.name}"
        save_file(weights, aside, {"format": "pt"})
        disk.rename(aside, into / file.name)
    for index in files[0].parent.glob("*.safetensors.index.json"):
        (into / index.name).write_bytes(index.read_bytes())


def _weights_of(folder: Path) -> list[Path]:
    """The files of the weights that the adapters in a folder change."""
    base = base_of(folder)
    files = sorted(base.glob("*.safetensors")) if base is not None else []
    if not files:
        raise ModelError(f"the adapters in {folder} are for weights in {base}, which has none", hint="Was it moved?")
    return files


def _merged_file(folder: Path, file: Path) -> Iterator[tuple[str, "torch.Tensor"]]:
    from safetensors import safe_open

    said: dict[str, Any] = read_json(folder / CONFIG)
    scale = said["lora_alpha"] / said["r"]
    with safe_open(folder / FILE, "pt") as adapters, safe_open(file, "pt") as weights:
        there = set(adapters.keys())
        for name in weights.keys():  # noqa: SIM118 - a file, and no mapping
            weight, layer = weights.get_tensor(name), f"{_PREFIX}{name.removesuffix('.weight')}"
            if f"{layer}.lora_A.weight" in there:
                low, high = (adapters.get_tensor(f"{layer}.lora_{side}.weight").float() for side in "AB")
                if (high.shape[0], low.shape[1]) != tuple(weight.shape):
                    raise ValueError(f"the adapters in {folder} are for another model than {file.parent}")
                weight = weight.float() + scale * (high @ low)
            yield name, weight
