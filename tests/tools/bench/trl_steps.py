"""TRL's GRPOTrainer on TextCraft, in a process of its own: the tasks, the model and the settings of an online run of
agentr, with TRL's own generation once a turn for all rollouts that still play."""

# pyright: basic
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ |= {
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from agentr.config.model import ModelConfig
from agentr.models.load import load_codec
from agentr.policy.vllm_patches import repack_output_layer
from agentr.types import Message
from tests.tools.bench.crafting import GAME, carried_out

#: Turns of an episode, and unreadable or refused ones in a row that end it.
TURNS, INVALID = 10, 3
_, WAY, MODEL, TASKS, OUT = sys.argv
CODEC = load_codec(Path(MODEL), ModelConfig())
#: Of each step: when it ended, and seconds of its rollouts and of handing weights over.
STEPS: list[dict[str, float]] = []
NOW = {"rollouts": 0.0, "weights": 0.0, "tokens": 0.0, "won": 0.0}


def play(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
    """Plays an episode of each task."""
    began, handed = time.perf_counter(), NOW["weights"]
    opened = [GAME.reset(task) for task in prompts]
    games = [game for game, _ in opened]
    starts = [CODEC.prompt([Message("user", seen.observation)]) for _, seen in opened]
    said: list[list[int]] = [[] for _ in prompts]
    mask: list[list[int]] = [[] for _ in prompts]
    logprobs: list[list[float]] = [[] for _ in prompts]
    won, bad, live = [0.0] * len(prompts), [0] * len(prompts), list(range(len(prompts)))
    for turn in range(TURNS):
        drawn, scored = trainer._generate_single_turn([starts[i] + said[i] for i in live], None, {}, 1)
        going = []
        for place, i in enumerate(live):
            ids = drawn[place]
            said[i] += ids
            mask[i] += [1] * len(ids)
            logprobs[i] += scored[place] if scored is not None else [0.0] * len(ids)
            closed = bool(ids) and ids[-1] == CODEC.end_id
            text = TOKENS.decode(ids, skip_special_tokens=True)
            seen, done, won[i], valid = carried_out(games[i], text, cut=not closed)
            bad[i] = 0 if valid else bad[i] + 1
            if done or bad[i] >= INVALID or turn == TURNS - 1:
                continue
            going.append(i)
            between = CODEC.bridge(seen, closed=closed)
            said[i] += between
            mask[i] += [0] * len(between)
            logprobs[i] += [0.0] * len(between)
        live = going
        if not live:
            break
    NOW["tokens"], NOW["won"] = sum(map(sum, mask)), sum(won) / len(won)
    NOW["rollouts"] = time.perf_counter() - began - (NOW["weights"] - handed)
    return {
        "prompt_ids": starts,
        "completion_ids": said,
        "logprobs": logprobs if WAY == "colocate" else None,
        "env_mask": mask,
        "won": won,
    }


class Clock(TrainerCallback):
    """Notes what each step took."""

    def on_step_end(self, args, state, control, **more):
        STEPS.append({"ended": time.perf_counter(), **NOW})
        NOW["weights"] = 0.0


def hand_over(generation: Any) -> None:
    """Loads the trainer's weights into the engine. TRL's own way fails on a CPU, where vLLM packs weights when it has
    loaded them."""
    began = time.perf_counter()
    weights = [(name, parameter.data) for name, parameter in generation.model.named_parameters()]
    generation.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
    generation.llm.collective_rpc(repack_output_layer)
    generation.llm.reset_prefix_cache()
    NOW["weights"] += time.perf_counter() - began


TOKENS = AutoTokenizer.from_pretrained(MODEL)


def main() -> None:
    torch.set_num_threads(2)
    steps = json.loads(Path(TASKS).read_text())
    arguments = GRPOConfig(
        output_dir=OUT,
        max_steps=len(steps),
        per_device_train_batch_size=32,
        num_generations=32 // len(steps[0]),
        learning_rate=2e-4,
        lr_scheduler_type="constant",
        adam_beta2=0.98,
        max_grad_norm=1.0,
        max_completion_length=48,
        temperature=1.0,
        loss_type="dapo",
        epsilon=0.2,
        beta=0.0,
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=True,
        shuffle_dataset=False,
        save_strategy="no",
        report_to="none",
        logging_steps=1,
        disable_tqdm=True,
        use_vllm=WAY == "colocate",
        vllm_mode="colocate",
        vllm_max_model_length=1024,
        vllm_enable_sleep_mode=False,
    )
    trainer = GRPOTrainer(
        model=MODEL,
        processing_class=TOKENS,
        reward_funcs=lambda won, **_: won,
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": task} for step in steps for task in step]),
        rollout_func=play,
        callbacks=[Clock()],
    )
    if WAY == "colocate":
        setattr(type(trainer.vllm_generation), "sync_weights", hand_over)  # noqa: B010 - a patch, and no method
    began = time.perf_counter()
    trainer.train()
    ends = [began, *(step["ended"] for step in STEPS)]
    found = [{**step, "seconds": after - before} for step, before, after in zip(STEPS, ends, ends[1:], strict=False)]
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
