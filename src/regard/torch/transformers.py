"""The attention interface of transformers: ``attn_implementation="regard"``."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import Any, NamedTuple

import numpy as np

from regard import functional
from regard._utils.drop_ins import raises
from regard._utils.errors import RegardError, TorchError
from regard.functional.inputs import Options
from regard.torch.attention import attention
from regard.torch.direct_call import one_query_attention
from regard.torch.extra import torch
from regard.torch.masks import MaskAndBias, MaskCache

NAME = "regard"
_UNSUPPORTED = {  # keywords of few models, which change what is computed
    "indices": "sparse attention by indices of keys",
    "block_indices": "sparse attention by indices of blocks",
    "sinks": "a sink for each query",
    "cache": "the paged cache of continuous batching",
}
_REFUSED = {*_UNSUPPORTED, "output_attentions"}  # or warned of


@raises(TorchError)
def register() -> None:
    """Make ``attn_implementation="regard"`` known to transformers, for every model that uses its attention interface.

    Calling it again changes nothing. Forward and backward pass, dropout in training, ``generate`` with any cache,
    padding on either side, sliding windows, sinks, softcap, and query heads that share keys; on the CPU.

    Notes
    -----
    A model gets the masks that it gets for ``"sdpa"``, or if it does not support that, for ``"flex_attention"`` (as
    tensors) or ``"eager"``. A mask of n² cells becomes a range of keys for each query, once in a forward pass.
    ``output_attentions=True`` is refused in a configuration and ignored with a warning in a call, as with ``"sdpa"``;
    `regard.capture` records the attention.

    The context of a fully masked row, of padding, is 0, as with ``"sdpa"``; ``"eager"`` has the mean of all values.

    Raises
    ------
    RegardError
        Also a RuntimeError. transformers is missing, does not import, or is older than 5. Later, when a model runs: it
        computes attention in its own code, or by what the interface does not pass to all (sparse indices, paged
        caches); or it runs on another device.

    Examples
    --------
    >>> regard.torch.register()                                                                # doctest: +SKIP
    >>> model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="regard")     # doctest: +SKIP
    >>> model.set_attn_implementation("regard")                                                # doctest: +SKIP
    """
    try:
        import transformers

        if int(transformers.__version__.partition(".")[0]) < 5:
            raise RegardError(
                f"register needs transformers 5 or later, got {transformers.__version__}: "
                f'pip install --upgrade "transformers>=5"'
            )
        interfaces = transformers.AttentionInterface, transformers.AttentionMaskInterface  # imported here, lazily
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "transformers":
            raise RegardError('register needs transformers 5 or later: pip install "transformers>=5"') from error
        raise RegardError(
            f"register needs transformers 5 or later, which is there but does not import: {_first_cause(error)}"
        ) from error
    for interface, function in zip(interfaces, (attention_forward, make_mask), strict=True):
        interface.register(NAME, function)


def _first_cause(error: BaseException) -> str:
    """Return what the error says that led to all others, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())


@raises(TorchError)
def attention_forward(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Any = None,
    softcap: float | None = None,
    s_aux: Any = None,
    **options: Any,
) -> tuple[Any, None]:
    """Return the context ``B T H Dv``, and None for the weights: a function of the attention interface.

    Parameters
    ----------
    module : torch.nn.Module
        Its attribute ``is_causal``, True by default, counts where `is_causal` is None.
    query : tensor, ``B H T D``
    key : tensor, ``B G S D``
    value : tensor, ``B G S Dv``
    attention_mask : tensor that broadcasts to ``B H T S``, or None
        Boolean, True: the query attends to the key; or numbers to add to the scores.
    position_bias : tensor that broadcasts to ``B H T S``, optional
        Added to the scores.
    s_aux : tensor, ``H``, optional
        Sinks.
    """
    is_plain = attention_mask is None is position_bias is s_aux and not (softcap or dropout)
    if is_plain and scaling is not None and query.shape[2] == 1 and options.keys().isdisjoint(_REFUSED):
        context = one_query_attention(query, key, value, scaling)
        if context is not None:
            return context.transpose(1, 2), None
    for name in _UNSUPPORTED.keys() & options.keys():
        if options[name] is not None:
            raise RegardError(
                f"{type(module).__name__} asks for {_UNSUPPORTED[name]} ({name}=), which attn_implementation={NAME!r} "
                f"does not have; use another implementation for this model"
            )
    if options.get("output_attentions"):
        _warn_of_weights()
    ours: Options = {"scale": scaling, "softcap": softcap, "sinks": s_aux}
    queries = query.shape[2]
    if is_causal_without_mask(module, queries, attention_mask, is_causal):
        key, value = key[:, :, :queries], value[:, :, :queries]  # a static cache has room behind the queries
        position_bias = None if position_bias is None else position_bias[..., :queries]
        ours |= {"causal": True, "query_offset": 0}
    if attention_mask is not None or position_bias is not None:
        ours["mask"], ours["bias"] = mask_and_bias_of(attention_mask, position_bias, queries)
    if dropout:
        ours |= {"dropout": dropout, "rng": _generator()}
    compute = functional.attention if query.is_cpu else attention
    context = compute(query, key, value, **ours)
    return context.transpose(1, 2).contiguous(), None


def is_causal_without_mask(module: Any, queries: int, attention_mask: Any, is_causal: bool | None) -> bool:
    """Whether a call is causal though it has no mask; its queries are then the first positions."""
    if attention_mask is not None or queries == 1:
        return False
    if not mask_support(getattr(module, "config", None)).causal_flag:
        return False
    return bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)


def mask_and_bias_of(attention_mask: Any, position_bias: Any, queries: int) -> tuple[Any, Any]:
    """Return the mask and the bias that an attention mask and a position bias of transformers mean."""
    masking = MaskAndBias(None, None)
    if attention_mask is not None:
        is_boolean = attention_mask.dtype is torch.bool
        if attention_mask.requires_grad or torch.compiler.is_compiling() or (is_boolean and queries == 1):
            masking = MaskAndBias(attention_mask, None) if is_boolean else MaskAndBias(None, attention_mask)
        else:
            masking = _MASKS.convert(attention_mask, queries)
    if position_bias is None:
        return masking
    if masking.bias is not None:  # numbers on both sides
        return None, attention_mask + position_bias
    return masking.mask, position_bias


@raises(TorchError)
def make_mask(*args: Any, config: Any = None, allow_is_causal_skip: bool = True, **options: Any) -> Any:
    """Return the mask of a forward pass: a function of the mask interface."""
    support = mask_support(config)
    function = _mask_functions()[support.boolean]
    return function(*args, config=config, allow_is_causal_skip=allow_is_causal_skip and support.causal_flag, **options)


@functools.cache  # an import takes microseconds, which count for a new token
def _mask_functions() -> tuple[Any, Any]:
    """Return transformers' functions of masks of numbers, and of booleans."""
    from transformers.masking_utils import eager_mask, sdpa_mask

    return eager_mask, sdpa_mask


class MaskSupport(NamedTuple):
    """Which masks the models of a configuration were written for."""

    boolean: bool  # tensors of booleans, else of numbers to add
    causal_flag: bool  # where there is no mask, `is_causal` says whether there is none or a causal one


def mask_support(config: Any) -> MaskSupport:
    """Return the masks that models of a configuration take; an error if they bypass the attention interface."""
    if config is None:
        return MaskSupport(True, True)
    return _support_of_module(sys.modules.get(_models_beside(type(config).__module__)))


@functools.cache
def _models_beside(configurations: str) -> str:
    """Return the name of the module of models, which transformers names like that of their configuration."""
    return re.sub(r"\bconfiguration_(\w+)$", r"modeling_\1", configurations)


@functools.cache
def _support_of_module(module: Any) -> MaskSupport:
    from transformers import PreTrainedModel

    classes: list[Any] = [x for _, x in inspect.getmembers(module, inspect.isclass)]
    models = [x for x in classes if issubclass(x, PreTrainedModel) and x.__module__ == module.__name__]
    if models and not any(model._can_set_attn_implementation() for model in models):
        raise RegardError(
            f"{models[0].__name__} computes attention in its own code and not through the attention interface of "
            f"transformers: give attn_implementation='eager'"
        )
    takes_sdpa = all(model._supports_sdpa for model in models)
    return MaskSupport(takes_sdpa or all(model._supports_flex_attn for model in models), takes_sdpa)


@functools.cache
def _warn_of_weights() -> None:
    from transformers.utils import logging

    logging.get_logger(__name__).warning(
        f"attn_implementation={NAME!r} returns no weights for output_attentions=True: "
        f"use 'eager', or run the model inside regard.capture"
    )


def _generator() -> np.random.Generator:
    """Return a generator seeded by PyTorch's, which a manual seed or a checkpoint of activations sets."""
    return np.random.default_rng(int(torch.randint(2**62, (), device="cpu")))


_MASKS = MaskCache()
