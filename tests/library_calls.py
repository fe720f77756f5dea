"""Calls of everything that takes arrays, for any array library: what NumPy answers, the others must answer too.

A call takes a function that makes an array of the library from one of NumPy, and returns arrays, as many as it likes.
"""

from functools import partial

import numpy as np

from regard import (
    AttentionMap,
    KVCache,
    attention,
    attention_partial,
    attention_varlen,
    attention_varlen_vjp,
    attention_vjp,
    attention_weights,
    create_block_mask,
    linear_attention_vjp,
    merge_partials,
    softmax,
)
from regard.functional import (
    ALiBi,
    Causal,
    DenseMask,
    DistanceBias,
    KeyLengths,
    KeyRangeMask,
    PrefixLM,
    RelativePositionBias,
    SegmentMask,
    SlidingWindow,
    alibi_slopes,
    gelu,
    layer_norm,
    norm_parts,
    relative_position_buckets,
    relu,
    rotary,
    score_pairs,
)

BATCH, HEADS, GROUPS, QUERIES, KEYS, DIM, WIDTH = 2, 4, 2, 5, 7, 6, 3


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


Q, K, V = draw(0, BATCH, HEADS, QUERIES, DIM), draw(1, BATCH, GROUPS, KEYS, DIM), draw(2, BATCH, GROUPS, KEYS, WIDTH)
MASK = np.random.default_rng(3).random((HEADS, QUERIES, KEYS)) < 0.6
MASK[:, 1] = False  # a query that attends to no key
BIAS = np.where(np.random.default_rng(4).random((QUERIES, KEYS)) < 0.2, -np.inf, draw(5, QUERIES, KEYS))
SINKS, TABLE, NUMBERS = draw(6, HEADS), draw(7, 8, HEADS), draw(9, HEADS, 17)  # of heads, buckets and distances
SEGMENTS = np.array([0, 0, 1, 1, 2]), np.array([0, 0, 0, 1, 1, 2, 2])  # of queries and keys
BLOCK_MASK = create_block_mask(lambda b, h, q_idx, kv_idx: MASK[h, q_idx, kv_idx], None, HEADS, QUERIES, KEYS)

# Options of attention, given the function that makes arrays.
OPTIONS = {
    "plain": lambda to: {},
    "mask": lambda to: {"mask": to(MASK)},
    "mask of all": lambda to: {"mask": to(np.zeros((1, KEYS), bool))},
    "bias": lambda to: {"bias": to(BIAS)},
    "causal window": lambda to: {"causal": True, "window": (2, None), "query_offset": 1},
    "an offset for each entry": lambda to: {"causal": True, "query_offset": to(np.array([2, -2]))},
    "key lengths": lambda to: {"key_lengths": to(np.array([0, 5]))},
    "rules": lambda to: {
        "mask": (Causal() | PrefixLM(to(np.array([2, 3])))) & SegmentMask(*map(to, SEGMENTS))
        & DenseMask(to(MASK)) & KeyLengths(6) & SlidingWindow(4, 4),
    },
    "softcap, sinks and scale": lambda to: {"softcap": 0.8, "sinks": to(SINKS), "scale": 0.5, "causal": True},
    "ALiBi": lambda to: {"bias": ALiBi(to(alibi_slopes(HEADS)))},
    "relative positions": lambda to: {"bias": RelativePositionBias(to(TABLE), max_distance=6)},
    "spans": lambda to: {"mask": KeyRangeMask(to(np.array([0, 3, 2, 2, 0])), to(np.array([7, 3, 5, 6, 1])))},
    "numbers of distances": lambda to: {"bias": DistanceBias(to(NUMBERS), -7)},
    "numbers of distances for each entry": lambda to: {
        "bias": DistanceBias(to(NUMBERS), -7), "causal": True, "query_offset": to(np.array([2, -2])),
    },
    "all at once": lambda to: {
        "mask": DenseMask(to(MASK)) & SegmentMask(*map(to, SEGMENTS)),
        "bias": ALiBi(to(alibi_slopes(HEADS))), "causal": True, "window": (4, 0), "query_offset": to(np.array([2, 3])),
        "softcap": 2.0, "sinks": to(SINKS), "key_lengths": to(np.array([5, 7])),
    },
    # What a rule or an option is made from may stay in NumPy.
    "arrays of NumPy": lambda to: {
        "mask": MASK & SegmentMask(*SEGMENTS), "bias": BIAS, "key_lengths": np.array([5, 7]),
        "causal": True, "query_offset": np.array([2, 3]), "sinks": SINKS,
    },
    "slopes of NumPy": lambda to: {"bias": ALiBi(alibi_slopes(HEADS))},
    "a table of NumPy": lambda to: {"bias": RelativePositionBias(TABLE, max_distance=6)},
    "a function": lambda to: {"mask": lambda b, h, q_idx, kv_idx: (q_idx + kv_idx + b + h) % 3 != 1},
    "a mask in blocks": lambda to: {"mask": BLOCK_MASK, "key_lengths": to(np.array([5, 7]))},
    "dropout": lambda to: {"dropout": 0.3, "rng": np.random.default_rng(8)},
}  # fmt: skip


def contexts(options, implementation, to):
    return [attention(to(Q), to(K), to(V), **options(to), implementation=implementation)]


def weights(options, to):
    q, k = to(Q), to(K)
    return [attention_weights(q, k, **options(to), stage=s) for s in ("scores", "capped", "biased", "weights")]


def tiles(options, to):
    q, k = to(Q), to(K)
    return [
        attention_weights(q, k, **options(to), rows=rows, cols=cols, stage=stage)
        for rows, cols, stage in [
            (slice(1, 4), None, "weights"), (2, [0, -1, 3], "weights"), (None, 4, "biased"),
            (to(np.array([3, 0])), slice(0, 7, 3), "weights"),
        ]
    ]  # fmt: skip


def parts(options, to):
    q, k, v = to(Q), to(K), to(V)
    whole = attention_partial(q, k, v, **options(to))
    joined = merge_partials(
        attention_partial(q, k[..., 4:, :], v[..., 4:, :]), attention_partial(q, k[..., :4, :], v[..., :4, :])
    )
    nothing = attention_partial(q, k[..., :0, :], v[..., :0, :])
    return [*whole, *joined, *merge_partials(whole, joined, nothing)]


def gradients(options, to):
    output, pullback = attention_vjp(to(Q), to(K), to(V), **options(to))
    return [output, *(g for g in pullback(to(draw(9, *output.shape))) if g is not None)]


def sequences(to):
    q, k, v = (to(x.reshape(-1, *x.shape[2:])) for x in (Q.swapaxes(1, 2), K.swapaxes(1, 2), V.swapaxes(1, 2)))
    starts = [0, 2, BATCH * QUERIES], [0, 6, BATCH * KEYS]
    options = {"causal": True, "attention_chunk": 3, "sinks": to(SINKS), "alibi_slopes": alibi_slopes(HEADS)}
    output, pullback = attention_varlen_vjp(q, k, v, *starts, **options)
    gradients = (g for g in pullback(to(draw(9, *output.shape))) if g is not None)
    return [output, *gradients, *attention_varlen(q, k, v, *starts, **options, return_lse=True)]


def looks(options, to):
    look = AttentionMap(to(Q), to(K), **options(to))
    head = look.select(1, 2)
    top = look.top(3)
    return [
        look.weights(), look.lse, look[0], look[:, 1, 2:4], look[1, :, to(np.array([4, 0])), 3], look.entropy(),
        look.distance(), look.received(), look.pooled((2, 3)), look.pooled((3, 4), "mean"), top.weights,
        top.keys, head.weights(), head.entropy(), look.score_terms(1, 2, 3, 4).terms, look.tile(2, stage="scores"),
    ]  # fmt: skip


def one_head(options, to):
    """Return what plain ``T D`` arrays give."""
    q, k, v = to(Q[0, 0]), to(K[0, 0]), to(V[0, 0])
    output, pullback = attention_vjp(q, k, v, **options(to))
    look = AttentionMap(q, k, **options(to))
    return [
        attention(q, k, v, **options(to)), output, *(g for g in pullback(output) if g is not None),
        attention_weights(q, k, **options(to), rows=3), look[2, 1:4], look.received(), look.score_terms(1, 2).terms,
    ]  # fmt: skip


def cached(to):
    cache, rows = KVCache(), []
    k, v, q = to(K), to(V), to(Q)
    for t in range(KEYS):
        cache = cache.append(k[..., t : t + 1, :], v[..., t : t + 1, :])
        rows.append(attention(q[..., :1, :], cache.k, cache.v, causal=True))
    short = cache.crop(4).slide(2).append(k[..., :3, :], v[..., :3, :])
    return [*rows, cache.k, cache.v, short.k, short.v]


def rotated(to):
    x = to(Q)
    positions = to(np.array([[[3, 0, 9, 4, 1]], [[5, 6, 7, 8, 2]]]))
    return [
        rotary(x), rotary(x, positions), rotary(x, np.arange(5) + 3), rotary(x, rotary_dim=4, interleaved=True),
        rotary(x, positions, scaling={"rope_type": "linear", "factor": 3.0}),
    ]  # fmt: skip


def stretched(to):
    """Return what depends on the largest position there is, which must be known when it is called."""
    scaling = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 3}
    return [rotary(to(Q), to(np.arange(5)), scaling=scaling), rotary(to(Q), scaling=scaling)]


def linear_attentions(to):
    found = []
    for width in (1, DIM):
        options = {"decay": to(-np.abs(draw(10, GROUPS, KEYS, width))), "beta": to(np.abs(draw(11, GROUPS, KEYS)) / 3)}
        q, k, v, state = (to(x) for x in (draw(12, BATCH, HEADS, KEYS, DIM), K, V, draw(13, GROUPS, DIM, WIDTH)))
        for result, pullback in (
            linear_attention_vjp(q, k, v, **options, state=state, chunk_size=3),
            linear_attention_vjp(q, k, v),
        ):
            found += [*result, *(g for g in pullback(*result) if g is not None)]
    return found  # fmt: skip


def others(to):
    x = to(Q)
    return [
        softmax(x), softmax(x, axis=1), gelu(x), relu(x), layer_norm(x, to(draw(1, DIM)), to(draw(2, DIM)), eps=1e-5),
        score_pairs(x, to(draw(3, DIM, 2)).mT, scale=0.3), norm_parts(x, x[..., :1] ** 2 + 1, centered=True),
        relative_position_buckets(to(np.arange(-200, 200, 7))),
        relative_position_buckets(to(np.arange(-200, 200, 7)), bidirectional=False),
    ]  # fmt: skip


ONE_HEAD = {
    "plain": lambda to: {},
    "mask and bias": lambda to: {"mask": to(MASK[0]), "bias": to(BIAS)},
    "rules and sinks": lambda to: {
        "mask": Causal() & SegmentMask(*map(to, SEGMENTS)), "bias": ALiBi(to(alibi_slopes(1))),
        "sinks": to(draw(6, 1)),
    },
    "relative positions": lambda to: {"bias": RelativePositionBias(to(draw(7, 8, 1)), max_distance=6)},
}  # fmt: skip

CALLS = {
    **{f"attention, {path}, {name}": partial(contexts, options, path)
       for path in ("reference", "blockwise") for name, options in OPTIONS.items()},
    **{f"weights, {name}": partial(weights, options) for name, options in OPTIONS.items()},
    **{f"tiles, {name}": partial(tiles, options) for name, options in OPTIONS.items()},
    **{f"parts, {name}": partial(parts, options) for name, options in OPTIONS.items()},
    **{f"gradients, {name}": partial(gradients, options) for name, options in OPTIONS.items()},
    **{f"map, {name}": partial(looks, options) for name, options in OPTIONS.items() if name != "dropout"},
    **{f"one head, {name}": partial(one_head, options) for name, options in ONE_HEAD.items()},
    "sequences": sequences,
    "cache": cached,
    "rotary": rotated,
    "stretched positions": stretched,
    "linear attention": linear_attentions,
    "others": others,
}  # fmt: skip


def in_precision(dtype, make):
    """Return a function that makes an array of the library with floats in `dtype`."""
    return lambda array: make(array.astype(dtype) if array.dtype.kind == "f" else array)
