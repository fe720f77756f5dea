"""The equations of self-attention as pure functions: arrays in, arrays out.

Every function takes arrays of any library of the Python array API standard; its docstring names their axes with the
letters ``B H G T S D Dv E``. No function here depends on layers, files or models. What attention itself does not
need is imported on first use.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from regard.functional.attention import attention, attention_weights
from regard.functional.backward import Gradients, attention_vjp
from regard.functional.biases import ALiBi, Bias, DistanceBias, RelativePositionBias
from regard.functional.block_mask import BlockMask, FunctionMask, create_block_mask
from regard.functional.dispatch import Plan, explain_plan
from regard.functional.heads import merge_heads, split_heads
from regard.functional.inputs import Options
from regard.functional.mask_rules import Causal, KeyLengths, KeyRangeMask, PrefixLM, SegmentMask, SlidingWindow
from regard.functional.masks import DenseMask, Mask
from regard.functional.positions import alibi_slopes, learned_positions, relative_position_buckets, sinusoidal_positions
from regard.functional.score_mod import ScoreMod
from regard.functional.softmax import softmax, softmax_vjp
from regard.functional.variable import Variable, gradients

if TYPE_CHECKING:
    from regard.functional.activation import (
        activation,
        gelu,
        gelu_vjp,
        quick_gelu,
        quick_gelu_vjp,
        relu,
        relu_vjp,
        silu,
        silu_vjp,
        swiglu,
        swiglu_vjp,
    )
    from regard.functional.cross_entropy import cross_entropy, cross_entropy_vjp
    from regard.functional.embedding import embedding, embedding_vjp
    from regard.functional.experts import experts, experts_vjp, top_k_softmax, top_k_softmax_vjp
    from regard.functional.factored import FactoredMatrix
    from regard.functional.linear import linear, linear_vjp
    from regard.functional.linear_attention import (
        LinearAttention,
        LinearAttentionGradients,
        linear_attention,
        linear_attention_vjp,
    )
    from regard.functional.norm import layer_norm, layer_norm_vjp, normalize, rms_norm, rms_norm_vjp
    from regard.functional.partial import Partial, attention_partial, merge_partials
    from regard.functional.rotary import apply_rotary, apply_rotary_vjp, rotary, rotary_frequencies, rotary_pairs
    from regard.functional.varlen import attention_varlen, attention_varlen_vjp

_MODULE_OF = {
    name: module
    for module, names in {
        "activation": (
            *("activation", "gelu", "quick_gelu", "relu", "silu", "swiglu"),
            *("gelu_vjp", "quick_gelu_vjp", "relu_vjp", "silu_vjp", "swiglu_vjp"),
        ),
        "cross_entropy": ("cross_entropy", "cross_entropy_vjp"),
        "embedding": ("embedding", "embedding_vjp"),
        "experts": ("experts", "experts_vjp", "top_k_softmax", "top_k_softmax_vjp"),
        "factored": ("FactoredMatrix",),
        "linear": ("linear", "linear_vjp"),
        "linear_attention": (
            *("linear_attention", "linear_attention_vjp"),
            *("LinearAttention", "LinearAttentionGradients"),
        ),
        "norm": ("layer_norm", "layer_norm_vjp", "normalize", "rms_norm", "rms_norm_vjp"),
        "partial": ("Partial", "attention_partial", "merge_partials"),
        "rotary": ("apply_rotary", "apply_rotary_vjp", "rotary", "rotary_frequencies", "rotary_pairs"),
        "varlen": ("attention_varlen", "attention_varlen_vjp"),
    }.items()
    for name in names
}


class _Package(ModuleType):
    """A package in which a submodule that is imported later does not hide the function of its name: `rotary`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _MODULE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"regard.functional.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Variable",
    "gradients",
    "attention",
    "attention_weights",
    "attention_partial",
    "merge_partials",
    "Partial",
    "attention_vjp",
    "attention_varlen",
    "attention_varlen_vjp",
    "FactoredMatrix",
    "Gradients",
    "explain_plan",
    "Plan",
    "Options",
    "linear_attention",
    "linear_attention_vjp",
    "LinearAttention",
    "LinearAttentionGradients",
    "softmax",
    "softmax_vjp",
    "Mask",
    "Causal",
    "SlidingWindow",
    "KeyLengths",
    "PrefixLM",
    "SegmentMask",
    "KeyRangeMask",
    "DenseMask",
    "FunctionMask",
    "BlockMask",
    "create_block_mask",
    "Bias",
    "ALiBi",
    "RelativePositionBias",
    "DistanceBias",
    "ScoreMod",
    "rotary",
    "apply_rotary",
    "apply_rotary_vjp",
    "rotary_frequencies",
    "rotary_pairs",
    "alibi_slopes",
    "relative_position_buckets",
    "sinusoidal_positions",
    "learned_positions",
    "split_heads",
    "merge_heads",
    "cross_entropy",
    "cross_entropy_vjp",
    "embedding",
    "embedding_vjp",
    "experts",
    "experts_vjp",
    "top_k_softmax",
    "top_k_softmax_vjp",
    "linear",
    "linear_vjp",
    "layer_norm",
    "layer_norm_vjp",
    "normalize",
    "rms_norm",
    "rms_norm_vjp",
    "activation",
    "gelu",
    "gelu_vjp",
    "quick_gelu",
    "quick_gelu_vjp",
    "relu",
    "relu_vjp",
    "silu",
    "silu_vjp",
    "swiglu",
    "swiglu_vjp",
]
