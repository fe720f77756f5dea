"""One call of attention: the arguments that all its functions share, checked and made ready once."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional.arrays import (
    as_array,
    compute_dtype,
    device,
    is_floating,
    namespace,
    result_dtype,
    widest_float,
)
from regard.functional.biases import Bias, as_bias, unbroadcast
from regard.functional.dropout import Dropout, dropout_of
from regard.functional.masks import Causal, KeyLengths, Mask, SlidingWindow, as_mask, both
from regard.functional.score_layout import ScoreLayout, broadcasts

Implementation = Literal["auto", "reference", "blockwise", "native"]


class Options(TypedDict, total=False):
    """The keywords of `attention`, which says what each means; its companions take them too."""

    mask: Array | Mask | None
    bias: Array | Bias | None
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


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """Arrays, and the rules by which their scores become weights.

    Parameters
    ----------
    q, k : array, ``... H T D`` and ``... G S D``
    v : array, ``... G S Dv``; None where only weights are asked for
    layout : ScoreLayout
        The cells of the scores.
    dtype
        Of the result.
    scale : float
    softcap : float or None
    bias : Bias or None
    mask : Mask or None
        All that hides by position: `mask`, `causal`, `window` and `key_lengths` together.
    sinks : array that broadcasts to ``... H 1 1``, or None
    dropout : Dropout or None
    implementation : str
    may_alias : bool
        Whether nobody else holds q and k, so that a recorder may keep them as they are.
    """

    q: Array
    k: Array
    v: Array
    layout: ScoreLayout
    dtype: Any
    scale: float
    softcap: float | None
    bias: Bias | None
    mask: Mask | None
    sinks: Array | None
    dropout: Dropout | None
    implementation: Implementation
    may_alias: bool = False

    @functools.cached_property
    def context_shape(self) -> tuple[int, ...]:
        """``... H T Dv``; v may have leading axes that the scores do not have."""
        lead = _broadcast_shapes(
            self.layout.shape[:-2], (*self.v.shape[:-3], *((self.layout.heads,) if self.v.ndim > 2 else ()))
        )
        return (*lead, self.layout.queries, int(self.v.shape[-1]))

    @property
    def compute_dtype(self) -> Any:
        """The dtype to compute in: float32 for the two short float types."""
        return compute_dtype(self.layout.xp, self.dtype)

    def to_compute_dtype(self) -> AttentionInputs:
        """Return the same problem with its arrays in the dtype to compute in."""
        return self._in(self.compute_dtype)

    def upcast(self) -> AttentionInputs:
        """Return the same problem, to be computed in the widest floats there are."""
        wide = widest_float(self.layout.xp, self.layout.device)
        if self.layout.xp is np:
            wide = np.promote_types(self.compute_dtype, wide)  # a longer one than float64 stays
        return self._in(wide)

    def _in(self, dtype: Any) -> AttentionInputs:
        if self.q.dtype == self.k.dtype == dtype and all(x is None or x.dtype == dtype for x in (self.v, self.sinks)):
            return self
        q, k, v, sinks = (
            None if x is None else self.layout.xp.astype(x, dtype, copy=False)
            for x in (self.q, self.k, self.v, self.sinks)
        )
        return self.replace(q=q, k=k, v=v, sinks=sinks)

    def replace(self, **changed: Any) -> AttentionInputs:
        """Return the same problem with some fields changed; nothing is checked again."""
        assert changed.keys() <= AttentionInputs.__dataclass_fields__.keys(), (
            f"no fields of a problem: {changed.keys()}"
        )
        other = object.__new__(AttentionInputs)
        other.__dict__.update(self.__dict__, **changed)
        other.__dict__.pop("context_shape", None)  # may not hold any more
        return other


def problem(q: Array, k: Array, v: Array | None = None, **options: Unpack[Options]) -> AttentionInputs:
    """Return the checked arguments of `attention` with arrays in the dtype to compute in.

    Raises
    ------
    RegardError
        What is wrong and what to do.
    """
    return validate_inputs(q, k, v, **options).to_compute_dtype()


def validate_inputs(
    q: Array,
    k: Array,
    v: Array | None = None,
    *,
    mask: Array | Mask | None = None,
    bias: Array | Bias | None = None,
    causal: bool = False,
    query_offset: int | Array | None = None,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    key_lengths: int | Array | None = None,
    dropout: float = 0.0,
    rng: np.random.Generator | None = None,
    implementation: Implementation = "auto",
    **unknown: Any,
) -> AttentionInputs:
    """Return what `problem` does, with q, k and v as they are given."""
    if unknown:
        known = ", ".join(Options.__annotations__)
        raise TypeError(f"attention has no argument {', '.join(map(repr, unknown))}; its options are {known}")
    q, k, v = as_array(q, "q"), as_array(k, "k"), None if v is None else as_array(v, "v")
    arrays = (q, k) if v is None else (q, k, v)
    xp, shapes = namespace(*arrays), [tuple(x.shape) for x in arrays]
    shape = (_scores_shape if xp is np else _scores_shape.__wrapped__)(*shapes)  # not every library's are numbers
    dtype = result_dtype(*arrays)
    work = compute_dtype(xp, dtype)

    layout = ScoreLayout(xp, device(q), shape, query_offset)
    rule = both(
        None if mask is None else as_mask(mask).to_namespace(layout),
        Causal() if _flag("causal", causal) else None,
        None if window is None else SlidingWindow(*_sides(window)),
        None if key_lengths is None else KeyLengths(key_lengths),
    )
    added = None if bias is None else as_bias(bias).to_namespace(layout)
    if query_offset is not None:
        layout.check_entries(query_offset, "query_offset")
        if not (rule is not None and rule.uses_positions) and not (added is not None and added.uses_positions):
            raise RegardError(
                "query_offset says at which position the queries stand, but nothing here asks for it: "
                "give causal=True or a window too, or leave it out"
            )
    for part in (rule, added):
        if part is not None:
            part.check(layout)
    if implementation not in ("auto", "reference", "blockwise", "native"):
        raise RegardError(f"implementation must be auto, reference, blockwise or native, got {implementation!r}")
    return AttentionInputs(
        q=q,
        k=k,
        v=v,
        layout=layout,
        dtype=dtype,
        scale=1 / math.sqrt(q.shape[-1] or 1) if scale is None else number("scale", scale),
        softcap=None if softcap is None else _cap(xp, number("softcap", softcap, positive=True), work),
        bias=added,
        mask=rule,
        sinks=None if sinks is None else _sinks(layout, sinks, work),
        dropout=dropout_of(dropout, rng),
        implementation=implementation,
    )


def heads(x: Array) -> int:
    """Return the number of heads of ``... H T D``; a plain ``T D`` is one."""
    return int(x.shape[-3]) if x.ndim > 2 else 1


def repeat_kv(x: Array, num_heads: int) -> Array:
    """Return ``... G S D`` as ``... H S D``: each key/value head repeated for the H/G query heads it serves."""
    groups = heads(x)
    if groups in (1, num_heads) or num_heads == 1:
        return x  # one head broadcasts by itself
    return namespace(x).repeat(x, num_heads // groups, axis=-3)


def sum_over_query_groups(x: Array, shape: tuple[int, ...]) -> Array:
    """Return ``... H S D`` as `shape`, ``... G S D``: what the heads have in common summed, as are leading axes."""
    groups = shape[-3] if len(shape) > 2 else 1
    if x.ndim > 2 and groups not in (1, x.shape[-3]):
        xp = namespace(x)
        x = xp.sum(xp.reshape(x, (*x.shape[:-3], groups, -1, *x.shape[-2:])), axis=-3)
    return unbroadcast(x, shape)


@functools.lru_cache(1024)
def _scores_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``... H T S`` of the shapes of q, k and v, if they fit; the leading axes are those of q and k alone."""
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
    cells = (int(q[-2]), int(k[-2]))
    return cells if len(q) == len(k) == 2 else (*lead, int(queries), *cells)


def _broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that all broadcast to; at once where it is that of each, as nearly always."""
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


def _cap(xp: Any, softcap: float, dtype: Any) -> float | None:
    """Return the softcap; None where it is larger than any score can be."""
    return softcap if softcap <= float(xp.finfo(dtype).max) else None


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise RegardError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def number(name: str, value: Any, *, positive: bool = False) -> float:
    """Return `value` as a float; complain unless it is a finite number."""
    if getattr(value, "requires_grad", False):
        raise RegardError(f"{name} is a plain number, of which no gradient is taken; to learn it, multiply q with it")
    try:
        found = math.nan if isinstance(value, str | bool | np.bool_) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found) or (positive and found <= 0):
        raise RegardError(f"{name} must be a finite{' positive' if positive else ''} number, got {value!r}")
    return found


def _sides(window: Any) -> tuple[int | None, int | None]:
    try:
        left, right = window
    except (TypeError, ValueError):
        raise RegardError(
            f"window must be (left, right), the counts of keys besides the query itself, None for all; got {window!r}"
        ) from None
    return left, right
