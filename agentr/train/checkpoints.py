"""Checkpoints that are either whole or ignored.

A resumable checkpoint is many files written by many workers into its final folder, so its seal is written last: a list of the files with
their sizes. A model is written to a temporary name and renamed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from agentr.errors import ModelError
from agentr.store.files import write_json

log = logging.getLogger(__name__)

SEAL = "complete.json"

#: Files of a Hugging Face folder that hold weights, and so are not carried over from the start checkpoint.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".safetensors.index.json", ".bin.index.json")


def seal(folder: Path) -> None:
    """Marks a checkpoint as whole. Call it once, after all workers have written their files."""
    files = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
    write_json(folder / SEAL, {"files": files})


def is_complete(folder: Path) -> bool:
    """Whether every file that the seal names is there with its size."""
    try:
        files: dict[str, int] = json.loads((folder / SEAL).read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, json.JSONDecodeError, KeyError):
        return False


def latest(folder: Path) -> Path | None:
    """The complete checkpoint with the most steps. Torn ones are removed, or they would count as the ones worth keeping."""
    found: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        if is_complete(path):
            found.append((int(path.name.rpartition("-")[2]), path))
        else:
            log.warning("Skipping the torn checkpoint %s: its seal is missing or does not match its files.", path)
            shutil.rmtree(path, ignore_errors=True)
    return max(found)[1] if found else None


def require_model(folder: Path) -> None:
    """Checks that a folder can be started from.

    Raises:
        ModelError: There is no model or no tokenizer in it.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(f"there is no model in the start checkpoint {folder}.", hint="Its folder needs a config.json and weights.")
    if not any(path.name.endswith(_WEIGHTS) for path in folder.iterdir()):
        raise ModelError(f"the start checkpoint {folder} has no weights.", hint="The copy may be incomplete.")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")):
        raise ModelError(f"the start checkpoint {folder} has no tokenizer.", hint="Copy it beside the weights; engines load it from there.")


def fingerprint(folder: Path, samples: int = 256, sample_bytes: int = 16384) -> str:
    """Tells models apart by a hash of their configuration and of samples spread evenly over the weights, in a moment whatever their size.

    Raises:
        OSError: A file cannot be read.
    """
    found = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(path for path in folder.iterdir() if path.name.endswith(_WEIGHTS)):
        size = path.stat().st_size
        found.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for index in range(samples):
                file.seek(size * index // samples)
                found.update(file.read(sample_bytes))
    return found.hexdigest()


def publish(save: Callable[[Path], None], final: Path, start: Path) -> None:
    """Makes ``final`` appear at once: what ``save`` writes, and everything of ``start`` that is not weights.

    Configuration, tokenizer and chat template are copied byte for byte, so training cannot change how prompts are built.
    """
    temporary = final.with_name(f".{final.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save(temporary)
    for path in start.iterdir():
        if path.is_file() and not path.name.endswith(_WEIGHTS):
            shutil.copyfile(path, temporary / path.name)
    shutil.rmtree(final, ignore_errors=True)
    temporary.replace(final)
