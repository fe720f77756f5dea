"""Hooks on torch.nn.MultiheadAttention, which has no attention interface."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from regard._capture.session import CaptureSession, record_call
from regard._utils.errors import RegardError
from regard.functional import Options
from regard.functional.scores.stages import QUADRATIC_STEPS
from regard.torch.masks import MaskCache


def multihead_modules(model: Any) -> list[Any]:
    """Return the modules of `model` of class nn.MultiheadAttention."""
    import torch

    return [module for module in model.modules() if isinstance(module, torch.nn.MultiheadAttention)]


@contextmanager
def hooked_modules(modules: Sequence[Any], session: CaptureSession) -> Iterator[None]:
    """Record each of the modules before it runs.

    The fast path of nn.TransformerEncoderLayer bypasses its modules, that of nn.TransformerEncoder packs padded batches
    into nested tensors. With hooks PyTorch itself skips only the first; both are disabled inside the context.
    """
    import torch

    cache = MaskCache()

    def before_forward(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if not session.is_recording():
            return
        bound = inspect.signature(type(module).forward).bind(module, *args, **options)
        bound.apply_defaults()
        with torch.no_grad(), session.scope(module) as trace:
            if trace.plan("q", "k", *QUADRATIC_STEPS, "v", "context").edited:
                raise RegardError(
                    "q, k, v, weights and context of an nn.MultiheadAttention are computed a second time, so they can "
                    "be recorded but not edited, and not with tensors=True: leave them out"
                )
            q, k, v, masks = _call(module, bound.arguments, cache)
            q, k = trace("q", q, "B H T D"), trace("k", k, "B H S D")
            record_call(trace, q, k, trace("v", v, "B H S Dv"), masks)

    handles = []
    try:
        with _FAST_PATH_DISABLED:
            handles = [module.register_forward_pre_hook(before_forward, with_kwargs=True) for module in modules]
            yield
    finally:
        for handle in handles:
            handle.remove()


class FastPathDisabled:
    """A context without PyTorch's fast paths, which may be entered several times and left in any order.

    The switch is one for the whole process, and so is its stored state.
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


_FAST_PATH_DISABLED = FastPathDisabled()


def _call(module: Any, arguments: dict[str, Any], cache: MaskCache) -> tuple[Any, Any, Any, Options]:
    """Return the module's queries, keys and values, ``B H T D``, and its masks as options of `attention`."""
    import torch

    query, key, value = (_batched(arguments[name], module) for name in ("query", "key", "value"))
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
    if (padding := arguments["key_padding_mask"]) is not None:
        masks.append(padding.reshape(-1, 1, 1, keys))
    if (mask := arguments["attn_mask"]) is not None:
        heads = (entries, module.num_heads) if mask.ndim == 3 else (1, 1)
        masks.append(mask.reshape(*heads, queries, keys))
    masks = [torch.nn.functional.pad(_added(mask, q), (0, k.shape[2] - keys)) for mask in masks]
    if not masks:
        return q, k, v, {}
    mask, bias = cache.convert(masks[0] + masks[1] if len(masks) == 2 else masks[0], queries)
    return q, k, v, {"mask": mask, "bias": bias}


def _batched(x: Any, module: Any) -> Any:
    """Return a tensor of any layout that the module takes as ``B T E``."""
    if x.is_nested:
        raise RegardError("nested tensors cannot be recorded: pad them and give a mask")
    if x.ndim == 2:
        return x[None]
    return x if module.batch_first else x.transpose(0, 1)


def _added(mask: Any, q: Any) -> Any:
    """Return a mask as numbers to add to the scores; a boolean one of this module is True where it masks."""
    import torch

    if mask.dtype is torch.bool:
        return torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask, -torch.inf)
    return mask
