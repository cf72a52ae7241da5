"""Guesses a number: the model names one, and hears whether the right one is lower or higher."""

import json
import os
from pathlib import Path
from urllib.request import Request, urlopen


def ask(messages):
    """What the model answers, by the standard library. A client does the same, such as OpenAI() of ``openai``."""
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    body = json.dumps({"model": "any", "messages": messages}).encode()
    with urlopen(Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers)) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


task = json.loads(Path(os.environ["AGENTR_TASK"]).read_text())
messages = [{"role": "user", "content": f"I think of a number from 1 to {task['high']}. Say a number alone."}]
solved = False
for _ in range(task["tries"]):
    answer = ask(messages)
    try:
        solved = int(answer) == task["number"]
        hint = "It is lower." if int(answer) > task["number"] else "It is higher."
    except ValueError:
        hint = "That is no number."
    if solved:
        break
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": hint}]
Path("guessed.json").write_text(json.dumps({"solved": solved}))
