"""What the functions refuse: an error of one sentence that says what was given, or what to do."""

import functools

import ml_dtypes
import numpy as np
import pytest

from regard import RegardError, create_block_mask, functional as F
from regard.functional import KeyRangeMask, ScoreMod, native
from regard.functional.biases.distance import DistanceBias
from regard.functional.variable import Variable


def refused(function, given, rows):
    """Return a row of the table for each change of the arguments of a call, with what is said of it."""
    return [(functools.partial(function, **given | changed), said) for changed, said in rows]


def arrays(q, k, v, dtype=np.float64):
    return dict(zip("qkv", (np.zeros(shape, dtype) for shape in (q, k, v)), strict=True))


ONES, RNG = np.ones, np.random.default_rng(3)
BATCH = arrays((2, 6, 5, 11), (2, 3, 7, 11), (2, 3, 7, 13))
ATTENTION = [
    ({"mask": np.zeros((5, 7))}, r"mask must be boolean.*float64.*bias="),
    ({"mask": ONES((5, 7), int)}, r"mask must be boolean"),
    ({"bias": ONES((5, 7), bool)}, r"bias is boolean.*mask="),
    ({"bias": ONES((5, 7), int)}, r"bias must be floating"),
    ({"mask": ONES((7, 5), bool)}, r"mask \(7, 5\) does not broadcast .*\(2, 6, 5, 7\)"),
    ({"bias": ONES((3, 2, 6, 5, 7))}, r"bias .* does not broadcast"),
    ({"query_offset": 1}, r"no argument depends on positions.*give causal=True"),
    ({"scale": "1"}, r"scale must be a finite number, got '1'"),
    ({"scale": float("nan")}, r"scale must be a finite number"),
    ({"causal": True, "query_offset": np.array([0, 1, 2])}, r"query_offset \(3,\) must have one entry"),
    *(
        ({"causal": True, "query_offset": offset}, "query_offset")
        for offset in (10**30, 2**62, -(2**40), True, 1.5, "1", [[0, 1]])
    ),
    *(
        ({"dropout": rate, "rng": RNG}, "dropout must be a number with 0 ≤ dropout < 1")
        for rate in (-0.1, 1, 1.5, np.nan, "0.5", True)
    ),
    ({"dropout": 0.5}, "give rng="),
    ({"sinks": np.zeros(2)}, r"sinks \(2,\) must have one number for each of the 6 heads"),
]
SHAPES = [
    (arrays((5, 11), (7, 12), (7, 13)), r"q \(5, 11\) and k \(7, 12\) need the same head dimension"),
    (arrays((5, 11), (7, 11), (8, 13)), r"same number of positions"),
    (arrays((4, 5, 11), (3, 7, 11), (3, 7, 13)), r"4 query heads cannot share 3 heads of k"),
    (arrays((6, 5, 11), (3, 7, 11), (4, 7, 13)), r"6 query heads cannot share 4 heads of v"),
    (arrays((2, 1, 5, 11), (3, 1, 7, 11), (1, 7, 13)), r"broadcast: q \(2, 1, 5, 11\), k \(3, 1, 7, 11\)"),
    (arrays((11,), (7, 11), (7, 13)), r"q \(11,\) needs at least two axes"),
    ({"sinks": np.zeros(2)}, r"sinks \(2,\) must have one number for each of the 1 heads"),
    ({"k": np.zeros((5, 3), ml_dtypes.bfloat16), "q": np.zeros((4, 3), np.float16)}, "have no common floating dtype"),
]
NUMBERS = [
    (dict.fromkeys("qkv", bad), said)
    for bad, said in (
        (np.zeros((3, 4), bool), "real numbers, got bool"),
        (np.zeros((3, 4), complex), "real numbers, got complex128"),
        ([["a", "b"]], "q must be an array of numbers, got <U1"),
        (np.array([["a", "b"]]), "q must be an array of numbers, got <U1"),
        (np.array([[{}]]), "q must be an array of numbers, got object"),
        (np.ma.masked_array(np.zeros((3, 4))), "q must be a plain array, got a MaskedArray"),
        (np.zeros((3, 4), ml_dtypes.float8_e4m3fn), "q must be an array of numbers, got float8"),
        ([[1.0], [1.0, 2.0]], "q is not a rectangular array"),
    )
]
ONE_HEAD = arrays((4, 3), (5, 3), (5, 3))
ALTERNATE = create_block_mask(lambda b, h, q_idx, kv_idx: (q_idx + kv_idx) % 2 > 0, None, None, 4, 5)
RULES = [
    ({"mask": KeyRangeMask(np.zeros(3, int), ONES(3, int))}, r"shape \(3,\) for scores \(4, 5\): 4 queries need"),
    ({"mask": KeyRangeMask(np.zeros(4), ONES(4, int))}, "integer arrays, got float64 for first"),
    (
        {"mask": KeyRangeMask(np.arange(-1, 3), np.full(4, 3))},
        r"first of KeyRangeMask must lie between 0 .* got \(-1, 2",
    ),
    (
        {"mask": KeyRangeMask(np.zeros(4, int), np.full(4, 6))},
        r"last of KeyRangeMask must lie between 0 and the 5 keys, got \(6",
    ),
    (
        {"bias": DistanceBias(np.zeros(7), -4)},
        r"the distances from -4 to 2, but scores \(4, 5\) have distances from -4 to 3",
    ),
    ({"bias": DistanceBias(np.zeros((3, 8)), -4)}, r"of shape \(3, 8\) does not fit scores"),
    ({"mask": lambda b, h, q_idx, kv_idx: q_idx - kv_idx}, "must return booleans"),
    ({"bias": ScoreMod(lambda score, *_: 2 * score, 1)}, "does not"),
    ({"bias": ScoreMod(lambda score, *_: ONES((2, 9, 9)), 1)}, "returned"),
    ({"bias": lambda score, *_: score > 0}, "floating"),
    ({"bias": lambda score, *_: score[..., :2]}, "returned"),
    *(({"mask": ALTERNATE, **arrays(q, k, k)}, "BlockMask is of") for q, k in (((3, 3), (5, 3)), ((4, 3), (6, 3)))),
    *([({"bias": lambda score, *_: 2 * score, "implementation": "native"}, "derivative=1")] if native.kernel() else []),
]
HEADS_AND_BATCH = [
    (functools.partial(
        F.attention, ONES((2, 3, 9, 4)), *2 * [ONES((2, 3, 7, 4))],
        mask=create_block_mask(lambda b, h, q_idx, kv_idx: (q_idx + kv_idx + b + h) % 2 > 0, batch, heads, 9, 7),
    ), "BlockMask is of")
    for batch, heads in ((3, None), (None, 2))
]  # fmt: skip

ROWS, PAGES = ONES((4, 2, 3), np.float32), ONES((5, 8, 1, 3), np.float32)
SEQUENCES = {"q": ROWS, "k": ROWS, "v": ROWS, "cu_seqlens_q": [0, 4], "cu_seqlens_k": [0, 4]}
PAGED = {**SEQUENCES, "k": PAGES, "v": PAGES, "cu_seqlens_k": [0, 9], "block_table": [[0, 1]]}
VARLEN = [
    ({"q": ROWS[0]}, r"attention_varlen takes q Tq H D, k Tk G D and v Tk G Dv \(pages need a block_table\)"),
    ({"k": ROWS[:3]}, "k and v need the same positions and heads"),
    ({"k": ONES((4, 0, 3)), "v": ONES((4, 0, 3))}, "2 query heads cannot share 0 heads"),
    ({"cu_seqlens_q": [0, 5]}, "cu_seqlens_q must end with the 4 rows of q, got 5"),
    ({"cu_seqlens_q": [1, 4]}, "cu_seqlens_q must begin with 0 and not decrease"),
    ({"cu_seqlens_k": [0, 3, 2, 4]}, "cu_seqlens_k must begin with 0 and not decrease"),
    ({"cu_seqlens_q": [0.0, 4.0]}, "cu_seqlens_q must be integers"),
    ({"cu_seqlens_q": []}, "cu_seqlens_q"),
    ({"cu_seqlens_k": [0, 1, 4]}, "must be of the same sequences, got 2 and 3 numbers"),
    ({"max_seqlen_k": 3}, "max_seqlen_k is 3, but a sequence has 4"),
    *(
        ({name: value}, f"{name} must be a whole number of at least 0")
        for name in ("max_seqlen_q", "max_seqlen_k")
        for value in (np.array([4]), [4], "x", 4.0, np.array([4, 4]))
    ),
    ({"dropout_p": 0.1}, "attention_varlen has no dropout"),
    ({"window_size": 3}, "window_size must be"),
    ({"window_size": (-2, 1)}, "window_size must be"),
    ({"softcap": -1.0}, "softcap"),
    ({"causal": "yes"}, "causal must be True or False"),
    ({"alibi_slopes": ONES(3)}, "alibi_slopes must be floating"),
    ({"attention_chunk": -1}, "attention_chunk"),
    ({"attention_chunk": 2.5}, "attention_chunk"),
    ({"sinks": ONES(3)}, r"sinks must be floating, \(2,\), got float64 of \(3,\)"),
    ({"sinks": ONES(2, int)}, "sinks must be floating"),
    ({"implementation": "fast"}, "implementation must be one of"),
    ({"k_scale": ONES(2)}, "k_scale is for k of int8, got float32"),
    ({"v": ROWS.astype(np.int8)}, "v is int8 and needs v_scale"),
    ({"v": ROWS.astype(np.int8), "v_scale": ONES(3)}, r"v_scale must be floating, \(2,\) or \(4, 2\)"),
]
TABLES = [
    ({"block_table": [[0, 5]]}, r"block_table\[0, 1\] is 5; there are pages 0 to 4"),
    ({"block_table": [[-1, 0]]}, r"block_table\[0, 0\] is -1"),
    ({"block_table": [[2**40, 0]]}, r"block_table\[0, 0\] is 1099511627776"),
    ({"block_table": [[0]]}, "has room for 8 keys a sequence, but one has 9"),
    ({"block_table": [[0, 1], [2, 3]]}, "must have a row for each of 1 sequences"),
    ({"block_table": [0, 1]}, "must have a row for each of 1 sequences"),
    ({"block_table": [[0.0, 1.0]]}, "block_table must be integers"),
    ({"q": ROWS.astype(np.float64)}, "must be of float64, half precision or int8, got float32"),
]
LINEAR_ATTENTION = [
    ({"k": ONES((2, 5, 3))}, "head dimension"),
    ({"v": ONES((2, 6, 4))}, "positions T"),
    ({"k": ONES((3, 5, 4)), "v": ONES((3, 5, 4))}, "divides"),
    ({"v": ONES((1, 5, 4))}, "same number of heads"),
    ({"decay": ONES((2, 5, 3))}, "decay"),
    ({"decay": ONES((2, 5, 4), int)}, "decay must be floating"),
    ({"beta": ONES((2, 4))}, "beta"),
    ({"state": ONES((2, 4, 1))}, "state"),
    ({"chunk_size": 0}, "chunk_size"),
    ({"q": ONES(4)}, "two axes"),
]

DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 8}
LLAMA3 = {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 0.5}
X = ONES((4, 6))
ROTARY = [
    ({"x": X[..., :5]}, r"even and at least 2, got 5"),
    ({"rotary_dim": 3}, r"even and at least 2, got 3"),
    ({"rotary_dim": 0}, r"even and at least 2, got 0"),
    ({"rotary_dim": "4"}, "even and at least 2, got '4'"),
    ({"rotary_dim": 8}, r"x \(4, 6\) cannot be rotated by cos \(4, 4\)"),
    ({"x": X[0]}, r"x \(6,\) needs at least two axes"),
    ({"positions": np.arange(5)}, r"positions \(5,\) do not broadcast to those of x \(4, 6\)"),
    ({"x": X[:1], "positions": np.arange(4)[:, None]}, "do not broadcast"),
    ({"base": -1.0}, "above 1"),
    ({"base": 1.0}, "above 1"),
    *(
        ({"scaling": scaling}, said)
        for scaling, said in (
            ({"rope_type": "spiral"}, "unknown rope scaling 'spiral'; known are default, lin"),
            ({"factor": 2.0}, "unknown rope scaling None"),
            ({"rope_type": ["linear"]}, "unknown rope scaling"),
            ("linear", "scaling must be a mapping"),
            ({"rope_type": "linear"}, "'linear' lacks factor"),
            (
                {"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "betas": 1},
                "'llama3' lacks low_freq_factor, original_max_position_embeddings and has unknown betas",
            ),
            ({"type": "yarn", "factor": 2.0}, "lacks original_max_position_embeddings"),
            (DYNAMIC | {"rope_type": "yarn", "factor": None}, "rope scaling's factor must be"),
            ({"type": "linear", "factor": "2"}, "rope scaling's factor must be"),
            ({"type": "linear", "factor": 0.0}, "rope scaling's factor must be"),
            (LLAMA3 | {"original_max_position_embeddings": 8}, "must not be below low_freq_factor"),
        )
    ),
]
EQUATIONS = [
    (lambda: F.rotary_pairs(5), "even"),
    (lambda: F.rotary_pairs(4, rotary_dim=8), "rotary_dim 8 is larger than the head dimension 4"),
    (lambda: F.rotary_frequencies(6, scaling=DYNAMIC), "depends on the length of the sequence; give length"),
    (lambda: F.apply_rotary(X, 1.0, 0.0), "last axis of pairs"),
    (lambda: F.apply_rotary(X, ONES((3, 3)), ONES((3, 3))), "cannot be rotated by cos"),
    (lambda: F.apply_rotary(X, ONES((4, 3)), ONES((4, 2))), "cannot be rotated by cos"),
    (lambda: F.apply_rotary(X, ONES((4, 4)), ONES((4, 4))), "cannot be rotated by cos"),
    (lambda: F.linear(ONES((2, 2), bool), ONES((2, 2), bool)), r"bool; convert it"),
    (lambda: F.linear(ONES((2, 3)), ONES((5, 3))), r"x \(2, 3\) times weight \(5, 3\).*weight\.T"),
    (lambda: F.linear(ONES((2, 3)), ONES((3, 5)), ONES(3)), r"bias \(3,\)"),
    (lambda: F.linear(X, ONES((6, 2)), activation="mish"), "unknown activation 'mish'"),
    (lambda: F.activation("mish"), r"unknown activation 'mish'; known are gelu"),
    (lambda: F.relu(ONES(2, bool)), r"bool; convert it"),
    (lambda: F.relu(ONES(2, complex)), r"complex128; convert it"),
    (lambda: F.gelu(ONES(2), "erf"), r'approximate must be "none" or "tanh", got .erf.'),
    (lambda: F.gelu(ONES((2, 3)), bias=ONES(2)), r"bias \(2,\) must be \(3,\) for x \(2, 3\)"),
    (lambda: F.swiglu(ONES((2, 3)), ONES((1, 3))), r"up \(1, 3\) must be \(2, 3\) for gate \(2, 3\)"),
    (lambda: F.layer_norm(np.float64(3)), r"x \(\) has no features"),
    (lambda: F.layer_norm(ONES((2, 0))), r"x \(2, 0\) has no features"),
    (lambda: F.layer_norm(ONES(2), eps=-1), r"eps must be .* got -1"),
    (lambda: F.layer_norm(ONES((2, 3)), ONES(2)), r"weight \(2,\)"),
    (lambda: F.layer_norm(ONES((2, 3)), residual=ONES(3)), r"residual \(3,\) is added to x \(2, 3\)"),
    (lambda: F.layer_norm(Variable(X), residual=X[:1]), "both need one shape"),
    (lambda: F.rms_norm(X, residual=X[:1]), "both need one shape"),
    (lambda: F.rms_norm(Variable(X), residual=X[:1]), "both need one shape"),
    (lambda: F.rms_norm(ONES((2, 3)), ONES(2)), r"weight \(2,\)"),
    (lambda: F.rms_norm(ONES(3), eps=float("nan")), r"eps must be"),
    (lambda: F.softmax(ONES(3), axis=1), r"x \(3,\) has no axis 1"),
    (lambda: F.split_heads(ONES(4), 2), r"x \(4,\) needs at least 2 axes, T \(H D\)"),
    (lambda: F.split_heads(ONES((2, 4)), 2.0), r"num_heads must be a whole number of at least 1, got 2\.0"),
    (lambda: F.split_heads(ONES((2, 7)), 3), r"7 features do not split into 3 heads"),
    (lambda: F.merge_heads(ONES((4, 2))), r"x \(4, 2\) needs at least 3 axes, H T D"),
    (lambda: F.sinusoidal_positions(2.5, 4), r"length must be a whole number of at least 0, got 2\.5"),
    (lambda: F.sinusoidal_positions(-1, 4), r"length must be .* got -1"),
    (lambda: F.sinusoidal_positions(2, 4, base=0), r"base must be .* got 0"),
    (lambda: F.learned_positions(ONES(5), 2), r"two axes, P E, got \(5,\)"),
    (lambda: F.learned_positions(ONES((5, 3)), -2, offset=3), r"length must be .* got -2"),
    (lambda: F.learned_positions(ONES((5, 3)), 2, offset=-3), r"offset must be .* got -3"),
    (lambda: F.learned_positions(ONES((5, 3)), 6), r"5 rows.*shorten the sequence to 5 tokens"),
    (lambda: create_block_mask(lambda b, h, i, j: i - j, None, None, 9, 9), "must return booleans"),
    (lambda: create_block_mask(lambda b, h, i, j: ONES(8, bool), None, None, 9, 9), "does not broadcast"),
    (lambda: ScoreMod(3), "must be a function"),
    (lambda: ScoreMod(lambda score, *_: score, 2), "derivative"),
    (lambda: F.attention_vjp(X, X, X, bias=lambda score, *_: 2 * score), "derivative of score_mod"),
    (lambda: F.attention_varlen_vjp(**PAGED), "has no gradients of pages"),
    (lambda: F.linear_attention_vjp(X, X, X)[1](ONES((4, 5))), "d_output"),
    (lambda: F.score_pairs(ONES(3), ONES((2, 3)), scale=1.0), "need the shapes N D and M D"),
    (lambda: F.score_pairs(ONES((2, 3)), ONES((2, 4)), scale=1.0), "need the shapes N D and M D"),
    (lambda: F.score_pairs(ONES((2, 3)), ONES(3), scale=1.0), "need the shapes N D and M D"),
    *((functools.partial(F.top_k_softmax, ONES(3), k), "k must be a whole number|k is at most the number of logits")
      for k in (0, -2, 4, True, 1.0, None)),
    *((functools.partial(F.relative_position_buckets, np.zeros(3).astype(dtype)), "must be an array of integers")
      for dtype in (float, bool, np.float16, ml_dtypes.bfloat16)),
    *((functools.partial(F.embedding, table, [0]), r"^table must (have the axes V E|be an array of numbers)")
      for table in (3, 3.0, np.float32(3), None, "x")),
    *((functools.partial(function, dim), f"rotary_dim is at most 16,777,216, got {dim}")
      for function in (F.rotary_frequencies, F.rotary_pairs) for dim in (2**40, 2**63, 10**30)),
    *((functools.partial(F.rotary_frequencies, 8, scaling=DYNAMIC, length=length),
       "length must be a whole number of at least 0") for length in ("x", 2.5, [8])),
    *((functools.partial(F.FactoredMatrix, *factors), r"must be an array of numbers|is not a (product|rectangular)")
      for value in (None, 3, "x", [1.0], [[1.0], [1.0, 2.0]], np.array([["a"]]))
      for factors in ((X, value), (value, X))),
]  # fmt: skip

PART = F.attention_partial(ONES((6, 4)), ONES((7, 4)), ONES((7, 4)))
ONE_LESS, OTHER_HEADS = F.attention_partial(*3 * [ONES((5, 4))]), F.attention_partial(*3 * [ONES((2, 6, 4))])
PARTS = [
    ((PART, ONE_LESS), r"same queries and heads: output \(6, 4\).*output \(5, 4\)"),
    ((PART, OTHER_HEADS), "parts to merge must be of the same queries and heads"),
    *((mistake, "merge_partials takes parts") for mistake in ((), (PART.output,), ([PART, PART],), (PART, None))),
]
LOGITS, TARGETS = ONES((2, 3, 5)), np.array([[4, -100, 0], [2, 2, 1]])
CROSS_ENTROPY = [
    ({"targets": TARGETS[0]}, "one for each row"),
    ({"targets": TARGETS + 3}, "outside the vocabulary"),
    ({"targets": np.full((2, 3), -100)}, "no target counts"),
    ({"reduction": "median"}, "reduction must be"),
    ({"label_smoothing": 2.0}, "from 0 to 1"),
]
EXPERTS = {
    name: RNG.standard_normal(shape)
    for name, shape in {
        "x": (5, 4), "routing": (5, 2), "gate_up_weight": (2, 4, 6), "gate_up_bias": (2, 6), "down_weight": (2, 3, 4),
        "down_bias": (2, 4),
    }.items()
}  # fmt: skip
OF_EXPERTS = [
    *(
        ({name: value}, rf"^{name} (has the axes|must be an array|is not a rectangular array)")
        for name in EXPERTS
        for value in (3.0, np.array(3.0), None, "x", np.float32(3), [[1.0], [1.0, 2.0]])
    ),
    ({"slope": "x"}, "slope must be a finite number"),
    ({"limit": [7]}, "limit must be a finite number"),
    ({"routing": ONES((5, 1))}, r"routing of 2 experts .* must have the shape \(5, 2\), got \(5, 1\)"),
    ({"down_bias": ONES((2, 1))}, "down_bias of 2 experts"),
]


def experts(function=F.experts, slope=1.7, limit=7.0, **arrays):
    return function(*arrays.values(), slope=slope, limit=limit)


ERRORS = [
    *refused(F.attention, BATCH, ATTENTION),
    *refused(F.attention, ONE_HEAD, SHAPES + NUMBERS + RULES),
    *HEADS_AND_BATCH,
    *refused(F.attention_varlen, SEQUENCES, VARLEN),
    *refused(F.attention_varlen, PAGED, TABLES),
    *refused(F.linear_attention, dict.fromkeys("qkv", ONES((2, 5, 4))), LINEAR_ATTENTION),
    *refused(F.rotary, {"x": X}, ROTARY),
    *refused(F.cross_entropy, {"logits": LOGITS, "targets": TARGETS}, CROSS_ENTROPY),
    *refused(experts, EXPERTS, OF_EXPERTS),
    *refused(functools.partial(experts, F.experts_vjp), EXPERTS, OF_EXPERTS),
    *((functools.partial(F.merge_partials, *parts), said) for parts, said in PARTS),
    *EQUATIONS,
]


@pytest.mark.parametrize(("call", "said"), ERRORS, ids=[f"{i}-{said!a}" for i, (_, said) in enumerate(ERRORS)])
def test_a_mistake_is_a_sentence(call, said):
    with pytest.raises(RegardError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_what_a_mistake_resembles_is_accepted():
    """Lists, whole numbers and arrays of no axes, where they mean the same."""
    for name in EXPERTS:
        np.testing.assert_array_equal(experts(**EXPERTS | {name: EXPERTS[name].tolist()}), experts(**EXPERTS))
        whole = EXPERTS[name].round()
        np.testing.assert_array_equal(
            experts(**EXPERTS | {name: whole.astype(int)}), experts(**EXPERTS | {name: whole})
        )
    np.testing.assert_array_equal(F.top_k_softmax(np.array([1, 2, 3]), 2), F.top_k_softmax(np.array([1.0, 2, 3]), 2))
    table = [[1.0, 2.0], [3.0, 4.0]]
    np.testing.assert_array_equal(F.embedding(table, [1, 0]), [[3, 4], [1, 2]])
    y, pullback = F.embedding_vjp(table, np.array([1, 1]))
    np.testing.assert_array_equal(pullback(np.ones_like(y))[0], [[0, 0], [2, 2]])
    expected = F.attention_varlen(**SEQUENCES)
    for name in ("max_seqlen_q", "max_seqlen_k"):
        np.testing.assert_array_equal(F.attention_varlen(**SEQUENCES, **{name: np.array(4)}), expected)
    np.testing.assert_array_equal(np.asarray(F.FactoredMatrix(X.tolist(), X.T)), X @ X.T)
    assert F.attention(*3 * [X], sinks=np.zeros(1)).shape == (4, 6)
    assert F.attention(*3 * [np.eye(3, dtype=int)]).dtype == np.float64
    assert F.rotary(ONES((2, 4), int)).dtype == np.float64
