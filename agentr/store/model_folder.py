"""The folder of a model in Hugging Face format, as engines and trainers load it."""

import json
import struct
from pathlib import Path

from agentr.errors import ModelError

#: Endings of files that hold weights, of any format.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".safetensors.index.json", ".bin.index.json")

#: Files of which a tokenizer has at least one.
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


def require_model(folder: Path, what: str = "the model") -> None:
    """Checks that a folder holds a whole model: ``config.json``, weights in safetensors, and a tokenizer.

    Args:
        what: What errors call the folder, before its path.

    Raises:
        ModelError: One of them is missing, or a file of weights is not whole; says which.
    """
    if not (folder / "config.json").is_file():
        hint = "Give the folder that holds it."
        raise ModelError(f"{what} {folder} has no config.json: it is not a model folder.", hint=hint)
    if not any(folder.glob("*.safetensors")):
        hint = "Finish the download or the training, or convert the model."
        raise ModelError(f"{what} {folder} has no weights (*.safetensors).", hint=hint)
    if not any((folder / name).is_file() for name in _TOKENIZER):
        hint = "Copy it beside the weights; engines load it from there."
        raise ModelError(f"{what} {folder} has no tokenizer.", hint=hint)
    for file in sorted(folder.glob("*.safetensors")):
        if problem := _torn(file):
            raise ModelError(
                f"{what} {folder} cannot be loaded: {file.name} {problem}.", hint="Download or copy it again."
            )


def _torn(file: Path) -> str:
    """Returns what is wrong with a file of weights, as far as its header and its size show it: a copy that was not
    finished."""
    try:
        with file.open("rb") as opened:
            size = struct.unpack("<Q", opened.read(8))[0]
            found = json.loads(opened.read(min(size, 100 << 20)))
        end = (
            8
            + size
            + max((entry["data_offsets"][1] for name, entry in found.items() if name != "__metadata__"), default=0)
        )
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return "is no file of safetensors, or damaged"
    there = file.stat().st_size
    return "" if there == end else f"has {there:,} bytes, and {end:,} are announced in it"
