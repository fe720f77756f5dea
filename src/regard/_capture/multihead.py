"""Hooks at torch.nn.MultiheadAttention, which has no interface to listen at."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from regard._capture.masks import Known
from regard._capture.notes import Notes, is_edited, record_call
from regard._utils.errors import RegardError
from regard.functional import Options


def plain_attentions(model: Any) -> list[Any]:
    """Return the modules of `model` that are nn.MultiheadAttention."""
    import torch

    return [module for module in model.modules() if isinstance(module, torch.nn.MultiheadAttention)]


@contextmanager
def hooked(modules: Sequence[Any], notes: Notes) -> Iterator[None]:
    """Let each of the modules be noted before it runs.

    nn.TransformerEncoderLayer has a fast path that goes around its modules, and nn.TransformerEncoder one that packs
    padded texts into nested tensors; PyTorch itself leaves the first alone where there are hooks, and both are switched
    off inside the context.
    """
    import torch

    known = Known()

    def note(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        given = inspect.signature(type(module).forward).bind(module, *args, **options)
        given.apply_defaults()
        with torch.no_grad(), notes.of(module) as trace:
            if is_edited(trace) or any(trace.edits(name) for name in ("q", "k", "v", "context")):
                raise RegardError("an nn.MultiheadAttention can be looked at and not edited: leave out edit")
            q, k, v, said = _call(module, given.arguments, known)
            q, k = trace("q", q, "B H T D"), trace("k", k, "B H S D")
            record_call(trace, q, k, trace("v", v, "B H S Dv"), said)

    handles = []
    try:
        with _SLOWLY:
            handles = [module.register_forward_pre_hook(note, with_kwargs=True) for module in modules]
            yield
    finally:
        for handle in handles:
            handle.remove()


class _Slowly:
    """PyTorch's fast paths switched off until the last of the contexts ends, in whatever order they do.

    The switch is one for the whole process, so what it was before must be too.
    """

    def __init__(self) -> None:
        self._lock, self._count, self._before = threading.Lock(), 0, True

    def __enter__(self) -> None:
        import torch

        with self._lock:
            if not self._count:
                self._before = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            self._count += 1

    def __exit__(self, *_: object) -> None:
        import torch

        with self._lock:
            self._count -= 1
            if not self._count:
                torch.backends.mha.set_fastpath_enabled(self._before)


_SLOWLY = _Slowly()


def _call(module: Any, given: dict[str, Any], known: Known) -> tuple[Any, Any, Any, Options]:
    """Return queries, keys and values, ``B H T D``, as the module makes them, and what its masks say."""
    import torch

    query, key, value = (_batched(given[name], module) for name in ("query", "key", "value"))
    if module._qkv_same_embed_dim:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    q, k, v = map(torch.nn.functional.linear, (query, key, value), weights, biases)
    entries, queries, keys = q.shape[0], q.shape[1], k.shape[1]
    if module.bias_k is not None:
        k, v = (torch.cat([x, b.expand(entries, 1, -1)], 1) for x, b in ((k, module.bias_k), (v, module.bias_v)))
    if module.add_zero_attn:
        k, v = (torch.cat([x, x.new_zeros(entries, 1, x.shape[-1])], 1) for x in (k, v))
    q, k, v = (x.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for x in (q, k, v))

    masks = []
    if (padding := given["key_padding_mask"]) is not None:
        masks.append(padding.reshape(-1, 1, 1, keys))
    if (mask := given["attn_mask"]) is not None:
        heads = (entries, module.num_heads) if mask.ndim == 3 else (1, 1)
        masks.append(mask.reshape(*heads, queries, keys))
    masks = [torch.nn.functional.pad(_added(mask, q), (0, k.shape[2] - keys)) for mask in masks]
    if not masks:
        return q, k, v, {}
    rules = known.of(masks[0] + masks[1] if len(masks) == 2 else masks[0], queries)
    return q, k, v, {"mask": rules.mask, "bias": rules.bias}


def _batched(x: Any, module: Any) -> Any:
    """Return a tensor of any of the layouts that the module takes as ``B T E``."""
    if x.is_nested:
        raise RegardError("nested tensors cannot be looked into: give padded ones, with a mask")
    if x.ndim == 2:
        return x[None]
    return x if module.batch_first else x.transpose(0, 1)


def _added(mask: Any, q: Any) -> Any:
    """Return a mask as numbers that are added to the scores; a boolean one of this module hides where it is True."""
    import torch

    if mask.dtype is torch.bool:
        return torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask, -torch.inf)
    return mask
