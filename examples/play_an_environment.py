"""Plays an environment in this process: no server, no model."""

from env_servers.registry import load

textcraft = load("textcraft", {"recipes": "exact", "distractors": 3})
task = textcraft.split("train")[0].id
state, seen = textcraft.reset(task)
print(seen.observation)
for step in textcraft.expert(task) or ():
    seen = textcraft.step(state, step.action)
    print(f"> {step.action}\n{seen.observation}")
print(f"{task}: {seen.reward}")
