"""How likely turns are under every policy of a run: ``python -m agentr.ui.probing``, a process that is asked and answers by files.

A process of its own, since it loads models. It reads what is asked from its input, a line each (``Asked``), one after the other: importing
what models need takes longer than most probes, so it stays for a while. It writes what it has after each policy, so that the page can show
it meanwhile.
"""

from __future__ import annotations

import json
import os
import select
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.observe.problems import Problem, problem_of, read_or
from agentr.read.run import Run
from agentr.search.tree import Node, Tree
from agentr.store.files import write_json
from agentr.store.model_folder import require_model

#: Seconds that the process waits for another question before it ends.
STAYS_S = 300.0
#: No code of a model's own is run, and no pickles are read.
SAFE: Any = {"trust_remote_code": False, "use_safetensors": True}
#: Parameters of a model below which one thread computes.
SMALL = 200_000_000


@dataclass(frozen=True)
class Asked:
    """A question: the children of a node's parent, and the file for the answer."""

    run: str
    stage: str
    key: str
    node: int
    out: str


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
        problems: list[Problem] = []
        values = read_or([None] * len(siblings), lambda folder=policy.path: logprobs(folder, tree, siblings), problems, "")
        problem = problems[0]["message"] if problems else ""
        found["policies"].append({"title": policy.title, "stage": policy.name, "logprobs": values, "problem": problem})
        write_json(out, found)
    write_json(out, {**found, "state": "done"})


def logprobs(folder: Path, tree: Tree, turns: list[Node]) -> list[float | None]:
    """Returns the log-probability of each turn, all of one parent, under the model in a folder.

    Raises:
        ModelError: The folder holds no whole model.
    """
    require_model(folder, "the policy")
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, local_files_only=True, **SAFE).eval()
    # On a busy machine, threads that wait for each other make a small model a hundred times slower than one thread does.
    torch.set_num_threads(1 if model.num_parameters() < SMALL else os.cpu_count() or 1)
    found: list[float | None] = []
    with torch.inference_mode():
        for turn in turns:
            prompt = tree.prompt(turn.parent, turn.forgotten)
            ids = torch.tensor([[*prompt, *turn.token_ids]])
            # Only of the turn's places: of a long prompt and a large vocabulary the others would take gigabytes.
            logits = model(ids, logits_to_keep=len(turn.token_ids) + 1).logits[0, :-1]
            drawn = torch.log_softmax(logits, -1).gather(1, torch.tensor(turn.token_ids)[:, None])
            found.append(round(float(drawn.sum()), 4))
    return found


def answer(asked: Asked) -> None:
    """Answers a question; an error is written where the result would be."""
    try:
        probe(Run(asked.run), asked.stage, asked.key, asked.node, Path(asked.out))
    except Exception as error:  # noqa: BLE001 - whatever it is, the page says it
        failed = {"state": "failed", "problem": problem_of(error)["message"], "siblings": [], "policies": []}
        write_json(Path(asked.out), failed)


def main() -> None:
    """Answers what is asked until nobody asks any more."""
    asked = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115 - what was read ahead would not be waited for
    while select.select([asked], [], [], STAYS_S)[0] and (line := asked.readline()):
        answer(Asked(**json.loads(line)))


if __name__ == "__main__":
    main()
