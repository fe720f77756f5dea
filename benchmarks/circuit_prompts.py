"""Prompts whose circuits are known: induction, indirect objects, and years that must be greater."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

NAMES = (
    "Mary", "John", "Anna", "Tom", "James", "Robert", "David", "Paul", "Mark", "Sarah",
    "Laura", "Lisa", "Peter", "Alice", "Jack", "Kate", "Adam", "Emma", "Henry", "Rose",
)  # fmt: skip
FRAMES = (
    "When{} and{} went to the store,{} gave a drink to",
    "Then,{} and{} had a long argument, and afterwards{} said to",
    "After{} and{} went to the park,{} gave a ball to",
    "While{} and{} were working at the office,{} gave a book to",
)
NOUNS = ("war", "siege", "marriage", "reign", "expedition", "journey", "contract", "project")


class Prompt(NamedTuple):
    """A text, one of as many tokens that lacks what decides, and the next token with its rival."""

    text: str
    corrupted: str
    to: Any
    versus: Any


def indirect_objects(count: int, seed: int = 0) -> list[Prompt]:
    """Return prompts of Wang et al. (2022); in the corrupted text a third name gives."""
    rng, prompts = np.random.default_rng(seed), []
    for i in range(count):
        one, two, third = (f" {name}" for name in rng.choice(NAMES, 3, replace=False))
        subject, other = (one, two) if rng.random() < 0.5 else (two, one)
        frame = FRAMES[i % len(FRAMES)]
        prompts.append(Prompt(frame.format(one, two, subject), frame.format(one, two, third), other, subject))
    return prompts


def greater_years(count: int, tokenizer: Any, seed: int = 0) -> list[Prompt]:
    """Return prompts like those of Hanna et al. (2023), for a tokenizer of single digits.

    The number is the mean logit of the digits that make a later year, less that of the others; the corrupted text has
    the year 01 of the century.
    """
    digits = np.array([tokenizer(str(digit)).ids[-1] for digit in range(10)])
    rng, prompts = np.random.default_rng(seed), []
    for i in range(count):
        century, decade, year = int(rng.integers(11, 20)), int(rng.integers(2, 8)), int(rng.integers(0, 10))

        def later(output: Any, decade: int = decade) -> Any:
            logits = output.head(output.hidden[0, -1])[digits]
            return logits[decade + 1 :].mean() - logits[: decade + 1].mean()

        start = f"The {NOUNS[i % len(NOUNS)]} lasted from the year "
        prompts.append(
            Prompt(
                f"{start}{century}{decade}{year} to the year {century}",
                f"{start}{century}01 to the year {century}",
                later,
                None,
            )
        )
    return prompts


def repeated_ids(count: int, length: int, ids: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return random tokens without a repeat, each twice in a row of them, ``count`` × 2 ``length``."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.choice(ids, length, replace=False) for _ in range(count)])
    return np.concatenate([rows, rows], axis=1)
