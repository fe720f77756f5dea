"""The attention interface of transformers, patched to record."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from regard._capture.session import CaptureSession, edits_weights, record_call
from regard._utils.errors import RegardError
from regard.functional import Causal, Mask, Options, attention
from regard.functional.masks.base import logical_and
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.torch.masks import MaskAndBias, MaskCache, mask_and_bias, mask_of
from regard.torch.transformers import NAME, is_causal_without_mask

_SUPPORTED = ("sdpa", "eager", NAME)
_LOCK = threading.Lock()  # captures may begin and end in several threads


def uses_attention_interface(model: Any) -> bool:
    """Whether a module is, or contains, a model of transformers that computes attention through its interface."""
    return any(type(part)._can_set_attn_implementation() for part in _models(model))


@contextmanager
def patched_interface(model: Any, session: CaptureSession) -> Iterator[None]:
    """Replace the attention implementations of a model of transformers by `AttentionWrapper` inside the context.

    An error if the model's implementation is not supported.
    """
    configs = _configs(model)
    before: list[str] = []
    wrappers: dict[str, AttentionWrapper] = {}
    try:
        with _LOCK:
            before += [config._attn_implementation for config in configs]
            for original in dict.fromkeys(before):
                wrappers[original] = _registered(original, model, session)
            for config, original in zip(configs, before, strict=True):
                config._attn_implementation = wrappers[original].name
        yield
    finally:
        with _LOCK:
            for wrapper in wrappers.values():
                wrapper.is_over = True
            for config, original in zip(configs, before, strict=True):
                if original in wrappers and config._attn_implementation == wrappers[original].name:
                    config._attn_implementation = _skip_ended(original)
            _clear()


class AttentionWrapper:
    """A function of the attention interface that records its arguments and calls the original.

    Parameters
    ----------
    name : str
        Its registered name.
    original : str
        The name of the implementation that it replaces.
    session : CaptureSession
    """

    def __init__(self, name: str, original: str, session: CaptureSession) -> None:
        self.name = name
        self.original = original
        self.is_over = False
        self._session = session
        self._masks = MaskCache()

    def __call__(self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any) -> Any:
        """Return the output ``B T H Dv`` of an attention, and None for its weights.

        The arguments are those of transformers' attention functions: q ``B H T D``, k and v ``B G S D``, a mask, and
        keywords: ``scaling``, ``softcap``, ``s_aux`` (sinks), ``position_bias``, ``is_causal``, ``dropout`` and others.
        """
        import torch

        mask, bias = self._mask_and_bias(module, query, attention_mask, options)
        ours: Options = {"scale": options.get("scaling"), "softcap": options.get("softcap")}
        ours |= {"sinks": options.get("s_aux"), "mask": mask, "bias": bias}
        is_off = self.is_over or not self._session.is_recording()
        with nullcontext(NULL_RECORDER) if is_off else self._session.scope(module) as trace:
            query = _tapped_queries(trace, module, query, options.get("scaling"))
            key = trace("k", key, "B G S D")
            value = trace("v", value, "B G S Dv")
            if self.original == "eager" or edits_weights(trace):
                if options.get("dropout"):
                    raise RegardError(
                        "capture computes the attention of this model without dropout: call model.eval() first"
                    )
                context = attention(query, key, value, **ours, trace=trace)
            else:
                with torch.no_grad():
                    record_call(trace, query, key, value, ours)
                function = _functions()[self.original]
                output, _ = function(module, query, key, value, attention_mask, **options)
                context = trace("context", output.transpose(1, 2), "B H T Dv")
        return context.transpose(1, 2).contiguous(), None

    def _mask_and_bias(self, module: Any, query: Any, mask: Any, options: dict[str, Any]) -> MaskAndBias:
        """Return the mask and the bias of a call."""
        import torch

        position_bias = options.get("position_bias")
        added = MaskAndBias(None, None) if position_bias is None else self._masks.convert(position_bias, query.shape[2])
        if isinstance(mask, StructuredMask):
            return MaskAndBias(logical_and(mask.mask, added.mask), added.bias)
        if mask is None:
            is_masked = self._is_causal_without_mask(module, query.shape[2], options.get("is_causal"))
            return MaskAndBias(logical_and(Causal(0) if is_masked else None, added.mask), added.bias)
        if not isinstance(mask, torch.Tensor) or mask.ndim != 4:
            raise RegardError(f"capture supports masks of shape B 1 T S, got {_described(mask)}")
        converted = self._masks.convert(mask, query.shape[2])
        if converted.bias is not None and added.bias is not None:
            return mask_and_bias(mask + options["position_bias"], query.shape[2])
        return MaskAndBias(logical_and(converted.mask, added.mask), converted.bias or added.bias)

    def _is_causal_without_mask(self, module: Any, queries: int, is_causal: bool | None) -> bool:
        """Whether the implementation masks later keys of a call without a mask."""
        kind = _implementation(self.original)
        if kind == NAME:
            return is_causal_without_mask(module, queries, None, is_causal)
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        return bool(is_causal and queries > 1 and kind == "sdpa")


def _tapped_queries(trace: Recorder, module: Any, query: Any, scaling: float | None) -> Any:
    """Record queries ``B H T D`` as they are before the scale, which some models, such as OPT, apply to them first."""
    scale = getattr(module, "scaling", None)
    if scaling != 1 or not isinstance(scale, float) or scale == 1 or not trace.plan("q").asked:
        return trace("q", query, "B H T D")
    unscaled = query / scale
    tapped = trace("q", unscaled, "B H T D")
    return query if tapped is unscaled else tapped * scale


class StructuredMask:
    """A mask of regard, passed through a model instead of a tensor of n² cells."""

    def __init__(self, mask: Mask | None) -> None:
        self.mask = mask


def _structured_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: Any = None,
    device: Any = "cpu",
    use_vmap: bool = False,
    **options: Any,
) -> Any:
    """Return a mask of transformers as a `StructuredMask`; the arguments are those of its mask functions."""
    import torch
    from transformers.masking_utils import sdpa_mask

    if use_vmap or mask_function is None:
        return sdpa_mask(
            batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask,
            use_vmap=use_vmap, device=device, **options | {"allow_is_causal_skip": False},
        )  # fmt: skip
    batches = torch.arange(batch_size, device=device)[:, None, None, None]
    heads = torch.zeros((1, 1, 1, 1), dtype=torch.int64, device=device)
    keys = torch.arange(kv_length, device=device)[None, None, None, :]
    padding = None
    if attention_mask is not None:
        missing = kv_length + kv_offset - attention_mask.shape[-1]
        padding = torch.nn.functional.pad(attention_mask, (0, max(0, missing)))[:, None, None, :]
        padding = padding[..., kv_offset : kv_offset + kv_length].to(device, torch.bool)

    def mask_rows(rows: slice) -> Any:
        queries = torch.arange(rows.start, rows.stop, device=device)[None, None, :, None]
        block = mask_function(batches, heads, queries + q_offset, keys + kv_offset)
        return block if padding is None else block & padding

    return StructuredMask(mask_of(mask_rows, (batch_size, 1), q_length, kv_length))


def _registered(original: str, model: Any, session: CaptureSession) -> AttentionWrapper:
    """Register a wrapper of an implementation, and the function that makes its masks."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    wrapper = AttentionWrapper("", original, session)
    wrapper.name = f"regard-{id(wrapper):x}-{original}"
    kind = _implementation(original)
    if kind not in _SUPPORTED:
        raise RegardError(
            f"{type(model).__name__} computes attention by {original!r}, which capture does not support{_advice(model)}"
        )
    make_mask = ALL_MASK_ATTENTION_FUNCTIONS[original]
    if kind == "eager":
        odd = [type(part).__name__ for part in _models(model) if not _has(part, "_supports_attention_backend")]
        if odd:
            raise RegardError(f"the eager attention of {odd[0]} may bypass the attention interface{_advice(model)}")
        if original == "eager" and all(_has(part, "_supports_flex_attn") for part in _models(model)):
            make_mask = _structured_mask  # models that pass on a BlockMask pass on any object
    AttentionInterface.register(wrapper.name, wrapper)
    AttentionMaskInterface.register(wrapper.name, make_mask)
    return wrapper


def _advice(model: Any) -> str:
    """Return the end of an error: the implementation of the model that can be recorded."""
    for name, support in (("sdpa", "_supports_sdpa"), ("eager", "_supports_attention_backend")):
        if all(_has(part, support) for part in _models(model)):
            return f": call model.set_attn_implementation({name!r}) first"
    return f"; {type(model).__name__} has no other that capture supports"


def _has(part: Any, support: str) -> bool:
    return bool(getattr(part, support, False))


def _implementation(name: str) -> str:
    """Return the name of the implementation at the end of a chain of wrappers."""
    while isinstance(wrapper := _functions().get(name), AttentionWrapper):
        name = wrapper.original
    return name


def _skip_ended(name: str) -> str:
    """Return the first implementation of a chain that is not a wrapper whose context has ended."""
    while isinstance(wrapper := _functions().get(name), AttentionWrapper) and wrapper.is_over:
        name = wrapper.original
    return name


def _clear() -> None:
    """Unregister every wrapper whose context has ended and that no other wraps."""
    from transformers import AttentionInterface, AttentionMaskInterface

    while True:
        wrappers = [function for function in _functions().values() if isinstance(function, AttentionWrapper)]
        wrapped = {wrapper.original for wrapper in wrappers}
        done = [wrapper.name for wrapper in wrappers if wrapper.is_over and wrapper.name not in wrapped]
        if not done:
            return
        for name in done:  # transformers can register, but not unregister
            for interface in (AttentionInterface, AttentionMaskInterface):
                interface._global_mapping.pop(name, None)


def _functions() -> Any:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    return ALL_ATTENTION_FUNCTIONS


def _models(model: Any) -> list[Any]:
    """Return the models of transformers that a module is or contains; none if that library is not loaded."""
    transformers = sys.modules.get("transformers")
    if transformers is None:
        return []
    return [module for module in model.modules() if isinstance(module, transformers.PreTrainedModel)]


def _configs(model: Any) -> list[Any]:
    """Return the configurations that name an implementation, each once; outer ones first, for they set the inner."""
    configs: dict[int, Any] = {}

    def add(config: Any) -> None:
        if id(config) not in configs:
            configs[id(config)] = config
            for name in config.sub_configs:
                if (inner := getattr(config, name, None)) is not None:
                    add(inner)

    for part in _models(model):
        add(part.config)
    return list(configs.values())


def _described(value: Any) -> str:
    return f"a tensor {tuple(value.shape)}" if hasattr(value, "shape") else type(value).__name__
