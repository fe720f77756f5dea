"""Random calls of the kernel, compared with the formula in higher precision: ``python FILE --cases 100000``.

A case is drawn from a seed and its number, so that a failure can be repeated alone (``--first N --cases 1``). What a
result may differ by is not chosen but derived, cell by cell, from the roundings that the formula needs: `allowed`.
"""

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from attention_cases import PATHS, Case, Sizes, chance, paged, random_case, small_sizes
from regard import attention, attention_partial, attention_varlen, explain_plan
from regard.functional import native

DTYPES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.float64))
# Before, at and after every border of vectors and blocks: 64 queries and 96 keys; split-KV: 8 rows, 512 keys.
BORDERS = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 192, 193)
MANY_KEYS = (255, 256, 257, 511, 512, 513, 528, 529, 1023, 1024, 1025, 1600)
FEATURES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 128)


@dataclass
class Call:
    """A case, its memory layout, and its dropout factors.

    `arrays` are q, k and v of the case in memory of any kind; `factors` multiply the weights.
    """

    case: Case
    arrays: tuple[np.ndarray, ...]
    options: dict[str, Any]
    factors: np.ndarray | float
    dropout: tuple[float, int] | None
    instruction_set: str
    threads: int
    tiles: str = "auto"

    def select(self) -> None:
        """Make the kernel use the instructions and the threads of this call."""
        native.kernel().use_instruction_set(self.instruction_set)
        native.kernel().use_tiles(self.tiles)
        native.set_num_threads(self.threads)

    def computes_in_bfloat16(self) -> bool:
        """Tell whether the products of `attention` are of bfloat16."""
        plan = explain_plan(*self.arrays, **self.arguments(), implementation="native")
        return plan.instruction_set not in native.kernel().instruction_sets()

    def arguments(self) -> dict[str, Any]:
        """Return the options, with a new generator each time, because a call draws from it."""
        if self.dropout is None:
            return self.options
        rate, seed = self.dropout
        return {**self.options, "dropout": rate, "rng": np.random.default_rng(seed)}


def draw(seed: int, number: int) -> Call:
    """Draw a call."""
    rng = np.random.default_rng([seed, number])
    dtype = DTYPES[int(rng.integers(len(DTYPES)))]
    extreme = float(10 ** rng.uniform(-3, 3.5))  # scores up to 1e4 and more
    case = random_case(rng, spread=extreme if chance(rng, 0.15) else None, sizes=sizes(rng))
    q, k, v = case.q, case.k, case.v * 10 ** (rng.uniform(-3, 3) if chance(rng, 0.2) else 0)
    if v.ndim > 2 and chance(rng, 0.15):  # values with fewer heads than keys, or larger batches
        v = v[..., :1, :, :]
    if v.ndim == 3 and chance(rng, 0.15):
        v = np.stack([v, -2 * v])
    q, k, v = (repeated(rng, x).astype(dtype) for x in (q, k, v))
    with_extremes(rng, case.attends, q, k, v)
    case = replace(case, q=q, k=k, v=v)

    options = dict(case.options)
    if isinstance(options.get("bias"), np.ndarray):
        bias = options["bias"].astype(dtype if chance(rng, 0.5) else np.float64)
        options["bias"] = laid_out(rng, bias)
        case = replace(case, added=np.broadcast_to(bias.astype(np.float64), case.attends.shape))
    if isinstance(options.get("mask"), np.ndarray):
        options["mask"] = laid_out(rng, options["mask"])
    dropout, factors = None, 1.0
    if chance(rng, 0.15):
        dropout = float(rng.choice([0.1, 0.5, 0.9])), int(rng.integers(1000))
        factors = dropout_factors(case.attends.shape, *dropout)
    sets = native.kernel().instruction_sets()
    arrays = tuple(laid_out(rng, x) for x in (q, k, v))
    name, threads = sets[int(rng.integers(len(sets)))], int(rng.integers(1, 5))
    tiles = native.kernel().tile_implementations()
    return Call(case, arrays, options, factors, dropout, name, threads, tiles[int(rng.integers(len(tiles)))])


def draw_extreme(seed: int, number: int) -> Call:
    """Draw a call with numbers of all magnitudes, up to the largest float and down to subnormals."""
    call = draw(seed, number)
    rng, case = np.random.default_rng([seed, number, 1]), call.case
    q, k, v = (of_any_magnitude(rng, x) for x in (case.q, case.k, case.v))
    options, added, sinks, softcap, scale = dict(call.options), case.added, case.sinks, case.softcap, case.scale
    if isinstance(options.get("bias"), np.ndarray):
        bias = options["bias"]
        options["bias"] = of_any_magnitude(rng, bias.astype(case.q.dtype if case.q.dtype != np.float16 else np.float32))
        added = np.broadcast_to(options["bias"].astype(np.longdouble), added.shape)
    if sinks is not None and chance(rng, 0.5):
        sinks = options["sinks"] = of_any_magnitude(rng, sinks.astype(np.float32))
    if softcap is not None and chance(rng, 0.5):
        softcap = options["softcap"] = float(10 ** rng.uniform(-30, 30))
    if chance(rng, 0.3):
        scale = options["scale"] = float(10 ** rng.uniform(-30, 30))
    case = replace(case, q=q, k=k, v=v, added=added, sinks=sinks, softcap=softcap, scale=scale)
    return replace(call, case=case, arrays=tuple(laid_out(rng, x) for x in (q, k, v)), options=options)


def of_any_magnitude(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Return numbers of another magnitude in the same dtype, which are finite where those of `x` are."""
    floats = ml_dtypes.finfo(x.dtype)
    largest, tiny, kind = np.longdouble(floats.max), np.longdouble(floats.tiny), rng.random()
    wide = np.where(np.isfinite(x), x, 0).astype(np.longdouble)
    if kind < 0.3:  # one power of ten
        wide = wide * 10 ** np.longdouble(rng.uniform(-30, 30))
    elif kind < 0.5:  # one for each number
        wide = wide * 10 ** rng.uniform(-30, 30, x.shape).astype(np.longdouble)
    elif kind < 0.8:  # near the largest
        ends = np.array([-1, -0.999, -0.5, -0.3, 0, 0.3, 0.5, 0.999, 1], np.longdouble)
        wide = rng.choice(ends if chance(rng, 0.5) else ends[5:], x.shape) * largest
    elif kind < 0.9:  # subnormals
        wide = wide * tiny
    with np.errstate(over="ignore", under="ignore"):
        found = np.clip(wide, -largest, largest).astype(np.float64).astype(x.dtype)
    return np.where(np.isfinite(x), found, x).astype(x.dtype)


def sizes(rng: np.random.Generator) -> Sizes:
    """Draw sizes: mostly small, some around block borders, some with few queries and many keys."""
    kind = rng.random()
    if kind < 0.5:
        return small_sizes(rng)
    dim, width = (int(rng.choice(FEATURES)) for _ in range(2))
    lead = () if chance(rng, 0.7) else (2,)
    groups, repeats = int(rng.integers(1, 3)), int(rng.choice([1, 1, 2, 3, 4]))
    if kind < 0.8:
        queries, keys = (int(rng.choice(BORDERS)) for _ in range(2))
        groups, repeats = (1, 1) if queries * keys > 10_000 else (groups, min(repeats, 2))
        return Sizes(lead, groups, repeats, queries, keys, dim, width)
    return Sizes(lead, groups, repeats, int(rng.integers(1, 10)), int(rng.choice(MANY_KEYS)), dim, width)


def repeated(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Return an array, sometimes constant along an axis."""
    if not chance(rng, 0.1):
        return x
    axis = int(rng.integers(x.ndim))
    return np.repeat(x.take([0], axis), x.shape[axis], axis)


def with_extremes(rng: np.random.Generator, attends: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> None:
    """Put infinities and NaN at masked keys, and sometimes at others."""
    worst = np.array([np.nan, np.inf, -np.inf])
    if chance(rng, 0.3):
        for x in (k, v):
            masked = unattended(attends, x.shape[:-1])
            x[masked] = rng.choice(worst, (*x[masked].shape,)).astype(x.dtype)
    if chance(rng, 0.1):
        v[rng.random(v.shape) < rng.choice([0.01, 0.3])] = rng.choice(worst)
    if chance(rng, 0.05):
        x = q if chance(rng, 0.5) else k
        x[rng.random(x.shape) < 0.05] = np.nan


def unattended(attends: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the vectors of an array ``... G S`` to which no query attends, given `attends`, ``... H T S``."""
    by_key = attends.any(-2)  # ... H S
    if by_key.ndim > 1:
        by_key = by_key.reshape(*by_key.shape[:-2], shape[-2], -1, by_key.shape[-1]).any(-2)
    return np.broadcast_to(~by_key, shape)


def laid_out(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Return the same values with other strides, alignment or byte order; gaps between them hold NaN."""
    kind = int(rng.integers(9))
    if kind == 1:
        return np.asfortranarray(x)
    if kind == 2:
        flipped = tuple(slice(None, None, -1) if chance(rng, 0.5) else slice(None) for _ in x.shape)
        return np.ascontiguousarray(x[flipped])[flipped]
    if kind == 3:
        steps = [int(rng.integers(1, 4)) for _ in x.shape]
        nothing = 99 if x.dtype == np.int8 else np.nan
        padded = np.full([n * step + 1 for n, step in zip(x.shape, steps, strict=True)], nothing).astype(x.dtype)
        part = padded[tuple(slice(1, 1 + n * step, step) for n, step in zip(x.shape, steps, strict=True))]
        part[...] = x
        return part
    if kind == 4:
        apart = np.ndarray(x.shape, x.dtype, bytearray(x.nbytes + 3), offset=int(rng.integers(1, 4)))
        apart[...] = x
        return apart
    if kind == 5 and x.dtype.kind == "f":
        return x.astype(x.dtype.newbyteorder("S"))
    if kind == 6:
        x = x.copy()
        x.flags.writeable = False
        return x
    if kind == 7:
        order = rng.permutation(x.ndim)
        return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    if kind == 8:  # constant axes broadcast
        one = x
        for axis in range(x.ndim):
            first = one.take([0], axis) if one.shape[axis] else one
            if np.array_equal(np.broadcast_to(first, one.shape), one):
                one = first
        return np.broadcast_to(one, x.shape)
    return x


def dropout_factors(shape: tuple[int, ...], rate: float, seed: int) -> np.ndarray:
    """Return the dropout factor of each weight, from the definition: SplitMix64 of the index of the cell."""
    mask, whole = 2**64 - 1, np.uint64
    bits = np.arange(np.prod(shape), dtype=whole) * whole(0x9E3779B97F4A7C15)
    bits += np.random.default_rng(seed).integers(2**64, dtype=whole)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9 & mask), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> whole(shift))) * whole(factor)
    bits ^= bits >> whole(31)
    return ((bits >> whole(11)).reshape(shape) >= whole(rate * 2**53)) / (1 - rate)


@dataclass
class Bounds:
    """Bounds of each result, in the precision of the oracle."""

    low: np.ndarray
    high: np.ndarray
    lse: np.ndarray
    lse_error: np.ndarray


def allowed(call: Call, *, extreme: bool = False, bfloat16: bool = False) -> Bounds:
    """Return the formula in higher precision, and bounds of the rounding errors.

    With u half a unit in the last place of 1, a dot product of D terms is off by at most D·u·Σ|q||k|, in whatever
    order; scale, softcap and bias add a few u of what they give. A weight exp(s − m) / Σ exp(s − m), in which s is off
    by d, lies between w·exp(±d) / Σ w·exp(∓d). The exponential, the shift and the sum over S keys, block by block,
    add 2|s − m|·u + (S + 20)·u to d.

    In products of `bfloat16` a weight is rounded to that: 2⁻⁸ more, and 2⁻¹⁷ of the exponential. Of products of float32
    below 2⁻¹²⁶ nothing is left.

    Of `extreme` numbers d can be larger than 1/2: which keys then have the weight is open, and the context is within
    the range of the values, but for (S + 20)·u in the sum of the weights and as much in the sum of the values.
    """
    case, dtype = call.case, call.case.q.dtype
    wide = np.longdouble if dtype == np.float64 else np.float64
    work = np.float64 if dtype == np.float64 else np.float32
    u = float(np.finfo(work).eps + np.finfo(wide).eps) / 2
    heads = case.q.shape[-3] if case.q.ndim > 2 else 1
    q, k, v = (x.astype(wide) for x in (case.q, case.k, case.v))
    k, v = (np.repeat(x, heads // x.shape[-3], -3) if x.ndim > 2 else x for x in (k, v))
    attends, added = case.attends, np.where(case.attends, case.added, 0).astype(wide)

    with np.errstate(invalid="ignore"):  # NaN and infinity are handled below
        scores = q @ k.swapaxes(-1, -2) * case.scale
        off = (q.shape[-1] + 2) * u * (abs(q) @ abs(k).swapaxes(-1, -2)) * abs(case.scale)
        if case.softcap is not None:
            scores = case.softcap * np.tanh(scores / case.softcap)
            off = off + 8 * u * abs(scores)
    off = off + u * (abs(scores) + 5 * abs(added))
    lost = (attends & np.isnan(scores)).any(-1)  # a row that attends to NaN is NaN
    known = attends & ~np.isnan(scores)
    scores = np.where(known, scores + added, -np.inf)
    sinks = np.full((heads, 1, 1), -np.inf) if case.sinks is None else case.sinks.astype(wide)[:, None, None]
    sinks = sinks[0] if scores.ndim == 2 else sinks
    highest = np.maximum(scores.max(-1, keepdims=True, initial=-np.inf), sinks)
    highest = np.where(highest == -np.inf, 0, highest)
    exponentials, of_sink = np.exp(scores - highest), np.exp(sinks - highest)
    in_weight = 2.0**-8 + 2.0**-17 if bfloat16 else 0
    off = off + u * (2 * abs(np.where(known, scores, highest) - highest) + scores.shape[-1] + 20) + in_weight
    off = np.where(known, off, 0)
    off_sink = np.where(of_sink > 0, u * (abs(np.where(of_sink > 0, sinks, 0)) + scores.shape[-1] + 20), 0)
    score_error = np.maximum(off.max(-1, initial=0), off_sink[..., 0])
    if extreme:
        off, off_sink = np.minimum(off, 0.5), np.minimum(off_sink, 0.5)
    total = exponentials.sum(-1, keepdims=True) + of_sink
    shrunk, grown = (exponentials * np.exp(sign * off) for sign in (-1, 1))
    ends = [end.sum(-1, keepdims=True) + of_sink * np.exp(sign * off_sink) for sign, end in ((-1, shrunk), (1, grown))]
    safe = np.where(total == 0, 1, total)
    weights = exponentials / safe
    most = grown / np.where(ends[0] == 0, 1, ends[0])
    least = shrunk / np.where(ends[1] == 0, 1, ends[1])
    with np.errstate(divide="ignore"):
        lse = (highest + np.log(total))[..., 0]
        lse_error = np.maximum(*(abs(np.log(end / safe)) for end in ends))[..., 0] + 2 * u * abs(lse)
    lse_error = np.where(total[..., 0] == 0, 0, lse_error)

    finite = np.where(np.isfinite(v), v, 0)
    context = weights * call.factors @ finite
    # Exponentials that underflow are lost: at most that fraction of the sum's minimum, 1 / safe.
    tiny = 8 * float(np.finfo(work).tiny) * (1 + 1 / safe) * abs(finite).sum(-2, keepdims=True)
    lost_of_product = float(np.finfo(work).tiny if bfloat16 else np.finfo(work).smallest_subnormal)
    tiny = tiny + (v.shape[-2] + 2) * (3 if bfloat16 else 1) * lost_of_product
    error = np.maximum(most - weights, weights - least) * call.factors @ abs(finite) * (1 + 4 * u) + tiny
    error = error + 4 * u * abs(context)
    low, high = context - error, context + error
    if extreme:
        open_rows = score_error > 0.5
        lse_error = np.where(open_rows, score_error, 0) + lse_error
        largest = np.finfo(np.float64).max  # of a log-sum-exp
        lse = np.where(np.isfinite(lse) | (lse > 0), np.clip(lse, -largest, largest), lse)
        factor = (1 + 2 * (scores.shape[-1] + 20) * u) * np.max(call.factors, initial=1)
        least, most = (how(finite, axis=-2, keepdims=True, initial=0) * factor for how in (np.min, np.max))
        low, high = (
            np.where(open_rows[..., None], x, bound) for x, bound in ((least - tiny, low), (most + tiny, high))
        )
    marks = [attends.astype(wide) @ (v == sign * np.inf).astype(wide) > 0 for sign in (1, -1)]
    marks.append(attends.astype(wide) @ np.isnan(v).astype(wide) > 0)
    low, high = (np.where(marks[0], np.inf, np.where(marks[1], -np.inf, x)) for x in (low, high))
    low, high = (np.where(lost[..., None] | marks[2] | (marks[0] & marks[1]), np.nan, x) for x in (low, high))
    return Bounds(low, high, np.where(lost, np.nan, lse), lse_error)


def rounded(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return values rounded to a dtype. Rounding is monotonic, so bounds remain bounds."""
    with np.errstate(over="ignore"):
        wide = x if dtype in (np.float32, np.float64) else x.astype(np.float64)  # of ml_dtypes
        return wide.astype(dtype).astype(x.dtype)


def fault(*calls: Call) -> str | None:
    """Return the first fault of the kernel's results, or None, of calls that compute the same case."""
    bounds, in_bfloat16 = allowed(calls[0]), None
    for call in calls:
        call.select()
        of_context = bounds
        if call.computes_in_bfloat16():
            of_context = in_bfloat16 = in_bfloat16 or allowed(call, bfloat16=True)
        if wrong := beyond(bounds, of_context, call):
            return wrong if len(calls) == 1 else f"{call.instruction_set}, bfloat16 in {call.tiles}: {wrong}"
    return None


def beyond(bounds: Bounds, of_context: Bounds, call: Call) -> str | None:
    """Return where the results of a call are beyond their bounds; those of `attention` have bounds of their own."""
    dtype = call.case.q.dtype
    ours = attention(*call.arrays, **call.arguments(), implementation="native")
    if ours.shape != bounds.low.shape or ours.dtype != dtype:
        return f"{ours.shape} of {ours.dtype}, not {bounds.low.shape} of {dtype}"
    short = dtype.itemsize == 2
    ends = (rounded(x, dtype) if short else x for x in (of_context.low, of_context.high))
    wrong = outside(ours, *ends)
    if wrong:
        return f"context {wrong}"
    part = attention_partial(*call.arrays, **call.arguments(), implementation="native")
    wrong = outside(part.output, bounds.low, bounds.high)
    if wrong:
        return f"context of attention_partial {wrong}"
    wrong = outside(
        np.broadcast_to(part.lse, bounds.lse.shape), bounds.lse - bounds.lse_error, bounds.lse + bounds.lse_error
    )
    if wrong:
        return f"lse {wrong}"
    native.set_num_threads(call.threads % 4 + 1)
    again = attention(*call.arrays, **call.arguments(), implementation="native")
    return None if ours.tobytes() == again.tobytes() else "other bits with another number of threads"


def fault_of_extremes(call: Call) -> str | None:
    """Return where a path is beyond its bounds, such as not finite where the exact result is; None if nowhere."""
    call.select()
    with np.errstate(all="ignore"):
        bounds, dtype = allowed(call, extreme=True), call.case.q.dtype
        of_tiles = allowed(call, extreme=True, bfloat16=True) if call.computes_in_bfloat16() else bounds
    for path in PATHS:
        output = attention(*call.arrays, **call.arguments(), implementation=path)
        of_context = of_tiles if path == "native" else bounds
        if wrong := outside(output, *(rounded(x, dtype) for x in (of_context.low, of_context.high))):
            return f"{path}: context {wrong}"
        part = attention_partial(*call.arrays, **call.arguments(), implementation=path)
        if wrong := outside(part.output, *(rounded(x, part.output.dtype) for x in (bounds.low, bounds.high))):
            return f"{path}: context of attention_partial {wrong}"
        lse = np.broadcast_to(part.lse, bounds.lse.shape)
        if wrong := outside(lse, *(rounded(bounds.lse + d, lse.dtype) for d in (-bounds.lse_error, bounds.lse_error))):
            return f"{path}: lse {wrong}"
    return None


def fault_of_varlen(seed: int, number: int) -> str | None:
    """Return where a batch of sequences is beyond the bounds of each; half of the batches have a paged cache."""
    rng = np.random.default_rng([seed, number, 2])
    dtype = DTYPES[int(rng.integers(len(DTYPES)))]
    groups, repeats = int(rng.integers(1, 3)), int(rng.choice([1, 2, 5]))
    dim, width, count = int(rng.choice(FEATURES)), int(rng.choice(FEATURES)), int(rng.integers(1, 5))
    of_q = rng.choice([0, 1, 1, 2, 9, 13, 64, 65, 130], count)
    of_k = rng.choice([0, 1, 5, 33, 65, 96, 97, 200, 513, 1030] if of_q.sum() < 100 else [0, 1, 65, 97, 200], count)
    starts_q, starts_k = (np.append(0, x.cumsum()) for x in (of_q, of_k))
    q = rng.standard_normal((starts_q[-1], groups * repeats, dim)).astype(dtype)
    k, v = (rng.standard_normal((starts_k[-1], groups, n)).astype(dtype) for n in (dim, width))
    v[rng.random(v.shape) < rng.choice([0, 0, 0, 1e-3])] = np.nan
    options: dict[str, Any] = {"causal": bool(chance(rng, 0.5))}
    left, right = (int(rng.choice([-1, 0, 3, 100])) for _ in range(2))
    options["window_size"] = left, right
    softcap = float(rng.uniform(0.5, 10)) if chance(rng, 0.3) else None
    slopes = rng.random((count, groups * repeats)) if chance(rng, 0.3) else np.zeros((count, groups * repeats))
    chunk = int(rng.choice([1, 7, 64, 100])) if chance(rng, 0.3) else 0
    sinks = rng.standard_normal(groups * repeats) * 3 if chance(rng, 0.3) else None
    options |= {"softcap": softcap or 0.0, "alibi_slopes": slopes if slopes.any() else None}
    options |= {"attention_chunk": chunk, "sinks": sinks}

    kept, given = [k, v], [k, v]  # as numbers, and as they are stored
    kind = int(rng.integers(4))
    if kind == 0 and dtype == np.float32:
        half = DTYPES[int(rng.integers(2))]
        given = kept = [x.astype(half) for x in kept]
    elif kind == 1:
        given = [rng.integers(-128, 128, x.shape).astype(np.int8) for x in kept]
        scales = [rng.random(x.shape[:2] if chance(rng, 0.5) else x.shape[1], np.float32) / 60 for x in given]
        wide = np.float64 if dtype == np.float64 else np.float32
        kept = [x.astype(wide) * scale[..., None] for x, scale in zip(given, scales, strict=True)]
        options |= dict(zip(("k_scale", "v_scale"), scales, strict=True))
    if chance(rng, 0.5):
        page_size = int(rng.choice([1, 3, 16, 64, 200]))

        def in_pages(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return paged(x, starts_k, page_size, spare=99 if x.dtype == np.int8 else np.nan)

        (_, table), given = in_pages(given[0]), [in_pages(x)[0] for x in given]
        options["block_table"] = np.where(table < 0, rng.choice([-1, 2**31 - 1]), table)
        each_token = [name for name in ("k_scale", "v_scale") if np.ndim(options.get(name)) == 2]
        options |= {name: in_pages(options[name])[0] for name in each_token}
    arrays = [laid_out(rng, x) for x in (q, *given)]
    sets = native.kernel().instruction_sets()
    native.kernel().use_instruction_set(sets[int(rng.integers(len(sets)))])
    native.set_num_threads(int(rng.integers(1, 5)))
    ours = attention_varlen(*arrays, starts_q, starts_k, **options, implementation="native")
    native.set_num_threads(native.num_threads() % 4 + 1)
    again = attention_varlen(*arrays, starts_q, starts_k, **options, implementation="native")
    if ours.tobytes() != again.tobytes():
        return "other bits with another number of threads"
    for n in range(count):
        rows, keys = slice(*starts_q[n : n + 2]), slice(*starts_k[n : n + 2])
        position, key = np.arange(of_q[n])[:, None] + of_k[n] - of_q[n], np.arange(of_k[n])
        attends = np.ones((groups * repeats, of_q[n], of_k[n]), bool)
        attends &= (key <= position) | (not options["causal"])
        attends &= ((left < 0) | (key >= position - left)) & ((right < 0) | (key <= position + right))
        attends &= (chunk == 0) | (position // (chunk or 1) == key // (chunk or 1))
        added = -slopes[n][:, None, None] * abs(position - key)
        each = [x.swapaxes(0, 1) for x in (q[rows], kept[0][keys], kept[1][keys])]
        case = Case(*each, {}, attends, added, dim**-0.5, softcap, sinks)
        bounds = allowed(Call(case, (), {}, 1.0, None, "", 1))
        ends = (rounded(x, dtype) if dtype.itemsize == 2 else x for x in (bounds.low, bounds.high))
        if wrong := outside(ours[rows].swapaxes(0, 1), *ends):
            return f"sequence {n} of {of_q} queries and {of_k} keys, {dtype}, {sorted(options)}: {wrong}"
    return None


def outside(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> str | None:
    """Return where values are out of bounds; a bound of NaN requires NaN."""
    given = x.astype(low.dtype)
    wrong = ~(((low <= given) & (given <= high)) | (np.isnan(low) & np.isnan(given)))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"at {at} ({wrong.sum()} of {wrong.size}): {given[at]!r} is not from {low[at]!r} to {high[at]!r}"


def fault_of(seed: int, number: int, kind: str = "plain") -> str | None:
    """Return what is wrong with a case of a kind: ``"plain"``, ``"extreme"`` or ``"varlen"``."""
    if kind == "varlen":
        return fault_of_varlen(seed, number)
    call = (draw_extreme if kind == "extreme" else draw)(seed, number)
    wrong = (fault_of_extremes if kind == "extreme" else fault)(call)
    if wrong is None:
        return None
    shapes = ", ".join(f"{name} {x.shape}" for name, x in zip("qkv", call.arrays, strict=True))
    asked = ", ".join([*call.options, *(["dropout"] if call.dropout else [])])
    return (
        f"{shapes} of {call.case.q.dtype}, {asked or 'plain'}, "
        f"{call.instruction_set}, bfloat16 in {call.tiles}, {call.threads} threads: {wrong}"
    )


def run(cases: int, seed: int, first: int = 0, progress: float | None = None, *, kind: str = "plain") -> list[str]:
    """Return the faults, a line for each case; print the progress every `progress` seconds."""
    kernel, failures = native.kernel(), []
    before = kernel.instruction_set(), native.num_threads()
    start = said = time.monotonic()
    try:
        for number in range(first, first + cases):
            wrong = fault_of(seed, number, kind)
            if wrong is not None:
                flag = "" if kind == "plain" else f"--{kind} "
                failures.append(f"{flag}--seed {seed} --first {number} --cases 1: {wrong}")
                if progress is not None:
                    print(failures[-1], flush=True)
            if progress is not None and time.monotonic() - said > progress:
                said = time.monotonic()
                print(f"{number + 1 - first:,} cases, {len(failures)} wrong, {said - start:.0f} s", flush=True)
    finally:
        kernel.use_instruction_set(before[0])
        kernel.use_tiles("auto")
        native.set_num_threads(before[1])
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    kinds = {"extreme": "numbers of all magnitudes, on every path", "varlen": "batches of sequences, and paged caches"}
    for kind, said in kinds.items():
        parser.add_argument(f"--{kind}", action="store_const", const=kind, default="plain", dest="kind", help=said)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    given = parser.parse_args()
    if native.kernel() is None:
        sys.exit(native.unavailable_reason())
    start = time.monotonic()
    failures = run(given.cases, given.seed, given.first, progress=30, kind=given.kind)
    print(f"{given.cases:,} cases, {len(failures)} wrong, {time.monotonic() - start:.0f} s")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
