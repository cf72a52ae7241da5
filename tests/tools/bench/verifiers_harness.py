"""The same for verifiers 0.4, where a program calls the model through the package's own server: here the program is a
loop in this process, and the client the one for training, whose prompts and answers are tokens with log-probabilities.
"""

# pyright: basic, reportMissingImports=false
import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import renderers.client
import verifiers.v1 as vf
from openai import AsyncOpenAI

from tests.tools.bench.crafting import GAME, carried_out

__all__ = ["Crafting"]

_, URL, MODEL, TASKS, TOKENS, IN_FLIGHT = sys.argv
#: One for all rollouts: to make one takes longer than a turn.
CLIENT = AsyncOpenAI(api_key="none", max_retries=0)


@dataclass
class Played:
    turns: int = 0
    won: float = 0.0


class Crafting(vf.Harness[vf.HarnessConfig]):
    NEEDS_CONTAINER = False
    EXECUTES_CODE = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        """Plays the game of ``data``."""
        game, seen = GAME.reset(data.name)
        messages: list[Any] = [{"role": "user", "content": seen.observation}]
        played = PLAYED[trace.id] = Played()
        client = CLIENT.with_options(base_url=endpoint, api_key=secret)
        for _ in range(GAME.spec.step_limit):
            answer = (await client.chat.completions.create(model=ctx.model, messages=messages)).choices[0]
            text, played.turns = answer.message.content or "", played.turns + 1
            said, done, played.won, _ = carried_out(game, text, cut=answer.finish_reason == "length")
            if done:
                break
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": said}]
        return vf.ProgramResult(0, "", "")


PLAYED: dict[str, Played] = {}


def older(read):
    """vLLM 0.32 names the token of a log-probability by its number, renderers 0.1.12 asks for the text of before."""

    def parse(raw):
        payload = read(raw)
        for entry in payload["choices"][0]["logprobs"]["content"]:
            entry["token"] = f"token_id:{entry['token_id']}"
        return payload

    return parse


renderers.client.parse_generate_response = older(renderers.client.parse_generate_response)


async def rollouts(agent: vf.Agent, tasks: list[str]) -> list[Played]:
    room = asyncio.Semaphore(int(IN_FLIGHT))

    async def rollout(name: str) -> Played:
        opening = GAME.reset(name)[1].observation
        async with room:
            trace = await agent.run(vf.Task(vf.TaskData(name=name, prompt=opening)))
        if not trace.ok:
            raise RuntimeError(str(trace.errors))
        return PLAYED.pop(trace.id)

    return await asyncio.gather(*map(rollout, tasks))


async def main() -> None:
    os.environ["BENCH_KEY"] = "none"
    client = vf.TrainClientConfig(base_url=URL, api_key_var="BENCH_KEY", renderer={"name": "default"})
    for line in sys.stdin:
        sampling = {"temperature": 1.0, "max_tokens": int(TOKENS), "seed": int(line)}
        config = vf.AgentConfig(
            harness=vf.HarnessConfig(id="__main__"),
            runtime=vf.SubprocessConfig(),
            model=MODEL,
            client=client,
            sampling=sampling,
        )
        async with vf.Agent(config) as agent:
            began = time.perf_counter()
            played = await rollouts(agent, json.loads(TASKS))
            seconds = time.perf_counter() - began
        turns, won = sum(one.turns for one in played), sum(one.won for one in played)
        print(json.dumps({"seconds": seconds, "rollouts": len(played), "turns": turns, "won": won}), flush=True)


asyncio.run(main())
