"""Pretrained transformers, one readable file for each family, run in NumPy.

`load` turns a name or a path into a `Model`. Calling it with a text returns its contextual vectors, and `regard.Trace`
records the steps. A `LanguageModel` continues a text, `generate`. `register` adds a family from outside.

A family is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regard.models.base import Model, PretrainedModel, TextModel
from regard.models.families import FAMILIES, load, register
from regard.models.output import Output, PooledOutput
from regard.models.pooling import Pooling
from regard.models.toy import Toy, ToyConfig, toy

if TYPE_CHECKING:
    from regard.models.circuits import Circuits
    from regard.models.deepseek_v3 import LatentAttention, SharedAndRoutedExperts
    from regard.models.encoder_decoder import EncoderDecoderOutput
    from regard.models.generation.decoding_state import DecodingState
    from regard.models.generation.loop import Generated, Stream
    from regard.models.gpt_oss import Experts
    from regard.models.images.model import ImageModel, ImageOutput
    from regard.models.images.processor import ImageProcessor
    from regard.models.language import LanguageModel, Prediction
    from regard.models.mixtral import MixtureOfExperts

# The class and the configuration of each family, `Bert` and `BertConfig`, and their modules.
_FAMILY_MODULES = {
    family + suffix: module
    for module, _, family in (entry.partition(".") for entry in FAMILIES.values() if isinstance(entry, str))
    for suffix in ("", "Config")
}
_MODULES = {
    "EncoderDecoderOutput": "encoder_decoder",
    "Generated": "generation.loop",
    "Stream": "generation.loop",
    "DecodingState": "generation.decoding_state",
    "LanguageModel": "language",
    "Prediction": "language",
    "Circuits": "circuits",
    "Experts": "gpt_oss",
    "ImageModel": "images.model",
    "ImageOutput": "images.model",
    "ImageProcessor": "images.processor",
    "MixtureOfExperts": "mixtral",
    "LatentAttention": "deepseek_v3",
    "SharedAndRoutedExperts": "deepseek_v3",
    **_FAMILY_MODULES,
}

__all__ = [
    "load",
    "Model",
    "PretrainedModel",
    "TextModel",
    "ImageModel",
    "Output",
    "PooledOutput",
    "ImageOutput",
    "ImageProcessor",
    "Pooling",
    "LanguageModel",
    "Prediction",
    "Circuits",
    "DecodingState",
    "Generated",
    "Stream",
    "EncoderDecoderOutput",
    "FAMILIES",
    "register",
    "Experts",
    "MixtureOfExperts",
    "LatentAttention",
    "SharedAndRoutedExperts",
    "Toy",
    "ToyConfig",
    "toy",
    *_FAMILY_MODULES,
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(f"regard.models.{_MODULES[name]}"), name)
        globals()[name] = value  # an ordinary attribute from now on
        return value
    raise AttributeError(f"module 'regard.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
