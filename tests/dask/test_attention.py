"""`regard.dask.attention` equals `regard.attention`, whatever the chunks."""

import numpy as np
import pytest
from corpora import chunked
from hypothesis import given, strategies as st

from attention_cases import chance, random_case, reference
from regard import RegardError, attention, create_block_mask
from regard.functional import ALiBi, Bias, Causal, FunctionMask, Mask, ScoreMod, SegmentMask, alibi_slopes

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

import regard.dask  # noqa: E402, after the skip

pytestmark = pytest.mark.usefixtures("synchronous")
seeds = st.integers(0, 2**31)


def own_error(case, exact):
    """Return twice the largest error of `regard.attention` and its result.

    Of a few numbers that may hit the truth by luck: rounding each score once moves a weight by eps/2 of the score, up
    or down, and is added.
    """
    ours = attention(case.q, case.k, case.v, **case.options)
    longest = [np.linalg.norm(x.astype(np.float64), axis=-1).max(initial=0) for x in (case.q, case.k)]
    bias = np.abs(case.added).max(initial=0, where=case.attends)
    luck = np.finfo(ours.dtype).eps * (1 + np.prod(longest) * case.scale + bias) * np.abs(case.v).max(initial=0)
    return 2 * np.abs(ours - exact).max(initial=0) + luck, ours


@given(seeds)
def test_any_chunks_give_the_result_within_twice_its_own_error(seed):
    case, rng = random_case(seed), np.random.default_rng(seed)
    case = case.cast(rng.choice([np.float32, np.float64]))
    exact = reference(case)[0]
    bound, ours = own_error(case, exact)
    for name in ("mask", "bias"):  # an array may be one of dask too
        if isinstance(case.options.get(name), np.ndarray) and chance(rng, 0.5):
            case.options[name] = chunked(case.options[name], rng)
    lazy = regard.dask.attention(*(chunked(x, rng) for x in (case.q, case.k, case.v)), **case.options)
    found = lazy.compute()
    assert (found.shape, found.dtype) == (lazy.shape, lazy.dtype) == (ours.shape, ours.dtype)
    assert np.abs(found - exact).max(initial=0) <= bound


class EveryThird(Mask):
    """A mask of a user's own class."""

    def allows(self, layout, rows, cols):
        return (layout.query_indices(rows) - layout.key_indices(cols)) % 3 == 0


class NearestFirst(Bias):
    """A bias of a user's own class."""

    parameter = None

    def values(self, layout, rows, cols):
        return -0.1 * np.abs(layout.query_indices(rows) - layout.key_indices(cols)).astype(np.float64)


RULES = {
    "mask_mod": {"mask": lambda b, h, q_idx, kv_idx: (q_idx + kv_idx + h + b) % 3 > 0},
    "FunctionMask": {"mask": FunctionMask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx) | np.eye(150, 210, dtype=bool)},
    "BlockMask": {"mask": create_block_mask(lambda b, h, q, k: (q // 50 == k // 50) | (b == h), 2, 4, 150, 210)},
    "BlockMask of all": {"mask": create_block_mask(lambda b, h, q, k: q >= k, None, None, 150, 210) & Causal(0)},
    "own mask": {"mask": EveryThird()},
    "score_mod": {"bias": lambda score, b, h, q_idx, kv_idx: score * 0.5 + 0.01 * (q_idx - kv_idx) * (h + 1) + b},
    "additive ScoreMod": {"bias": ScoreMod(lambda score, b, h, q_idx, kv_idx: score + 0.01 * kv_idx * h, 1)},
    "own bias": {"bias": NearestFirst()},
    "documents": {"mask": SegmentMask(np.arange(150) // 40, np.arange(210) // 60) & Causal()},
    "offsets": {"causal": True, "bias": ALiBi(alibi_slopes(4)), "query_offset": np.array([3, 60])},
}


@pytest.mark.parametrize("name", RULES)
def test_rules_of_every_kind_are_evaluated_at_their_block(name):
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, heads, n, 8)) for heads, n in ((4, 150), (2, 210), (2, 210)))
    ours = attention(q, k, v, **RULES[name])
    for seed in range(5):
        rng = np.random.default_rng(seed)
        found = regard.dask.attention(*(chunked(x, rng) for x in (q, k, v)), **RULES[name]).compute()
        np.testing.assert_allclose(found, ours, rtol=1e-10, atol=1e-12)


def blocks_computed(lazy):
    return sum(str(key[0]).startswith("attention-partial") for key in lazy.__dask_graph__() if isinstance(key, tuple))


def test_blocks_that_a_rule_masks_entirely_are_no_tasks():
    x = da.zeros((1000, 4), chunks=(100, 4))
    documents = SegmentMask(np.arange(1000) // 200)
    counts = {
        name: blocks_computed(regard.dask.attention(x, x, x, **options))
        for name, options in {
            "all": {}, "causal": {"causal": True}, "window": {"window": (99, 0)}, "documents": {"mask": documents},
            "causal documents": {"mask": documents, "causal": True}, "short": {"key_lengths": 150},
        }.items()
    }  # fmt: skip
    assert counts == {
        "all": 100, "causal": 55, "window": 19, "documents": 20, "causal documents": 15, "short": 20,
    }  # fmt: skip


def test_a_long_text_has_a_graph_of_its_blocks_alone():
    x = da.zeros((10**7, 64), chunks=(50_000, 64), dtype=np.float32)
    lazy = regard.dask.attention(x, x, x, causal=True, window=(4096, 0))
    assert blocks_computed(lazy) == 399
    assert lazy.shape == (10**7, 64)


def test_the_bits_depend_on_the_chunks_alone():
    rng = np.random.default_rng(0)
    q, k, v = (da.from_array(rng.standard_normal((900, 16)).astype(np.float32), chunks=(90, 16)) for _ in range(3))
    lazy = regard.dask.attention(q, k, v, causal=True)
    once = lazy.compute()
    for _ in range(3):
        assert lazy.compute(scheduler="threads", num_workers=4).tobytes() == once.tobytes()
    assert regard.dask.attention(q, k, v, causal=True).name == lazy.name
    assert regard.dask.attention(q, k, v).name != lazy.name


def test_queries_without_a_key_get_0_and_infinity_stays():
    q, v = np.ones((6, 2)), np.ones((6, 2))
    v[5] = np.inf
    arrays = [da.from_array(x, chunks=(2, 2)) for x in (q, q, v)]
    found = regard.dask.attention(*arrays, causal=True, query_offset=-2).compute()
    np.testing.assert_array_equal(found, [[0, 0], [0, 0], [1, 1], [1, 1], [1, 1], [1, 1]])
    assert (regard.dask.attention(*arrays).compute() == np.inf).all()
    assert regard.dask.attention(arrays[0], arrays[1][:0], arrays[2][:0]).compute().tolist() == [[0, 0]] * 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dropout": 0.1}, "no dropout"),
        ({"rng": np.random.default_rng(0)}, "no dropout"),
        ({"q": np.zeros((4, 2))}, "q must be a dask array, got ndarray"),
        ({"k": da.zeros((4, 3))}, "same head dimension"),
        ({"mask": da.zeros((4, 5), dtype=bool)}, "mask .* does not broadcast"),
        ({"mask": da.zeros((4, 4))}, "mask must be boolean"),
        ({"bias": da.zeros((4, 4), dtype=int)}, "bias must be floating"),
        ({"query_offset": 3}, "no argument depends on positions"),
        ({"q": da.zeros((4, 2))[da.zeros(4) > 0]}, "chunks of unknown size"),
        ({"implementation": "fast"}, "implementation must be one of"),
    ],
)
def test_mistakes_are_said_before_anything_runs(change, message):
    arguments = {name: da.zeros((4, 2), chunks=2) for name in "qkv"} | change
    with pytest.raises(RegardError, match=message):
        regard.dask.attention(**arguments)


def test_an_unknown_argument_is_refused():
    x = da.zeros((4, 2))
    with pytest.raises(TypeError, match="trace"):
        regard.dask.attention(x, x, x, trace=None)
