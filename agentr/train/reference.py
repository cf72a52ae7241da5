"""Reference log-probabilities of preference pairs, kept in a file.

The reference is the start checkpoint, which does not change, so its log-probabilities are computed once, before the
first step. A resumed job, whose engine holds a later policy, reads the file: a second model in memory is never needed.
"""

import io
import zipfile
from pathlib import Path

import numpy as np

from agentr.store.files import write_bytes


def write_reference(path: Path, logprobs: np.ndarray, dataset: str, start: str) -> None:
    """Writes the file atomically.

    Args:
        logprobs: Sums over the tokens that count, shape [pairs, 2] (chosen, rejected); NaN for pairs that no step uses.
        dataset: Hash of the dataset.
        start: Hash of the start checkpoint's weights.
    """
    buffer = io.BytesIO()
    np.savez(buffer, logprobs=logprobs, dataset=np.array(dataset), start=np.array(start))
    write_bytes(path, buffer.getvalue())


def read_reference(path: Path, dataset: str, start: str) -> np.ndarray | None:
    """Reads the log-probabilities, shape [pairs, 2]; None without a whole file of this dataset and start checkpoint."""
    try:
        with np.load(path) as stored:
            if (str(stored["dataset"]), str(stored["start"])) != (dataset, start):
                return None
            return stored["logprobs"]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        return None
