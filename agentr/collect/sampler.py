"""Turns as a policy draws them, and as a format reads them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentr.policy.base import GenerateRequest, Policy, cost_of
from agentr.policy.chat import ChatCodec
from agentr.policy.template import REASONS
from agentr.seeds import derived_seed
from agentr.tasks.formats import ActionFormat, Parsed
from agentr.types import Completion, Cost, Message


@dataclass(frozen=True)
class Sampler:
    """Draws turns from a policy, and reads them: a stop string that a thought only names ends none."""

    policy: Policy
    codec: ChatCodec
    format: ActionFormat

    async def draw(self, request: GenerateRequest, prefix: str = "") -> tuple[list[Completion], Cost, float]:
        """Returns the turns of a request, of which the prompt has ``prefix`` already, their cost, and the seconds until
        they were there."""
        started, begun = time.monotonic(), self.codec.begin(prefix) if prefix else ()
        completions = [*await self.policy.generate(request)]
        cost = cost_of(request, completions)
        for number, completion in enumerate(completions):
            drawn, more = await self._gone_on(request, prefix, number, completion)
            cost += more
            text, logprobs = prefix + self.codec.shown(drawn.text, drawn.token_ids), () if prefix else drawn.logprobs
            completions[number] = replace(drawn, text=text, token_ids=(*begun, *drawn.token_ids), logprobs=logprobs)
        return completions, cost, round(time.monotonic() - started, 4)

    async def _gone_on(
        self, request: GenerateRequest, prefix: str, number: int, drawn: Completion
    ) -> tuple[Completion, Cost]:
        """A turn without the ends that stop strings made in its thought, which only named them, and what it took to go
        on.

        Engines know strings, and not where they stand. Turns of an API are closed already, and stay as they are.
        """
        last, cost, asked = drawn, Cost(), request.sampling
        while last.text.endswith(self.format.stop) and last.token_ids[-1:] != (self.codec.end_id,):
            room = asked.max_tokens - len(drawn.token_ids)
            if room < 1 or self.read(prefix + drawn.text, (*self.codec.begin(prefix), *drawn.token_ids)).begun:
                break
            more = replace(
                request,
                prompt_ids=(*request.prompt_ids, *drawn.token_ids),
                n=1,
                sampling=replace(asked, max_tokens=room, seed=derived_seed(asked.seed, "go on", number, room)),
                messages=(*request.messages[: -1 if prefix else None], Message("assistant", prefix + drawn.text)),
            )
            (last,) = await self.policy.generate(more)
            cost += replace(cost_of(more, [last]), completions=0)  # the same one still
            ids, logprobs = (*drawn.token_ids, *last.token_ids), (*drawn.logprobs, *last.logprobs)
            drawn = replace(last, text=self.codec.decode(ids), token_ids=ids, logprobs=logprobs)
        return drawn, cost

    def said(self, text: str, ids: Sequence[int]) -> str:
        """Returns what of a turn its format reads: all but its reasoning, unless the format reads that itself, from its
        beginning on."""
        if not self.format.reasons:
            return self.codec.answer(text, ids)
        return f"{REASONS}{text}" if self.codec.begins_in_reasoning(text, ids) else text

    def read(self, text: str, ids: Sequence[int]) -> Parsed:
        """Parses a turn."""
        return self.format.parse(self.said(text, ids))
