"""The smallest methods of each kind, named by their files: what all methods share is tested by these, so that no test
of it needs a method that comes with agentr."""

from pathlib import Path

_HERE = Path(__file__).parent

#: Searches each task, and imitates what earned enough.
IMITATE = f"method.type={_HERE / 'imitate.py'}"
#: Draws two runs of each task, and prefers the better one.
PREFER = f"method.type={_HERE / 'prefer.py'}"
#: Draws rollouts of a few tasks, step after step.
REINFORCE = f"method.type={_HERE / 'reinforce.py'}"
