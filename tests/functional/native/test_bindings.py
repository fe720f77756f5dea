"""What the bindings refuse, though the package never asks for it: memory that would be read or written outside."""

import numpy as np
import pytest

from gguf_files import quantised
from regard.functional import native
from regard.functional.native import ops

kernel = native.kernel()
if kernel is None:
    pytest.skip(native.unavailable_reason(), allow_module_level=True)

FLOAT32 = kernel.DType.float32
IDENTITY = kernel.Activation.identity


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def integers(*numbers):
    return np.array(numbers, np.int32)


# Attention, of q, k and v alike.
X = ones(2, 3, 4)
FROZEN = X.copy()
FROZEN.flags.writeable = False


def attention_call(q=X, k=X, v=X, **options):
    return kernel.AttentionCall((2,), FLOAT32, q, k, v, 1.0, **options)


ATTENTION = [
    {"k": X.astype(np.float64)}, {"k": ones(2, 3, 5)}, {"v": ones(2, 4, 4)}, {"v": ones(3, 3, 4)},
    {"k": ones(1, 2, 3, 4)}, {"mask": ones(3, 4, dtype=np.uint8)}, {"mask": ones(3, 3)}, {"bias": np.ones((3, 3))},
    {"key_begin": np.zeros(4, np.int32)}, {"key_end": np.zeros(3, np.int64)}, {"sinks": ones(3)},
    {"distance_bias": ones(5)},
]  # fmt: skip

# Maps, of 5 queries and keys.
Q, SUMS, WIDE, KEYS = ones(5, 4), ones(5), np.zeros(5), np.arange(5, dtype=np.int32)
MAP = kernel.AttentionCall((), FLOAT32, Q, Q, None, 1.0)
MAPS = [
    ("keys has an index out of range", lambda: kernel.map_tile(MAP, 3, KEYS + 1, ones(5, 5))),
    ("tile has an axis", lambda: kernel.map_tile(MAP, 3, KEYS, ones(5, 4))),
    ("belong together", lambda: kernel.map_tile(MAP, 3, KEYS, ones(5, 5), SUMS)),
    ("row_sum has the wrong dtype", lambda: kernel.map_softmax_stats(MAP, SUMS, SUMS)),
    ("entropy has an axis", lambda: kernel.map_row_statistics(MAP, SUMS, WIDE, None, np.zeros(4))),
    ("top_weights needs a last axis",
     lambda: kernel.map_row_statistics(MAP, SUMS, WIDE, None, None, None, Q[:, :0], KEYS[:, None])),
    ("column_sums has an axis", lambda: kernel.map_column_sums(MAP, SUMS, WIDE, np.zeros(4))),
    ("row_edges do not cover", lambda: kernel.map_pooled(MAP, KEYS[:4], KEYS, False, WIDE[:4], SUMS, WIDE)),
    ("col_edges have a cell that is empty",
     lambda: kernel.map_pooled(MAP, integers(0, 5), integers(0, 2, 2, 5), True, WIDE, SUMS, WIDE)),
    ("row_sum has the wrong dtype", lambda: kernel.map_pooled(MAP, KEYS, KEYS, True, WIDE, SUMS, SUMS)),
]  # fmt: skip

# Sequences: 2 queries, and 9 keys in pages.
ROWS, PAGES = ones(2, 2, 4), ones(3, 8, 1, 4)
INT8 = PAGES.astype(np.int8)
SEQUENCES = {
    "q": ROWS, "k": PAGES, "v": PAGES, "cu_seqlens_q": integers(0, 2), "cu_seqlens_k": integers(0, 9),
    "block_table": integers(0, 1)[None],
}  # fmt: skip


def varlen_call(**changed):
    return kernel.VarlenCall(FLOAT32, scale=1.0, **SEQUENCES | changed)


VARLEN = [
    *({"block_table": np.array(table, np.int32)} for table in (
        [[0, 3]], [[0, -1]], [[0, 2**31 - 1]], [[0]], [[0, 1], [1, 2]], [0, 1],
    )),
    {"block_table": np.array([[0, 1]])}, {"block_table": None},
    {"k": PAGES[:, :0], "v": PAGES[:, :0]}, {"k": PAGES[:2]}, {"k": PAGES[..., :3]},
    {"k": PAGES[:, :, :0], "v": PAGES[:, :, :0]}, {"v": PAGES[:, :7]}, {"v": PAGES[0]},
    {"k": PAGES.astype(np.float64)}, {"k_scale": ones(1)},
    *({"k": INT8, "k_dtype": kernel.DType.int8, **scale} for scale in (
        {}, {"k_scale": ones(2)}, {"k_scale": ones(3, 7, 1)}, {"k_scale": np.ones(1)},
    )),
    *({"cu_seqlens_q": starts} for starts in (integers(0, 3), integers(-1, 2), np.array([0, 2]))),
    *({"cu_seqlens_k": starts} for starts in (integers(9, 0), integers(0, 2**31 - 1), integers(0), integers())),
    {"key_begin": np.zeros(3, np.int32)}, {"key_end": np.zeros(2)},
    *({"distance_bias": ones(*shape)} for shape in ((2, 10 + kernel.BLOCK_QUERIES), (200,), (2, 2, 200))),
]  # fmt: skip
BATCH = kernel.VarlenCall(FLOAT32, ROWS, ROWS, ROWS, integers(0, 2), integers(0, 2), 1.0)
STATS = ones(2, 2), np.ones((2, 2)), ones(2, 2)
OUTPUTS = [
    *((
        ("output has the wrong shape", lambda shape=shape: BATCH.forward(ones(*shape))),
        ("d_k has the wrong shape",
         lambda shape=shape: BATCH.backward(ROWS, ROWS, *STATS, ROWS.copy(), ones(*shape), ROWS.copy())),
    ) for shape in ((2, 2, 3), (1, 2, 4), (2, 1, 4), (2, 4))),
]  # fmt: skip

# Linear maps: of 5 inputs and 60 outputs in panels, and in blocks of 64 inputs and 16 outputs.
PANELS, WEIGHT, NR = ones(2, 5, kernel.NR), ones(5, 60), kernel.NR
BLOCKS = quantised(ones(16, 64), "Q4_1").view(np.uint8)
GROUPS = ops.pack_quantized([BLOCKS], "Q4_1", 64)
INPUTS, PRODUCT = ones(1, 64), ones(1, 16)
LINEAR = [
    lambda: kernel.pack(PANELS, WEIGHT, NR),  # past the last panel
    lambda: kernel.pack(PANELS, WEIGHT, -1),
    lambda: kernel.pack(PANELS, WEIGHT[:4], 0),
    lambda: kernel.pack(PANELS[:, :, 1:], WEIGHT, 0),
    lambda: kernel.pack(PANELS[::-1], WEIGHT, 0),
    lambda: kernel.pack(PANELS, WEIGHT.astype(np.float64), 0),
    lambda: kernel.linear(ones(3, 40), ones(3, 5), PANELS, None),
    lambda: kernel.linear(ones(3, 60), ones(3, 4), PANELS, None),
    lambda: kernel.linear(ones(3, 60), ones(3, 5), PANELS[:, :, ::-1], None),
    lambda: kernel.linear(ones(3, 60), ones(1, 3, 5), PANELS, None),
    lambda: kernel.linear(ones(3, 1, 60), ones(1, 3, 5), PANELS, None),
    lambda: kernel.linear(ones(2, 3, 60), ones(3, 2, 5).swapaxes(0, 1), PANELS, None),
    lambda: kernel.linear(ones(60), ones(), PANELS, None),
    lambda: kernel.linear(PRODUCT, INPUTS, GROUPS[:, :-64], None, IDENTITY, "q4_1"),
    lambda: kernel.linear(PRODUCT, INPUTS[:, :32], GROUPS, None, IDENTITY, "q4_1"),
    lambda: kernel.linear(ones(1, 17), INPUTS, GROUPS, None, IDENTITY, "q4_1"),
    lambda: kernel.linear(PRODUCT, INPUTS.astype(np.float64), GROUPS, None, IDENTITY, "q4_1"),
    lambda: kernel.linear(PRODUCT, INPUTS, GROUPS, None, IDENTITY, "q9_9"),
    lambda: kernel.linear_transposed(INPUTS, PRODUCT, GROUPS[:, :-64], "q4_1"),
    lambda: kernel.linear_transposed(INPUTS[:, :32], PRODUCT, GROUPS, "q4_1"),
    lambda: kernel.linear_transposed(INPUTS, ones(1, 17), GROUPS, "q4_1"),
    lambda: kernel.linear_transposed(INPUTS, ones(2, 16), GROUPS, "q4_1"),
    lambda: kernel.linear_transposed(INPUTS.astype(np.float64), PRODUCT.astype(np.float64), GROUPS, "q4_1"),
    lambda: kernel.linear_transposed(ones(1, 128)[:, ::2], PRODUCT, GROUPS, "q4_1"),
    lambda: kernel.linear_transposed(ones(1, 5), ones(1, 60), PANELS, "none"),
    lambda: kernel.pack_quantized(GROUPS, BLOCKS[:, :-1], "q4_1"),
    lambda: kernel.pack_quantized(GROUPS[:0], BLOCKS, "q4_1"),
    lambda: kernel.pack_quantized(GROUPS, BLOCKS.astype(np.int8), "q4_1"),
]

# Operations, of an output and an input of 2 rows and 3 features.
O, Y = ones(2, 3), ones(2, 3)
OPERATIONS = [
    lambda: kernel.softmax(O, Y[:, :2]),
    lambda: kernel.softmax(O, Y.astype(np.float64)),
    lambda: kernel.softmax(O, Y.astype(np.int32)),
    lambda: kernel.gelu(O, Y, Y[0, :2]),
    lambda: kernel.apply_rotary(O, Y, Y[:, :2], Y[:, :2], False),
    lambda: kernel.linear(O, Y, ones(4, 3), None),
    lambda: kernel.linear(O, Y, np.ones((3, 3)), None),
    lambda: kernel.linear(O.T, Y, ones(3, 2), None),
    lambda: kernel.add(O, Y, Y[:1, :2]),
    lambda: kernel.add(O, Y, Y.astype(np.float64)),
    lambda: kernel.column_sums(O[0, :2], Y),
    lambda: kernel.column_sums(O[0].astype(np.float64), Y),
    lambda: kernel.column_sums(ones(6)[::2], Y),
    lambda: kernel.layer_norm_vjp(O, Y, Y, None, 1e-5, ones(2), None),
    lambda: kernel.softmax_stats(O, Y),
    lambda: kernel.softmax_stats(np.zeros((2, 2)), Y),
    lambda: kernel.scaled_softmax(O, Y, Y, Y),
    lambda: kernel.adamw(O[0], Y[0], Y[0], Y[0, :2], 3, *np.ones(7)),
    lambda: kernel.adamw(O[0], Y[0].astype(np.float64), Y[0], Y[0], 3, *np.ones(7)),
    lambda: kernel.adamw(O, Y, Y, Y, 3, *np.ones(7)),
    lambda: kernel.square_sum(O[:, 0]),
]

REFUSED = [
    *((next(iter(changed)), lambda changed=changed: attention_call(**changed)) for changed in ATTENTION),
    *(("output", lambda shape=shape: kernel.forward(attention_call(), shape and ones(*shape), None, None))
      for shape in ((2, 3, 5), None)),
    (".", lambda: kernel.forward(attention_call(), FROZEN, None, None)),
    *MAPS,
    *((".", lambda changed=changed: varlen_call(**changed)) for changed in VARLEN),
    *(row for rows in OUTPUTS for row in rows),
    ("row_max has the wrong shape", lambda: BATCH.forward(ROWS.copy(), ones(2, 1), np.empty((2, 2)))),
    *((".", call) for call in LINEAR + OPERATIONS),
    # A division by the size of no block would end the process; these arrays have the bytes that they ask for: none.
    ("the quantization has no blocks",
     lambda: kernel.pack_quantized(ones(1, 10, dtype=np.uint8), ones(16, 20, dtype=np.uint8), "none")),
    ("the shapes do not fit", lambda: kernel.PackedMap(np.zeros((1, 0), np.uint8), "f16", None, -1, 16)),
]  # fmt: skip


@pytest.mark.parametrize(("said", "call"), REFUSED, ids=[f"{i}-{said}" for i, (said, _) in enumerate(REFUSED)])
def test_what_does_not_fit_is_an_error(said, call):
    with pytest.raises((ValueError, TypeError), match=said):
        call()


def test_what_fits_is_accepted():
    varlen_call()
    attention_call()
