"""Listening at the attention interface of transformers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from regard._capture.masks import Known, Rules, mask_of, rules_of
from regard._capture.notes import Notes, is_edited, record_call
from regard._utils.errors import RegardError
from regard.functional import Causal, Mask, Options, attention
from regard.functional.masks import logical_and
from regard.functional.recorder import NULL_RECORDER

_UNDERSTOOD = ("sdpa", "eager")


def uses_attention_interface(model: Any) -> bool:
    """Tell whether a module is, or holds, a model of transformers."""
    return bool(_models(model))


@contextmanager
def listening(model: Any, notes: Notes) -> Iterator[None]:
    """Let every attention of a model of transformers go through a `Listener` inside the context.

    Raises
    ------
    RegardError
        It is set to an implementation that is not understood.
    """
    configs = _configs(model)
    before = [config._attn_implementation for config in configs]
    listeners: dict[str, Listener] = {}
    try:
        for original in dict.fromkeys(before):
            listeners[original] = _registered(original, model, notes)
        for config, original in zip(configs, before, strict=True):
            config._attn_implementation = listeners[original].name
        yield
    finally:
        for listener in listeners.values():
            listener.is_over = True
        for config, original in zip(configs, before, strict=True):
            if original in listeners and config._attn_implementation == listeners[original].name:
                config._attn_implementation = _still_there(original)
        _clear()


class Listener:
    """A function of the attention interface that notes what it is called with and hands it on.

    Parameters
    ----------
    name : str
        What it is registered as.
    original : str
        The implementation that it stands in for.
    notes : Notes
    """

    def __init__(self, name: str, original: str, notes: Notes) -> None:
        self.name = name
        self.original = original
        self.is_over = False
        self._notes = notes
        self._known = Known()

    def __call__(self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any) -> Any:
        """Return the output ``B T H Dv`` of an attention, and None in place of its weights.

        The arguments are those of transformers' attention functions: q ``B H T D``, k and v ``B G S D``, a mask, and
        by name ``scaling``, ``softcap``, ``s_aux`` (sinks), ``position_bias``, ``is_causal``, ``dropout`` and others.
        """
        import torch

        rules = self._rules(module, query, attention_mask, options)
        said: Options = {"scale": options.get("scaling"), "softcap": options.get("softcap")}
        said |= {"sinks": options.get("s_aux"), "mask": rules.mask, "bias": rules.bias}
        with nullcontext(NULL_RECORDER) if self.is_over else self._notes.of(module) as trace:
            query, key = trace("q", query, "B H T D"), trace("k", key, "B G S D")
            value = trace("v", value, "B G S Dv")
            if self.original == "eager" or is_edited(trace):
                if options.get("dropout"):
                    raise RegardError(
                        "capture computes the attention of this model, without its dropout: call model.eval() first"
                    )
                context = attention(query, key, value, **said, trace=trace)
            else:
                with torch.no_grad():
                    record_call(trace, query, key, value, said)
                function = _functions()[self.original]
                output, _ = function(module, query, key, value, attention_mask, **options)
                context = trace("context", output.transpose(1, 2), "B H T Dv")
        return context.transpose(1, 2).contiguous(), None

    def _rules(self, module: Any, query: Any, mask: Any, options: dict[str, Any]) -> Rules:
        """Return what hides keys and what is added to scores."""
        import torch

        position_bias = options.get("position_bias")
        added = Rules(None, None) if position_bias is None else self._known.of(position_bias, query.shape[2])
        if isinstance(mask, Ruled):
            return Rules(logical_and(mask.rule, added.mask), added.bias)
        if mask is None:
            is_causal = options.get("is_causal")
            is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
            hidden = (
                Causal(0) if is_causal and query.shape[2] > 1 and _implementation(self.original) == "sdpa" else None
            )
            return Rules(logical_and(hidden, added.mask), added.bias)
        if not isinstance(mask, torch.Tensor) or mask.ndim != 4:
            raise RegardError(f"capture reads masks of the shape B 1 T S, got {_described(mask)}")
        rules = self._known.of(mask, query.shape[2])
        if rules.bias is not None and added.bias is not None:
            return rules_of(mask + position_bias, query.shape[2])
        return Rules(logical_and(rules.mask, added.mask), rules.bias or added.bias)


class Ruled:
    """A mask as a rule, handed through a model in place of a tensor of n² cells."""

    def __init__(self, rule: Mask | None) -> None:
        self.rule = rule


def _ruled(
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
    """Return a mask of transformers as a rule; the arguments are those of its mask functions."""
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
        there = kv_length + kv_offset - attention_mask.shape[-1]
        padding = torch.nn.functional.pad(attention_mask, (0, max(0, there)))[:, None, None, :]
        padding = padding[..., kv_offset : kv_offset + kv_length].to(device, torch.bool)

    def allowed(rows: slice) -> Any:
        queries = torch.arange(rows.start, rows.stop, device=device)[None, None, :, None]
        allowed = mask_function(batches, heads, queries + q_offset, keys + kv_offset)
        return allowed if padding is None else allowed & padding

    return Ruled(mask_of(allowed, (batch_size, 1), q_length, kv_length))


def _registered(original: str, model: Any, notes: Notes) -> Listener:
    """Register a listener in place of an implementation, and what makes the masks that it is to be given."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    listener = Listener("", original, notes)
    listener.name = f"regard-{id(listener):x}-{original}"
    kind = _implementation(original)
    if kind not in _UNDERSTOOD:
        raise RegardError(
            f"{type(model).__name__} computes attention by {original!r}, which capture does not understand: "
            f"model.set_attn_implementation('sdpa') first"
        )
    makes_masks = ALL_MASK_ATTENTION_FUNCTIONS[original]
    if kind == "eager":
        odd = [
            type(part).__name__ for part in _models(model) if not getattr(part, "_supports_attention_backend", False)
        ]
        if odd:
            raise RegardError(
                f"the eager attention of {odd[0]} may be of its own kind, which capture cannot see: "
                f"model.set_attn_implementation('sdpa') first"
            )
        if original == "eager" and all(getattr(part, "_supports_flex_attn", False) for part in _models(model)):
            makes_masks = _ruled  # where blocks of masks can be handed through, so can rules
    AttentionInterface.register(listener.name, listener)
    AttentionMaskInterface.register(listener.name, makes_masks)
    return listener


def _implementation(name: str) -> str:
    """Return what computes attention in the end, where one listener stands in for another."""
    while isinstance(listener := _functions().get(name), Listener):
        name = listener.original
    return name


def _still_there(name: str) -> str:
    """Return what `name` stood in for, as long as that is a listener whose context is over."""
    while isinstance(listener := _functions().get(name), Listener) and listener.is_over:
        name = listener.original
    return name


def _clear() -> None:
    """Take away every listener whose context is over and that no other stands in for."""
    from transformers import AttentionInterface, AttentionMaskInterface

    while True:
        there = [listener for listener in _functions().values() if isinstance(listener, Listener)]
        needed = {listener.original for listener in there}
        done = [listener.name for listener in there if listener.is_over and listener.name not in needed]
        if not done:
            return
        for name in done:  # transformers has a way to register, and none back
            for interface in (AttentionInterface, AttentionMaskInterface):
                interface._global_mapping.pop(name, None)


def _functions() -> Any:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    return ALL_ATTENTION_FUNCTIONS


def _models(model: Any) -> list[Any]:
    """Return the models of transformers that a module is or holds; none where that library is not loaded."""
    transformers = sys.modules.get("transformers")
    if transformers is None:
        return []
    return [module for module in model.modules() if isinstance(module, transformers.PreTrainedModel)]


def _configs(model: Any) -> list[Any]:
    """Return the configurations that name an implementation, each once and outer ones first: they set the inner."""
    found: dict[int, Any] = {}

    def add(config: Any) -> None:
        if id(config) not in found:
            found[id(config)] = config
            for name in config.sub_configs:
                if (inner := getattr(config, name, None)) is not None:
                    add(inner)

    for part in _models(model):
        add(part.config)
    return list(found.values())


def _described(value: Any) -> str:
    return f"a tensor {tuple(value.shape)}" if hasattr(value, "shape") else type(value).__name__
