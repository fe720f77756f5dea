"""Fast paths of the layers: weights packed once as the compiled kernel reads them, and steps fused into one call.

Each function returns None where it does not apply, and the layer then computes step by step. Packed and unpacked
weights give results that differ by rounding; fused and single steps of the kernel on packed weights give the same bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from mmap import mmap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from regard import functional as F
from regard.functional import native
from regard.functional.activation import kernel_activation
from regard.functional.attention import compute_attention
from regard.functional.inputs import MOST_ALIASED, validate_inputs
from regard.functional.native import ops
from regard.functional.recorder import NULL_RECORDER, Recorder, StepList, Steps
from regard.functional.variable import Pullback, is_recorded, record_vjp
from regard.nn.layer import Layer
from regard.nn.quantized import QuantizedWeight

if TYPE_CHECKING:
    from regard.nn.attention import MultiHeadAttention, SelfAttention
    from regard.nn.encoder import EncoderBlock
    from regard.nn.layers import GatedFeedForward, LayerNorm, Linear

T = TypeVar("T")

CACHES = ("_packed", "_fused_tail", "_encoder_blocks", "_decoder_step")
"""The names under which prepared calls are stored in a layer; one whose value is None has no such fast path."""


def linear(layer: Linear, x: np.ndarray, activation: str | None) -> np.ndarray | None:
    """Return activation(x · W + b) with packed weights."""
    packed = packed_maps(layer)
    return None if packed is None else packed(x, activation)


def project_qkv(attn: MultiHeadAttention, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return queries, keys and values of one x, ``... T E``, from one product with packed weights."""
    packed = packed_maps(attn)
    qkv = None if packed is None else packed(x)
    if qkv is None:
        return None
    heads = F.split_heads(qkv, attn.num_heads + 2 * attn.num_kv_heads)
    first_k, first_v = attn.num_heads, attn.num_heads + attn.num_kv_heads
    return heads[..., :first_k, :, :], heads[..., first_k:first_v, :, :], heads[..., first_v:, :, :]


def gate_and_up(mlp: GatedFeedForward, x: np.ndarray, *, apart: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """Return gate_proj(x) and up_proj(x), ``... F`` each, with packed weights.

    They are parts of one product, or, where a recorder stores them or they have a gradient, of two with the same bits.
    """
    packed = packed_maps(mlp)
    hidden = mlp.gate_proj.weight.shape[1]
    parts = packed.split(hidden) if packed is not None and (apart or is_recorded(x)) else None
    if parts is not None:
        gate, up = (part(x) for part in parts)
        return None if gate is None or up is None else (gate, up)
    both = None if packed is None else packed(x)
    return None if both is None else (both[..., :hidden], both[..., hidden:])


def post_norm_block(block: EncoderBlock, x: np.ndarray, trace: Recorder, options: F.Options) -> np.ndarray | None:
    """Return the output of an encoder block whose norms come last, the steps after its heads fused into one call."""
    if type(x) is not np.ndarray or x.dtype != block.mlp_norm.weight.dtype:
        return None
    tail = fused(block, "_fused_tail", lambda: _fused_tail(block), trace, lambda trace: _one_tail(block, trace))
    if tail is None:
        return None
    with trace.scope("attn"):
        context = _context(block.attn, x, trace, options)
    output = ops.fused_block_tail(tail, context, x)
    return _tail(block, context, x, trace) if output is None else output


def _tail(block: EncoderBlock, context: np.ndarray, x: np.ndarray, trace: Recorder) -> np.ndarray:
    """Return the steps of a block after its heads, one by one, for the context of the heads, ``... T (H Dv)``."""
    with trace.scope("attn"):
        y = block.attn.project_out(context, trace=trace)
    return block.after_attention(x, y, trace)


def _one_tail(block: EncoderBlock, trace: Recorder) -> np.ndarray:
    assert block.attn.o_proj is not None  # of a fused tail
    context, x = (np.zeros((1, width), block.mlp_norm.weight.dtype) for width in block.attn.o_proj.weight.shape)
    return _tail(block, context, x, trace)


def encode(
    owner: object, blocks: Sequence[EncoderBlock], x: np.ndarray, mask: np.ndarray | None, trace: Recorder
) -> np.ndarray | None:
    """Return the output of all blocks, ``B T E``, from one call, in which padding is not computed: it is 0.

    Only where no step but the weights of texts without padding is asked for. Taps them as the blocks do one by one, in
    the scopes ``blocks.i``.

    Parameters
    ----------
    owner
        The model of the blocks, in which the prepared call is stored.
    blocks : sequence of EncoderBlock
    x : array, ``B T E``
    mask : boolean array, ``B 1 1 T``, optional
        True where there is text.
    """
    batch, length, width = x.shape
    prepared = instance_cache(owner, "_encoder_blocks", lambda: _encoder_blocks(blocks))
    if (
        prepared is None
        or type(x) is not np.ndarray
        or (mask is not None and (mask.shape != (batch, 1, 1, length) or mask.dtype != bool))
    ):
        return None
    is_text = None if mask is None else mask[:, 0, 0]
    lengths = [length] * batch if is_text is None else is_text.sum(-1).tolist()
    keeps_weights = mask is None and prepared[0].keeps_weights(length)
    shape = (batch, blocks[0].attn.num_heads, length, length) if keeps_weights else None
    arrays = (
        {} if trace is NULL_RECORDER else _weights_asked_for(_stack_steps(owner, blocks, mask), trace, shape, x.dtype)
    )
    if arrays is None or not all(lengths):
        return None
    flat = x.reshape(-1, width) if is_text is None else x[is_text]
    rows = ops.encode_rows(prepared, flat, lengths, list(arrays.values()))
    if rows is None:
        return None
    for name, array in arrays.items():
        if array is not None:
            trace(name, array, "B H T S", owned=True)
    if is_text is None:
        return rows.reshape(x.shape)
    padded = np.zeros(x.shape, x.dtype)
    padded[is_text] = rows
    return padded


class _StackSteps(NamedTuple):
    """The names of the steps of all blocks of an encoder, in the order in which they are computed."""

    names: tuple[str, ...]
    optional: tuple[str, ...]
    weights: tuple[str, ...]  # those of `names` which a call of all blocks can return, one of each block
    hidden: tuple[str, ...]  # the others


def _stack_steps(owner: object, blocks: Sequence[EncoderBlock], mask: np.ndarray | None) -> _StackSteps:
    """Return the steps of a run of all blocks, with a mask of padding or without one."""

    def make() -> _StackSteps:
        x = np.zeros((1, 1, blocks[0].attn.output_dim), blocks[0].mlp_norm.weight.dtype)
        only = None if mask is None else np.ones((1, 1, 1, 1), bool)
        block = list_steps(lambda trace: blocks[0](x, mask=only, trace=trace))  # all have the same
        names, optional = (
            tuple(f"blocks.{i}.{name}" for i in range(len(blocks)) for name in each)
            for each in (block.names, block.optional)
        )
        weights = tuple(name for name in names if name.endswith(".attn.weights"))
        return _StackSteps(names, optional, weights, tuple(name for name in names if name not in set(weights)))

    return instance_cache(owner, "_stack_steps" if mask is None else "_masked_stack_steps", make)


def _weights_asked_for(
    steps: _StackSteps, trace: Recorder, shape: tuple[int, ...] | None, dtype: np.dtype[Any]
) -> dict[str, np.ndarray | None] | None:
    """Return an array for the weights of each block, of this shape, or None for it where they are not asked for.

    None if another step is asked for, or if the weights are and `shape` is None; or if they are edited, the last step
    of the run, or recorded as a map.
    """
    plan = trace.plan(*steps.weights)
    if plan.edited or plan.stops or plan.keeps_map or trace.plan(*steps.hidden, optional=steps.optional).asked:
        return None
    arrays: dict[str, np.ndarray | None] = dict.fromkeys(steps.weights)
    if plan.asked:
        if shape is None:
            return None
        arrays.update((name, native.empty(shape, dtype)) for name in steps.weights if name in plan.asked)
    trace.note(*steps.names)
    return arrays


def _encoder_blocks(blocks: Sequence[EncoderBlock]) -> ops.EncoderBlocks | None:
    """Return all blocks as one call of the kernel; None unless all are our own, packed and alike."""
    shapes = {(b.attn.num_heads, b.attn.num_kv_heads, b.attn.head_dim) for b in blocks}
    if len(shapes) != 1 or not are_ours(*blocks) or any(block.norm_first for block in blocks):
        return None
    parts = []
    for block in blocks:
        attn, tail = block.attn, instance_cache(block, "_fused_tail", functools.partial(_fused_tail, block))
        qkv = packed_maps(attn)
        if tail is None or qkv is None or qkv.kind is not None:
            return None
        parts.append((qkv.panels, qkv.bias, tail))
    ((heads, kv_heads, head_dim),) = shapes
    return ops.prepare_encoder_blocks(heads, kv_heads, head_dim, 1 / math.sqrt(head_dim), parts)


def _fused_tail(block: EncoderBlock) -> ops.FusedBlockTail | None:
    """Return the steps after the heads as one call of the kernel."""
    attn, mlp, norms = block.attn, block.mlp, (block.attn_norm, block.mlp_norm)
    first, second = (norm_arrays(norm) for norm in norms)
    if hasattr(mlp, "gate_proj") or first is None or second is None:
        return None
    maps = [linear for linear in (attn.o_proj, mlp.up_proj, mlp.down_proj) if linear is not None]
    if len(maps) < 3 or not are_ours(block, block.attn, attn.q_proj, attn.k_proj, attn.v_proj, mlp, *maps, *norms):
        return None
    packed = [packed_maps(linear) for linear in maps]
    out, up, down = (None if p is None else (p.panels, p.bias) for p in packed)
    if out is None or up is None or down is None:
        return None
    return ops.prepare_block_tail(out, first, up, kernel_activation(mlp.activation), down, second)


def norm_arrays(norm: LayerNorm | None) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return weight, bias and eps; None where one is missing."""
    return None if norm is None or norm.bias is None else (norm.weight, norm.bias, norm.eps)


def _context(attn: SelfAttention, x: np.ndarray, trace: Recorder, options: F.Options) -> np.ndarray:
    """Return the concatenated context of the heads, ``... T (H Dv)``; taps all but ``output``."""
    q, k, v = attn.project_qkv(x, trace=trace)
    p = validate_inputs(q, k, v, **options)
    if trace is not NULL_RECORDER and q.nbytes <= MOST_ALIASED:
        # q and k are new and no tap exposes them, so a map may store them without a copy. They are views of one
        # product with v, which stays in memory with them: hence the limit.
        p = p.replace(may_alias=not trace.plan("q", "k").asked)
    context: np.ndarray = F.merge_heads(compute_attention(p, trace))
    return context


@dataclass(frozen=True, eq=False)
class Packed:
    """Several maps x · W + b of the same x, concatenated."""

    panels: np.ndarray  # the weights, as `pack` or, with a kind, `pack_quantized` of `native.ops` lays them out
    bias: np.ndarray | None  # F, of all maps
    inputs: int
    columns: int  # the number of outputs of all maps
    kind: str | None = None  # of quantised weights

    @classmethod
    def from_maps(cls, maps: Sequence[Linear]) -> Packed | None:
        """Return the maps packed; None where the kernel does not multiply, or where their arrays may change.

        Quantized weights stay quantized; the pages of their file are given back to the system.
        Only weights in a file that is mapped read-only are packed: they cannot change, and the system may drop their
        pages, so that the packed copy costs no more memory than reading them would. Arrays that the user owns may be
        mutated.
        """
        weights: list[Any] = [linear.weight for linear in maps]
        biases = [linear.bias for linear in maps]
        arrays = [x for x in (*weights, *biases) if x is not None and not isinstance(x, QuantizedWeight)]
        if not all(map(is_mapped, arrays)):
            return None
        kinds = {weight.kind if isinstance(weight, QuantizedWeight) else None for weight in weights}
        if len(kinds) > 1:
            return None
        (kind,) = kinds
        panels = ops.pack(weights) if kind is None else _pack_quantized(weights, kind)
        if panels is None:
            return None
        bias = None
        if any(b is not None for b in biases):
            parts = [np.zeros(w.shape[1], w.dtype) if b is None else b for w, b in zip(weights, biases, strict=True)]
            bias = np.concatenate(parts)
            if bias.dtype != weights[0].dtype:
                return None
        return cls(panels, bias, weights[0].shape[0], sum(weight.shape[1] for weight in weights), kind)

    def split(self, columns: int) -> tuple[Packed, Packed] | None:
        """Return the maps of the first outputs and of the rest; None where the kernel reads some of both together."""
        kernel = native.kernel()
        together = kernel.NR if self.kind is None else kernel.GROUP
        if columns % together:
            return None
        panels, bias = columns // together, self.bias
        return (
            Packed(self.panels[:panels], None if bias is None else bias[:columns], self.inputs, columns, self.kind),
            Packed(
                self.panels[panels:],
                None if bias is None else bias[columns:],
                self.inputs,
                self.columns - columns,
                self.kind,
            ),
        )

    def __call__(self, x: np.ndarray, activation: str | None = None) -> np.ndarray | None:
        """Return the outputs of the maps for x, ``... E``; None where the kernel does not take x.

        Of a variable the kernel takes the gradient where the weights are quantized.
        """
        if is_recorded(x):
            fits = self.kind is not None and x.dtype == np.float32 and x.shape[-1:] == (self.inputs,)
            y = record_vjp(self._vjp, x) if fits and native.kernel() is not None else None
            return y if y is None or activation is None else F.activation(activation)(y)
        how = kernel_activation(activation)
        return ops.packed_linear(x, self.panels, self.inputs, self.columns, self.bias, how, self.kind)

    def _vjp(self, x: np.ndarray) -> tuple[Any, Pullback]:
        """Return the outputs, and the pullback at x: a product with the quantized weights as they are packed."""
        kind = self.kind
        assert kind is not None
        return self(x), lambda d: (ops.packed_linear_transposed(d, self.panels, self.inputs, kind),)


def _pack_quantized(weights: Sequence[QuantizedWeight], kind: str) -> np.ndarray | None:
    if not all(weight.transposed for weight in weights) or len({weight.shape[0] for weight in weights}) > 1:
        return None
    groups = ops.pack_quantized([weight.blocks for weight in weights], kind, weights[0].shape[0])
    for weight in weights:
        if groups is not None:
            weight.release_pages()
    return groups


def fused(
    owner: object, name: str, prepare: Callable[[], T | None], trace: Recorder, compute: Callable[[Recorder], object]
) -> T | None:
    """Return what a fused call was prepared from, where it applies; `encode`, which can return weights, asks itself.

    Parameters
    ----------
    owner
        The layer in which it is stored, under `name`.
    prepare : function
        Returns it, once; None where the layers are not what the kernel computes.
    trace : Recorder
        It does not apply if a step that it hides is asked for; otherwise these count as computed.
    compute : function
        Computes the steps that it hides with a recorder, for one token: called once, to list them.
    """
    prepared = instance_cache(owner, name, prepare)
    if prepared is None or trace is NULL_RECORDER:
        return prepared
    names, optional = instance_cache(owner, f"{name}_steps", lambda: list_steps(compute))
    if trace.plan(*names, optional=optional).asked:
        return None
    trace.note(*names)
    return prepared


def list_steps(compute: Callable[[Recorder], object]) -> Steps:
    """Return the steps of a computation: those that it taps if it is asked for all of them."""
    listed = StepList()
    with np.errstate(all="ignore"):
        compute(listed)
    return listed.steps()


def packed_maps(layer: Layer) -> Packed | None:
    """Return `Layer.packed_together` packed, which is stored in `layer`; None as in `Packed.from_maps`."""

    def make() -> Packed | None:
        maps = layer.packed_together()
        return Packed.from_maps(maps) if maps and are_ours(*maps) else None

    return instance_cache(layer, "_packed", make)


def pack(part: object) -> None:
    """Pack the weights of a layer, such as a model, or of a tuple of them, now and not in the first call of each.

    But for experts, most of which no token of a text may take: of those not packed the system can drop the pages.
    """
    if isinstance(part, tuple):
        for each in part:
            pack(each)
    elif isinstance(part, Layer):
        maps = () if packed_maps(part) is None else part.packed_together()
        values = [getattr(part, field.name) for field in fields(part) if field.name != "experts"]  # type: ignore[arg-type]
        for value in (*values, getattr(part, "tied_head", None)):
            if not any(value is each for each in maps):
                pack(value)


def instance_cache(layer: object, name: str, make: Callable[[], T]) -> T:
    """Return the result of `make`, stored in `layer` under a name that is not a field.

    Without a lock, which a fork could copy while it is held: two threads may both call `make`, which is harmless.
    """
    attributes: dict[str, T] = vars(layer)
    if name not in attributes:
        attributes[name] = make()
    return attributes[name]


def are_ours(*layers: object) -> bool:
    """Tell whether all are of classes of `regard.nn`: a subclass from elsewhere may compute differently."""
    return all(type(layer).__module__.startswith("regard.nn.") for layer in layers)


def is_mapped(x: np.ndarray) -> bool:
    """Whether an array is a view of a file that is mapped read-only, or of bytes."""
    base: object = x
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    while isinstance(base, memoryview):
        base = base.obj
    return isinstance(base, bytes) or (isinstance(base, mmap) and memoryview(base).readonly)
