"""Sizes that no memory holds: arrays that broadcast to them take a few bytes. Each is an error of one line."""

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("resource", reason="Windows has no limits on memory")

CALLS = """
import itertools, resource, sys
import numpy as np
import regard
from regard import functional as F
from regard.functional import native

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # an allocation that is too large fails at once

def wide(*shape, dtype=np.float32):
    "Return an array of ones that takes the memory of one."
    return np.broadcast_to(dtype(1), shape)

def attempt(name, call):
    "Print what is neither a result nor an error of one line."
    try:
        call()
    except (regard.RegardError, MemoryError) as error:
        said = str(error)
        if not said or "\\n" in said or "std::" in said:
            print(name, "says", repr(said))
    except Exception as error:
        print(name, "raises", repr(error))
"""


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", CALLS + textwrap.dedent(code)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert done.stdout == ""


FEATURES, OTHERS = ("dim", "width", "dim width"), ("heads", "batch", "keys", "queries", "queries keys")


@pytest.mark.parametrize("axes", [*FEATURES, *OTHERS])
def test_attention_of_huge_sizes_is_an_error(axes):
    powers = (31, 40, 47, 57, 59) if axes in FEATURES else (57, 59)  # of two
    run(f"""
        dtypes, empties = (np.float32, np.float64, np.float16), (None, "queries", "keys", "batch")
        for huge, dtype, empty in itertools.product({powers}, dtypes, empties):
            size = dict.fromkeys(("batch", "heads", "queries", "keys", "dim", "width"), 1)
            size |= dict.fromkeys({axes!r}.split(), 2**huge)
            if empty:
                size[empty] = 0
            B, H, T, S, D, Dv = size.values()
            q, k, v = wide(B, H, T, D, dtype=dtype), wide(B, H, S, D, dtype=dtype), wide(B, H, S, Dv, dtype=dtype)
            for path in ("native", "auto") if huge < 48 else ("native", "blockwise", "reference", "auto"):
                call, what = dict(implementation=path), f"2^{{huge}} {{dtype}} {{empty}} {{path}}"
                attempt(f"attention {{what}}", lambda: regard.attention(q, k, v, **call))
                attempt(f"partial {{what}}", lambda: regard.attention_partial(q, k, v, **call))
                attempt(f"weights {{what}}", lambda: regard.attention_weights(q, k, rows=[], **call))
                attempt(f"plan {{what}}", lambda: regard.explain_plan(q, k, v, **call))
                attempt(
                    f"gradients {{what}}",
                    lambda: regard.attention_vjp(q, k, v, **call)[1](wide(B, H, T, Dv, dtype=dtype)),
                )
            attempt(f"map 2^{{huge}} {{dtype}} {{empty}}", lambda: regard.AttentionMap(q, k).entropy())
    """)


def test_bindings_refuse_sizes_whose_products_overflow():
    run("""
        kernel = native.kernel()
        for huge, dtype in itertools.product((2**31, 2**40, 2**57), (np.float32, np.float64, np.uint16)):
            name = {np.float32: "float32", np.float64: "float64", np.uint16: "bfloat16"}[dtype]
            for at in range(6):
                B, H, T, S, D, Dv = sizes = [huge if n == at else 1 for n in range(6)]
                if at in (2, 3):
                    continue  # ValueError: fewer than 2^30 positions
                q, k, v = (wide(B, H, *shape, dtype=dtype) for shape in ((T, D), (S, D), (S, Dv)))
                args = (B, H), getattr(kernel.DType, name), q, k, v, 1.0
                attempt(f"{name} {sizes}", lambda: kernel.forward_memory(kernel.AttentionCall(*args)))
        for heads in ((2**40, 2**40), (2**62, 4), (2**61,), (2**63 - 1,)):
            one = wide(2, 2)
            attempt(heads, lambda: kernel.AttentionCall(heads, kernel.DType.float32, one, one, one, 1.0))
        for size in (2**40, 2**57, 2**63, 2**64 - 1):
            attempt(size, lambda: kernel.acquire_buffer(size))
    """)


def test_other_operations_of_huge_sizes_are_errors():
    run("""
        for huge in (2**57, 2**59):
            for x in (wide(huge), wide(2, huge), wide(huge, 2), wide(2, 0, huge), wide(huge, 0, 2)):
                for op in (F.softmax, F.gelu, F.layer_norm, F.rms_norm, lambda x: F.swiglu(x, x)):
                    attempt(x.shape, lambda: op(x))
                attempt(x.shape, lambda: F.linear(x, wide(x.shape[-1], 2)))
                attempt(x.shape, lambda: F.rotary(x))
    """)
