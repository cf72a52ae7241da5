"""Pretrains the nano model on synthetic reading questions, on one thread in under half an hour.

    python -m tests.tools.nano.pretrain --out DIR

Only the answers count in the loss: the questions are random, an answer is always a look-up or a copy. Every document is
new. Each progress line reports the loss, the share of answer tokens that are right, and the share of answers that are
right as a whole, all on text that the model has not trained on yet.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.tools.nano.corpus import document
from tests.tools.nano.model import NANO, TURN_END, TURN_START, build_model, build_tokenizer

if TYPE_CHECKING:
    import torch

#: Rows and tokens per row of the two kinds of batch; one in four is of the longer kind, so that late positions are
#: trained too.
SHAPES = ((16, 256), (16, 256), (16, 256), (8, 512))
#: The shortest turn with its question, in tokens: enough turns are drawn to fill a row.
SHORTEST_TURN = 12


def item_names() -> list[str]:
    """Returns the names of all items of TextCraft, and of kinds of items such as ``planks``; no recipes."""
    from env_servers.textcraft.world import World, display

    world = World.minecraft()
    return sorted({display(name) for name in (*world.items, *world.tags, *world.by_item)})


class Batches:
    """An endless stream of batches of new documents.

    Args:
        curriculum: Batches until worlds have grown from 3 to 10 commands.
    """

    def __init__(self, tokenizer: Any, names: Sequence[str], seed: int, curriculum: int) -> None:
        self.tokenizer, self.names, self.curriculum = tokenizer, names, curriculum
        self.rng = random.Random(seed)
        self.turn_start, self.turn_end, self.assistant = tokenizer.convert_tokens_to_ids(
            [TURN_START, TURN_END, "assistant"]
        )

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yields token ids and the mask of answer tokens, both of shape [rows, tokens]."""
        import torch

        for index in range(10**9):
            rows, length = SHAPES[index % len(SHAPES)]
            commands = 3 + round(7 * min(1.0, index / max(1, self.curriculum)))
            texts = [self._text(commands, length // SHORTEST_TURN) for _ in range(rows)]
            ids = torch.tensor([row[:length] for row in self.tokenizer(texts, add_special_tokens=False)["input_ids"]])
            yield ids, self._answers(ids)

    def _text(self, max_commands: int, count: int) -> str:
        prompt, turns = document(self.rng, self.names, count, max_commands)
        messages = []
        for turn in turns:
            question = turn.question if messages else f"{prompt}\n{turn.question}"
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": turn.answer}]
        return self.tokenizer.apply_chat_template(messages, tokenize=False)

    def _answers(self, ids: torch.Tensor) -> torch.Tensor:
        """Marks the assistant's tokens: after ``<|im_start|>assistant\\n``, up to and including ``<|im_end|>``."""
        import torch

        mask = torch.zeros_like(ids, dtype=torch.bool)
        for row, tokens in enumerate(ids.tolist()):
            inside = False
            for i, token in enumerate(tokens):
                mask[row, i] = inside
                if token == self.turn_end:
                    inside = False
                elif i >= 2 and tokens[i - 2] == self.turn_start and tokens[i - 1] == self.assistant:
                    inside = True
        return mask


def learning_rate(step: int, steps: int, peak: float, warmup: int) -> float:
    """Returns the learning rate of a step: a linear warm-up, then a cosine down to 2 % of the peak."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


def answers_right(hit: torch.Tensor, mask: torch.Tensor) -> tuple[int, int]:
    """Counts the answers that are right in every token, and all answers. A run of ``mask`` in a row is an answer."""
    import torch

    start = mask & ~torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    number = (start.flatten().cumsum(0) - 1)[mask.flatten()]
    count = int(start.sum())
    wrong = torch.zeros(count, dtype=torch.long).index_add_(0, number, (~hit).long())
    return int((wrong == 0).sum()), count


def pretrain(
    out: Path,
    steps: int,
    *,
    start: Path | None = None,
    peak: float = 2e-3,
    seed: int = 0,
    save_every: int = 0,
    report_every: int = 50,
) -> None:
    """Trains a model and saves it as a Hugging Face folder in bfloat16.

    Args:
        start: Folder of an earlier run to go on from, with worlds of full size from the beginning.
    """
    import torch

    names = item_names()
    tokenizer: Any = build_tokenizer(names)
    model = build_model(NANO, len(tokenizer), seed, eos_id=tokenizer.eos_token_id, pad_id=tokenizer.pad_token_id)
    if start is not None:
        from transformers import LlamaForCausalLM

        model.load_state_dict(LlamaForCausalLM.from_pretrained(start, dtype=torch.float32).state_dict())
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.98), fused=True)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, vocabulary {len(tokenizer)}", flush=True)

    begin, trained, totals = time.time(), 0, [0.0, 0, 0, 0, 0]
    for step, (ids, mask) in zip(
        range(steps), Batches(tokenizer, names, seed, curriculum=0 if start else steps // 4), strict=False
    ):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, peak, warmup=min(100, steps // 10))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = model.model(input_ids=ids).last_hidden_state[:, :-1][mask[:, 1:]]
            logits = model.lm_head(hidden)
        targets = ids[:, 1:][mask[:, 1:]]
        loss = torch.nn.functional.cross_entropy(logits.float(), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

        trained += ids.numel()
        hit = logits.argmax(-1) == targets
        whole, answers = answers_right(hit, mask[:, 1:])
        now = (loss.item() * len(targets), int(hit.sum()), len(targets), whole, answers)
        totals = [a + b for a, b in zip(totals, now, strict=True)]
        if (step + 1) % report_every == 0 or step + 1 == steps:
            lost, right, count, whole, answers = totals
            print(
                f"step {step + 1}/{steps}  {trained / 1e6:.1f}M tokens  {time.time() - begin:.0f} s  loss "
                f"{lost / count:.4f}  tokens right {right / count:.4f}  answers right {whole / answers:.4f}",
                flush=True,
            )
            totals = [0.0, 0, 0, 0, 0]
        if step + 1 == steps or (save_every and (step + 1) % save_every == 0):
            save(model, tokenizer, out)


def save(model: Any, tokenizer: Any, out: Path) -> None:
    """Writes the model in bfloat16; the one in memory stays in float32."""
    import copy

    import torch

    out.mkdir(parents=True, exist_ok=True)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--steps", type=int, default=1400)
    parser.add_argument("--start", type=Path, help="folder of an earlier run to go on from")
    parser.add_argument("--peak", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=0, help="steps between checkpoints; 0: only the last")
    args = parser.parse_args()
    # Parallel tokenisation and compilation cost more than they gain at this size.
    os.environ.update(TOKENIZERS_PARALLELISM="false", TORCHDYNAMO_DISABLE="1")
    import torch

    torch.set_num_threads(args.threads)
    pretrain(args.out, args.steps, start=args.start, peak=args.peak, seed=args.seed, save_every=args.save_every)


if __name__ == "__main__":
    main()
