"""How likely a turn and its siblings are under every policy of a run: ``python -m agentr.ui.probing RUN STAGE KEY NODE OUT``.

A process of its own, since it loads models. It writes what it has after each policy, so that the page can show it meanwhile.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from agentr.errors import AgentrError, DataError
from agentr.read.run import Run
from agentr.search.tree import Node, Tree
from agentr.store.files import write_json


def probe(run: Run, stage: str, key: str, node: int, out: Path) -> None:
    """Writes, for the children of a node's parent, their log-probability under the base model and under each trained policy.

    A turn's is the sum over its tokens, given the prompt that the policy saw, at temperature 1. A policy that cannot be loaded (its weights
    may have been pruned) is named with the reason.

    Raises:
        DataError: There is no such tree or node.
    """
    tree: Tree = run.stage(stage)[key]
    if not 0 < node < len(tree.nodes):
        raise DataError(f"the tree {key!r} of {stage} has no turn {node}", hint=f"Its turns: 1 to {len(tree.nodes) - 1}.")
    siblings = [tree.nodes[child] for child in tree.nodes[tree.nodes[node].parent].children if tree.nodes[child].token_ids]
    found: dict[str, Any] = {"state": "running", "problem": "", "siblings": [turn.id for turn in siblings], "policies": []}
    write_json(out, found)
    for policy in run.policies(base=True):
        try:
            values, problem = logprobs(policy.path, tree, siblings), ""
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            values, problem = [None] * len(siblings), f"{type(error).__name__}: {error}".splitlines()[0][:300]
        found["policies"].append({"title": policy.title, "stage": policy.name, "logprobs": values, "problem": problem})
        write_json(out, found)
    write_json(out, {**found, "state": "done"})


def logprobs(folder: Path, tree: Tree, turns: list[Node]) -> list[float | None]:
    """Returns the log-probability of each turn, all of one parent, under the model in a folder."""
    import torch
    from transformers import AutoModelForCausalLM

    if not any(folder.glob("*.safetensors")):
        raise ValueError("its weights are not there (they may have been pruned)")
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, local_files_only=True).eval()
    found: list[float | None] = []
    with torch.inference_mode():
        for turn in turns:
            prompt = tree.prompt(turn.parent, turn.forgotten)
            ids = torch.tensor([[*prompt, *turn.token_ids]])
            logits = model(ids).logits[0, len(prompt) - 1 : -1]
            drawn = torch.log_softmax(logits, -1).gather(1, torch.tensor(turn.token_ids)[:, None])
            found.append(round(float(drawn.sum()), 4))
    return found


def main() -> None:
    """Runs ``probe``; an error is written where the result would be."""
    path, stage, key, node, out = sys.argv[1:]
    try:
        probe(Run(path), stage, key, int(node), Path(out))
    except (AgentrError, OSError, ValueError) as error:
        write_json(Path(out), {"state": "failed", "problem": str(error), "siblings": [], "policies": []})


if __name__ == "__main__":
    main()
