"""An engine that sleeps: the order of the calls, by a recording in vLLM's place (no GPU has run it)."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentr.config.model import ModelConfig
from agentr.config.policy import PolicyConfig
from agentr.errors import StaleWeights
from agentr.policy import vllm_engine
from agentr.policy.base import GenerateRequest
from agentr.policy.vllm_engine import VLLMEngine
from agentr.types import Sampling


class Recording:
    """Says of vLLM's engine what it was asked, in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.engine_core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=None), shutdown=lambda: None)
        self.vllm_config = SimpleNamespace(device_config=SimpleNamespace(device_type="cuda"))

    def get_tokenizer(self) -> None:
        return None

    def abort_request(self, keys: list[str]) -> None:
        """A request that was refused before it was admitted."""

    def sleep(self, level: int) -> None:
        self.calls.append(("sleep", level))

    def wake_up(self, tags: list[str]) -> None:
        self.calls.append(("wake", *tags))

    def collective_rpc(self, name: str, kwargs: dict[str, str]) -> None:
        self.calls.append((name, Path(kwargs["weights_path"]).name))

    def reset_prefix_cache(self) -> bool:
        self.calls.append(("forget prefixes",))
        return True


def test_an_engine_sleeps_and_wakes_with_the_weights_that_it_is_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm, asked = Recording(), []
    monkeypatch.setattr(vllm_engine, "build_llm", lambda *how: asked.append(how[-1]) or llm)
    monkeypatch.setattr(vllm_engine, "require_model", lambda folder, what: None)
    engine = VLLMEngine(tmp_path / "start", ModelConfig(), PolicyConfig(), sleeps=True)
    request = GenerateRequest((1, 2), 1, Sampling(max_tokens=4))

    async def work() -> None:
        await engine.sleep()
        await engine.sleep()
        for checkpoint in (str(tmp_path / "start"), ""):  # it has no weights any more, whatever is asked for
            with pytest.raises(StaleWeights):
                await engine.generate(request, checkpoint)
        await engine.load(tmp_path / "start")
        await engine.load(tmp_path / "next")

    asyncio.run(work())
    engine.close()
    assert asked == [True]
    woken = [("wake", "weights"), ("reload_weights", "start"), ("wake", "kv_cache"), ("forget prefixes",)]
    assert llm.calls == [("sleep", 2), *woken, ("reload_weights", "next"), ("forget prefixes",)]
