"""Devices by name. Those that come with agentr are in ``hardware.yaml``, each with its source; a user's are in a file
of the same form, and this machine is measured (``agentr plan --measure``)."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agentr.config.text import read_yaml
from agentr.cost.number import Number, given
from agentr.errors import ConfigError, first_line
from agentr.outside import typed

#: The name of the machine that the command runs on.
THIS = "this"

GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class DeviceSpec:
    """What engines and workers run on: a GPU, or the cores of a machine.

    Attributes:
        title: Its name in full.
        memory_gib: Its memory; of a machine without a GPU the host's.
        bandwidth_gb_s: How fast the memory is read, 1e9 B/s.
        bfloat16_tflops: Dense products in bfloat16 with sums in float32, 1e12 FLOP/s, at best.
        float32_tflops: The same in float32.
        link_gb_s: From one to another of a node, in one direction, 1e9 B/s.
        nvlink: Whether that is NVLink.
        per_node: How many a node has.
        call_us: What a call costs besides its work: a kernel's start, an operation on one number. 1e-6 s.
        cores: Of a machine without a GPU; 0 for a GPU.
        disk_gb_s: How fast weights are written and read, 1e9 B/s.
        source: Where all this is from.
    """

    title: str
    memory_gib: float
    bandwidth_gb_s: float
    bfloat16_tflops: float
    float32_tflops: float
    source: str
    link_gb_s: float = 25.0
    nvlink: bool = False
    per_node: int = 8
    call_us: float = 5.0
    cores: int = 0
    disk_gb_s: float = 1.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "cores" and not value > 0:
                raise ConfigError(f"{self.title}: {name} is {value}, and must be above 0")

    @property
    def gpu(self) -> bool:
        return not self.cores

    @property
    def bf16(self) -> bool:
        """Whether a training computes in bfloat16 there, unless the configuration says otherwise. A processor without
        instructions for it multiplies a fifth as fast, or less."""
        return self.gpu or self.bfloat16_tflops > self.float32_tflops / 2

    @property
    def memory(self) -> Number:
        return self._given("memory", self.memory_gib * GIB, "B")

    @property
    def bandwidth(self) -> Number:
        return self._given("bandwidth", self.bandwidth_gb_s * 1e9, "B/s")

    @property
    def link(self) -> Number:
        return self._given("link", self.link_gb_s * 1e9, "B/s")

    @property
    def call(self) -> Number:
        return self._given("a call", self.call_us * 1e-6, "s")

    @property
    def disk(self) -> Number:
        return self._given("disk", self.disk_gb_s * 1e9, "B/s")

    def arithmetic(self, bf16: bool) -> Number:
        """Returns what it multiplies at best, FLOP/s."""
        name, value = ("bfloat16", self.bfloat16_tflops) if bf16 else ("float32", self.float32_tflops)
        return self._given(f"arithmetic in {name}", value * 1e12, "FLOP/s")

    def part(self, share: float) -> DeviceSpec:
        """Returns what one process has of a machine whose cores several share; a GPU is nobody else's."""
        if self.gpu:
            return self
        names = ("bandwidth_gb_s", "bfloat16_tflops", "float32_tflops")
        return replace(self, **{name: getattr(self, name) * share for name in names})

    def _given(self, name: str, value: float, unit: str) -> Number:
        return given(f"{name} of {self.title}", value, self.source, unit)


@dataclass(frozen=True)
class Hardware:
    """What a run is to be on.

    Attributes:
        name: As it was asked for, such as ``4xH100``.
        device: What there is so many of.
        count: Devices; 1 for a machine without a GPU.
    """

    name: str
    device: DeviceSpec
    count: int = 1


def hardware(text: str, more: Path | None = None) -> Hardware:
    """Reads ``4xH100``, ``H100`` or ``this``.

    Args:
        more: A user's own devices.

    Raises:
        ConfigError: There is no such device, or this machine was not measured.
    """
    found = re.fullmatch(r"(?:(\d{1,5})\s*[x*]\s*)?([\w.-]+)", text.strip())
    if found is None or found[1] == "0":
        raise ConfigError(f"{text!r} names no hardware", hint="Say 4xH100: how many, and of what.")
    there = {**_shipped(), **(read_devices(more) if more is not None else {})}
    if found[2] == THIS and THIS not in there:
        measured = measured_file()
        if not measured.is_file():
            hint = "'agentr plan --measure' does that in ten seconds."
            raise ConfigError("this machine was not measured yet", hint=hint)
        there |= read_devices(measured)
    by_lower = {name.lower(): name for name in there}
    name = by_lower.get(found[2].lower())
    if name is None:
        near = difflib.get_close_matches(found[2].lower(), by_lower, 1, 0.4)
        hint = f"The nearest is {by_lower[near[0]]}. " if near else f"There are {', '.join(sorted(there))}. "
        raise ConfigError(
            f"there is no device {found[2]!r}", hint=f"{hint}Add yours with --devices FILE (docs/cost.md#hardware)."
        )
    return Hardware(text.strip(), there[name], int(found[1] or 1))


def read_devices(path: Path) -> dict[str, DeviceSpec]:
    """Reads a file of devices by their names.

    Raises:
        ConfigError: It is no YAML, or a figure is none.
        DataError: A key is missing, or is none; the error names it.
    """
    try:
        said = read_yaml(path)
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path} cannot be read: {first_line(error)}", hint="docs/cost.md#hardware shows one."
        ) from error
    return {
        str(name): typed(DeviceSpec, entry, f"{path}: {name}")
        for name, entry in typed(dict[str, dict[str, Any]], said, str(path)).items()
    }


def measured_file() -> Path:
    """Where the figures of this machine are kept: in the user's state folder."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    return state / "agentr" / "this.yaml"


@cache
def _shipped() -> Mapping[str, DeviceSpec]:
    return read_devices(Path(__file__).with_name("hardware.yaml"))
