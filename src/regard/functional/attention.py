"""Attention and its weights: validate the arguments, choose an implementation, compute."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Never, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard.functional import reference
from regard.functional.arrays import Array, narrowed
from regard.functional.backward import backward, forward_with_stats
from regard.functional.biases.base import Bias
from regard.functional.biases.score_mod import ScoreModFunction
from regard.functional.blockwise import blockwise
from regard.functional.dispatch import choose_implementation
from regard.functional.frameworks import framework_of, uncompiled
from regard.functional.inputs import AttentionInputs, Implementation, Options, validate_inputs, widened
from regard.functional.masks.base import Mask
from regard.functional.masks.block_mask import MaskMod
from regard.functional.native.attention import (
    computes_in_blocks,
    is_differentiated,
    native_forward,
    native_forward_with_stats,
    native_forward_with_weights,
)
from regard.functional.recorder import NULL_RECORDER, Recorder
from regard.functional.scores.layout import ALL, Index
from regard.functional.scores.stages import QUADRATIC_STEPS, Stage, block_arguments, map_steps, whole_map
from regard.functional.scores.tile import attention_tile, check_stage, record_maps
from regard.functional.variable import Pullback, Variable, plain, record_vjp


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Array | Mask | MaskMod | None = None,
    bias: Array | Bias | ScoreModFunction | None = None,
    causal: bool = False,
    query_offset: int | Array | None = None,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    key_lengths: int | Array | None = None,
    dropout: float = 0.0,
    rng: np.random.Generator | None = None,
    implementation: Implementation = "auto",
    trace: Recorder = NULL_RECORDER,
    **others: Never,
) -> Array:
    """Return softmax(q · kᵀ × scale) · v: for each query the mean of the values, weighted by how well its key matches.

    Parameters
    ----------
    q : array, ``... H T D``
        Queries. A plain ``T D`` is one head. Leading axes of q, k and v broadcast.
    k : array, ``... G S D``
        Keys. G divides H: each key/value head serves H/G consecutive query heads.
    v : array, ``... G S Dv``
        Values. Dv may differ from D.
    mask : boolean array that broadcasts to ``... H T S``, or Mask, optional
        True: the query attends to the key. A rule such as ``Causal() & SegmentMask(ids)`` never holds n² booleans. Also
        a function ``mask_mod(b, h, q_idx, kv_idx)``, which `create_block_mask` evaluates once for many calls; or
        a `BlockMask` of PyTorch.
    bias : floating array that broadcasts to ``... H T S``, or Bias, optional
        Added to the scaled scores; −inf masks. A rule such as ``ALiBi(slopes)`` never holds n² numbers. Also a function
        ``score_mod(score, b, h, q_idx, kv_idx)``, with its derivative as a `ScoreMod`.
    causal : bool
        Mask the keys at later positions than the query.
    query_offset : int, or integer array with one for each batch entry, optional
        Query i is at position i + query_offset. The default S − T makes the queries the last positions (decoding with a
        cache); 0 aligns query 0 with key 0.
    window : (left, right), optional
        How many keys before and after its own position a query attends to; None is all of them.
    scale : float, optional
        1/√D by default.
    softcap : float, optional
        Scores become softcap · tanh(scores / softcap), before bias and mask.
    sinks : floating array, ``H``, optional
        One extra logit per head, in the denominator of the softmax only.
    key_lengths : int, or integer array with one for each batch entry, optional
        Keys from this position on are padding. They do not change the default of `query_offset`, as a batch of texts
        needs that is padded on the right; in a cache that is valid up to n, give ``query_offset=n - T``, which is the
        default of ONNX there.
    dropout : float
        Probability with which a weight is set to zero; the others are scaled by 1 / (1 − dropout).
    rng : numpy.random.Generator, optional
        The generator of `dropout`; required with it.
    implementation : {"auto", "reference", "blockwise", "native"}
        The equation on the whole map; blockwise with an online softmax, in memory of O(n · D); or the compiled kernel,
        an error with the reason where it cannot compute the call. `explain_plan` shows what auto chooses.
    trace : Recorder
        Records ``scores``, ``capped`` (with a softcap), ``biased`` (with a bias or a mask), ``weights``, ``dropped``
        (with dropout) and ``context``. If it edits one of those of shape ``... H T S``, or records one without the
        kernel, the implementation is the reference; `Trace(maps=True)` avoids that.

    Returns
    -------
    array, ``... H T Dv``
        In the common floating dtype of q, k and v (integers count as float64). Half precision is computed in float32
        and rounded once. A query that attends to no key gets 0. NaN and infinity in masked keys and values never
        reach the result.

    Raises
    ------
    RegardError
        Shapes, dtypes or arguments do not fit; the message says which and what to do.

    References
    ----------
    Vaswani et al. (2017), "Attention is all you need", https://arxiv.org/abs/1706.03762. The semantics
    follow the ONNX operator Attention, opset 25, except for the default of `query_offset` with `key_lengths`.

    Examples
    --------
    >>> import numpy as np
    >>> q = k = np.array([[4.0, 0.0], [0.0, 4.0]])
    >>> v = np.array([[1.0], [0.0]])
    >>> attention(q, k, v).round(4)
    array([[1.],
           [0.]])
    >>> attention(np.zeros((2, 2)), k, v)
    array([[0.5],
           [0.5]])
    """
    if others:
        raise TypeError(_unknown_argument(others))
    options: Options = {
        "mask": mask, "bias": bias, "causal": causal, "query_offset": query_offset, "window": window, "scale": scale,
        "softcap": softcap, "sinks": sinks, "key_lengths": key_lengths, "dropout": dropout, "rng": rng,
        "implementation": implementation,
    }  # fmt: skip
    if type(q) is not np.ndarray and trace is NULL_RECORDER:
        library = framework_of(q)
        q, k, v = library.autocast(q, k, v)
        context = library.attention(q, k, v, options)
        if context is not None:
            return context
    return compute_attention(validate_inputs(q, k, v, **options), trace)


_OTHER_NAMES = {
    "attn_mask": "mask= (boolean, True: the query attends) or bias= (added to the scores)",
    "is_causal": "causal=",
    "dropout_p": "dropout= with rng=",
    "enable_gqa": "not needed: fewer key heads than query heads are grouped",
    "softmax_scale": "scale=",
    "window_size": "window=",
    "local_window_size": "window=",
    "alibi_slopes": "bias=ALiBi(slopes)",
    "key_padding_mask": "key_lengths= or mask=",
    "key_value_seq_lengths": "key_lengths=",
    "query_seq_lengths": "mask=arange(T)[:, None] < lengths[:, None, None, None]",
    "attention_chunk": "mask=SegmentMask(chunks of the queries, chunks of the keys)",
    "sink_token_length": "mask=SlidingWindow(left) | PrefixLM(length)",
    "s_aux": "sinks=",
    "learnable_sink": "sinks=",
    **dict.fromkeys(("return_weights", "need_weights", "output_attentions"), "attention_weights(q, k, ...)"),
}


def _unknown_argument(names: Iterable[str]) -> str:
    """Return the message for arguments of other libraries, or that are misspelled."""
    from difflib import get_close_matches

    name = next(iter(names))
    close = get_close_matches(name, [*Options.__annotations__, "trace"], n=1)
    suggestion = f"; did you mean {close[0]}?" if close else ""
    hint = f": it is {_OTHER_NAMES[name]} here" if name in _OTHER_NAMES else suggestion
    return f"attention has no argument {name}{hint}"


def compute_attention(p: AttentionInputs, trace: Recorder) -> Array:
    """Return the context of validated inputs, ``... H T Dv``."""
    if not hasattr(trace, "record_attention"):
        raise RegardError(f"trace must be a recorder such as regard.Trace(), got {trace!r}")
    if Variable in (type(p.q), type(p.k), type(p.v), type(p.sinks), type(getattr(p.bias, "parameter", None))):
        if not trace.plan(*QUADRATIC_STEPS).asked:
            return _recorded(p, trace)
        p = p.replace(implementation="reference")  # each of its steps is a variable
    implementation, _ = choose_implementation(p, trace, with_gradient=True)
    compute = {"reference": _reference, "blockwise": _blockwise, "native": _native}[implementation]
    context = compute(p, trace)
    context = context if trace is NULL_RECORDER else trace("context", context, "... H T Dv")
    return context if context.dtype == p.dtype else narrowed(context, p.dtype)


def _reference(p: AttentionInputs, trace: Recorder) -> Array:
    p = widened(p)
    trace.record_attention(p)
    with np.errstate(invalid="ignore", over="ignore"):  # masked keys may hold anything
        return reference.attention(
            v=p.v,
            sinks=p.sinks,
            dropout=None if p.dropout is None else p.dropout.factors(p.layout, ALL, ALL, p.q.dtype),
            trace=trace,
            **block_arguments(p),
        )


def _blockwise(p: AttentionInputs, trace: Recorder) -> Array:
    p = widened(p)
    trace.note(*map_steps(p))
    trace.record_attention(p)
    return blockwise(p)[0]


def _native(p: AttentionInputs, trace: Recorder) -> Array:
    if p.layout.xp is not np and is_differentiated(p):
        recorded = p.with_parameters({name: x.detach() for name, x in p.parameters.items()})
        record_maps(recorded, trace)
        trace.record_attention(recorded)
        return framework_of(p.q).differentiable(p)
    if trace is NULL_RECORDER:
        context, is_valid = native_forward(p, p.dtype)
        return context if is_valid else _blockwise(p, trace)
    plan = trace.plan(*QUADRATIC_STEPS)
    if "weights" in plan.asked and not plan.keeps_map:
        context, weights = native_forward_with_weights(p) or (None, None)
        if weights is not None:
            record_maps(p, trace, weights)
            return context
    stats = None
    if plan.keeps_map and computes_in_blocks(p):
        context, stats, is_valid = native_forward_with_stats(p, p.compute_dtype)
    else:
        context, is_valid = native_forward(p, p.compute_dtype)
    record_maps(p, trace)
    if not is_valid:
        return _blockwise(p, trace)
    trace.record_attention(p, stats)
    return context


def _recorded(p: AttentionInputs, trace: Recorder) -> Array:
    """Return the context of inputs of which some are variables, in memory that grows with the number of tokens."""
    inputs = p.parameters
    trace.note(*map_steps(p))
    trace.record_attention(p.with_parameters({name: plain(x) for name, x in inputs.items()}))

    return trace("context", record_vjp(inputs_vjp, *inputs.values(), p=p), "... H T Dv")


def inputs_vjp(*arrays: Array, p: AttentionInputs) -> tuple[Array, Pullback]:
    """Return the context of validated inputs, ``... H T Dv``, and its pullback at their `parameters`, the arrays."""
    names = tuple(p.parameters)
    values = p.with_parameters(dict(zip(names, arrays, strict=True)))
    native = choose_implementation(values)[0] == "native"
    values, context, stats, native = forward_with_stats(values, native=native)

    def pullback(d: Array) -> list[Array | None]:
        gradients = backward(values, context, stats, d, native=native)
        return [gradients[name] for name in names]

    return narrowed(context, p.dtype), pullback


@uncompiled
def attention_weights(
    q: Array,
    k: Array,
    *,
    rows: int | Index | None = None,
    cols: int | Index | None = None,
    stage: Stage = "weights",
    trace: Recorder = NULL_RECORDER,
    **options: Unpack[Options],
) -> Array:
    """Return softmax(q · kᵀ × scale): how much each query attends to each key, for the whole map or a part of it.

    Takes the arguments of `attention`, which says what they mean.

    Parameters
    ----------
    rows, cols : int, slice or integer array, optional
        Which queries and keys. The softmax of a row is over all keys, whatever `cols` are. Memory in addition to
        the result is O(n · D). The kernel computes scores in the precision of `attention`; without it a part of the
        map is computed in float64 where there is one, and rounded once.
    stage : {"scores", "capped", "biased", "weights"}
        Scaled scores; after the softcap; after bias and mask (−inf where masked); after softmax and dropout.

    Returns
    -------
    array, ``... H T S``, or fewer rows and columns
        An integer in `rows` or `cols` removes its axis. Each row of the weights sums to 1 less the weight of its sink;
        it is 0 throughout if the query attends to no key.

    Examples
    --------
    >>> import numpy as np
    >>> attention_weights(np.zeros((2, 3)), np.zeros((2, 3)), causal=True)
    array([[1. , 0. ],
           [0.5, 0.5]])
    >>> attention_weights(np.zeros((2, 3)), np.zeros((2, 3)), causal=True, rows=1, cols=0)
    array(0.5)
    """
    p = validate_inputs(q, k, **options)
    check_stage(stage)
    p = p.to_compute_dtype()
    whole = rows is None and cols is None
    if whole and choose_implementation(p, trace)[0] == "native":
        record_maps(p, trace)
    elif whole:
        return narrowed(whole_map(widened(p), stage, trace), p.dtype)
    return attention_tile(p, rows, cols, stage)
