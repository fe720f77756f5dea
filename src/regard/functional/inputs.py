"""One call of attention: the arguments that all its functions share, checked and made ready once."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack, get_args

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number
from regard.functional.arrays import (
    MAX_SIZE,
    Array,
    as_array,
    compute_dtype,
    device,
    is_floating,
    namespace,
    no_grad,
    result_dtype,
    widest_float,
)
from regard.functional.biases.base import Bias, DenseBias, as_bias
from regard.functional.biases.score_mod import ScoreMod, ScoreModFunction
from regard.functional.dropout import Dropout, make_dropout
from regard.functional.frameworks import framework_of
from regard.functional.masks.base import Mask, as_mask
from regard.functional.masks.block_mask import FunctionMask, MaskMod
from regard.functional.masks.structured import Causal, KeyLengths, SlidingWindow
from regard.functional.scores.layout import ScoreLayout, broadcasts

Implementation = Literal["auto", "reference", "blockwise", "native"]
IMPLEMENTATIONS = get_args(Implementation)
_MARGIN = 4  # how far below the largest float sums must stay, for rounding


class Options(TypedDict, total=False):
    """The keywords of `attention`, where each is documented, and of its companions."""

    mask: Array | Mask | MaskMod | None
    bias: Array | Bias | ScoreModFunction | None
    causal: bool
    query_offset: int | Array | None
    window: tuple[int | None, int | None] | None
    scale: float | None
    softcap: float | None
    sinks: Array | None
    key_lengths: int | Array | None
    dropout: float
    rng: np.random.Generator | None
    implementation: Implementation


_OPTION_NAMES = frozenset(Options.__annotations__)


MOST_ALIASED = 1 << 22  # bytes of queries that a recorder keeps as views of a product, values included


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """Validated arguments of `attention`."""

    q: Array  # ... H T D
    k: Array  # ... G S D
    v: Array  # ... G S Dv; None where only weights are computed
    layout: ScoreLayout  # shape and positions of the scores
    dtype: Any  # of the result
    scale: float
    softcap: float | None
    bias: Bias | None
    mask: Mask | None  # `mask`, `causal`, `window` and `key_lengths` together
    sinks: Array | None  # broadcasts to ... H 1 1
    dropout: Dropout | None
    implementation: Implementation
    may_alias: bool = False  # nothing else refers to q and k, so that a recorder may keep them without a copy

    @property
    def itemsize(self) -> int:
        """Bytes of a number of q."""
        return int(self.layout.xp.finfo(self.q.dtype).bits) // 8

    @functools.cached_property
    def context_shape(self) -> tuple[int, ...]:
        """``... H T Dv``; v may have leading axes that the scores do not have."""
        lead = self.layout.shape[:-2]
        values_lead = () if self.v.ndim == 2 else (*self.v.shape[:-3], self.layout.heads)
        if values_lead != lead:
            lead = _broadcast_shapes(lead, values_lead)
        return (*lead, self.layout.shape[-2], self.v.shape[-1])

    @property
    def compute_dtype(self) -> Any:
        """float32 for half precision, else the dtype of the result."""
        return compute_dtype(self.layout.xp, self.dtype)

    @property
    def parameters(self) -> dict[str, Array]:
        """The arrays that have gradients, by name: q, k, v, and the parameter of the bias and the sinks if given."""
        arrays = {"q": self.q, "k": self.k, "v": self.v, "sinks": self.sinks}
        arrays["bias"] = getattr(self.bias, "parameter", None)  # a custom bias may have none
        return {name: x for name, x in arrays.items() if x is not None}

    def with_parameters(self, changed: Mapping[str, Array]) -> AttentionInputs:
        """Return the inputs with some of `parameters` changed."""
        arrays = {name: x for name, x in changed.items() if name != "bias"}
        if "bias" in changed:
            assert self.bias is not None
            arrays["bias"] = self.bias.with_parameter(changed["bias"])
        return self.replace(**arrays)

    def to_compute_dtype(self) -> AttentionInputs:
        """Return the inputs with their arrays in the compute dtype."""
        return self.cast(compute_dtype(self.layout.xp, self.dtype))

    def upcast(self) -> AttentionInputs:
        """Return the inputs with their arrays in the widest float of the library."""
        wide = widest_float(self.layout.xp, self.layout.device)
        if self.layout.xp is np:
            wide = np.promote_types(self.compute_dtype, wide)  # longdouble stays
        return self.cast(wide)

    def cast(self, dtype: Any) -> AttentionInputs:
        """Return the inputs with their arrays in a dtype to compute in."""
        cast = {}
        for name, x in (("q", self.q), ("k", self.k), ("v", self.v), ("sinks", self.sinks)):
            if x is not None and x.dtype != dtype:
                cast[name] = self.layout.xp.astype(x, dtype, copy=False)
        return self.replace(**cast) if cast else self

    def replace(self, **changed: Any) -> AttentionInputs:
        """Return the inputs with some fields changed, unchecked."""
        assert changed.keys() <= AttentionInputs.__dataclass_fields__.keys(), f"unknown fields: {changed.keys()}"
        other = object.__new__(AttentionInputs)
        other.__dict__.update(self.__dict__, **changed)
        other.__dict__.pop("context_shape", None)  # computed from the fields
        return other


def validate_inputs(q: Array, k: Array, v: Array | None = None, **options: Unpack[Options]) -> AttentionInputs:
    """Return the arguments of `attention`, checked; q, k and v keep their dtype."""
    if not _OPTION_NAMES.issuperset(options):
        unknown, accepted = options.keys() - _OPTION_NAMES, ", ".join(Options.__annotations__)
        raise TypeError(
            f"attention has no argument {', '.join(map(repr, sorted(unknown)))}; its options are {accepted}"
        )
    if type(q) is type(k) is type(v) is np.ndarray and q.dtype is k.dtype is v.dtype and q.dtype.kind == "f":
        xp, dtype, where = np, q.dtype, None  # the usual case
        shape = _numpy_scores_shape(q.shape, k.shape, v.shape)
    else:
        q, k, v = as_array(q, "q"), as_array(k, "k"), None if v is None else as_array(v, "v")
        arrays = (q, k) if v is None else (q, k, v)
        xp, shapes = namespace(*arrays), [tuple(x.shape) for x in arrays]
        shape = (_numpy_scores_shape if xp is np else _scores_shape)(*shapes)  # other libraries may trace symbols
        dtype, where = result_dtype(*arrays), device(q)
    layout = ScoreLayout(xp, where, shape, options.get("query_offset"))
    mask, offset, window, lengths = map(options.get, ("mask", "query_offset", "window", "key_lengths"))
    bias, causal = options.get("bias"), options.get("causal", False)
    if causal is not False or not mask is bias is offset is window is lengths is None:
        mask, bias = _mask_and_bias(layout, options)
    scale, softcap, sinks = options.get("scale"), options.get("softcap"), options.get("sinks")
    rate, implementation = options.get("dropout", 0.0), options.get("implementation", "auto")
    if implementation not in IMPLEMENTATIONS:
        raise RegardError(f"implementation must be one of {', '.join(IMPLEMENTATIONS)}, got {implementation!r}")
    return AttentionInputs(
        q=q,
        k=k,
        v=v,
        layout=layout,
        dtype=dtype,
        scale=1 / math.sqrt(q.shape[-1] or 1) if scale is None else finite_number("scale", scale),
        softcap=None if softcap is None else _softcap(layout, softcap, dtype),
        bias=bias,
        mask=mask,
        sinks=None if sinks is None else _sinks(layout, sinks, compute_dtype(xp, dtype)),
        dropout=None if type(rate) is float and rate == 0 else make_dropout(rate, options.get("rng")),
        implementation=implementation,
    )


def _mask_and_bias(layout: ScoreLayout, options: Options) -> tuple[Mask | None, Bias | None]:
    """Return all masks as one, and the bias."""
    rules: list[Mask] = []
    if (mask := options.get("mask")) is not None:
        if not isinstance(mask, Mask | np.ndarray):
            mask = framework_of(mask).as_mask(mask)
        is_function = callable(mask) and not isinstance(mask, Mask)
        rules.append((FunctionMask(mask) if is_function else as_mask(mask)).to_namespace(layout))  # type: ignore[arg-type]
    causal = options.get("causal", False)
    if causal is True or (causal is not False and _flag("causal", causal)):
        rules.append(Causal())
    if (window := options.get("window")) is not None:
        rules.append(SlidingWindow(*_window_sides(window)))
    if (key_lengths := options.get("key_lengths")) is not None:
        rules.append(KeyLengths(key_lengths))
    mask = functools.reduce(operator.and_, rules) if rules else None
    if (bias := options.get("bias")) is not None:
        is_function = callable(bias) and not isinstance(bias, Bias)
        bias = (ScoreMod(bias) if is_function else as_bias(bias)).to_namespace(layout)  # type: ignore[arg-type]
    if (query_offset := options.get("query_offset")) is not None:
        layout.check_per_sequence(query_offset, "query_offset")
        if not any(rule is not None and rule.uses_positions for rule in (mask, bias)):
            raise RegardError(
                "query_offset sets the positions of the queries, but no argument depends on positions: "
                "give causal=True or a window too, or leave it out"
            )
    for rule in (mask, bias):
        if rule is not None:
            rule.check(layout)
    return mask, bias


@functools.lru_cache(1024)
def _numpy_scores_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return `_scores_shape` of arrays whose axes, empty ones aside, multiply to at most `MAX_SIZE`."""
    for name, shape in zip("qkv", shapes, strict=False):
        if math.prod(size or 1 for size in shape) > MAX_SIZE:
            raise RegardError(f"{name} {shape} is too large: its axes may multiply to 2^48")
    return _scores_shape(*shapes)


def _scores_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``... H T S`` for the shapes of q, k and v, if they match; the leading axes are those of q and k."""
    named = dict(zip("qkv", shapes, strict=False))
    for name, shape in named.items():
        if len(shape) < 2:
            raise RegardError(f"{name} {shape} needs at least two axes: positions and features")
    q, k, *v = shapes
    if q[-1] != k[-1]:
        raise RegardError(f"q {q} and k {k} need the same head dimension D (last axis)")
    if v and v[0][-2] != k[-2]:
        raise RegardError(f"k {k} and v {v[0]} need the same number of positions S (last but one axis)")
    queries, *groups = [shape[-3] if len(shape) > 2 else 1 for shape in shapes]
    for name, count in zip("kv", groups, strict=False):
        if count not in (1, queries) and (count == 0 or queries % count):
            raise RegardError(
                f"{queries} query heads cannot share {count} heads of {name}: the second must divide the first"
            )
    try:
        lead = _broadcast_shapes(*(shape[:-3] for shape in (q, k)))
        _broadcast_shapes(lead, *(shape[:-3] for shape in shapes))
    except ValueError:
        said = ", ".join(f"{name} {shape}" for name, shape in named.items())
        raise RegardError(f"the axes before heads, positions and features do not broadcast: {said}") from None
    cells = (q[-2], k[-2])  # numbers, or what a compiler of PyTorch leaves open
    return cells if len(q) == len(k) == 2 else (*lead, queries, *cells)


def _broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that all broadcast to; quickly where all are equal."""
    return shapes[0] if all([shape == shapes[0] for shape in shapes]) else np.broadcast_shapes(*shapes)  # noqa: C419


def _sinks(layout: ScoreLayout, sinks: Array, dtype: Any) -> Array:
    array = as_array(sinks, "sinks")
    if not is_floating(array):
        raise RegardError(f"sinks must be floating, got {array.dtype}")
    if not broadcasts(array.shape, layout.shape[:-2] or (1,)):
        raise RegardError(
            f"sinks {tuple(array.shape)} must have one number for each of the {layout.heads} heads of {layout.shape}"
        )
    array = layout.xp.astype(layout.to_namespace(array), dtype, copy=False)
    return layout.xp.reshape(array, (*array.shape, 1, 1) if len(layout.shape) > 2 else (1, 1))


def _softcap(layout: ScoreLayout, softcap: float, dtype: Any) -> float | None:
    """Return the softcap, at least one that can be divided by; None if no score can reach it."""
    softcap, floats = finite_number("softcap", softcap, positive=True), layout.xp.finfo(compute_dtype(layout.xp, dtype))
    return max(softcap, 4 * float(floats.smallest_normal)) if softcap <= float(floats.max) else None


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise RegardError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _window_sides(window: Any) -> tuple[int | None, int | None]:
    try:
        left, right = window
    except (TypeError, ValueError):
        raise RegardError(
            f"window must be (left, right), the counts of keys besides the query itself, None for all; got {window!r}"
        ) from None
    return left, right


def widened(p: AttentionInputs, d_output: Array | None = None) -> AttentionInputs:
    """Return inputs in the compute dtype, or in a wider one, of which the result is rounded once, if `may_overflow`."""
    p = p.to_compute_dtype()
    if not may_overflow(p, d_output):
        return p
    if p.q.dtype == np.float64 and p.layout.xp is np:
        return p.cast(np.longdouble if np.finfo(np.longdouble).maxexp > np.finfo(np.float64).maxexp else np.float64)
    return p.upcast() if p.q.dtype == p.layout.xp.float32 else p


def may_overflow(p: AttentionInputs, d_output: Array | None = None) -> bool:
    """Tell whether finite inputs, in the compute dtype, are so large that a sum in it could overflow.

    The sums are those of scores and of values, and with `d_output` those of the gradients. False while a library traces
    the call without values.
    """
    xp, (queries, keys) = p.layout.xp, p.layout.shape[-2:]
    with no_grad(xp):
        q, k, v = _largest(p.q, xp), _largest(p.k, xp), 0.0 if p.v is None else _largest(p.v, xp)
        scale, bias = max(1.0, abs(p.scale)), 0.0 if p.bias is None else _largest_bias(p)
        d_out = 0.0 if d_output is None else _largest(d_output, xp)
    scores = scale * (q * k * p.q.shape[-1]) + bias
    values = v * keys / (1.0 if p.dropout is None else 1 - p.dropout.rate)
    d_weights = d_out * (1 + v) * (queries + keys) * (1 if p.v is None else p.v.shape[-1])
    limit = float(xp.finfo(p.q.dtype).max) / _MARGIN
    return bool(max(abs(p.scale), scores, values, d_weights * (1 + q + k) * scale) >= limit)


def _largest(x: Array, xp: Any) -> float:
    """Return the largest magnitude of the finite numbers of `x`, 0 if there are none or while a library traces."""
    if 0 in x.shape:
        return 0.0
    try:
        largest = float(xp.max(xp.abs(x)))
        return (
            largest if math.isfinite(largest) else float(xp.max(xp.where(xp.isfinite(x), xp.abs(x), xp.zeros_like(x))))
        )
    except (TypeError, RuntimeError):  # JAX under jit; PyTorch under vmap
        return 0.0


def _largest_bias(p: AttentionInputs) -> float:
    parameter = getattr(p.bias, "parameter", None)  # a custom bias may have none
    if parameter is None:
        return 0.0
    return _largest(parameter, p.layout.xp) * (1 if isinstance(p.bias, DenseBias) else sum(p.layout.shape[-2:]))
