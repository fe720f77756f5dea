"""All blocks of a decoder for the new tokens of each text, in one call of the compiled kernel.

Every step is the kernel's own that the layers call one by one, so the results have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.functional import native
from regard.nn.attention import CosSin
from regard.nn.decoder import CausalAttention, DecoderBlock
from regard.nn.fast_paths import Packed, instance_cache, packed_maps
from regard.nn.kv_cache import KVCache
from regard.nn.layer import Layer
from regard.nn.layers import GatedFeedForward, RMSNorm


def decode_step(
    owner: object, blocks: Sequence[DecoderBlock], x: np.ndarray, caches: Sequence[KVCache | None], rotation: CosSin
) -> tuple[np.ndarray, list[KVCache | None]] | None:
    """Return the output of all blocks, ``B T E``, and the caches with the new keys and values.

    None where the blocks have other parts than those of Llama, or weights that cannot be packed; where a window hides
    some of the keys from the new tokens; where the caches are arrays of another library or of another
    shape; or where attention may overflow.

    Parameters
    ----------
    owner
        The model of the blocks, in which the prepared call is stored.
    blocks : sequence of DecoderBlock
    x : array, ``B T E``
    caches : sequence of KVCache or None
        One for each block; None for a block whose keys and values are unused.
    rotation : pair of arrays
        Cosines and sines of the new positions.
    """
    if type(x) is not np.ndarray or x.ndim != 3 or x.dtype != np.float32 or not x.size:
        return None
    step = instance_cache(owner, "_decoder_step", lambda: _prepare(blocks))
    if step is None:
        return None
    batch, count, _ = x.shape
    attn = blocks[0].attn
    layout = (np.ndarray, x.dtype, (batch, attn.num_kv_heads), attn.head_dim) * 2  # of keys and of values
    filled = [cache if cache is None or cache.has_shape else _empty_cache(cache, layout) for cache in caches]
    lefts = [None if block.attn.window is None else block.attn.window[0] for block in blocks]
    windows = [(i, left) for i, left in enumerate(lefts) if left is not None]
    if any(cache is not None and cache.layout != layout for cache in filled):
        return None
    if any(len(filled[i] or ()) + count > left + 1 for i, left in windows):
        return None
    reserved = _reserve(filled, layout, count)
    y, (cos, sin) = x.copy(), _rotation_rows(rotation, batch, count)
    if not step(y, cos, sin, [cache.k for cache in reserved], [cache.v for cache in reserved]):
        return None
    for i, left in windows:
        reserved[i] = reserved[i].slide(left)
    return y, [None if before is None else cache for before, cache in zip(caches, reserved, strict=True)]


def _rotation_rows(rotation: CosSin, batch: int, count: int) -> list[np.ndarray]:
    """Return cosines and sines with a row for each token, or one for all."""
    parts = []
    for part in rotation:
        rows = part.reshape(-1, part.shape[-1])
        if 1 < len(rows) < batch * count:  # the same positions in each text, or one position in each
            rows = np.broadcast_to(part.reshape(-1, *part.shape[-2:]), (batch, count, part.shape[-1]))
        parts.append(np.ascontiguousarray(rows.reshape(-1, part.shape[-1])))
    return parts


def _reserve(caches: Sequence[KVCache | None], layout: tuple[Any, ...], count: int) -> list[KVCache]:
    """Return the caches with `count` more positions; one for all unused ones, which each block overwrites."""
    shared: KVCache | None = None
    reserved = []
    for cache in caches:
        if cache is None:
            shared = _empty_cache(None, layout).reserve(count) if shared is None else shared
            reserved.append(shared)
        else:
            reserved.append(cache.reserve(count))
    return reserved


def _empty_cache(cache: KVCache | None, layout: tuple[Any, ...]) -> KVCache:
    """Return a cache without keys or values, which has their layout."""
    _, dtype, lead, width = layout[:4]
    none = np.empty((*lead, 0, width), dtype)
    return (KVCache() if cache is None else cache).append(none, none)


def _prepare(blocks: Sequence[DecoderBlock]) -> Any:
    if not all(type(block) is DecoderBlock and block.has_map for block in blocks):
        return None
    kernel = native.kernel()
    options = {_options(block) for block in blocks}
    prepared = [] if kernel is None or len(options) > 1 else [_prepare_block(kernel, block) for block in blocks]
    return kernel.DecoderStep(*options.pop(), prepared) if prepared and None not in prepared else None


def _options(block: DecoderBlock) -> tuple[Any, ...]:
    """Return the numbers that all blocks of a call share."""
    attn = block.attn
    scale = 1 / math.sqrt(attn.head_dim) if attn.scale is None else attn.scale
    heads = attn.num_heads, attn.num_kv_heads, attn.head_dim
    return *heads, scale, attn.softcap or 0.0, block.residual_scale, attn.interleaved


def _prepare_block(kernel: Any, block: DecoderBlock) -> Any:
    """Return the kernel's block; None where it has other parts."""
    attn, mlp = block.attn, block.mlp
    if type(attn) is not CausalAttention or type(mlp) is not GatedFeedForward:
        return None
    head_norms = [norm for norm in (attn.q_norm, attn.k_norm) if norm is not None]
    absent = [block.attn_post_norm, block.mlp_post_norm]
    if (
        mlp.activation != "silu"
        or block.parallel
        or any(norm is not None for norm in absent)
        or any(type(norm) is not RMSNorm for norm in (block.attn_norm, block.mlp_norm, *head_norms))
        or any(norm.weight.shape != (attn.head_dim,) for norm in head_norms)
        or attn.o_proj is None
        or attn.has_output_gate
        or not attn.packed_together()
    ):
        return None
    norms = [block.attn_norm, attn.q_norm, attn.k_norm, block.mlp_norm]
    qkv, out, gate_up, down = (_maps(layer) for layer in (attn, attn.o_proj, mlp, mlp.down_proj))
    if qkv is None or out is None or gate_up is None or down is None:
        return None
    attn_norm, q_norm, k_norm, mlp_norm = (
        None if norm is None else kernel.RMSNorm(np.ascontiguousarray(norm.weight, np.float32), norm.eps)
        for norm in norms
    )
    sinks = None if attn.sinks is None else np.ascontiguousarray(attn.sinks, np.float32).reshape(-1)
    return kernel.DecoderBlock(attn_norm, qkv, q_norm, k_norm, sinks, out[0], mlp_norm, gate_up, down[0])


def _maps(layer: Layer) -> list[Any] | None:
    """Return the maps of a layer packed together, or else each of them; None if one cannot be packed."""
    together = packed_maps(layer)
    packed = [together] if together is not None else [packed_maps(linear) for linear in layer.packed_together()]
    prepared = [_map(p) for p in packed if p is not None]
    return prepared if len(prepared) == len(packed) and None not in prepared else None


def _map(packed: Packed) -> Any:
    if packed.kind is None and packed.panels.dtype != np.float32:
        return None
    kind = "none" if packed.kind is None else packed.kind.lower()
    return native.kernel().PackedMap(packed.panels, kind, packed.bias, packed.inputs, packed.columns)
