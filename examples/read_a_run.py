"""Reads a run, finished or going on: what its rounds come to, and a successful path of its best tree.
python read_a_run.py runs/demo"""

import sys

import agentr

run = agentr.open(sys.argv[1])
for policy in run.policies():
    print(policy.arm, policy.success)
trees = run.rounds[1].collect
tree = max(trees, key=lambda tree: tree.root.value)
best = max(tree.ended(), key=lambda leaf: leaf.reward)
print(f"{len(trees)} trees; of {tree.task.key}, a path that earned {best.reward}:")
for node in tree.path(best.id):
    print(f"> {node.action}\n{node.observation}")
