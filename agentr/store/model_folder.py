"""The folder of a model in Hugging Face format, as engines and trainers load it."""

from __future__ import annotations

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
        ModelError: One of them is missing; says which.
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
