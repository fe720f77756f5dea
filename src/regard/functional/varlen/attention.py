"""Attention over sequences of different lengths, one after the other along one axis, or with a paged cache."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Unpack

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, concat, device, is_floating, narrowed, no_grad
from regard.functional.attention import attention
from regard.functional.backward import Gradients, attention_vjp
from regard.functional.frameworks import framework_of, uncompiled
from regard.functional.inputs import Implementation
from regard.functional.native.attention import has_gradients
from regard.functional.native.varlen import (
    native_varlen,
    native_varlen_backward,
    native_varlen_with_stats,
    varlen_lse,
    varlen_unsupported_reason,
)
from regard.functional.partial import Partial, attention_partial
from regard.functional.varlen.inputs import VarlenInputs, VarlenOptions, by_head, validate_varlen


@uncompiled
def attention_varlen(
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    *,
    attention_chunk: int = 0,
    sinks: Array | None = None,
    block_table: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    return_lse: bool = False,
    implementation: Implementation = "auto",
) -> Array:
    """Return attention of sequences of different lengths, each over its own keys, without padding.

    The arguments are named as in FlashAttention's ``flash_attn_varlen_func``. The sequences lie one after the other
    along the first axis; sequence b has the queries ``cu_seqlens_q[b] ≤ i < cu_seqlens_q[b + 1]``. Positions are
    aligned at the end, as in FlashAttention since 2.1: the last query of a sequence is at the position of its last key.
    One query a sequence is a step of decoding a batch.

    Parameters
    ----------
    q : array, ``Tq H D``
        The queries of all sequences.
    k : array, ``Tk G D``, or with a `block_table` ``N P G D``
        The keys of all sequences, or N pages of P keys. G divides H. Half precision, and int8 with `k_scale`, are
        widened where they are read.
    v : array, ``Tk G Dv`` or ``N P G Dv``
        The values.
    cu_seqlens_q, cu_seqlens_k : integer array, ``B + 1``
        Where each sequence begins, and the end of the last one, from 0 on; a sequence may be empty. With a
        `block_table` only the differences of `cu_seqlens_k` count: the numbers of keys.
    max_seqlen_q, max_seqlen_k : int, optional
        The longest sequences: checked if given; nothing is computed from them.
    dropout_p : float
        0: there is no dropout here.
    softmax_scale : float, optional
        1/√D by default.
    causal : bool
        Mask the keys at later positions than the query.
    window_size : (left, right)
        How many keys before and after its own position a query attends to; −1 or None is all of them.
    softcap : float
        Scores become softcap · tanh(scores / softcap); 0 leaves them.
    alibi_slopes : floating array, ``H`` or ``B H``, optional
        Adds −slope · |position of the query − position of the key| to the scores. It gets no gradient.
    attention_chunk : int
        A query attends to the keys of its own chunk of so many positions, as in FlashAttention-3; 0 means no chunks.
    sinks : floating array, ``H``, optional
        One extra logit per head, in the denominator of the softmax only.
    block_table : integer array, ``B M``, optional
        The pages of each sequence: key s is row s % P of page ``block_table[b, s // P]``. Entries beyond the keys of a
        sequence are not read. The pages are read where they are, never gathered.
    k_scale, v_scale : floating array, ``G``, or ``Tk G`` (``N P G``), optional
        For keys and values of int8: one for each head, or for each key and head. A number is its integer times its
        scale, in float32 (float64 for queries of float64; the scales themselves are read as float32).
    return_lse : bool
        Return a `Partial`: the output in float32 at least, and the log-sum-exp as ``Tq H``.
    implementation : {"auto", "reference", "blockwise", "native"}
        As in `attention`; the kernel computes all sequences in one call, the others one after the other.

    Returns
    -------
    array, ``Tq H Dv``, or Partial
        In the dtype of q (the common one of q, k and v where those are floating and wider). A query that attends to no
        key gets 0. A sequence has the same bits in any batch, with any number of threads, in pages or not.

    Raises
    ------
    RegardError
        Shapes, dtypes or lengths do not fit, or a page is not there.

    References
    ----------
    Dao (2023), "FlashAttention-2", https://arxiv.org/abs/2307.08691; pages: Kwon et al. (2023), "Efficient memory
    management for large language model serving with PagedAttention", https://arxiv.org/abs/2309.06180.

    Examples
    --------
    Two sequences, of two tokens and one:

    >>> import numpy as np
    >>> q = k = np.zeros((3, 1, 2))
    >>> v = np.array([1.0, 3.0, 5.0]).reshape(3, 1, 1)
    >>> attention_varlen(q, k, v, [0, 2, 3], [0, 2, 3], causal=True).ravel()
    array([1., 2., 5.])

    The same keys and values in pages of two:

    >>> pages = [np.zeros((2, 2, 1, 2)), np.array([[5.0, 0.0], [1.0, 3.0]]).reshape(2, 2, 1, 1)]
    >>> attention_varlen(q, *pages, [0, 2, 3], [0, 2, 3], causal=True, block_table=[[1], [0]]).ravel()
    array([1., 2., 5.])
    """
    p = validate_varlen(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, dropout_p=dropout_p,
        softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
        attention_chunk=attention_chunk, sinks=sinks, block_table=block_table, k_scale=k_scale, v_scale=v_scale,
        implementation=implementation,
    )  # fmt: skip
    differentiated = has_gradients(p.parameters.values())
    if not _is_native(p) or (differentiated and (return_lse or p.has_cache)):
        return _each_sequence(p, with_lse=return_lse)
    if differentiated:
        return narrowed(framework_of(p.q).differentiable_varlen(p), p.dtype)
    if not return_lse:
        output, overflowed = native_varlen(p)
        for n in overflowed:
            _set_sequence(p, n, output)
        return output
    output, stats, overflowed = native_varlen_with_stats(p)
    lse = varlen_lse(p, stats)
    for n in overflowed:
        lse[p.rows(n), ...] = p.xp.permute_dims(_set_sequence(p, n, output).lse, (1, 0))
    return Partial(output, lse)


def _is_native(p: VarlenInputs) -> bool:
    """Tell whether the kernel computes a call, of at least one sequence; raise if it is asked to and cannot."""
    if not len(p.query_counts):
        return False
    reason = varlen_unsupported_reason(p) if p.implementation in ("auto", "native") else "not asked"
    if p.implementation == "native" and reason is not None:
        raise RegardError(f"implementation='native' cannot compute this call: {reason}; use 'auto'")
    return reason is None


def _set_sequence(p: VarlenInputs, n: int, output: Array) -> Partial:
    """Compute a sequence alone, write its part of `output`, and return it."""
    call = p.sequence(n)
    part = attention_partial(call.q, call.k, call.v, **call.options)
    output[call.rows, ...] = narrowed(by_head(part.output), output.dtype)
    return part


def attention_varlen_vjp(
    q: Array, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, **options: Unpack[VarlenOptions]
) -> tuple[Array, Callable[[Array], Gradients]]:
    """Return `attention_varlen` and its vector-Jacobian product.

    Takes the arguments of `attention_varlen`, without pages and scales.

    Returns
    -------
    output : array, ``Tq H Dv``
    pullback : function
        Takes the gradient of a scalar with respect to the output, ``Tq H Dv``, and returns `Gradients` of q, k, v and
        sinks.

    Examples
    --------
    >>> import numpy as np
    >>> q, k, v = np.zeros((1, 1, 2)), np.zeros((2, 1, 2)), np.array([1.0, 3.0]).reshape(2, 1, 1)
    >>> output, pullback = attention_varlen_vjp(q, k, v, [0, 1], [0, 2])
    >>> output.ravel(), pullback(np.ones((1, 1, 1))).v.ravel()
    (array([2.]), array([0.5, 0.5]))
    """
    p = validate_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, **options)
    if p.has_cache:
        raise RegardError("attention_varlen_vjp has no gradients of pages and of int8; give k and v as Tk G D")
    output, pullback = varlen_vjp(p)
    return narrowed(output, p.dtype), pullback


def varlen_vjp(p: VarlenInputs) -> tuple[Array, Callable[[Array], Gradients]]:
    """Return the output, in the dtype of the result or the compute dtype, and the pullback of validated inputs."""
    with no_grad(p.xp):
        if not _is_native(p):
            return _vjp_of_each_sequence(p)
        output, stats, overflowed = native_varlen_with_stats(p)
        alone = {n: attention_vjp(call.q, call.k, call.v, **call.options) for n, call in p.some(overflowed)}
        for n, (part, _) in alone.items():
            output[p.rows(n), ...] = narrowed(by_head(part), output.dtype)

    def pullback(d_output: Array) -> Gradients:
        with no_grad(p.xp):
            d_output = _checked_gradient(p, d_output)
            d_inputs, invalid = native_varlen_backward(p, output, stats, d_output)
            for n, call in p.some({*overflowed, *invalid}):
                _, of_sequence = alone.get(n) or attention_vjp(call.q, call.k, call.v, **call.options)
                gradients = of_sequence(by_head(d_output[call.rows, ...]))
                for name, rows in (("q", p.rows(n)), ("k", p.key_rows(n)), ("v", p.key_rows(n))):
                    d_inputs[name][rows, ...] = narrowed(by_head(getattr(gradients, name)), d_inputs[name].dtype)
                if gradients.sinks is not None:
                    of_queries = d_inputs["sinks"][:, call.rows]
                    of_queries[...] = 0
                    of_queries[:, :1] = gradients.sinks[:, None]  # of all of them
            if p.sinks is not None:
                d_inputs["sinks"] = d_inputs["sinks"].sum(-1)
            return _like_inputs(p, d_inputs)

    return output, pullback


def _vjp_of_each_sequence(p: VarlenInputs) -> tuple[Array, Callable[[Array], Gradients]]:
    """Return `varlen_vjp`, computed one sequence after the other."""
    parts = [(call.rows, *attention_vjp(call.q, call.k, call.v, **call.options)) for call in p.sequences()]

    def pullback(d_output: Array) -> Gradients:
        d_output = _checked_gradient(p, d_output)
        gradients = [part(by_head(d_output[rows, ...])) for rows, _, part in parts]
        if not gradients:
            return Gradients(**{name: p.xp.zeros_like(x) for name, x in p.parameters.items()})
        each = {name: concat([by_head(getattr(x, name)) for x in gradients], 0) for name in "qkv"}
        if p.sinks is not None:
            each["sinks"] = functools.reduce(p.xp.add, [x.sinks for x in gradients])
        return _like_inputs(p, each)

    return _joined(p, [part for _, part, _ in parts], p.dtype), pullback


def _checked_gradient(p: VarlenInputs, d_output: Array) -> Array:
    d_output = as_array(d_output, "d_output")
    shape = (*p.q.shape[:2], p.v.shape[-1])
    if tuple(d_output.shape) != tuple(shape):
        raise RegardError(f"d_output {tuple(d_output.shape)} must have the shape of the output, {tuple(shape)}")
    return d_output


def _like_inputs(p: VarlenInputs, gradients: dict[str, Array]) -> Gradients:
    """Return gradients in the dtypes of the inputs, of those that are floating."""
    inputs = p.parameters
    return Gradients(
        **{name: narrowed(x, inputs[name].dtype) if is_floating(inputs[name]) else x for name, x in gradients.items()}
    )


def _each_sequence(p: VarlenInputs, *, with_lse: bool) -> Array | Partial:
    """Return the output, and the log-sum-exp if wanted, computed one sequence after the other."""
    if not with_lse:
        return _joined(p, [attention(q, k, v, **options) for _, q, k, v, options in p.sequences()], p.dtype)
    parts = [attention_partial(q, k, v, **options) for _, q, k, v, options in p.sequences()]
    if not parts:
        return Partial(_joined(p, [], p.compute_dtype), p.xp.zeros((0, p.q.shape[1]), device=device(p.q)))
    lse = concat([p.xp.permute_dims(part.lse, (1, 0)) for part in parts], 0)
    return Partial(_joined(p, [part.output for part in parts], p.compute_dtype), lse)


def _joined(p: VarlenInputs, parts: list[Array], dtype: Any) -> Array:
    """Return outputs of the sequences, ``H T Dv``, as one, ``Tq H Dv``."""
    if not parts:
        return p.xp.zeros((0, p.q.shape[1], p.v.shape[-1]), dtype=dtype, device=device(p.q))
    return narrowed(concat([by_head(x) for x in parts], 0), dtype)
