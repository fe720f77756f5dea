"""One call for all blocks gives the bits of the blocks one by one."""

import mmap
import os
import signal
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from gguf_files import quantised
from regard import RegardError, nn
from regard.functional import native
from regard.functional.native import ops
from regard.functional.variable import Variable, gradients
from regard.nn.decoder_step import decode_step
from regard.nn.kv_cache import KVCache

pytestmark = pytest.mark.skipif(native.kernel() is None, reason="there is no kernel that runs a step")

E, H, G, D, F = 64, 8, 4, 32, 96


class Owner:
    """What the prepared call is stored in."""


class Maker:
    """Makes layers whose weights cannot change, as those of a file."""

    def __init__(self, rng, folder):
        self.rng, self.folder, self.count = rng, folder, 0

    def mapped(self, array):
        self.count += 1
        path = self.folder / str(self.count)
        path.write_bytes(array.astype(np.float32).tobytes())
        with path.open("rb") as stream:
            view = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(view, np.float32).reshape(array.shape)

    def linear(self, inputs, outputs, kind, bias=False):
        weight = self.rng.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float32)
        if kind is None and ops.pack([weight.T]) is None:
            pytest.skip("NumPy multiplies float32 where the kernel is slower")
        stored = (
            self.mapped(weight).T
            if kind is None
            else nn.QuantizedWeight(quantised(weight, kind).view(np.uint8), kind).T
        )
        return nn.Linear(stored, self.mapped(self.rng.standard_normal(outputs)) if bias else None)

    def norm(self, features):
        return nn.RMSNorm(self.mapped(self.rng.uniform(0.5, 1.5, features)), 1e-5)

    def block(self, kind="Q4_1", *, v_kind=None, up_kind=None, bias=False, qk_norm=False, width=E, hidden=F, **options):
        q, k, v, o = (
            self.linear(width, H * D, kind, bias),
            self.linear(width, G * D, kind, bias),
            self.linear(width, G * D, v_kind or kind, bias),
            self.linear(H * D, width, kind, bias),
        )
        residual_scale = options.pop("residual_scale", 1.0)
        norms = {name: self.norm(D) for name in ("q_norm", "k_norm") if qk_norm}
        attn = nn.CausalAttention(q, k, v, o, num_heads=H, **norms, **options)
        gate, up = (self.linear(width, hidden, kind, bias) for kind in (kind, up_kind or kind))
        mlp = nn.GatedFeedForward(gate, up, self.linear(hidden, width, kind))
        return nn.DecoderBlock(self.norm(width), attn, self.norm(width), mlp, residual_scale=residual_scale)


@pytest.fixture
def maker(rng, tmp_path):
    return Maker(rng, tmp_path)


def rotation(rng, batch=1, pairs=D // 2, count=1):
    angles = rng.uniform(0, 7, (batch, 1, count, pairs) if batch > 1 else (count, pairs))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def caches_of(rng, blocks, batch, length):
    def drawn():
        return rng.standard_normal((batch, G, length, D)).astype(np.float32)

    return [KVCache().append(drawn(), drawn()) for _ in blocks]


def one_by_one(blocks, x, caches, rotated):
    after = []
    for block, cache in zip(blocks, caches, strict=True):
        x, cache = block(x, rotation=rotated, cache=cache)
        after.append(cache)
    return x, after


def assert_same(step, wanted, theirs):
    """Assert that a step gives these vectors, and caches with the same numbers and positions."""
    found, ours = step
    np.testing.assert_array_equal(found, wanted)
    for one, other in zip(ours, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one.start, one.end) == (other.start, other.end)
            np.testing.assert_array_equal(one.k, other.k)
            np.testing.assert_array_equal(one.v, other.v)


BLOCKS = {
    "quantised": {},
    "float32": {"kind": None},
    "half precision": {"kind": "BF16"},
    "values stored otherwise": {"v_kind": "Q8_0", "up_kind": "Q8_0"},
    "biases": {"bias": True},
    "norms of queries and keys": {"qk_norm": True},
    "another scale and softcap": {"scale": 0.3, "softcap": 5.0},
    "sinks": {"sinks": np.linspace(-1, 2, H).astype(np.float32)},
    "a window": {"window": (40, 0)},
    "outputs that are scaled": {"residual_scale": 0.22},
    "neighbours that are rotated": {"interleaved": True},
}


@pytest.mark.pairwise
@pytest.mark.parametrize("length", [1, 5, 70, 600])
@pytest.mark.parametrize("batch", [1, 2, 9])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_step_gives_the_bits_of_the_blocks(rng, maker, name, batch, length):
    blocks = [maker.block(**BLOCKS[name]) for _ in range(2)]
    x = rng.standard_normal((batch, 1, E)).astype(np.float32)
    before = caches_of(rng, blocks, batch, min(length, 40) if "window" in name else length)
    rotated, owner = rotation(rng, batch if length % 2 else 1), Owner()
    wanted, theirs = step = x, before
    for _ in range(3):
        wanted, theirs = one_by_one(blocks, wanted, theirs, rotated)
        step = decode_step(owner, blocks, *step, rotated)
        assert_same(step, wanted, theirs)


@pytest.mark.parametrize("hidden", [F, 56])  # of which gate and up are whole groups of outputs, and not
@pytest.mark.parametrize("name", ["quantised", "half precision", "values stored otherwise", "biases"])
def test_gradients_through_packed_blocks_are_those_of_the_arrays(rng, maker, monkeypatch, name, hidden):
    kinds = {} if hidden == F else {"kind": "F16"}  # which takes any number of inputs
    block = maker.block(**BLOCKS[name] | kinds, hidden=hidden)
    x, d = rng.standard_normal((2, 1, 6, E)).astype(np.float32)
    arrays = {name: np.array(a) for name, a in nn.parameters(block).items()}

    def gradient(block):
        variable = Variable(x)
        y, _ = block(variable, rotation=rotated)
        return y.value, gradients(y, [variable], d)[0]

    rotated = rotation(rng, count=6)
    expected = gradient(nn.with_parameters(block, arrays))
    monkeypatch.setattr("regard.nn.quantized.dequantize", lambda *_: pytest.fail("a weight was dequantised"))
    for one, other in zip(gradient(block), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())


# Halves of whole panels and not, several panels for a task, and inputs of several panels.
GATES = [
    ("Q4_1", 448, 224), ("Q4_1", 800, 2880), ("Q4_1", 64, 32), ("Q4_K", 512, 256), ("Q6_K", 256, 768),
    ("BF16", 448, 224), ("BF16", 64, 40), (None, 416, 480), (None, 800, 2880), (None, 64, 40),
]  # fmt: skip


@pytest.mark.parametrize("instructions", native.kernel().instruction_sets()[:-1] if native.kernel() else [])
@pytest.mark.parametrize(("kind", "width", "hidden"), GATES)
def test_gates_give_the_bits_of_the_blocks(rng, maker, threads, kind, width, hidden, instructions):
    blocks = [maker.block(kind, width=width, hidden=hidden, bias=True)]
    native.kernel().use_instruction_set(instructions)
    for count in (5, 30, 70, 600 if width < 800 else 130):
        x = rng.standard_normal((1, count, width)).astype(np.float32)
        rotated = rotation(rng, count=count)
        wanted, _ = one_by_one(blocks, x, [KVCache()], rotated)
        for number in (1, 3):
            threads(number)
            found, _ = decode_step(Owner(), blocks, x, [KVCache()], rotated)
            np.testing.assert_array_equal(found, wanted, err_msg=f"{count} tokens")


@pytest.mark.pairwise
@pytest.mark.parametrize("count", [2, 10, 13, 70, 300])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("length", [None, 0, 5, 600])
@pytest.mark.parametrize("name", BLOCKS)
def test_several_new_tokens_give_the_bits_of_the_blocks(rng, maker, name, length, batch, count):
    blocks = [maker.block(**{**BLOCKS[name], **({"window": (1000, 0)} if "window" in name else {})}) for _ in range(2)]
    x = rng.standard_normal((batch, count, E)).astype(np.float32)
    caches = [None if length is None else KVCache()] * 2 if not length else caches_of(rng, blocks, batch, length)
    rotated = rotation(rng, batch if count % 2 else 1, count=count)
    assert_same(decode_step(Owner(), blocks, x, caches, rotated), *one_by_one(blocks, x, caches, rotated))


def test_tokens_from_which_a_window_hides_keys_are_computed_one_by_one(rng, maker):
    blocks, x = [maker.block(window=(8, 0))], rng.standard_normal((1, 4, E)).astype(np.float32)
    rotated = rotation(rng, count=4)
    assert decode_step(Owner(), blocks, x, caches_of(rng, blocks, 1, 5), rotated) is not None
    assert decode_step(Owner(), blocks, x, caches_of(rng, blocks, 1, 6), rotated) is None


def test_neither_x_nor_the_caches_change(rng, maker):
    blocks = [maker.block()]
    x, caches = rng.standard_normal((1, 1, E)).astype(np.float32), caches_of(rng, blocks, 1, 8)
    kept = x.copy(), caches[0].k.copy(), len(caches[0])
    owner, rotated = Owner(), rotation(rng)
    first = decode_step(owner, blocks, x, caches, rotated)
    again = decode_step(owner, blocks, x, caches, rotated)  # a second branch from the same cache
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(x, kept[0])
    np.testing.assert_array_equal(caches[0].k, kept[1])
    assert len(caches[0]) == kept[2]
    np.testing.assert_array_equal(first[1][0].k, again[1][0].k)
    assert not np.shares_memory(first[1][0].k, again[1][0].k)


@pytest.mark.parametrize("kind", ["Q4_1", None])
@pytest.mark.parametrize("tokens", [1, 70])
def test_every_number_of_threads_gives_the_same_bits(rng, maker, same_bits, tokens, kind):
    blocks, owner, rotated = [maker.block(kind) for _ in range(2)], Owner(), rotation(rng, count=tokens)
    x, caches = rng.standard_normal((3, tokens, E)).astype(np.float32), caches_of(rng, blocks, 3, 700)
    same_bits(lambda: decode_step(owner, blocks, x, caches, rotated)[0], (1, 2, 4))


def test_other_blocks_and_inputs_are_left_to_the_layers(rng, maker):
    block = maker.block()
    x, caches, rotated = rng.standard_normal((1, 1, E)).astype(np.float32), caches_of(rng, [block], 1, 4), rotation(rng)
    assert decode_step(Owner(), [block], x, caches, rotated) is not None
    changeable = nn.Linear(np.array(block.mlp.down_proj.weight))
    others = {
        "post-norms": replace(block, attn_post_norm=maker.norm(E)),
        "another activation": replace(block, mlp=replace(block.mlp, activation="gelu")),
        "another network": replace(block, mlp=nn.FeedForward(block.mlp.up_proj, block.mlp.down_proj)),
        "weights that may change": replace(block, mlp=replace(block.mlp, down_proj=changeable)),
    }
    for name, other in others.items():
        assert decode_step(Owner(), [other], x, caches, rotated) is None, name
    assert decode_step(Owner(), [block], x[:, :0], caches, rotated) is None
    assert decode_step(Owner(), [block], x.astype(np.float64), caches, rotated) is None
    assert decode_step(Owner(), [block], np.repeat(x, 2, axis=0), caches, rotated) is None  # of another batch
    windowed = replace(block, attn=replace(block.attn, window=(3, 0)))
    assert decode_step(Owner(), [windowed], x, caches, rotated) is None  # a key that the new token does not attend to


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_ctrl_c_interrupts_a_step_and_the_next_works(rng, maker):
    blocks, owner, count = [maker.block()] * 3, Owner(), 2000
    x, rotated = rng.standard_normal((1, count, E)).astype(np.float32), rotation(rng, count=count)
    expected, _ = decode_step(owner, blocks, x, [None] * 3, rotated)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
                while True:
                    decode_step(owner, blocks, x, [None] * 3, rotated)
    finally:
        signal.signal(signal.SIGINT, handler)
    np.testing.assert_array_equal(decode_step(owner, blocks, x, [None] * 3, rotated)[0], expected)


def test_a_cache_that_does_not_fit_is_refused(rng, maker):
    blocks, owner, rotated = [maker.block()], Owner(), rotation(rng)
    x, caches = rng.standard_normal((2, 1, E)).astype(np.float32), caches_of(rng, [None], 1, 4)
    assert decode_step(owner, blocks, x, caches, rotated) is None
    with pytest.raises(RegardError, match="does not continue a cache"):
        one_by_one(blocks, x, caches, rotated)


def test_values_near_the_largest_float_are_left_to_the_layers(rng, maker):
    """Attention computes such sums in a wider dtype, which the call for all blocks does not."""
    blocks, rotated = [maker.block()], rotation(rng)
    x = rng.standard_normal((1, 1, E)).astype(np.float32)
    large = np.full((1, G, 80, D), 3e38, np.float32)
    caches = [KVCache().append(np.zeros_like(large), large)]
    assert decode_step(Owner(), blocks, x, caches, rotated) is None
