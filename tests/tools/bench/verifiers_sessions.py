"""TextCraft as an environment of verifiers 0.3, by chat completions.

It runs under an interpreter of its own. It plays all tasks once for each line on its standard input, which is a seed,
and answers with a line of JSON.
"""

# pyright: basic, reportMissingImports=false
import json
import os
import sys
import time

import verifiers as vf
from datasets import Dataset

from tests.tools.bench.crafting import GAME, carried_out

_, URL, MODEL, TASKS, TOKENS, IN_FLIGHT = sys.argv


class Crafting(vf.MultiTurnEnv):
    async def setup_state(self, state):
        """Starts the game."""
        state["game"], _ = GAME.reset(state["info"]["id"])
        state["won"] = 0.0
        return state

    async def env_response(self, messages, state, **_):
        """Goes on with the game."""
        cut = state["trajectory"][-1]["is_truncated"]
        said, done, state["won"], _ = carried_out(state["game"], messages[-1].content or "", cut=cut)
        answer = [vf.UserMessage(content=said)]
        if done:
            state["final_env_response"] = answer
        return answer


async def won(state):
    return state["won"]


def main() -> None:
    rows = [
        {"prompt": [{"role": "user", "content": GAME.reset(task)[1].observation}], "info": {"id": task}}
        for task in json.loads(TASKS)
    ]
    env = Crafting(max_turns=GAME.spec.step_limit, eval_dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[won]))
    os.environ["BENCH_KEY"] = "none"
    client = vf.ClientConfig(api_base_url=URL, api_key_var="BENCH_KEY")
    for line in sys.stdin:
        sampling = {"temperature": 1.0, "max_tokens": int(TOKENS), "seed": int(line)}
        began = time.perf_counter()
        found = env.evaluate_sync(client, MODEL, sampling_args=sampling, max_concurrent=int(IN_FLIGHT))
        seconds, states = time.perf_counter() - began, found["outputs"]
        turns = int(sum(state["metrics"]["num_turns"] for state in states))
        won_ = sum(state["reward"] for state in states)
        print(json.dumps({"seconds": seconds, "rollouts": len(states), "turns": turns, "won": won_}), flush=True)


main()
