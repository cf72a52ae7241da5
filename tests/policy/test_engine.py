"""A real vLLM engine on a random model of two layers."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba  # noqa: F401  what an environment in the same process may import must not keep vLLM from starting
import numpy as np
import pytest
import torch.distributed as dist

from agentr.collect.asked import answered, codec_of, form_of
from agentr.config.chat_template import shipped
from agentr.config.model import ModelConfig
from agentr.config.policy import PolicyConfig
from agentr.config.turns import Dialect
from agentr.errors import ContextOverflow, InfraError, ModelError, StaleWeights
from agentr.policy.adapters import write_merged
from agentr.policy.base import EngineHealth, GenerateRequest
from agentr.policy.chat import ChatCodec
from agentr.policy.vllm_engine import VLLMEngine
from agentr.types import Asked, Completion, Cost, FinishReason, Sampling
from env_servers.observation import Answer
from tests.support import tiny_model, tiny_tokenizer

pytestmark = pytest.mark.cluster

MODEL = ModelConfig(dtype="float32", max_model_len=512)
POLICY = PolicyConfig(kv_cache_gib=0.125, max_num_seqs=32)
PROMPT = tuple(
    tiny_tokenizer().encode("<|im_start|>user\nYou see a key and a lamp.<|im_end|>\n<|im_start|>assistant\n")
)


@pytest.fixture(scope="module", autouse=True)
def other_groups_stay() -> Iterator[None]:
    """An engine that ends takes the default process group of its process with it, even one that it found there: the
    trainer's tests hold one for the whole session. One that is not started to its end leaves its own behind."""
    with pytest.MonkeyPatch.context() as patch:
        if held := dist.is_initialized():
            patch.setattr(dist, "destroy_process_group", lambda group=None: None)
        yield
    if dist.is_initialized() and not held:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("models")
    return tiny_model(root / "first", seed=0), tiny_model(root / "second", seed=1)


@pytest.fixture(scope="module")
def engine(folders) -> Iterator[VLLMEngine]:
    engine = VLLMEngine(folders[0], MODEL, POLICY)
    yield engine
    engine.close()


def ask(engine: VLLMEngine, *requests: GenerateRequest) -> list[list[Completion]]:
    async def main():
        return await asyncio.gather(*(engine.generate(r) for r in requests))

    return asyncio.run(main())


def request(prompt: tuple[int, ...] = PROMPT, n: int = 1, reuse_prefix: bool = True, **sampling) -> GenerateRequest:
    return GenerateRequest(prompt, n, Sampling(**{"max_tokens": 24, "seed": 5} | sampling), reuse_prefix=reuse_prefix)


def hf_logprobs(folder: Path, prompt: tuple[int, ...], answer: tuple[int, ...]) -> list[float]:
    """What transformers says of ``answer`` after ``prompt``."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *answer]])).logits[0]
    logprobs = torch.log_softmax(logits, dim=-1)
    return [float(logprobs[len(prompt) - 1 + i, token]) for i, token in enumerate(answer)]


def test_a_cache_that_is_too_small_shows_in_the_health(folders) -> None:
    """Sequences are thrown out of the cache and computed again: what the watchdog calls cache thrash."""
    small = VLLMEngine(folders[0], MODEL, replace(POLICY, kv_cache_gib=0.001))

    async def main() -> list[EngineHealth]:
        asked = [
            asyncio.create_task(small.generate(request((*PROMPT, number), max_tokens=400))) for number in range(3, 23)
        ]
        seen = []
        while not all(task.done() for task in asked):
            seen.append(await small.health())
            await asyncio.sleep(0.01)
        await asyncio.gather(*asked)
        return [*seen, await small.health()]

    try:
        *seen, last = asyncio.run(main())
        assert any(health.waiting and health.preempted and health.cache_used > 0.8 for health in seen)
        assert (last.running, last.waiting, last.preempted) == (0, 0, 0)
    finally:
        small.close()


def test_more_prompts_than_a_step_takes_and_each_with_its_own_seed(engine: VLLMEngine) -> None:
    prompts = [tuple(3 + (number * 7 + position * 11) % 290 for position in range(400)) for number in range(16)]
    together = ask(engine, *(request(prompt, temperature=1.0, reuse_prefix=False) for prompt in prompts))
    assert sum(map(len, prompts)) > 4096, "what one step computes on a CPU"
    alone = ask(engine, request(prompts[-1], temperature=1.0, reuse_prefix=False))
    assert together[-1][0].token_ids == alone[0][0].token_ids


def test_seeds_reproduce_and_samples_differ(engine):
    answers = [ask(engine, request(n=4, seed=seed))[0] for seed in (5, 5, 6)]
    ids = [[c.token_ids for c in answer] for answer in answers]
    assert ids[0] == ids[1] != ids[2]
    assert len(set(ids[0] + ids[2])) == 8


def test_greedy_samples_are_equal(engine):
    (answer,) = ask(engine, request(n=2, temperature=0.0))
    assert answer[0].token_ids == answer[1].token_ids


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.3, "top_p": 0.8}, {"temperature": 2.0}])
def test_logprobs_are_the_models_own_distribution(engine, folders, sampling):
    ((completion,),) = ask(engine, request(**sampling))
    expected = hf_logprobs(folders[0], PROMPT, completion.token_ids)
    assert len(completion.logprobs) == len(completion.token_ids) > 0
    assert completion.logprobs == pytest.approx(expected, abs=2e-3)


def test_the_end_of_turn_token_is_kept(engine):
    tokenizer = tiny_tokenizer()
    answers = ask(engine, *(request(seed=i, n=8, max_tokens=256, temperature=1.5) for i in range(8)))
    stopped = [c for a in answers for c in a if c.finish is FinishReason.STOP]
    assert stopped, "no sample ended its turn"
    for completion in stopped:
        assert completion.token_ids[-1] == tokenizer.eos_token_id not in completion.token_ids[:-1]
        assert completion.text == tokenizer.decode(completion.token_ids, skip_special_tokens=True)


def test_an_answer_without_end_is_cut_off(engine):
    ((completion,),) = ask(engine, request(max_tokens=3, seed=1))
    assert completion.finish is FinishReason.LENGTH and len(completion.token_ids) == 3
    assert tiny_tokenizer().eos_token_id not in completion.token_ids


def test_stop_strings_end_the_text(engine):
    ((whole,),) = ask(engine, request(temperature=0.0, max_tokens=20))
    stop = next(c for c in whole.text[1:] if c.isascii())
    ((cut,),) = ask(engine, request(temperature=0.0, max_tokens=20, stop=(stop,)))
    assert cut.finish is FinishReason.STOP
    assert cut.text == whole.text[: whole.text.index(stop) + 1] and cut.token_ids[-1] != tiny_tokenizer().eos_token_id
    assert whole.token_ids[: len(cut.token_ids)] == cut.token_ids


def test_prefix_cache_is_counted(engine):
    prompt = tuple(range(10, 210))
    before, _ = asyncio.run(engine.stats()), ask(engine, request(prompt, n=2))
    cold = asyncio.run(engine.stats()) - before
    ((first, second),) = ask(engine, request((*prompt, 7, 8, 9), n=2))
    warm = asyncio.run(engine.stats()) - before - cold
    assert (cold.cost.prompt_tokens, cold.cost.cached_tokens) == (200, 0)
    assert (first.cached_tokens, second.cached_tokens) == (192, 0)  # six blocks of 32
    generated = len(first.token_ids) + len(second.token_ids)
    assert warm.cost == Cost(calls=1, completions=2, prompt_tokens=203, cached_tokens=192, completion_tokens=generated)
    health = asyncio.run(engine.health())
    assert health.prefix_queries >= health.prefix_hits >= 192


def test_requests_join_a_running_batch(engine):
    async def main():
        long = asyncio.create_task(engine.generate(request(max_tokens=400, seed=3, temperature=0.0)))
        while not (await engine.health()).running:
            await asyncio.sleep(0.001)
        await engine.generate(request(max_tokens=2))
        overtaken = not long.done()
        await long
        many = await asyncio.gather(*(engine.generate(request(seed=i, n=1 + i % 3)) for i in range(32)))
        return overtaken, many

    overtaken, many = asyncio.run(main())
    assert overtaken
    assert [len(a) for a in many] == [1 + i % 3 for i in range(32)]


def test_a_cancelled_request_leaves_the_batch(engine):
    async def main():
        task = asyncio.create_task(engine.generate(request(max_tokens=450, n=4)))
        while not (await engine.health()).running:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(5.0):
            while (await engine.health()).running:
                await asyncio.sleep(0.001)
        assert await engine.generate(request())

    asyncio.run(main())


def test_a_prompt_without_room_is_refused_before_the_engine(engine):
    with pytest.raises(
        ContextOverflow,
        match=r"prompt of 500 tokens and an answer of up to 24 do not fit into model\.max_model_len=512",
    ):
        ask(engine, request(tuple([9] * 500)))
    assert ask(engine, request(tuple([9] * 488), max_tokens=24))


def test_a_bad_request_fails_alone(engine):
    with pytest.raises(ModelError, match="vLLM refused a request"):
        ask(engine, request((10**6,)))
    assert ask(engine, request())


def test_reload_is_proved_by_logprobs(engine, folders):
    first, second = folders
    prompt = tuple(range(10, 210))  # the prefix cache keeps six blocks of 32 of it

    async def main():
        before = await engine.generate(request(prompt))
        running = asyncio.create_task(engine.generate(request(prompt, max_tokens=300, seed=2)))
        while not (await engine.health()).running:
            await asyncio.sleep(0.001)
        loading = asyncio.create_task(engine.load(second))
        after = await engine.generate(request(prompt), checkpoint=str(second)) if await loading is None else None
        with pytest.raises(StaleWeights):
            await engine.generate(request(), checkpoint=str(first))
        with pytest.raises(ModelError, match=r"the checkpoint .* has no config\.json"):
            await engine.load(first.parent / "missing")
        assert engine.checkpoint == str(second)
        await engine.load(first)
        return before[0], (await running)[0], after[0], (await engine.generate(request(prompt)))[0]

    before, running, after, back = asyncio.run(main())
    assert running.cached_tokens == 192, "what is computed with one policy is reused ..."
    assert before.logprobs == pytest.approx(hf_logprobs(first, prompt, before.token_ids), abs=2e-3)
    assert running.logprobs == pytest.approx(hf_logprobs(first, prompt, running.token_ids), abs=2e-3)
    assert after.logprobs == pytest.approx(hf_logprobs(second, prompt, after.token_ids), abs=2e-3)
    assert after.cached_tokens == 0, "... and nothing of it with another"
    assert (back.token_ids, back.logprobs) == (before.token_ids, pytest.approx(before.logprobs, abs=2e-3))


def write_adapters(start: Path, folder: Path) -> Path:
    """Writes random adapters of all linear layers as the trainer hands them over."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    shutil.copytree(start, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.manual_seed(2)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32), config)
    model.save_pretrained(folder)
    model.merge_and_unload().save_pretrained(folder.with_name("merged"))  # pyright: ignore[reportCallIssue]
    return folder


def test_adapters_answer_like_the_weights_that_they_are_merged_into(engine, folders, tmp_path):
    start, _ = folders
    adapters = write_adapters(start, tmp_path / "adapters")
    shutil.copytree(start, tmp_path / "written")
    write_merged(adapters, tmp_path / "written", "float32")

    async def main():
        before = await engine.generate(request())
        await engine.load(adapters)
        with pytest.raises(ModelError, match=r"the model of the adapters .*gone has no config\.json"):
            await engine.load(moved)
        after = await engine.generate(request(), checkpoint=str(adapters))
        await engine.load(start)
        return before[0], after[0], (await engine.generate(request()))[0]

    moved = shutil.copytree(adapters, tmp_path / "moved")
    said = json.loads((moved / "adapter_config.json").read_text())
    (moved / "adapter_config.json").write_text(json.dumps({**said, "base_model_name_or_path": str(tmp_path / "gone")}))
    before, after, back = asyncio.run(main())
    for folder in (tmp_path / "merged", tmp_path / "written"):
        assert after.logprobs == pytest.approx(hf_logprobs(folder, PROMPT, after.token_ids), abs=2e-3)
    assert max(map(abs, np.subtract(hf_logprobs(start, PROMPT, after.token_ids), after.logprobs))) > 0.1
    assert (back.token_ids, back.logprobs) == (before.token_ids, pytest.approx(before.logprobs, abs=2e-3))


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(ModelError, match="vLLM could not load the model"):
        VLLMEngine(tmp_path, MODEL, POLICY)


@pytest.mark.parametrize("settings", [{"tool_choice": "required"}, {"response_format": {"enum": ["red", "blue"]}}])
def test_a_random_model_follows_the_form_that_a_call_asks_for(engine, settings: dict[str, Any]) -> None:
    tokenizer = deepcopy(tiny_tokenizer())
    tokenizer.chat_template = shipped("hermes")
    colours = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"]}
    tool = {"name": "paint", "description": "", "parameters": colours | {"additionalProperties": False}}
    asked = Asked(
        tools=(json.dumps(tool),) if "tool_choice" in settings else (),
        settings=settings | {"parallel_tool_calls": False},
    )
    codec = codec_of(ChatCodec(tokenizer), asked, Dialect.auto)
    drawn = ask(engine, GenerateRequest(PROMPT, 3, Sampling(max_tokens=400, form=form_of(asked, codec))))[0]
    for turn in drawn:
        answer = Answer.read(answered(turn, 1, asked, codec))
        assert turn.finish is FinishReason.STOP
        if "tool_choice" in settings:
            (call,) = answer.calls
            assert call["name"] == "paint" and json.loads(call["arguments"])["colour"] in ("red", "blue")
        else:
            assert json.loads(answer.content) in ("red", "blue")


def test_a_dead_thread_fails_everything_that_waits(folders, monkeypatch):
    """Last: an engine cannot be brought back within its process."""
    engine = VLLMEngine(folders[0], MODEL, POLICY)

    async def main():
        waiting = [asyncio.create_task(engine.generate(request(max_tokens=400, seed=i))) for i in range(3)]
        while not (await engine.health()).running:
            await asyncio.sleep(0.001)
        monkeypatch.setattr("vllm.v1.engine.llm_engine.LLMEngine.step", lambda self: 1 / 0)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(r, InfraError) and "stepping thread died: ZeroDivisionError" in str(r) for r in results)
        with pytest.raises(InfraError, match="stepping thread died"):
            await engine.generate(request())
        with pytest.raises(InfraError, match="stepping thread died"):
            await engine.health()

    asyncio.run(main())


def test_an_engine_starts_with_adapters(folders, tmp_path):
    """The last one here: as it ends, it takes what other engines of this process need along."""
    adapters = write_adapters(folders[0], tmp_path / "adapters")
    fresh = VLLMEngine(adapters, MODEL, POLICY)
    try:
        ((answer,),) = ask(fresh, request())
        assert answer.logprobs == pytest.approx(hf_logprobs(tmp_path / "merged", PROMPT, answer.token_ids), abs=2e-3)
    finally:
        fresh.close()
