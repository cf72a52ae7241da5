"""Dense retrieval: any sentence encoder that transformers can load from a folder, mean pooling, exact inner product."""

import hashlib
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from env_servers.retrieval.base import Passage, Retriever
from env_servers.retrieval.bm25 import fingerprint


class Dense(Retriever):
    """Passages by the inner product of unit vectors.
    Every query is compared with every passage: no approximate index, which a corpus of a few million passages does not
    need on a GPU.

    Args:
        encoder: Folder with a model and its tokenizer, for instance a download of e5-base-v2.
        query_prefix: Put before queries; the default is what E5 was trained with. Empty for encoders without prefixes.
        passage_prefix: Put before passages.
        device: Where encoder and vectors are, as torch names it.
        batch: Texts encoded at a time.
        max_tokens: Longer texts are cut.
        embeddings: Folder in which the vectors of the corpus are kept between starts; None computes them at every
            start.

    Raises:
        RuntimeError: torch or transformers is not installed, or the folder holds no encoder.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        *,
        encoder: str,
        query_prefix: str = "query: ",
        passage_prefix: str = "passage: ",
        device: str = "cpu",
        batch: int = 64,
        max_tokens: int = 512,
        embeddings: str | None = None,
    ) -> None:
        try:
            import torch
            import transformers
        except ImportError as error:
            raise RuntimeError(
                f"dense retrieval needs torch and transformers: pip install torch transformers ({error})"
            ) from error
        try:
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(encoder, local_files_only=True)
            self._model: Any = transformers.AutoModel.from_pretrained(encoder, local_files_only=True).to(device).eval()
        except (OSError, ValueError) as error:
            raise RuntimeError(
                f"{encoder!r} is no folder with a sentence encoder that transformers can load ({error}). Download one, "
                "for instance with: hf download intfloat/e5-base-v2 --local-dir e5-base-v2"
            ) from error
        self._torch = torch
        self._passages = tuple(passages)
        self._query_prefix = query_prefix
        self._device = device
        self._batch = batch
        self._max_tokens = max_tokens
        self._encoding = threading.Lock()  # fast tokenizers refuse to be used by two threads at a time
        weights = hashlib.sha256()
        for name, tensor in sorted(self._model.state_dict().items()):
            weights.update(f"{name}{tuple(tensor.shape)}{float(tensor.double().sum()):.6g}".encode())
        settings = (
            f"{weights.hexdigest()[:10]}, {query_prefix!r}, {passage_prefix!r}, {max_tokens}, "
            f"corpus={fingerprint(passages)}"
        )
        self.name = f"dense({settings})"
        texts = [passage_prefix + passage.contents.replace("\n", " ") for passage in self._passages]
        file = (
            None
            if embeddings is None
            else Path(embeddings) / f"{hashlib.sha256(settings.encode()).hexdigest()[:16]}.npy"
        )
        if file is not None and file.is_file():
            vectors = np.load(file)
        else:
            vectors = self._encode(texts).cpu().numpy()
            if file is not None:
                _save(file, vectors)
        self._vectors = torch.from_numpy(vectors).to(device)  # [N, D]

    def search(self, query: str, k: int) -> list[Passage]:
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if not queries or k < 1:
            return [[] for _ in queries]
        vectors = self._encode([self._query_prefix + query for query in queries])
        scores, indices = self._torch.topk(vectors @ self._vectors.T, min(k, len(self._passages)))
        return [
            [self._passages[i].scored(round(score, 6)) for score, i in zip(*found, strict=True)]
            for found in zip(scores.tolist(), indices.tolist(), strict=True)
        ]

    def _encode(self, texts: Sequence[str]) -> Any:
        """Unit vectors [len(texts), D] of the texts, on the device; longest first, so that batches waste little
        padding."""
        torch = self._torch
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        rows: list[Any] = [None] * len(texts)
        for start in range(0, len(order), self._batch):
            chosen = order[start : start + self._batch]
            with self._encoding, torch.inference_mode():
                tokens = self._tokenizer(
                    [texts[i] for i in chosen],
                    padding=True,
                    truncation=True,
                    max_length=self._max_tokens,
                    return_tensors="pt",
                ).to(self._device)
                hidden = self._model(**tokens).last_hidden_state  # [B, T, D]
                mask = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
                mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
                unit = torch.nn.functional.normalize(mean, dim=1).float()
            for i, row in zip(chosen, unit, strict=True):
                rows[i] = row
        return torch.stack(rows)


def _save(file: Path, vectors: np.ndarray) -> None:
    """Writes the file as a whole or not at all: several servers may start at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".tmp", delete=False) as unfinished:
        np.save(unfinished, vectors)
    Path(unfinished.name).replace(file)
