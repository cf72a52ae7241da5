"""How likely turns and rows are under every policy of a run: ``python -m agentr.ui.probing``, a process that is asked
and answers by files.

A process of its own, since it loads models. It reads what is asked from its input, a line each (``Asked``), one after
the other: importing what models need takes longer than most probes, so it stays for a while. It writes what it has
after each policy, so that the page can show it meanwhile.
"""

import json
import os
import select
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.observe.problems import PageProblem, problem_of, read_or
from agentr.read.run import Run
from agentr.store.files import write_json
from agentr.store.model_folder import require_model
from agentr.store.rows import Preference
from agentr.ui.views.forest import trees_of
from agentr.ui.views.rows import dataset_of

#: What a model reads: context, then tokens with a mask of those that count.
Part = tuple[Sequence[int], Sequence[int], Sequence[int]]

#: Seconds that the process waits for another question before it ends.
STAYS_S = 300.0
#: No code of a model's own is run, and no pickles are read.
SAFE: Any = {"trust_remote_code": False, "use_safetensors": True}
#: Parameters of a model below which one thread computes.
SMALL = 200_000_000


@dataclass(frozen=True)
class Asked:
    """A question: a node, for the children of its parent, or without a tree's key the row of a dataset; and the file
    for the answer."""

    run: str
    stage: str
    key: str
    at: int
    out: str


def probe(run: Run, asked: Asked) -> None:
    """Writes the log-probability of turns, or of a row's learnt tokens, under the base model and under each trained
    policy.

    A turn's is the sum over its tokens, given the prompt that the policy saw, at temperature 1. A row has a list for
    each of its sides, with None for what is not learnt. A policy that cannot be loaded (its weights may have been
    pruned) is named with the reason.

    Raises:
        DataError: There is no such tree, node or row.
    """
    siblings, parts = parts_of(run, asked.stage, asked.key, asked.at)
    found: dict[str, Any] = {"state": "running", "problem": "", "siblings": siblings, "policies": []}
    write_json(Path(asked.out), found)
    for policy in run.policies(base=True):
        problems: list[PageProblem] = []
        values: Any = read_or([None] * len(parts), lambda folder=policy.path: logprobs(folder, parts), problems, "")
        if siblings and not problems:
            values = [round(sum(value), 4) for value in values]
        problem = problems[0]["message"] if problems else ""
        found["policies"].append({"title": policy.title, "stage": policy.name, "logprobs": values, "problem": problem})
        write_json(Path(asked.out), found)
    write_json(Path(asked.out), {**found, "state": "done"})


def parts_of(run: Run, stage: str, key: str, at: int) -> tuple[list[int], list[Part]]:
    """Returns what a question is about: turns by their ids and as parts, or, without ids, the sides of a row.

    Raises:
        DataError: There is no such tree, node or row.
    """
    if not key:
        row = dataset_of(run, stage).rows[at]
        if not isinstance(row, Preference):
            return [], [((), row.input_ids[begin:end], row.loss_mask[begin:end]) for begin, end in row.spans]
        context = row.prompt_ids
        return [], [
            ((), context, (0,) * len(context)),
            (context, row.chosen_ids, row.chosen_mask),
            (context, row.rejected_ids, row.rejected_mask),
        ]
    tree = trees_of(run, stage)[key]
    if not 0 < at < len(tree.nodes):
        raise DataError(f"the tree {key!r} of {stage} has no turn {at}", hint=f"Its turns: 1 to {len(tree.nodes) - 1}.")
    turns = [tree.nodes[child] for child in tree.nodes[tree.nodes[at].parent].children if tree.nodes[child].token_ids]
    return [turn.id for turn in turns], [
        (tree.prompt(n.parent, n.forgotten), n.token_ids, (1,) * len(n.token_ids)) for n in turns
    ]


def logprobs(folder: Path, parts: Sequence[Part]) -> list[list[float | None]]:
    """Returns the log-probability of each token that counts under the model in a folder, and None for the others.

    Raises:
        ModelError: The folder holds no whole model.
    """
    require_model(folder, "the policy")
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, local_files_only=True, **SAFE).eval()
    # On a busy machine, threads that wait for each other make a small model a hundred times slower than one thread
    # does.
    torch.set_num_threads(1 if model.num_parameters() < SMALL else os.cpu_count() or 1)
    found: list[list[float | None]] = []
    with torch.inference_mode():
        for context, tokens, mask in parts:
            found.append([None] * len(tokens))
            places = [place for place, counts in enumerate(mask, len(context)) if counts and place]
            if not places:
                continue
            ids = torch.tensor([[*context, *tokens]])
            # Only before what counts: of a long prompt and a large vocabulary the others would take gigabytes.
            logits = model(ids, logits_to_keep=torch.tensor(places) - 1).logits[0]
            drawn = torch.log_softmax(logits, -1).gather(1, ids[0, places][:, None])[:, 0]
            for place, value in zip(places, drawn.tolist(), strict=True):
                found[-1][place - len(context)] = round(value, 4)
    return found


def answer(asked: Asked) -> None:
    """Answers a question; an error is written where the result would be."""
    try:
        probe(Run(asked.run), asked)
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
