"""Attention beside its peers: PyTorch, JAX, ONNX Runtime, the lessons' NumPy code, and what the processor can do.

All get the same arrays and as many threads, in turn, in short rounds; the result is the ratio within a round.

    python benchmarks/attention.py            everything, and the tables in benchmarks/results/attention.md
    python benchmarks/attention.py --smoke    one round of small shapes, nothing written
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from _measure import (
    BLAS_REST,
    ROUND,
    Rates,
    Ratio,
    alternate,
    alternate_processes,
    answer,
    faster,
    machine,
    markdown,
    priority,
    versions,
    write_results,
)

THREADS = len(os.sched_getaffinity(0))
os.environ["OMP_NUM_THREADS"] = str(THREADS)
os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={THREADS}")

import torch  # noqa: E402

import regard  # noqa: E402
from regard.functional import ALiBi, SegmentMask, alibi_slopes, native  # noqa: E402

HEADS = 12
sdpa = torch.nn.functional.scaled_dot_product_attention
RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def inputs(length: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q, k, v = (draw(1, HEADS, length, dim) for _ in range(3))
    return q, k, v


def geometric_mean(ratios: list[Ratio]) -> float:
    return math.exp(sum(math.log(r.median) for r in ratios) / len(ratios))


def summary(ratios: list[Ratio]) -> str:
    worst = min(r.median for r in ratios)
    return f"Geometric mean **{geometric_mean(ratios):.2f}**, the least {worst:.2f}."


def shapes(smoke: bool) -> Iterator[tuple[int, int, bool]]:
    for dim in (64,) if smoke else (32, 64, 128):
        for length in (128, 256) if smoke else (128, 512, 1024, 2048, 4096):
            for causal in (False, True):
                yield dim, length, causal


def forward(rounds: int, smoke: bool) -> str:
    """Return the table of forward passes beside PyTorch."""
    kernel = native.kernel()
    rates = Rates.measure(THREADS)
    rows, ratios, speeds, peer_speeds, limits, peaks = [], [], [], [], [], [0.0]
    for dim, length, causal in shapes(smoke):
        q, k, v = inputs(length, dim)
        tensors = [torch.from_numpy(x) for x in (q, k, v)]
        times = alternate(
            {
                "regard": partial(regard.attention, q, k, v, causal=causal),
                "torch": partial(sdpa, *tensors, is_causal=causal),
            },
            rounds,
        )
        ratio = faster(times["regard"], times["torch"])
        cells = HEADS * (length * (length + 1) / 2 if causal else length**2)
        kind = "causal" if causal else "full"
        rows.append([str(dim), f"{length:,}", kind, str(times["regard"]), str(times["torch"]), str(ratio)])
        ratios.append(ratio)
        products, seconds = 2 * dim * cells, times["regard"].median
        limits.append((products / rates.products + cells / rates.exponentials) / seconds)
        speeds.append(products / seconds)
        peer_speeds.append(products / times["torch"].median)
        peaks.append(kernel.fma_peak())
    peak = max(peaks)
    shares = ([f"{100 * share / peak:.0f}%", f"{100 * part:.0f}%"] for share, part in zip(speeds, limits, strict=True))
    rows = [[*row, *share] for row, share in zip(rows, shares, strict=True)]
    header = ["D", "n", "", "regard", "PyTorch", "times as fast", "of peak", "of the limit"]
    note = (
        f"Of peak: multiply-adds of the cells that the mask allows, out of {peak / 1e9:.0f} thousand million a "
        "second, the most that all threads together did in registers in the same rounds. The limit is the sum of two "
        "parts, each alone and as fast as in the cores' own caches: multiply-adds of a large product with packed "
        f"weights, and an exponential for each of these cells ({rates.products / 1e9:.0f} and "
        f"{rates.exponentials / 1e9:.0f} thousand million a second).\n"
        f"PyTorch reaches at most {100 * max(peer_speeds) / peak:.0f}% of the peak; ONNX Runtime is in the table "
        "of others. A score takes 2 D multiply-adds, and its softmax about 15 further operations: at D = 32 a fifth."
    )
    return f"## Forward\n\n{HEADS} heads, float32. {summary(ratios)}\n{note}\n\n{markdown(header, rows)}"


def both_ways(rounds: int, smoke: bool) -> str:
    """Return the table of forward and backward passes beside PyTorch."""
    rows, ratios = [], []
    for dim, length, causal in shapes(smoke):
        q, k, v = inputs(length, dim)
        d_output = draw(1, HEADS, length, dim)
        tensors = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
        d_tensor = torch.from_numpy(d_output)

        def ours(q: Any = q, k: Any = k, v: Any = v, d: Any = d_output, causal: bool = causal) -> None:
            regard.attention_vjp(q, k, v, causal=causal)[1](d)

        def theirs(tensors: Any = tensors, d: Any = d_tensor, causal: bool = causal) -> None:
            torch.autograd.grad(sdpa(*tensors, is_causal=causal), tensors, d)

        times = alternate({"regard": ours, "torch": theirs}, rounds)
        ratio = faster(times["regard"], times["torch"])
        ratios.append(ratio)
        rows.append([
            str(dim), f"{length:,}", "causal" if causal else "full", str(times["regard"]), str(times["torch"]),
            str(ratio),
        ])  # fmt: skip
    header = ["D", "n", "", "regard", "PyTorch", "times as fast"]
    return f"## Forward and backward\n\n{summary(ratios)}\n\n{markdown(header, rows)}"


def peers(rounds: int, smoke: bool) -> str:
    """Return the table beside JAX, ONNX Runtime and the lessons' code, each in a process of its own."""
    times = alternate_processes(
        __file__, CONTESTANTS, beside(smoke), rounds=rounds, threads=THREADS, rest=BLAS_REST,
        options=["--smoke"] if smoke else [],
    )  # fmt: skip
    ours = times.pop("regard")
    rows = [
        [name, call, str(ours[call]), str(its[call]), str(faster(ours[call], its[call]))]
        for call in beside(smoke)
        for name, its in times.items()
    ]
    header = ["beside", "n", "regard", "peer", "times as fast"]
    return f"## Beside others\n\n{HEADS} heads, D = 64, float32.\n\n{markdown(header, rows)}"


def beside(smoke: bool) -> list[str]:
    """Return the calls that are measured."""
    return ["128 full"] if smoke else ["128 full", "1024 full", "1024 causal", "4096 causal"]


def work(name: str, smoke: bool) -> None:
    """Run the process of one contestant."""
    calls = {}
    for call in beside(smoke):
        length, kind = call.split()
        q, k, v = inputs(int(length), 64)
        causal = kind == "causal"
        calls[call] = CONTESTANTS[name](q, k, v, causal)
        np.testing.assert_allclose(np.asarray(calls[call]()), of_lessons(q, k, v, causal), atol=1e-4, err_msg=name)
    answer(calls, ROUND)


def of_torch(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> Callable[[], object]:
    return partial(sdpa, *(torch.from_numpy(x) for x in (q, k, v)), is_causal=causal)


def of_jax(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> Callable[[], object]:
    import jax

    call = jax.jit(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=causal))
    arrays = [jax.numpy.asarray(np.ascontiguousarray(x.swapaxes(1, 2))) for x in (q, k, v)]  # B T H D
    return lambda: call(*arrays).block_until_ready().swapaxes(1, 2)


def of_onnx_runtime(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> Callable[[], object]:
    import onnx
    import onnxruntime

    shape = [1, q.shape[2], HEADS * q.shape[3]]
    node = onnx.helper.make_node(
        "MultiHeadAttention",
        ["q", "k", "v"],
        ["y"],
        domain="com.microsoft",
        num_heads=HEADS,
        unidirectional=int(causal),
    )
    of = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node], "attention", [of(name, onnx.TensorProto.FLOAT, shape) for name in "qkv"],
        [of("y", onnx.TensorProto.FLOAT, shape)],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {
        name: np.ascontiguousarray(x.swapaxes(1, 2).reshape(shape)) for name, x in zip("qkv", (q, k, v), strict=True)
    }
    return lambda: session.run(None, feed)[0].reshape(1, -1, HEADS, q.shape[3]).swapaxes(1, 2)


def of_lessons(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
    if causal:
        scores = np.where(np.tri(q.shape[-2], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    context: np.ndarray = weights @ v
    return context


CONTESTANTS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, bool], Callable[[], object]]] = {
    "regard": lambda q, k, v, causal: partial(regard.attention, q, k, v, causal=causal),
    "PyTorch": of_torch,
    "JAX": of_jax,
    "ONNX Runtime": of_onnx_runtime,
    "the lessons' NumPy": lambda q, k, v, causal: partial(of_lessons, q, k, v, causal),
}


def options(rounds: int, smoke: bool) -> str:
    """Return the table of what each argument costs beside the plain call of the same work."""
    length = 256 if smoke else 2048
    q, k, v = inputs(length, 64)
    ids = np.arange(length) // (length // 4)
    calls: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "causal, lse too": ({"causal": True}, {"causal": True}),
        "bias, n × n, one for all heads": ({"bias": draw(length, length)}, {}),
        "bias, n × n of each head": ({"bias": draw(HEADS, length, length)}, {}),
        "bias, one number for each key": ({"bias": draw(1, length)}, {}),
        "ALiBi": ({"bias": ALiBi(alibi_slopes(HEADS))}, {}),
        "mask, n × n": ({"mask": np.ones((length, length), bool)}, {}),
        "softcap": ({"softcap": 30.0}, {}),
        "sinks": ({"sinks": draw(HEADS)}, {}),
        "key lengths, all but one": ({"key_lengths": length - 1}, {}),
        "four segments": ({"mask": SegmentMask(ids)}, {"quarters": True}),
        "window of a quarter, causal": ({"causal": True, "window": (length // 4, 0)}, {"band": length // 4}),
    }
    rows = []
    quarter = [x[:, :, : length // 4] for x in (q, k, v)]
    for name, (given, like) in calls.items():
        plain: Callable[[], object]
        share = 1.0  # of the plain call's work
        if like.get("quarters"):
            plain, share = partial(regard.attention, *quarter), 4.0
        elif like.get("band"):
            width = like["band"]
            cells = width * (width + 1) / 2 + (length - width) * (width + 1)
            keys = round(cells / length)  # that a query attends to, on average
            share = cells / length / keys
            plain = partial(regard.attention, q, k[:, :, :keys], v[:, :, :keys])
        else:
            plain = partial(regard.attention, q, k, v, **like)
        call: Callable[[], object] = partial(regard.attention, q, k, v, **given)
        if name.endswith("lse too"):
            call = partial(regard.attention_partial, q, k, v, **given)
        times = alternate({"with": call, "plain": plain}, rounds)
        cost = Ratio([a / b / share for a, b in zip(times["with"].rounds, times["plain"].rounds, strict=True)])
        rows.append([name, str(times["with"]), f"{1e3 * share * times['plain'].median:,.3f} ms", str(cost)])
    header = ["", "with it", "plain, the same work", "times the cost"]
    return (
        f"## What arguments cost\n\n{HEADS} heads, n = {length:,}, D = 64. The segments are compared with calls of "
        f"their size, the window\nwith a call of as many keys as a query attends to on average.\n\n"
        f"{markdown(header, rows)}\n\n" + windows(rounds, smoke)
    )


def windows(rounds: int, smoke: bool) -> str:
    """Return how the cost of a causal window grows with the window."""
    length = 1024 if smoke else 8192
    q, k, v = (x[:, :1] for x in inputs(length, 64))
    widths = (128, 256, 512, 1024)
    times = alternate(
        {str(w): partial(regard.attention, q, k, v, causal=True, window=(w, 0)) for w in widths}
        | {"all": partial(regard.attention, q, k, v, causal=True)},
        rounds,
    )
    rows = [[name, str(t), f"{t.median / times['256'].median:.2f}"] for name, t in times.items()]
    return f"One head, n = {length:,}, causal:\n\n{markdown(['window', 'time', 'beside 256'], rows)}"


def decode(rounds: int, smoke: bool) -> str:
    """Return the table of one query on many keys."""
    rows = []
    for dim, keys in ((64, 1024),) if smoke else ((64, 4096), (64, 32768), (128, 4096), (128, 32768)):
        q, k, v = draw(1, 32, 1, dim), draw(1, 8, keys, dim), draw(1, 8, keys, dim)
        tensors = [torch.from_numpy(x) for x in (q, k, v)]
        times = alternate(
            {
                "regard": partial(regard.attention, q, k, v),
                "torch": partial(sdpa, *tensors, enable_gqa=True),
            },
            rounds,
        )
        speed = (k.nbytes + v.nbytes) / times["regard"].median / 1e9
        rows.append([
            str(dim), f"{keys:,}", str(times["regard"]), str(times["torch"]),
            str(faster(times["regard"], times["torch"])), f"{speed:.1f} GB/s",
        ])  # fmt: skip
    header = ["D", "keys", "regard", "PyTorch", "times as fast", "keys and values read"]
    return f"## One query\n\n32 heads on 8 key/value heads, float32.\n\n{markdown(header, rows)}"


def many_heads(rounds: int, smoke: bool) -> str:
    """Return the table of few queries of many heads, and of a cache in half precision."""
    keys = 256 if smoke else 2048
    q, k, v = draw(64, 1, 128), draw(4, keys, 128), draw(4, keys, 128)
    folded = q.reshape(4, 16, 128)
    times = alternate(
        {"64 on 4": partial(regard.attention, q, k, v), "by hand": partial(regard.attention, folded, k, v)}, rounds
    )
    rows = [
        ["one query, 64 heads on 4", str(times["64 on 4"]), "folded by hand to 4 heads of 16", str(times["by hand"]),
         str(faster(times["64 on 4"], times["by hand"]))],
    ]  # fmt: skip
    for dtype in (ml_dtypes.bfloat16, np.float16):
        q, k, v = draw(32, 1, 128), draw(8, 4 * keys, 128).astype(dtype), draw(8, 4 * keys, 128).astype(dtype)
        name, same = np.dtype(dtype).name, q.astype(dtype)
        times = alternate(
            {"mixed": partial(regard.attention, q, k, v), "same": partial(regard.attention, same, k, v)}, rounds
        )
        rows.append([
            f"float32 query, {name} cache of {4 * keys:,}", str(times["mixed"]), f"{name} throughout",
            str(times["same"]), str(faster(times["mixed"], times["same"])),
        ])  # fmt: skip
    header = ["", "time", "beside", "time", "times as fast"]
    return f"## One query: many heads, mixed precision\n\nD = 128.\n\n{markdown(header, rows)}"


def neighbouring_shapes(rounds: int, smoke: bool) -> str:
    """Return the largest jumps of the time of a multiply-add between neighbouring shapes, along each axis of a grid."""
    axes: dict[str, list[Any]] = {
        "heads on one": [1, 2, 4, 8, 9, 16, 17, 32],
        "queries": [1, 2, 4, 8, 9, 12, 13, 16, 17, 33, 64, 65],
        "keys": [64, 65, 96, 97, 512, 513, 2048],
        "D": [32, 48, 64, 65, 80, 128],
        "dtype": ["float32", "float16", "bfloat16"],
    }
    base: dict[str, Any] = {"heads on one": 4, "queries": 4, "keys": 1024, "D": 64, "dtype": "float32"}
    bases = (
        [base]
        if smoke
        else [base, base | {"queries": 1, "heads on one": 16}, base | {"queries": 64, "heads on one": 1}]
    )
    rows = []
    for at in bases:
        for axis, values in axes.items():
            spent = [cost(at | {axis: value}, 1 if smoke else min(rounds, 3)) for value in values]
            jumps = [(b / a, x, y) for a, b, x, y in zip(spent, spent[1:], values, values[1:], strict=False)]
            jump, one, other = max(jumps)
            rest = ", ".join(f"{name} {value}" for name, value in at.items() if name != axis)
            rows.append([axis, rest, f"{one} to {other}", f"{jump:.2f}"])
    rows.sort(key=lambda row: -float(row[-1]))
    header = ["along", "at", "worst jump", "times as long a multiply-add"]
    return (
        "## Neighbouring shapes\n\n4 key/value heads. Each row: the step along an axis after which a multiply-add "
        f"takes longest in comparison. The worst: {rows[0][0]}, {rows[0][2]}.\n\n{markdown(header, rows)}"
    )


def cost(shape: dict[str, Any], rounds: int) -> float:
    """Return the seconds of a multiply-add."""
    heads, queries, keys, dim, name = shape.values()
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    q, k, v = (x.astype(dtype) for x in (draw(4 * heads, queries, dim), draw(4, keys, dim), draw(4, keys, dim)))
    seconds = min(alternate({"": partial(regard.attention, q, k, v)}, rounds)[""].rounds)
    return float(seconds / (8 * heads * queries * keys * dim))


def half_precision(rounds: int, smoke: bool) -> str:
    """Return the table of bfloat16, and some of float16, beside float32 and PyTorch."""
    some = [(64, 512, False), (64, 2048, False), (64, 2048, True)]
    every = [(ml_dtypes.bfloat16, *shape) for shape in shapes(smoke)]
    every += [] if smoke else [(np.float16, *shape) for shape in some]
    rows, ratios = [], []
    for dtype, dim, length, causal in every:
        q, k, v = inputs(length, dim)
        half = [x.astype(dtype) for x in (q, k, v)]
        theirs = [torch.from_numpy(x).to(torch.float16 if dtype is np.float16 else torch.bfloat16) for x in (q, k, v)]
        times = alternate(
            {
                "half": partial(regard.attention, *half, causal=causal),
                "float32": partial(regard.attention, q, k, v, causal=causal),
                "torch": partial(sdpa, *theirs, is_causal=causal),
            },
            rounds,
        )
        ratio = faster(times["half"], times["torch"])
        ratios += [ratio] if dtype is ml_dtypes.bfloat16 else []
        computed = regard.explain_plan(*half, causal=causal).instruction_set
        rows.append([
            np.dtype(dtype).name, str(dim), f"{length:,}", "causal" if causal else "full", str(computed),
            str(times["half"]), str(times["torch"]), str(faster(times["half"], times["float32"])), str(ratio),
        ])  # fmt: skip
    header = [
        "",
        "D",
        "n",
        "",
        "products",
        "regard",
        "PyTorch",
        "times as fast as in float32",
        "times as fast as PyTorch",
    ]
    note = f"{HEADS} heads. bfloat16: {summary(ratios)} Products on AVX-512 or AVX2 are of float32."
    return f"## Half precision\n\n{note}\n\n{markdown(header, rows)}"


def memory(smoke: bool) -> str:
    """Return the peak memory of a long text, measured in a process of its own."""
    tokens = 16_384 if smoke else 131_072
    done = subprocess.run(
        [sys.executable, __file__, "--memory", str(tokens)], check=True, capture_output=True, text=True
    )
    return f"## Memory\n\nOne head, n = {tokens:,}, D = 64, above inputs and output: **{float(done.stdout):.1f} MB**."


def measure_memory(tokens: int) -> float:
    q, k, v = (draw(tokens, 64) for _ in range(3))
    regard.attention(q[:256], k[:256], v[:256])
    Path("/proc/self/clear_refs").write_text("5")  # the largest size so far is forgotten
    before = resident("VmRSS")
    output = regard.attention(q, k, v, causal=True, implementation="native")
    return resident("VmHWM") - before - float(output.nbytes) / 1e6


def resident(what: str) -> float:
    """Return a size of this process in MB, as Linux tells it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return float(next(line for line in status.splitlines() if line.startswith(what)).split()[1]) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="a short run that writes nothing")
    parser.add_argument("--memory", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--work", choices=CONTESTANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        print(measure_memory(arguments.memory))
        return
    if native.kernel() is None:
        sys.exit(native.unavailable_reason())
    torch.set_num_threads(THREADS)
    regard.set_num_threads(THREADS)
    if arguments.work:
        work(arguments.work, arguments.smoke)
        return
    smoke, rounds = arguments.smoke, 2 if arguments.smoke else 11
    kernel = native.kernel()
    parts = [
        "# Attention",
        f"{machine()}; {THREADS} threads each. {versions('numpy', 'torch', 'jax', 'onnxruntime')}.\n"
        f"The kernel runs on {kernel.instruction_set()}. Medians of {rounds} rounds that alternate, in brackets the "
        f"middle half of the rounds. Made by `nox -s bench`{priority()}, on {datetime.date.today()}.",
    ]
    for part in (forward, both_ways, options, decode, many_heads, neighbouring_shapes, half_precision, peers):
        parts.append(part(rounds, smoke))
        print(parts[-1], flush=True)
    parts.append(memory(smoke))
    text = "\n\n".join(parts) + "\n"
    print(parts[-1])
    if not smoke:
        write_results("attention.md", text)


if __name__ == "__main__":
    main()
