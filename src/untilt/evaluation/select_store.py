"""Finished candidates in a folder, so that a search goes on where it was stopped."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.files import replacing


@dataclass(frozen=True)
class Store:
    """One folder; each candidate has `KEY.npy` (scores), `KEY.untilt` and, last, `KEY.json`.

    Each file is written whole or not at all, and the JSON only when the others are there: a search
    that is killed leaves finished candidates and nothing else that counts.
    """

    folder: Path

    def ranker_path(self, key: str) -> Path:
        """Where the fitted ranker lies, if it could be saved."""
        return self.folder / f"{key}.untilt"

    def write(self, key: str, facts: dict[str, Any], scores: FloatArray, ranker: Any) -> None:
        """Keep a finished candidate."""
        with replacing(self.folder / f"{key}.npy") as temporary:
            np.save(temporary, scores, allow_pickle=False)
        if hasattr(ranker, "save"):
            ranker.save(self.ranker_path(key))
        with replacing(self.folder / f"{key}.json") as temporary:
            temporary.write_text(json.dumps(facts, indent=1), encoding="utf-8")

    def read(self, key: str, n_scores: int) -> tuple[dict[str, Any], FloatArray] | None:
        """A finished candidate, or None where there is none or its files are damaged."""
        try:
            facts = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
            scores = np.load(self.folder / f"{key}.npy", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        if not isinstance(facts, dict) or scores.shape != (n_scores,):
            return None
        return facts, scores
