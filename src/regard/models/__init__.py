"""Pretrained transformers, one readable file for each family, run in NumPy.

`load` turns a name or a folder into a `Model`; calling it with a text returns its contextual vectors, and
`regard.Trace` looks inside. A `LanguageModel` goes on with a text, `generate`.

The families are imported when they are first used, for a model is of one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regard.models.base import Model, Output, TextModel
from regard.models.families import FAMILIES, load
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

_HOMES = {
    "EncoderDecoderOutput": "encoder_decoder",
    "Generated": "generation.loop",
    "Stream": "generation.loop",
    "LanguageModel": "language",
    "DecodingState": "generation.decoding_state",
    "Experts": "gpt_oss",
    **{
        name + ending: module
        for module, _, name in (home.partition(".") for home in FAMILIES.values())
        for ending in ("", "Config")
    },
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = getattr(importlib.import_module(f"regard.models.{_HOMES[name]}"), name)
        globals()[name] = found  # the next time it is an attribute like any other
        return found
    raise AttributeError(f"module 'regard.models' has no attribute {name!r}")
