"""Sampling: the next token from its logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number, whole_number
from regard.functional import softmax


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen from its logits; `LanguageModel.generate` describes the fields.

    References
    ----------
    Fan, Lewis and Dauphin (2018), "Hierarchical neural story generation", https://arxiv.org/abs/1805.04833 (top-k);
    Holtzman et al. (2019), "The curious case of neural text degeneration", https://arxiv.org/abs/1904.09751 (top-p).
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if finite_number("temperature", self.temperature) < 0:
            raise RegardError(f"temperature must be 0 or more, got {self.temperature}")
        if self.top_k is not None:
            whole_number("top_k", self.top_k, 1)
        if self.top_p is not None and not 0 < finite_number("top_p", self.top_p) <= 1:
            raise RegardError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.seed is not None:
            whole_number("seed", self.seed, 0)
        unused = [name for name in ("top_k", "top_p", "seed") if getattr(self, name) is not None]
        if self.temperature == 0 and unused:
            raise RegardError(
                f"temperature 0 decodes greedily, so {' and '.join(unused)} would change nothing; give a temperature "
                f"above 0 too"
            )

    def choose(self, logits: np.ndarray, rng: np.random.Generator) -> int:
        """Return the next token for its logits, ``V``; sampling draws one number from `rng`."""
        if not np.isfinite(logits).all():
            raise RegardError("the logits of the next token are not finite: the numbers of the model are too large")
        if self.temperature == 0:
            return int(np.argmax(logits))
        tokens, probabilities = self.probabilities(logits)
        cumulative = np.cumsum(probabilities)
        index = int(np.searchsorted(cumulative, rng.random() * probabilities.sum(), side="right"))
        return int(tokens[min(index, len(tokens) - 1)])

    def probabilities(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the candidate tokens, likeliest first, and their probabilities, not renormalised after top-p."""
        logits = logits.astype(np.float64)
        with np.errstate(over="ignore"):  # a tiny temperature leaves the likeliest alone
            logits = (logits - logits.max()) / self.temperature
        tokens = np.arange(len(logits))
        if self.top_k is not None and self.top_k < len(logits):
            kth = np.partition(logits, -self.top_k)[-self.top_k]
            tokens = tokens[logits >= kth]  # more than k where logits are equal
        tokens = tokens[np.argsort(-logits[tokens], kind="stable")][: self.top_k]
        probabilities = softmax(logits[tokens])
        if self.top_p is not None:
            count = int(np.count_nonzero(np.cumsum(probabilities) - probabilities < self.top_p))
            tokens, probabilities = tokens[:count], probabilities[:count]
        return tokens, probabilities
