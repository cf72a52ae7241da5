"""Atomic checkpoints: whole, or ignored.

A resumable checkpoint is many files that many workers write into its final folder, so its seal is written last: a
list of the files with their sizes. A model is written under a temporary name and renamed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentr.store.files import write_aside, write_json
from agentr.store.model_folder import WEIGHTS
from agentr.store.seal import CARD

if TYPE_CHECKING:
    from agentr.train.job import TrainJob

log = logging.getLogger(__name__)

SEAL = "complete.json"


def seal(folder: Path) -> None:
    """Marks a checkpoint as whole. To be called once, after all workers have written their files."""
    files = {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
    write_json(folder / SEAL, {"files": files})


def is_complete(folder: Path) -> bool:
    """Returns whether every file of the seal is there, with its size."""
    try:
        files: dict[str, int] = json.loads((folder / SEAL).read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, json.JSONDecodeError, KeyError):
        return False


def saved_steps(folder: Path) -> int:
    """Returns the steps of the last complete checkpoint, 0 if there is none.
    Touches nothing: a trainer may still be writing."""
    return max(
        (int(path.name.rpartition("-")[2]) for path in folder.glob("checkpoint-*") if is_complete(path)), default=0
    )


def latest(folder: Path, most: int | None = None) -> Path | None:
    """Returns the complete checkpoint with the most steps, if any.

    Removes torn checkpoints: the trainer keeps the last two, and would count a torn one.

    Args:
        most: Checkpoints with more steps are removed, too: they are to be made again.
    """
    found: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        steps = int(path.name.rpartition("-")[2])
        if most is not None and steps > most:
            shutil.rmtree(path, ignore_errors=True)
        elif is_complete(path):
            found.append((steps, path))
        else:
            log.warning("Skipping the torn checkpoint %s: its seal is missing or does not match its files.", path)
            shutil.rmtree(path, ignore_errors=True)
    return max(found)[1] if found else None


def fingerprint(folder: Path, samples: int = 256, sample_bytes: int = 16384) -> str:
    """Hashes a model's configuration and samples spread evenly over its weights, in a moment whatever its size.

    Raises:
        OSError: A file cannot be read.
    """
    found = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(path for path in folder.iterdir() if path.name.endswith(WEIGHTS)):
        size = path.stat().st_size
        found.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for index in range(samples):
                file.seek(size * index // samples)
                found.update(file.read(sample_bytes))
    return found.hexdigest()


def publish(save: Callable[[Path], object], final: Path, job: TrainJob) -> None:
    """Writes the folder ``final`` atomically: the weights from ``save``, and everything else from the job's start.

    Configuration, tokenizer and chat template are copied byte for byte, so training cannot change how prompts are
    built. What the run's configuration sets in their place is written over them: who serves the checkpoint shows the
    model what it was trained on. The start's card is of another model: the checkpoint gets one of its own
    (``agentr.observe.card``).
    """
    with write_aside(final) as folder:
        save(folder)
        for path in job.start.iterdir():
            if path.is_file() and not path.name.endswith(WEIGHTS) and path.name != CARD:
                shutil.copyfile(path, folder / path.name)
        if job.chat_template:
            (folder / "chat_template.jinja").write_text(job.chat_template, encoding="utf-8")
        if job.stop_ids:
            _stop_at(folder / "generation_config.json", job.stop_ids)


def _stop_at(file: Path, ids: Sequence[int]) -> None:
    """Adds ids to those at which a generation ends."""
    described = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    before = described.get("eos_token_id")
    known = before if isinstance(before, list) else [] if before is None else [before]
    described["eos_token_id"] = list(dict.fromkeys([*known, *ids]))
    file.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
