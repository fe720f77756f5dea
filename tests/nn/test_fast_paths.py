"""Weights of a mapped file are packed once; arrays that the user owns are read again at each call."""

import copy
import mmap
import pickle

import numpy as np
import pytest

import golden
import regard
from fake_traces import recorded
from regard import Trace
from regard.functional import native
from regard.functional.recorder import NULL_RECORDER, Steps
from regard.models.bert import Bert
from regard.nn import (
    Embedding,
    EncoderBlock,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Linear,
    SelfAttention,
    embeddings,
    fast_paths,
)
from regard.nn.embeddings import fused_embeddings, summed_embeddings
from regard.nn.fast_paths import Packed

WITH_KERNEL = pytest.mark.skipif(native.kernel() is None, reason="there is no kernel to pack for")


@pytest.fixture
def mapped(tmp_path):
    """Return a function that puts an array into a file and returns it mapped read-only."""

    def mapped(array):
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        path.write_bytes(array.tobytes())
        with path.open("rb") as stream:
            view = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(view, array.dtype).reshape(array.shape)

    return mapped


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mapped_weights_map_as_others_do(rng, mapped, dtype):
    weight, bias = rng.standard_normal((70, 50)).astype(dtype), rng.standard_normal(70).astype(dtype)
    x = rng.standard_normal((2, 3, 50)).astype(dtype)
    ours, plain = Linear(mapped(weight).T, mapped(bias)), Linear(weight.T, bias)
    for activation in (None, "gelu", "relu"):
        np.testing.assert_allclose(
            ours(x, activation=activation), plain(x, activation=activation), atol=50 * np.finfo(dtype).eps
        )
    np.testing.assert_allclose(ours(x.astype(np.float16)), plain(x.astype(np.float16)))  # not for the kernel


@WITH_KERNEL
@pytest.mark.parametrize(("hidden", "is_split"), [(96, True), (50, False)])
def test_gate_and_up_are_stored_apart_with_the_same_bits(rng, mapped, hidden, is_split):
    weights = [mapped(rng.standard_normal((n, m), np.float32)).T for n, m in ((hidden, 20), (hidden, 20), (20, hidden))]
    mlp, trace = GatedFeedForward(*map(Linear, weights)), Trace()
    x = rng.standard_normal((2, 40, 20), np.float32)
    gate, up = fast_paths.gate_and_up(mlp, x, apart=False)
    np.testing.assert_array_equal(mlp(x), mlp(x, trace=trace))
    np.testing.assert_array_equal(trace["gate"], gate)
    np.testing.assert_array_equal(trace["up"], up)
    apart = fast_paths.gate_and_up(mlp, x, apart=True)
    assert [y.flags.c_contiguous for y in apart] == [is_split] * 2


@WITH_KERNEL
def test_only_what_cannot_change_is_packed(rng, mapped):
    weight = rng.standard_normal((4, 3))
    assert Packed.from_maps([Linear(mapped(weight))]) is not None
    assert Packed.from_maps([Linear(weight)]) is None
    locked = weight.view()
    locked.flags.writeable = False
    assert Packed.from_maps([Linear(locked)]) is None
    assert Packed.from_maps([Linear(mapped(weight), np.zeros(3))]) is None
    assert Packed.from_maps([Linear(np.frombuffer(memoryview(bytearray(96)).toreadonly()).reshape(4, 3))]) is None
    own = np.array(weight)
    own.flags.writeable = False
    assert Packed.from_maps([Linear(own)]) is None


@WITH_KERNEL
@pytest.mark.parametrize("shape", [(384, 384), (384, 1152), (1, 1), (3, 50)])
def test_packed_weights_begin_at_a_cache_line(rng, mapped, shape):
    for weight in [mapped(rng.standard_normal(shape).astype(np.float32)) for _ in range(5)]:
        assert Packed.from_maps([Linear(weight)]).panels.ctypes.data % 64 == 0


def test_a_change_of_user_owned_weights_is_effective(rng):
    linear = Linear(rng.standard_normal((4, 3)))
    x = rng.standard_normal((2, 4))
    linear(x)
    linear.weight[...] = 0
    assert not linear(x).any()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_has_weights_of_its_own(rng, mapped, copied):
    x = rng.standard_normal((2, 4))
    linear = Linear(mapped(rng.standard_normal((4, 4))))
    attention = SelfAttention(linear, linear, linear, linear, num_heads=2)
    attention(x)
    other = copied(attention)
    np.testing.assert_array_equal(other.q_proj.weight, linear.weight)
    other.o_proj.weight[...] = 0
    other.v_proj.weight[...] = 0
    assert attention(x).any()
    assert not other(x).any()


@pytest.mark.parametrize("biases", [(True, True, True), (True, False, True), (False, False, False)])
@pytest.mark.parametrize("widths", [(40, 40, 40), (40, 20, 20), (40, 20, 10)])
def test_queries_keys_and_values_in_one_product(rng, mapped, widths, biases):
    def attention(put):
        rng = np.random.default_rng(3)
        maps = []
        for width, bias in zip(widths, biases, strict=True):
            weight = put(0.1 * rng.standard_normal((width, 50)).astype(np.float32))
            maps.append(Linear(weight.T, put(rng.standard_normal(width).astype(np.float32)) if bias else None))
        return SelfAttention(*maps, num_heads=4)

    x = rng.standard_normal((2, 9, 50)).astype(np.float32)
    together, apart = attention(mapped), attention(lambda array: array)
    np.testing.assert_allclose(together(x), apart(x), atol=1e-5)


def encoder_block(put, *, activation="gelu", bias=True, dtype=np.float32, kinds=()):
    """Return a block of 50 features, 4 heads of 5 and a hidden layer of 70, its numbers as `put` returns them."""
    rng = np.random.default_rng(3)
    kind_of = {kind.__base__: kind for kind in kinds}

    def made(kind, *parts, **options):
        return kind_of.get(kind, kind)(*parts, **options)

    def linear(inputs, outputs):
        weight = put((rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)).astype(dtype))
        return made(Linear, weight.T, put(rng.standard_normal(outputs).astype(dtype)) if bias else None)

    def normed():
        return made(LayerNorm, *(put(rng.standard_normal(50).astype(dtype)) for _ in range(2)), 1e-5)

    attn = made(SelfAttention, linear(50, 20), linear(50, 20), linear(50, 20), linear(20, 50), num_heads=4)
    mlp = made(FeedForward, linear(50, 70), linear(70, 50), activation=activation)
    return made(EncoderBlock, attn, normed(), mlp, normed())


TAIL = ("attn.output", "attn_residual", "mlp.hidden", "mlp.output")


@pytest.mark.parametrize("shape", [(50,), (1, 50), (9, 50), (2, 70, 50), (2, 1, 3, 50), (0, 50), (2, 0, 50)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "silu", "relu"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_block_at_once_is_the_block_step_by_step(rng, mapped, shape, dtype, activation, bias):
    block = encoder_block(mapped, activation=activation, bias=bias, dtype=dtype)
    x = rng.standard_normal(shape if len(shape) > 1 else (1, *shape)).astype(dtype)
    steps = Trace()
    np.testing.assert_array_equal(block(x), block(x, trace=steps))
    assert set(TAIL) <= set(steps.names())
    own = encoder_block(np.array, activation=activation, bias=bias, dtype=dtype)
    np.testing.assert_allclose(block(x), own(x), atol=200 * np.finfo(dtype).eps)


@WITH_KERNEL
def test_the_kernel_does_a_block_at_once_where_no_step_is_wanted(rng, mapped, monkeypatch):
    block, x = encoder_block(mapped), rng.standard_normal((1, 9, 50)).astype(np.float32)
    expected = block(x, trace=Trace(only=()))  # which lists the steps, once
    with monkeypatch.context() as patch:
        patch.setattr(FeedForward, "__call__", None)
        np.testing.assert_array_equal(block(x), expected)
        for trace in (Trace(only=["attn.weights", "output"]), Trace(edit={"attn.q": np.copy}, only=())):
            np.testing.assert_array_equal(block(x, trace=trace), expected)
        for name in TAIL:
            with pytest.raises(TypeError):
                block(x, trace=Trace(only=name))
    for name in TAIL:
        assert block(x, trace=Trace(edit={name: np.zeros_like})).any()
        assert not np.array_equal(block(x, trace=Trace(edit={name: np.zeros_like})), expected)


@WITH_KERNEL
def test_a_skipped_step_counts_as_tapped(rng, mapped):
    trace = recorded(
        encoder_block(mapped), rng.standard_normal((1, 2, 50)).astype(np.float32), only=["mlp.*", "attn.outputs"]
    )
    assert trace.unmatched() == ("attn.outputs",)
    passed = Trace(only=["mlp.output"])

    def asked(names):
        return fast_paths.fused(
            Model(), "_call", lambda: 1, passed, lambda trace: [trace(each, 0, "") for each in names]
        )

    assert asked(TAIL[:3]) == 1
    assert asked(TAIL[2:]) is None
    assert passed.tapped() == TAIL[:3]
    assert passed.unmatched() == ("mlp.output",)


@WITH_KERNEL
@pytest.mark.parametrize("only", [(), ("output",), ("*.weights",)])
@pytest.mark.parametrize("masked", [False, True])
def test_fused_steps_are_those_of_the_layers(rng, mapped, only, masked):
    """All that a block taps, in order, is what a fused run counts as its steps."""
    owner, blocks = stack(mapped)
    x = rng.standard_normal((2, 9, 50)).astype(np.float32)
    mask = padding(rng, 2, 9) if masked else None
    every, fused = Trace(), Trace(only=() if masked else only)
    one_by_one(blocks, x, mask, trace=every)
    assert fast_paths.encode(owner, blocks, x, mask, fused) is not None or only == ("output",)
    assert fused.tapped() == every.tapped()
    assert fused.optional_steps() == every.optional_steps()


def test_steps_are_listed_in_the_order_of_taps(rng):
    def compute(trace):
        with trace.scope("attn"):
            trace("q", rng, "T")
        if trace.plan(optional=("up", "norm.scale")).asked:
            trace("norm.scale", rng, "T")
            trace("up", rng, "T")
        trace("output", rng, "T")

    assert fast_paths.list_steps(compute) == Steps(("attn.q", "output"), ("up", "norm.scale"))


OWN = [
    (LayerNorm, "__call__"),
    (Linear, "__call__"),
    (FeedForward, "__call__"),
    (SelfAttention, "__call__"),
    (SelfAttention, "project_out"),
    (SelfAttention, "attend"),
    (EncoderBlock, "after_attention"),
]


@pytest.mark.parametrize(("kind", "method"), OWN, ids=lambda part: getattr(part, "__name__", part))
@pytest.mark.parametrize("put", ["mapped", "own"])
def test_parts_of_user_classes_are_called(rng, mapped, kind, method, put):
    def twice(self, *arguments, **options):
        return 2 * getattr(kind, method)(self, *arguments, **options)

    put = mapped if put == "mapped" else np.array
    x = rng.standard_normal((1, 3, 50)).astype(np.float32)
    plain, own = encoder_block(put), encoder_block(put, kinds=[type("Twice", (kind,), {method: twice})])
    expected = own(x, trace=Trace())
    np.testing.assert_array_equal(own(x), expected)
    assert not np.allclose(plain(x), expected, atol=1e-3)


def test_projections_of_user_classes_are_called(rng, mapped):
    class Nothing(Linear):
        def __call__(self, x, *, activation=None):
            return 0 * super().__call__(x, activation=activation)

    weight = mapped(rng.standard_normal((8, 8)))
    layer = SelfAttention(Nothing(weight), Linear(weight), Linear(weight), num_heads=2)
    trace = Trace()
    layer(rng.standard_normal((3, 8)), trace=trace)
    assert not trace["q"].any()


@pytest.mark.parametrize("trace", [Trace(), Trace(only=())])
def test_as_many_axes_as_an_array_can_have(rng, mapped, trace):
    x = rng.standard_normal((1, 2, 1, 1, 2, 1, 1, 1, 3, 50)).astype(np.float32)
    block = encoder_block(mapped)
    np.testing.assert_array_equal(block(x, trace=trace), block(x))


def test_changed_norms_are_effective(rng, mapped):
    block = encoder_block(mapped)
    x = rng.standard_normal((1, 3, 50)).astype(np.float32)
    own = EncoderBlock(
        block.attn, block.attn_norm, block.mlp, LayerNorm(np.ones(50, np.float32), np.zeros(50, np.float32))
    )
    assert own(x).any()
    own.mlp_norm.weight[...] = 0
    assert not own(x).any()
    other = copy.deepcopy(own)
    other.mlp_norm.bias[...] = 1
    assert (other(x) == 1).all()
    assert not own(x).any()


def test_other_floats_go_step_by_step(rng, mapped):
    block, x = encoder_block(mapped), rng.standard_normal((1, 3, 50))
    assert block(x).dtype == np.float64
    np.testing.assert_allclose(block(x), block(x.astype(np.float32)), atol=1e-4)


@WITH_KERNEL
def test_misfits_are_refused(rng, mapped):
    block = encoder_block(mapped)
    block(np.zeros((1, 1, 50), np.float32))
    end, _ = vars(block)["_fused_tail"]

    def zeros(*shape):
        return np.zeros(shape, np.float32)

    end(zeros(3, 50), zeros(3, 20), zeros(3, 50))
    for output, context, x in (
        (zeros(3, 50), zeros(2, 20), zeros(3, 50)),
        (zeros(3, 50), zeros(3, 21), zeros(3, 50)),
        (zeros(3, 51), zeros(3, 20), zeros(3, 51)),
        (zeros(2, 50), zeros(3, 20), zeros(3, 50)),
        (zeros(1, 3, 50), zeros(3, 20), zeros(3, 50)),
        (zeros(3, 100)[:, ::2], zeros(3, 20), zeros(3, 50)),
        (zeros(3, 50), zeros(3, 40)[:, ::2], zeros(3, 50)),
        (zeros(3, 50), zeros(3, 20), zeros(50, 3).T),
        (zeros(3, 50), zeros(3, 20).astype(np.float64), zeros(3, 50)),
        (zeros(3, 50).astype(np.float64), zeros(3, 20), zeros(3, 50)),
        (np.frombuffer(bytes(600), np.float32).reshape(3, 50), zeros(3, 20), zeros(3, 50)),
    ):
        with pytest.raises((ValueError, TypeError)):
            end(output, context, x)
    kernel = native.kernel()
    panels, norm = np.zeros((2, 50, kernel.NR), np.float32), (zeros(50), zeros(50), 1e-5)
    parts = [
        zeros(2, 20, kernel.NR),
        None,
        *norm,
        panels,
        None,
        kernel.Activation.gelu,
        zeros(2, 70, kernel.NR),
        None,
        *norm,
    ]
    kernel.FusedBlockTail(*parts)
    for place, wrong in (
        (0, zeros(20, 50)),
        (2, zeros(49)),
        (3, np.zeros(50)),
        (5, zeros(1, 50, kernel.NR)),
        (6, zeros(5)),
    ):
        with pytest.raises((ValueError, TypeError)):
            kernel.FusedBlockTail(*parts[:place], wrong, *parts[place + 1 :])


@WITH_KERNEL
def test_queries_that_may_be_aliased_are_stored_without_a_copy(rng, mapped, monkeypatch):
    block, x = encoder_block(mapped), rng.standard_normal((1, 9, 50)).astype(np.float32)
    trace = Trace(maps=True, only="*")
    block(x, trace=trace)
    expected = trace["attn.weights"]
    for name in ("attn.q", "attn.k"):  # which somebody can change
        trace[name][...] = 0
    np.testing.assert_array_equal(trace["attn.weights"], expected)
    held = []

    def look(k):
        held.append(k)
        return k

    edited = Trace(maps=True, only="attn.weights", edit={"attn.k": look})
    block(x, trace=edited)
    held[0][...] = 0
    np.testing.assert_array_equal(edited["attn.weights"], expected)
    monkeypatch.setattr(native, "pooled_copy", None)
    own = Trace(maps=True, only="attn.weights")
    block(x, trace=own)
    np.testing.assert_array_equal(own["attn.weights"], expected)
    monkeypatch.setattr("regard.nn.fast_paths.MOST_ALIASED", 0)
    with pytest.raises(TypeError):  # large ones are copied, because v stays in memory with them
        block(x, trace=Trace(maps=True, only="attn.weights"))


class Model:
    """The owner of blocks, in which a prepared call is stored."""


def stack(put, **options):
    return Model(), (encoder_block(put, **options), encoder_block(put, **options))


def one_by_one(blocks, x, mask=None, trace=NULL_RECORDER):
    for i, block in enumerate(blocks):
        with trace.scope(f"blocks.{i}"):
            x = block(x, mask=mask, trace=trace)
    return x


def padding(rng, batch, length):
    """Return where there is text, ``B 1 1 T``, in rows that begin or end with padding."""
    positions, ends = np.arange(length), rng.integers(1, length + 1, (batch, 1))
    return (positions < ends if rng.random() < 0.5 else positions >= length - ends)[:, None, None]


@WITH_KERNEL
@pytest.mark.pairwise
@pytest.mark.parametrize("instructions", native.kernel().instruction_sets()[:-1] if native.kernel() else [])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_blocks_at_once_are_the_blocks_one_by_one(mapped, threads, dtype, seed, instructions):
    rng = np.random.default_rng(seed)
    owner, blocks = stack(mapped, dtype=dtype, bias=bool(seed % 2), activation=["gelu", "silu"][seed // 2 % 2])
    native.kernel().use_instruction_set(instructions)
    for batch, length in ((1, 1), (1, 9), (3, 70), (5, 2), (4, 130)):
        x = rng.standard_normal((batch, length, 50)).astype(dtype)
        for mask in (None, padding(rng, batch, length)):
            expected = one_by_one(blocks, x, mask)
            text = np.ones((batch, length), bool) if mask is None else mask[:, 0, 0]
            for count in (1, 3):
                threads(count)
                found = fast_paths.encode(owner, blocks, x, mask, NULL_RECORDER)
                if text.all():
                    np.testing.assert_array_equal(found, expected)
                else:  # padding before a text moves it in the order in which sums are added
                    np.testing.assert_allclose(found[text], expected[text], atol=200 * np.finfo(dtype).eps)
                assert not found[~text].any()


@WITH_KERNEL
@pytest.mark.parametrize("shape", [(1, 2), (1, 9), (3, 70), (4, 130)])
def test_all_blocks_at_once_record_their_weights(rng, mapped, shape, monkeypatch):
    owner, blocks = stack(mapped)
    x = rng.standard_normal((*shape, 50)).astype(np.float32)
    every = Trace()
    expected = one_by_one(blocks, x, trace=every)
    monkeypatch.setattr(native, "pooled_copy", None)
    for only in ("*.attn.weights", "blocks.1.attn.weights", ()):
        trace = Trace(only=only)
        np.testing.assert_array_equal(fast_paths.encode(owner, blocks, x, None, trace), expected)
        assert trace.unmatched() == ()
        assert trace.names() == {"*": ("blocks.0.attn.weights", "blocks.1.attn.weights"), "b": (only,)}.get(
            only[:1], ()
        )
        for name in trace:
            assert trace.axes(name) == every.axes(name)
            np.testing.assert_array_equal(trace[name], every[name])
            np.testing.assert_allclose(trace[name].sum(-1), 1, atol=1e-6)


@WITH_KERNEL
def test_all_blocks_at_once_only_where_no_other_step_is_wanted(rng, mapped):
    owner, blocks = stack(mapped)
    x = rng.standard_normal((2, 9, 50)).astype(np.float32)
    every, mask = Trace(), padding(rng, 2, 9)
    one_by_one(blocks, x, trace=every)
    steps = [name for name in every.names() if not name.endswith("weights")]
    assert len(steps) == 20
    for trace in (
        *(Trace(only=name) for name in steps),
        *(Trace(only=(), edit={name: np.copy}) for name in every.names()),
        Trace(maps=True, only="*.attn.weights"),
        Trace(only="*.attn.weights", stop="blocks.0.attn.weights"),
    ):
        assert fast_paths.encode(owner, blocks, x, None, trace) is None
    assert fast_paths.encode(owner, blocks, x, mask, Trace(only="*.weights")) is None
    assert fast_paths.encode(owner, blocks, x, mask, Trace(only=())) is not None
    assert fast_paths.encode(owner, blocks, x, mask & False, NULL_RECORDER) is None
    assert fast_paths.encode(owner, blocks, x, mask[..., 0], NULL_RECORDER) is None
    assert fast_paths.encode(owner, blocks, x.astype(np.float64), None, NULL_RECORDER) is None
    assert fast_paths.encode(*stack(mapped, activation="relu"), x, None, NULL_RECORDER) is None  # not of the kernel
    own = stack(np.array)
    assert fast_paths.encode(*own, x, None, NULL_RECORDER) is None
    for kind, method in OWN:
        theirs = stack(mapped, kinds=[type("Own", (kind,), {method: getattr(kind, method)})])
        assert fast_paths.encode(*theirs, x, None, NULL_RECORDER) is None


@WITH_KERNEL
def test_scores_that_overflow_are_computed_one_by_one(rng, mapped):
    owner, blocks = stack(mapped)
    x = rng.standard_normal((1, 9, 50)).astype(np.float32)
    x[0, 3, 4] = np.inf
    with np.errstate(all="ignore"):
        assert fast_paths.encode(owner, blocks, x, None, NULL_RECORDER) is None


@WITH_KERNEL
def test_misfits_of_all_blocks_are_refused(rng, mapped):
    owner, blocks = stack(mapped)
    x = rng.standard_normal((1, 9, 50)).astype(np.float32)
    fast_paths.encode(owner, blocks, x, None, NULL_RECORDER)
    compute, _ = vars(owner)["_encoder_blocks"]

    def zeros(*shape, dtype=np.float32):
        return np.zeros(shape, dtype)

    compute(zeros(9, 50), zeros(9, 50), [4, 5], [])
    compute(zeros(8, 50), zeros(8, 50), [4, 4], [zeros(2, 4, 4, 4), None])
    for output, x, lengths, weights in (
        (zeros(9, 50), zeros(9, 50), [4, 4], []),
        (zeros(9, 50), zeros(9, 50), [4, 6], []),
        (zeros(9, 50), zeros(9, 50), [9, 0], []),
        (zeros(9, 50), zeros(9, 50), [10, -1], []),
        (zeros(9, 50), zeros(9, 50), [2**62, 2**62], []),
        (zeros(8, 50), zeros(9, 50), [9], []),
        (zeros(9, 51), zeros(9, 51), [9], []),
        (zeros(1, 9, 50), zeros(1, 9, 50), [9], []),
        (zeros(9, 50), zeros(9, 50, dtype=np.float64), [9], []),
        (zeros(9, 50, dtype=np.float64), zeros(9, 50), [9], []),
        (zeros(9, 100)[:, ::2], zeros(9, 50), [9], []),
        (zeros(9, 50), zeros(9, 50), [9], [zeros(1, 4, 9, 9)]),
        (zeros(9, 50), zeros(9, 50), [9], [zeros(1, 4, 9, 9), zeros(1, 4, 9, 8)]),
        (zeros(9, 50), zeros(9, 50), [9], [zeros(1, 4, 9, 9), zeros(1, 3, 9, 9)]),
        (zeros(9, 50), zeros(9, 50), [9], [zeros(1, 4, 9, 9), zeros(1, 4, 9, 9, dtype=np.float64)]),
        (zeros(9, 50), zeros(9, 50), [9], [zeros(1, 4, 9, 18)[..., ::2], None]),
        (zeros(9, 50), zeros(9, 50), [4, 5], [zeros(2, 4, 4, 4), None]),
        (zeros(0, 50), zeros(0, 50), [], [zeros(0, 4, 4, 4), None]),
    ):
        with pytest.raises((ValueError, TypeError)):
            compute(output, x, lengths, weights)
    kernel, (tail, _) = native.kernel(), vars(blocks[0])["_fused_tail"]
    packed = vars(blocks[0].attn)["_packed"]
    block = kernel.EncoderBlock(packed.panels, packed.bias, tail)
    kernel.EncoderBlocks(4, 4, 5, 0.5, [block])
    for sizes in ((4, 4, 6), (4, 3, 5), (3, 3, 5), (0, 0, 5), (4, 0, 5), (4, 4, 0)):
        with pytest.raises((ValueError, TypeError)):
            kernel.EncoderBlocks(*sizes, 0.5, [block])
    with pytest.raises(ValueError, match="number of heads"):
        kernel.EncoderBlocks(4, 4, 5, 0.5, [])


def embedding_arguments(rng, dtype, width=50, *, has_types=True, shape=(2, 37), per_text=False):
    """Return the arguments of `summed_embeddings` but the recorder."""
    table, rows, types = (rng.standard_normal(size).astype(dtype) for size in ((90, width), (60, width), (2, width)))
    positions = rows[rng.integers(0, 60, shape)] if per_text else rows[: shape[1]]
    norm = LayerNorm(*rng.standard_normal((2, width)).astype(dtype), eps=1e-6)
    ids = rng.integers(0, len(table), shape)
    return ids, Embedding(table), positions, Embedding(types) if has_types else None, norm


@WITH_KERNEL
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 60)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("per_text", [False, True])
@pytest.mark.parametrize("has_types", [False, True])
def test_embeddings_at_once_are_those_step_by_step(rng, has_types, per_text, dtype, shape):
    given = embedding_arguments(rng, dtype, has_types=has_types, shape=shape, per_text=per_text)
    ids, tokens, positions, types, norm = given
    steps = tokens(ids) + positions
    if types is not None:
        steps = steps + types(np.zeros(shape[1], int))
    np.testing.assert_array_equal(fused_embeddings(*given, NULL_RECORDER), norm(steps))


@WITH_KERNEL
@pytest.mark.parametrize("step", ["token_embeddings", "*type_embeddings", "embeddings", "*.normalized", "*"])
def test_embeddings_at_once_only_where_no_step_is_wanted(rng, step):
    given = embedding_arguments(rng, np.float32)
    assert fused_embeddings(*given, Trace(only=step)) is None
    trace = Trace(only="blocks.*.attn.weights")
    assert fused_embeddings(*given, trace) is not None
    every = Trace()
    summed_embeddings(*given, every)
    assert trace.tapped() == every.tapped() == every.names()
    assert trace.optional_steps() == every.optional_steps() == ("embedding_norm.scale", "embedding_norm.normalized")
    for other in (Trace(only=(), stop=step), Trace(only=(), edit={step: lambda x: x})) if "*" not in step else ():
        assert fused_embeddings(*given, other) is None


BERTS = sorted({case.split("/")[0]: case for case in sorted(golden.cases(Bert))}.values())


@WITH_KERNEL
@pytest.mark.parametrize("only", [(), ("*.output",), ("normed_embeddings",), ("blocks.*.attn.weights",)])
@pytest.mark.parametrize("case", BERTS)
def test_a_model_does_not_show_how_it_embeds(case, only, monkeypatch):
    model = regard.load(golden.FOLDER / case)
    ids = np.random.default_rng(0).integers(0, 5, (3, min(24, model.max_length)))
    fast, slow = Trace(only=only), Trace(only=only)
    found = model(ids, trace=fast).hidden
    monkeypatch.setattr(embeddings, "fused_embeddings", lambda *_: None)
    np.testing.assert_array_equal(found, model(ids, trace=slow).hidden)
    assert list(fast._taps) == list(slow._taps)
    assert fast.keys() == slow.keys()
    for name in fast:
        np.testing.assert_array_equal(fast[name], slow[name])


@WITH_KERNEL
def test_misfits_of_embeddings_go_step_by_step(rng):
    ids, tokens, positions, types, norm = embedding_arguments(rng, np.float32)
    for i in (-1, 90):
        assert fused_embeddings(np.full_like(ids, i), tokens, positions, types, norm, NULL_RECORDER) is None
    assert fused_embeddings(ids[:0], tokens, positions, types, norm, NULL_RECORDER) is None
    assert fused_embeddings(ids.astype(np.int32), tokens, positions, types, norm, NULL_RECORDER) is None
    assert fused_embeddings(ids, tokens, positions.astype(np.float64), types, norm, NULL_RECORDER) is None
    assert fused_embeddings(ids, tokens, positions, types, LayerNorm(norm.weight, None), NULL_RECORDER) is None
    for misfit in (positions[:3], positions[:-1], np.tile(positions, (2, 1)), positions[:, :-1], positions[::-1]):
        assert fused_embeddings(ids, tokens, misfit, types, norm, NULL_RECORDER) is None
    unaligned = np.frombuffer(b"x" + tokens.weight.tobytes(), np.float32, offset=1).reshape(tokens.weight.shape)
    assert fused_embeddings(ids, Embedding(unaligned), positions, types, norm, NULL_RECORDER) is None
    own = type("Own", (Embedding,), {"__module__": "elsewhere"})(tokens.weight)
    assert fused_embeddings(ids, own, positions, types, norm, NULL_RECORDER) is None
    kernel, flat = native.kernel(), ids.reshape(-1)
    out, rest = np.zeros((len(flat), 50), np.float32), (types.weight[0], norm.weight, norm.bias, 1e-6)
    for wrong in [
        (out, flat[:-1], tokens.weight, positions),
        (out, flat.astype(np.int32), tokens.weight, positions),
        (out, flat, tokens.weight[:, :-1], positions),
        (out, flat, tokens.weight.astype(np.float64), positions),
        (out, flat, tokens.weight, positions[:0]),
        (out, flat, tokens.weight, positions[:3]),
        (out[::2], flat[::2], tokens.weight, positions),
    ]:
        with pytest.raises((ValueError, TypeError)):
            kernel.embed(*wrong, *rest)
    for row in (types.weight, types.weight[:0], types.weight[0, 0]):
        with pytest.raises((ValueError, TypeError)):
            kernel.embed(out, flat, tokens.weight, positions, row, *rest[1:])
