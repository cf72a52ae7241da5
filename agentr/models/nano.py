"""The nano model: 1.6 million parameters that read and copy, the policy of the demo on a CPU.

A Llama with a tokenizer of its own, in which the name of an item is one token, so that looking up a recipe is one step
of attention. It knows how to find a line and copy from it, which so small a model does not learn within a demo's
minutes, and no recipe, goal or game. ``weights/nano/README.md`` says how it was made.
"""

import shutil
from pathlib import Path

from agentr.errors import ModelError

#: The weights that come with the package.
WEIGHTS = Path(__file__).parent / "weights" / "nano"


def load_pretrained(out_dir: Path | str) -> Path:
    """Copies the shipped model into ``out_dir`` as a Hugging Face folder and returns it.

    Raises:
        ModelError: The weights are not there.
    """
    if not (WEIGHTS / "model.safetensors").is_file():
        raise ModelError(f"No weights in {WEIGHTS}.", hint="Install agentr anew: they are part of it.")
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(WEIGHTS.iterdir()):
        if file.suffix in (".json", ".safetensors", ".jinja"):
            shutil.copyfile(file, out / file.name)
    return out
