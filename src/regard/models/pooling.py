"""Pooling: from the vectors of tokens to one vector of a text, as a sentence model configures it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.models.checkpoint.config import ConfigReader
from regard.text.files import read_file


def _weighted_mean(hidden: np.ndarray) -> Any:
    weights = np.arange(1, len(hidden) + 1, dtype=hidden.dtype)
    return weights @ hidden / weights.sum()


MODES: Mapping[str, Callable[[np.ndarray], Any]] = MappingProxyType(
    {
        "cls": lambda hidden: hidden[0],
        "max": lambda hidden: hidden.max(0),
        "mean": lambda hidden: hidden.mean(0),
        "mean_sqrt_len": lambda hidden: hidden.sum(0) / len(hidden) ** 0.5,
        "weightedmean": _weighted_mean,
        "lasttoken": lambda hidden: hidden[-1],
    }
)
"""Functions from ``T E`` to ``E``, by their names in sentence-transformers. Results of several are concatenated in this
order. ``mean_sqrt_len`` divides the sum by the root of the length; ``weightedmean`` gives token i the weight i + 1."""

_FIELDS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_DEFAULT_FOLDER = "1_Pooling"


@dataclass(frozen=True)
class Pooling:
    """How a sentence model makes one vector of those of its tokens.

    Parameters
    ----------
    modes : tuple of str
        Names in `MODES`.
    normalize : bool
        Whether vectors are scaled to length 1.
    """

    modes: tuple[str, ...]
    normalize: bool = True

    def __post_init__(self) -> None:
        unknown = [mode for mode in self.modes if mode not in MODES]
        if unknown or not self.modes:
            raise RegardError(f"pooling must be one or more of {', '.join(MODES)}, got {', '.join(unknown) or 'none'}")

    def __call__(self, hidden: np.ndarray) -> np.ndarray:
        """Return the vector of a text from ``T E`` without padding: ``E`` features for each mode."""
        vector = np.concatenate([pool(hidden) for mode, pool in MODES.items() if mode in self.modes])
        if not self.normalize:
            return vector
        length = np.linalg.norm(vector)
        return vector / length if length else vector


def read_pooling(folder: Path) -> Pooling | None:
    """Return the pooling of the sentence model in `folder`, None for another model.

    ``modules.json`` lists the steps: Transformer, Pooling, and Normalize if vectors are scaled to length 1. With
    ``1_Pooling/config.json`` alone, as in packages with a part of the files, vectors are scaled to length 1, as most
    sentence models do, all-MiniLM-L6-v2 among them; cosine similarities are the same either way. An error if a file is
    malformed, or lists an unsupported step.
    """
    if not folder.is_dir():  # a GGUF file
        return None
    path = folder / "modules.json"
    content = read_file(path)
    if content is None:
        where = folder / _DEFAULT_FOLDER / "config.json"
        return _read_config(where, normalize=True) if where.exists() else None
    try:
        modules = json.loads(content.decode())
        steps = [(str(module["type"]).rpartition(".")[2], module["path"]) for module in modules]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RegardError(f"{path} is not a list of modules: {error!r}; fetch the file again") from error
    kinds = [kind for kind, _ in steps]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]) or steps[0][1] != "":
        raise RegardError(
            f"{path} lists the modules {', '.join(kinds) or 'none'}; supported: a Transformer in the folder itself, "
            f"a Pooling after it, and optionally a Normalize"
        )
    name = steps[1][1]
    if not isinstance(name, str) or Path(name).name != name:  # a folder of the model, not a path
        raise RegardError(
            f"{path} gives {ascii(name)[:80]} as the folder of its Pooling; it must be a folder beside it"
        )
    return _read_config(folder / name / "config.json", normalize="Normalize" in kinds)


def _read_config(path: Path, *, normalize: bool) -> Pooling:
    reader = ConfigReader.open(path)
    for name in ("word_embedding_dimension", "embedding_dimension"):
        if reader.peek(name) is not None:
            reader.count(name)  # the width of the model is used
    reader.choice("include_prompt", True, [True])
    modes = tuple(mode for name, mode in _FIELDS.items() if reader.choice(name, False, [False, True]))
    if reader.peek("pooling_mode") is not None:
        named: Any = reader.choice("pooling_mode", "mean", list(MODES))
        modes = (*modes, *([named] if named not in modes else []))
    reader.require(bool(modes), "no pooling mode is true")
    reader.finish()
    return Pooling(modes, normalize)
