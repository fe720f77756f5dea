"""Pretrained transformers, one readable file for each family, run in NumPy.

`load` turns a name or a path into a `Model`. Calling it with a text returns its contextual vectors, and `regard.Trace`
records the steps. A `LanguageModel` continues a text, `generate`. `register` adds a family from outside.

A family is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regard.models.base import Model, Output, TextModel
from regard.models.families import FAMILIES, load, register
from regard.models.pooling import Pooling
from regard.models.toy import Toy, ToyConfig, toy

if TYPE_CHECKING:
    from regard.models.bart import Bart, BartConfig
    from regard.models.bert import Bert, BertConfig
    from regard.models.distilbert import DistilBert, DistilBertConfig
    from regard.models.encoder_decoder import EncoderDecoderOutput
    from regard.models.gemma2 import Gemma2, Gemma2Config
    from regard.models.generation.decoding_state import DecodingState
    from regard.models.generation.loop import Generated, Stream
    from regard.models.gpt2 import GPT2, GPT2Config
    from regard.models.gpt_oss import Experts, GptOss, GptOssConfig
    from regard.models.language import LanguageModel
    from regard.models.llama import Llama, LlamaConfig
    from regard.models.mistral import Mistral, MistralConfig
    from regard.models.qwen2 import Qwen2, Qwen2Config
    from regard.models.qwen3 import Qwen3, Qwen3Config
    from regard.models.roberta import Roberta, RobertaConfig
    from regard.models.t5 import T5, T5Config

__all__ = [
    "load",
    "Model",
    "TextModel",
    "Output",
    "Pooling",
    "LanguageModel",
    "DecodingState",
    "Generated",
    "Stream",
    "EncoderDecoderOutput",
    "FAMILIES",
    "register",
    "Bart",
    "BartConfig",
    "Bert",
    "BertConfig",
    "DistilBert",
    "DistilBertConfig",
    "Roberta",
    "RobertaConfig",
    "GPT2",
    "GPT2Config",
    "Llama",
    "LlamaConfig",
    "Mistral",
    "MistralConfig",
    "Qwen2",
    "Qwen2Config",
    "Qwen3",
    "Qwen3Config",
    "Gemma2",
    "Gemma2Config",
    "GptOss",
    "GptOssConfig",
    "Experts",
    "T5",
    "T5Config",
    "Toy",
    "ToyConfig",
    "toy",
]

_MODULES = {
    "EncoderDecoderOutput": "encoder_decoder",
    "Generated": "generation.loop",
    "Stream": "generation.loop",
    "DecodingState": "generation.decoding_state",
    "LanguageModel": "language",
    "Experts": "gpt_oss",
    **{
        family + suffix: module
        for module, _, family in (entry.partition(".") for entry in FAMILIES.values() if isinstance(entry, str))
        for suffix in ("", "Config")
    },
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(f"regard.models.{_MODULES[name]}"), name)
        globals()[name] = value  # an ordinary attribute from now on
        return value
    raise AttributeError(f"module 'regard.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
