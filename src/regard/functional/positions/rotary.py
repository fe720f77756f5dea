"""Rotary position embeddings (RoPE): queries and keys rotated by their positions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.validation import finite_number, whole_number
from regard.functional.arrays import (
    Array,
    as_array,
    compute_dtype,
    device,
    namespace,
    result_dtype,
    to_device,
    widest_float,
)
from regard.functional.native import ops
from regard.functional.scores.layout import bounds_of, broadcasts
from regard.functional.variable import Pullback, is_recorded, record_vjp

_MAX_DIM = 1 << 24  # features, far more than any head has


def rotary(
    x: Array,
    positions: Array | None = None,
    *,
    base: float = 10_000.0,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    scaling: Mapping[str, Any] | None = None,
) -> Array:
    """Return queries or keys rotated by their positions, so that scores depend on relative positions.

    Pair i of the features is rotated by the angle position · base^(−2i/R). q · k then depends on the difference of the
    two positions only.

    Parameters
    ----------
    x : array, ``... T D``
        Queries or keys, one head or many.
    positions : integer array that broadcasts to ``... T``, optional
        0 to T − 1 by default. With heads and batch, ``B H T D``, positions of each entry are ``B 1 T``.
    base : float
        The longest wavelength is about 2π · base positions.
    rotary_dim : int, optional
        ``R``: only the first R of the D features are rotated; all by default.
    interleaved : bool
        The pairs are features (0, 1), (2, 3), …; otherwise the first half pairs with the second, (0, R/2), ….
    scaling : mapping, optional
        Context extension, as `rotary_frequencies` takes it.

    Returns
    -------
    array, shape and dtype of `x`
        Computed in float32 at least, with angles in float64 where available, and rounded once.

    References
    ----------
    Su et al. (2021), "RoFormer", https://arxiv.org/abs/2104.09864.

    Examples
    --------
    >>> import numpy as np
    >>> rotary(np.array([[1.0, 0.0], [1.0, 0.0]])).round(3)
    array([[1.   , 0.   ],
           [0.54 , 0.841]])
    """
    x = as_array(x, "x")
    xp = namespace(x)
    if x.ndim < 2:
        raise RegardError(f"x {tuple(x.shape)} needs at least two axes: positions and features")
    wide = widest_float(xp, device(x))
    length: int | None = int(x.shape[-2])
    if positions is None:
        positions = xp.arange(length, device=device(x))
    else:
        positions = to_device(xp, as_array(positions, "positions"), device(x))
        if not broadcasts(positions.shape, x.shape[:-1]):
            raise RegardError(
                f"positions {tuple(positions.shape)} do not broadcast to those of x {tuple(x.shape)}, "
                f"{tuple(x.shape[:-1])}; for x of shape B H T D give B 1 T"
            )
        bounds = bounds_of(positions) if _kind(scaling) == "dynamic" else None
        length = None if bounds is None else bounds[1] + 1
    rotated_dim = int(x.shape[-1]) if rotary_dim is None else rotary_dim
    frequencies, magnitude = rotary_frequencies(rotated_dim, base=base, scaling=scaling, length=length)
    angles = xp.astype(positions, wide)[..., None] * xp.asarray(frequencies, dtype=wide, device=device(x))
    return apply_rotary(x, xp.cos(angles) * magnitude, xp.sin(angles) * magnitude, interleaved=interleaved)


def apply_rotary(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Array:
    """Return `x` with each pair (a, b) of features rotated to (a cos − b sin, a sin + b cos).

    Parameters
    ----------
    x : array, ``... T D``
    cos, sin : array that broadcasts to ``... T R/2``
        Of the angle of each pair. Features from R on are unchanged.
    interleaved : bool
        As in `rotary`.
    """
    x, cos, sin = as_array(x, "x"), as_array(cos, "cos"), as_array(sin, "sin")
    xp, dtype = namespace(x, cos, sin), result_dtype(x)
    if x.ndim < 2 or cos.ndim < 1:
        raise RegardError(
            f"x {tuple(x.shape)} needs positions and features, and cos {tuple(cos.shape)} a last axis of pairs"
        )
    half, features = int(cos.shape[-1]), int(x.shape[-1])
    if 2 * half > features or cos.shape != sin.shape or not broadcasts(cos.shape[:-1], x.shape[:-1]):
        raise RegardError(f"x {tuple(x.shape)} cannot be rotated by cos {tuple(cos.shape)} and sin {tuple(sin.shape)}")
    work = compute_dtype(xp, dtype)
    x, cos, sin = xp.astype(x, dtype, copy=False), *(xp.astype(array, work, copy=False) for array in (cos, sin))
    y = ops.apply_rotary(x, cos, sin, interleaved)
    if y is not None:
        return y
    if is_recorded(x):
        return record_vjp(apply_rotary_vjp, x, cos, sin, interleaved=interleaved)
    x = xp.astype(x, work, copy=False)
    y, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        a, b = y[..., 0::2], y[..., 1::2]
        pairs = xp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1)  # ... T R/2 2
        y = xp.reshape(pairs, (*pairs.shape[:-2], 2 * half))
    else:
        a, b = y[..., :half], y[..., half:]
        y = xp.concat([a * cos - b * sin, a * sin + b * cos], axis=-1)
    if features > 2 * half:
        rest = xp.broadcast_to(rest, (*y.shape[:-1], rest.shape[-1]))
        y = xp.concat([y, rest], axis=-1)
    return xp.astype(y, dtype, copy=False)


def apply_rotary_vjp(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> tuple[Array, Pullback]:
    """Return `apply_rotary` and its vector-Jacobian product with respect to x: d rotated back, by −sin.

    The angles are not parameters: the pullback returns None for cos and sin.
    """
    y = apply_rotary(x, cos, sin, interleaved=interleaved)
    return y, lambda d: (apply_rotary(d, cos, -sin, interleaved=interleaved), None, None)


def rotary_pairs(head_dim: int, *, rotary_dim: int | None = None, interleaved: bool = False) -> list[tuple[int, ...]]:
    """Return the features that are rotated together: pairs, then the single features from `rotary_dim` on.

    Examples
    --------
    >>> rotary_pairs(6, rotary_dim=4)
    [(0, 2), (1, 3), (4,), (5,)]
    """
    rotated_dim = head_dim if rotary_dim is None else rotary_dim
    _check_even(rotated_dim)
    if rotated_dim > head_dim:
        raise RegardError(f"rotary_dim {rotated_dim} is larger than the head dimension {head_dim}")
    half = rotated_dim // 2
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + half) for i in range(half)]
    return [*pairs, *((i,) for i in range(rotated_dim, head_dim))]


def rotary_frequencies(
    rotary_dim: int,
    *,
    base: float = 10_000.0,
    scaling: Mapping[str, Any] | None = None,
    length: int | None = None,
) -> tuple[np.ndarray, float]:
    """Return the angle of each pair for one position, and the factor of cosine and sine.

    Parameters
    ----------
    rotary_dim : int
        ``R``, even.
    base : float
    scaling : mapping, optional
        The field ``rope_scaling`` of a model's configuration: ``rope_type`` and its parameters.

        * ``default``: none.
        * ``linear``: all angles divided by ``factor``.
        * ``dynamic``: the base grows with sequences longer than ``original_max_position_embeddings`` (needs `length`).
        * ``yarn``: low frequencies are divided by ``factor``, high ones kept, with a ramp between ``beta_fast`` and
          ``beta_slow`` rotations over the original length; cosine and sine are multiplied by ``attention_factor``.
        * ``llama3``: as yarn, with the ramp between ``low_freq_factor`` and ``high_freq_factor`` rotations.
        * ``proportional``: all angles divided by ``factor`` (1), and those after the first ``partial_rotary_factor``
          of them 0.
    length : int, optional
        Positions of the whole sequence, for ``dynamic``.

    Returns
    -------
    frequencies : float64 array, ``R/2``
    magnitude : float

    Raises
    ------
    RegardError
        The scaling has an unknown type, lacks a parameter or has an unknown one.

    References
    ----------
    Chen et al. (2023), "Extending context window", https://arxiv.org/abs/2306.15595 (linear); Peng et al. (2023),
    "YaRN", https://arxiv.org/abs/2309.00071 (dynamic and yarn); Llama 3.1 (llama3); Gemma 4 (proportional).
    """
    _check_even(rotary_dim)
    if finite_number("base", base) <= 1:
        raise RegardError(f"base must be a number above 1, got {base!r}")
    plain = base ** -(np.arange(0, rotary_dim, 2) / rotary_dim)
    length = None if length is None else whole_number("length", length, 0)
    if scaling is None:
        return plain, 1.0
    kind = _kind(scaling)
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise RegardError(f"unknown rope scaling {kind!r}; known are {', '.join(_SCALINGS)}")
    parameters = {name: value for name, value in scaling.items() if name not in ("rope_type", "type", "rope_theta")}
    function, accepted = _SCALINGS[kind], scaling_parameters(kind)
    needed = {name for name, is_needed in accepted.items() if is_needed}
    missing, unknown = sorted(needed - parameters.keys()), sorted(parameters.keys() - accepted.keys())
    if missing or unknown:
        raise RegardError(
            f"rope scaling {kind!r} "
            + " and ".join(
                f"{what} {', '.join(names)}" for what, names in (("lacks", missing), ("has unknown", unknown)) if names
            )
        )
    for name, value in parameters.items():
        if name != "truncate" and (value is not None or name in needed):
            finite_number(f"rope scaling's {name}", value, positive=True)
    return function(plain, base, length, **parameters)


def scaling_parameters(kind: Any) -> dict[str, bool]:
    """Return the parameters of a scaling of this type, and whether they must be given; none of an unknown type."""
    function = _SCALINGS.get(kind) if isinstance(kind, str) else None
    options = inspect.signature(function).parameters.values() if function else ()
    return {p.name: p.default is p.empty for p in options if p.kind is p.KEYWORD_ONLY}


def _kind(scaling: Mapping[str, Any] | None) -> Any:
    if scaling is None:
        return None
    if not isinstance(scaling, Mapping):
        raise RegardError(f"scaling must be a mapping, {{'rope_type': 'linear', 'factor': 2.0}}, got {scaling!r}")
    return scaling.get("rope_type", scaling.get("type"))


def _default(plain: np.ndarray, base: float, length: int | None) -> tuple[np.ndarray, float]:  # noqa: ARG001
    return plain, 1.0


def _linear(plain: np.ndarray, base: float, length: int | None, *, factor: float) -> tuple[np.ndarray, float]:  # noqa: ARG001
    return plain / factor, 1.0


def _dynamic(
    plain: np.ndarray, base: float, length: int | None, *, factor: float, original_max_position_embeddings: int
) -> tuple[np.ndarray, float]:
    if length is None:
        raise RegardError("dynamic rope scaling depends on the length of the sequence; give length")
    dim, original = 2 * len(plain), original_max_position_embeddings
    if dim == 2:
        return plain, 1.0  # the first pair rotates by one radian per position for any base
    stretch = factor * max(length, original) / original - (factor - 1)
    return (base * stretch ** (dim / (dim - 2))) ** -(np.arange(0, dim, 2) / dim), 1.0


def _yarn(
    plain: np.ndarray,
    base: float,
    length: int | None,  # noqa: ARG001
    *,
    factor: float,
    original_max_position_embeddings: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    attention_factor: float | None = None,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    truncate: bool = True,
) -> tuple[np.ndarray, float]:
    dim = 2 * len(plain)

    def pair_index(rotations: float) -> float:
        return dim * math.log(original_max_position_embeddings / (rotations * 2 * math.pi)) / (2 * math.log(base))

    def magnitude(weight: float = 1.0) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    low, high = pair_index(beta_fast), pair_index(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.clip((np.arange(len(plain)) - low) / (high - low if high != low else 0.001), 0, 1)
    if attention_factor is None:
        both = bool(mscale and mscale_all_dim)
        attention_factor = magnitude(mscale) / magnitude(mscale_all_dim) if both else magnitude()  # type: ignore[arg-type]
    return plain / factor * ramp + plain * (1 - ramp), attention_factor


def _llama3(
    plain: np.ndarray,
    base: float,  # noqa: ARG001
    length: int | None,  # noqa: ARG001
    *,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: int,
) -> tuple[np.ndarray, float]:
    if high_freq_factor < low_freq_factor:
        raise RegardError(f"high_freq_factor {high_freq_factor} must not be below low_freq_factor {low_freq_factor}")
    rotations = original_max_position_embeddings * plain / (2 * math.pi)  # of each pair over the original length
    if high_freq_factor == low_freq_factor:  # as in Llama 4: a step
        ramp = (rotations >= low_freq_factor).astype(plain.dtype)
    else:
        ramp = np.clip((rotations - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
    return plain / factor * (1 - ramp) + plain * ramp, 1.0


def _proportional(
    plain: np.ndarray,
    base: float,  # noqa: ARG001
    length: int | None,  # noqa: ARG001
    *,
    partial_rotary_factor: float = 1.0,
    factor: float = 1.0,
) -> tuple[np.ndarray, float]:
    if partial_rotary_factor > 1:
        raise RegardError(f"partial_rotary_factor must be at most 1, got {partial_rotary_factor}")
    is_turned = np.arange(len(plain)) < int(partial_rotary_factor * 2 * len(plain) // 2)
    return np.where(is_turned, plain / factor, 0.0), 1.0


_SCALINGS: dict[str, Callable[..., tuple[np.ndarray, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
    "proportional": _proportional,
}


def _check_even(rotary_dim: int) -> None:
    if not isinstance(rotary_dim, int | np.integer) or rotary_dim < 2 or rotary_dim % 2:
        raise RegardError(f"features rotate in pairs: rotary_dim must be even and at least 2, got {rotary_dim!r}")
    if rotary_dim > _MAX_DIM:
        raise RegardError(f"rotary_dim is at most {_MAX_DIM:,}, got {rotary_dim}")
