"""Devices by name, and a user's own."""

from pathlib import Path

import pytest

from agentr.cost.hardware import hardware, measured_file, read_devices
from agentr.cost.measure import keep, measure
from agentr.errors import AgentrError, ConfigError

MINE = """
MI300X: {title: AMD Instinct MI300X, memory_gib: 191.7, bandwidth_gb_s: 5300, bfloat16_tflops: 1307,
         float32_tflops: 163, source: its data sheet}
"""


def test_hardware_is_named_with_its_count(tmp_path: Path) -> None:
    assert hardware("4xH100").count == 4 and hardware("h200").count == 1
    assert hardware("4 x A100-80").device.memory_gib == 80
    mine = tmp_path / "mine.yaml"
    mine.write_text(MINE)
    assert hardware("8xMI300X", mine).device.bandwidth.value == 5.3e12


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("4xH1000", "there is no device 'H1000'", "The nearest is H100"),
        ("TPUv5e", "there is no device 'TPUv5e'", "There are 4090, A100-40, A100-80, H100"),
        ("0xH100", "names no hardware", "4xH100"),
        ("4x", "there is no device '4x'", ""),
        ("two H100", "names no hardware", "4xH100"),
        ("-1xH100", "there is no device '-1xH100'", "H100"),
    ],
)
def test_hardware_that_there_is_not(text: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        hardware(text)
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("memory_gib: 191.7", "memory_gib: 0"), "memory_gib is 0"),
        (("memory_gib: 191.7", "memory_gib: -3"), "memory_gib is -3"),
        (("memory_gib: 191.7", "memory_gib: .nan"), "memory_gib is nan"),
        (("memory_gib: 191.7, ", ""), "memory_gib"),
        (("memory_gib: 191.7", "memory_gib: much"), "memory_gib"),
        (("{title", "[title"), "cannot be read"),
    ],
)
def test_a_file_of_devices_is_checked(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(MINE.replace(*change))
    with pytest.raises(AgentrError, match=message):
        read_devices(mine)


def test_this_machine_is_not_known_before_it_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="not measured yet"):
        hardware("this")


@pytest.mark.slow
def test_this_machine_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "not/there/yet"))
    monkeypatch.chdir(tmp_path)
    found = measure()
    assert found.cores and not found.gpu and 0 < found.call_us < 1000 and found.float32_tflops > 1e-4
    assert keep(found) == measured_file() and hardware("this").device == found
