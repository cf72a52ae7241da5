"""A program that plays TextCraft: the package's game in its own process, a model behind a plain HTTP client.

It reports what it did with each answer, and never ends by itself but with the game. ``python
plays_textcraft.py ROOT``: ROOT is the folder of ``env_servers``.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

sys.path.append(sys.argv[1])

from agentr.tasks.formats import CUT_OFF, Parsed, ReAct
from env_servers.textcraft import TextCraft


def post(url: str, body: dict[str, Any]) -> Any:
    """Returns the answer to a request with the session's key."""
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)


def main() -> None:
    """Plays one task."""
    task = json.loads(Path(os.environ["AGENTR_TASK"]).read_text(encoding="utf-8"))
    game = TextCraft(recipes="exact", distractors=3)
    state, observed = game.reset(task["id"])
    messages, reward = [{"role": "user", "content": observed.observation}], 0.0
    while not observed.done:
        said = post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", {"model": "m", "messages": messages})
        (choice,) = said["choices"]
        message = choice["message"]
        parsed = ReAct().parse(message["content"])
        if choice["finish_reason"] == "length":
            parsed = Parsed(None, problem=CUT_OFF)
        if parsed.action is None:
            report = {"action": "", "observation": parsed.problem, "valid": False, "status": "error"}
        else:
            observed = game.step(state, parsed.action)
            reward = observed.reward
            report = {"action": parsed.action, "observation": observed.observation, "valid": observed.valid}
            report["status"] = observed.status.value
        messages += [
            {"role": "assistant", "content": message["content"]},
            {"role": "user", "content": report["observation"]},
        ]
        post(os.environ["AGENTR_REPORT"], {**report, "reward": reward})


main()
