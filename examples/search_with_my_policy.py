"""Searches a tree with a policy of one's own, here the expert with slips: ask what to expand, tell what came of it."""

import copy
import random

from agentr.search import UCT, Child, Tree, UCTConfig
from agentr.types import FinishReason, Message, Outcome, Task
from env_servers.registry import load

env, rng = load("household"), random.Random(0)
task = env.split("train")[0]
start, seen = env.reset(task.id)
plan = [step.action for step in env.expert(task.id) or ()]
states = {0: start}
tree = Tree.start(Task("household", task.id, "train"), (Message("user", seen.observation),), (), seed=0)
search = UCT(UCTConfig(iterations=30, max_depth=20, width=3))
while expansions := search.ask(tree):
    for expansion in expansions:
        drawn = []
        for _ in range(expansion.n):
            state, depth = copy.deepcopy(states[expansion.node]), tree.nodes[expansion.node].depth
            known = depth < len(plan) and rng.random() < 0.8
            action = plan[depth] if known else rng.choice(env.actions(state))
            seen = env.step(state, action)
            ended = (Outcome.SUCCESS if seen.reward == 1.0 else Outcome.FAILURE) if seen.done else None
            turn = Child(
                text=action,
                action=action,
                observation=seen.observation,
                reward=seen.reward,
                valid=seen.valid,
                outcome=ended,
                finish=FinishReason.STOP,
                token_ids=(),  # of a model: what it drew, with log-probabilities, and what stands between two turns
                logprobs=(),
                bridge_ids=(),
            )
            drawn.append((state, turn))
        nodes = search.tell(tree, expansion, [child for _, child in drawn])
        states |= {node.id: state for node, (state, _) in zip(nodes, drawn, strict=True) if node is not None}
ended = list(tree.ended())
print(
    f"{len(tree.nodes)} nodes; {sum(leaf.reward == 1.0 for leaf in ended)} of {len(ended)} ended paths solve {task.id}"
)
