"""Where a token stands, as a rotation of its queries and keys (RoPE)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard._utils.validation import finite_number
from regard.functional.arrays import as_array, compute_dtype, device, namespace, result_dtype, widest_float
from regard.functional.native import ops
from regard.functional.score_layout import bounds_of, broadcasts


def rotary(
    x: Array,
    positions: Array | None = None,
    *,
    base: float = 10_000.0,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    scaling: Mapping[str, Any] | None = None,
) -> Array:
    """Return queries or keys turned by their positions, so that a score depends on the distance of two tokens.

    Pair i of the features is turned by the angle position · base^(−2i/R): fast for the first pairs, slow for the last.
    Since both are turned, q · k holds the difference of the two angles and so of the two positions.

    Parameters
    ----------
    x : array, ``... T D``
        Queries or keys, one head or many.
    positions : integer array that broadcasts to ``... T``, optional
        0 to T − 1 by default. With heads and batch, ``B H T D``, positions of each entry are ``B 1 T``.
    base : float
        The slowest pair turns once in about 2π · base positions.
    rotary_dim : int, optional
        ``R``: only the first R of the D features turn; all by default.
    interleaved : bool
        The pairs are features (0, 1), (2, 3), …; otherwise the first half pairs with the second, (0, R/2), ….
    scaling : mapping, optional
        How the model was stretched to longer texts, as `rotary_frequencies` takes it.

    Returns
    -------
    array, shape and dtype of `x`
        Computed in float32 at least, with angles in float64 where there is one, and rounded once.

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
        positions = xp.asarray(as_array(positions, "positions"), device=device(x))
        if not broadcasts(positions.shape, x.shape[:-1]):
            raise RegardError(
                f"positions {tuple(positions.shape)} do not broadcast to those of x {tuple(x.shape)}, "
                f"{tuple(x.shape[:-1])}; those of batch entries are B 1 T beside B H T D"
            )
        bounds = bounds_of(positions) if _kind(scaling) == "dynamic" else None
        length = None if bounds is None else bounds[1] + 1
    turned = int(x.shape[-1]) if rotary_dim is None else rotary_dim
    frequencies, magnitude = rotary_frequencies(turned, base=base, scaling=scaling, length=length)
    angles = xp.astype(positions, wide)[..., None] * xp.asarray(frequencies, dtype=wide, device=device(x))
    return apply_rotary(x, xp.cos(angles) * magnitude, xp.sin(angles) * magnitude, interleaved=interleaved)


def apply_rotary(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Array:
    """Return `x` with each pair (a, b) of features turned to (a cos − b sin, a sin + b cos).

    Parameters
    ----------
    x : array, ``... T D``
    cos, sin : array that broadcasts to ``... T R/2``
        Of the angle of each pair. The features from R on stay as they are.
    interleaved : bool
        The pairs are features (0, 1), (2, 3), …; otherwise the first half pairs with the second, (0, R/2), ….
    """
    x, cos, sin = as_array(x, "x"), as_array(cos, "cos"), as_array(sin, "sin")
    xp, dtype = namespace(x, cos, sin), result_dtype(x)
    if x.ndim < 2 or cos.ndim < 1:
        raise RegardError(f"x {tuple(x.shape)} needs positions and features, and cos {tuple(cos.shape)} pairs of them")
    half, features = int(cos.shape[-1]), int(x.shape[-1])
    if 2 * half > features or cos.shape != sin.shape or not broadcasts(cos.shape[:-1], x.shape[:-1]):
        raise RegardError(f"x {tuple(x.shape)} cannot be turned by cos {tuple(cos.shape)} and sin {tuple(sin.shape)}")
    work = compute_dtype(xp, dtype)
    x, cos, sin = xp.astype(x, dtype, copy=False), *(xp.astype(array, work, copy=False) for array in (cos, sin))
    asked = ops.apply_rotary(x, cos, sin, interleaved)
    if asked is not None:
        return asked
    wide = xp.astype(x, work, copy=False)
    turned, rest = wide[..., : 2 * half], wide[..., 2 * half :]
    if interleaved:
        a, b = turned[..., 0::2], turned[..., 1::2]
        pairs = xp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1)  # ... T R/2 2
        turned = xp.reshape(pairs, (*pairs.shape[:-2], 2 * half))
    else:
        a, b = turned[..., :half], turned[..., half:]
        turned = xp.concat([a * cos - b * sin, a * sin + b * cos], axis=-1)
    if features > 2 * half:
        rest = xp.broadcast_to(rest, (*turned.shape[:-1], rest.shape[-1]))
        turned = xp.concat([turned, rest], axis=-1)
    return xp.astype(turned, dtype, copy=False)


def rotary_pairs(head_dim: int, *, rotary_dim: int | None = None, interleaved: bool = False) -> list[tuple[int, ...]]:
    """Return which features turn together: pairs, then the features from `rotary_dim` on, which do not turn.

    Examples
    --------
    >>> rotary_pairs(6, rotary_dim=4)
    [(0, 2), (1, 3), (4,), (5,)]
    """
    turned = head_dim if rotary_dim is None else rotary_dim
    _check_even(turned)
    if turned > head_dim:
        raise RegardError(f"rotary_dim {turned} is larger than the head dimension {head_dim}")
    half = turned // 2
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + half) for i in range(half)]
    return [*pairs, *((i,) for i in range(turned, head_dim))]


def rotary_frequencies(
    rotary_dim: int,
    *,
    base: float = 10_000.0,
    scaling: Mapping[str, Any] | None = None,
    length: int | None = None,
) -> tuple[np.ndarray, float]:
    """Return the angle of each pair for one position, and the factor by which cosine and sine are multiplied.

    Parameters
    ----------
    rotary_dim : int
        ``R``, even.
    base : float
    scaling : mapping, optional
        As the field ``rope_scaling`` of a model's configuration has it: ``rope_type`` and its numbers.

        * ``default``: none.
        * ``linear``: all angles divided by ``factor``.
        * ``dynamic``: the base grows with a text longer than ``original_max_position_embeddings`` (needs `length`).
        * ``yarn``: slow pairs are divided by ``factor``, fast ones stay, with a ramp between ``beta_fast`` and
          ``beta_slow`` turns; cosine and sine grow by ``attention_factor``.
        * ``llama3``: as yarn, with the ramp between ``low_freq_factor`` and ``high_freq_factor`` of the wavelength.
    length : int, optional
        Positions of the whole text, for ``dynamic``.

    Returns
    -------
    frequencies : float64 array, ``R/2``
    magnitude : float

    Raises
    ------
    RegardError
        The scaling is of an unknown type, lacks a number or has one that its type does not know.

    References
    ----------
    Chen et al. (2023), "Extending context window", https://arxiv.org/abs/2306.15595 (linear); Peng et al. (2023),
    "YaRN", https://arxiv.org/abs/2309.00071 (dynamic and yarn); Llama 3.1 (llama3).
    """
    _check_even(rotary_dim)
    if finite_number("base", base) <= 1:
        raise RegardError(f"base must be a number above 1, got {base!r}")
    plain = base ** -(np.arange(0, rotary_dim, 2) / rotary_dim)
    if scaling is None:
        return plain, 1.0
    kind = _kind(scaling)
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise RegardError(f"unknown rope scaling {kind!r}; known are {', '.join(_SCALINGS)}")
    numbers = {name: value for name, value in scaling.items() if name not in ("rope_type", "type", "rope_theta")}
    needed, optional, function = _SCALINGS[kind]
    missing, unknown = sorted(needed - numbers.keys()), sorted(numbers.keys() - needed - optional)
    if missing or unknown:
        raise RegardError(
            f"rope scaling {kind!r} "
            + " and ".join(
                f"{what} {', '.join(names)}" for what, names in (("lacks", missing), ("knows no", unknown)) if names
            )
        )
    for name, value in numbers.items():
        if name != "truncate" and (value is not None or name in needed):
            finite_number(f"rope scaling's {name}", value, positive=True)
    frequencies, magnitude = function(plain, base, length, **numbers)
    return frequencies, magnitude


def _kind(scaling: Mapping[str, Any] | None) -> Any:
    if scaling is None:
        return None
    if not isinstance(scaling, Mapping):
        raise RegardError(f"scaling is a mapping, {{'rope_type': 'linear', 'factor': 2.0}}, got {scaling!r}")
    return scaling.get("rope_type", scaling.get("type"))


def _default(plain: np.ndarray, base: float, length: int | None) -> tuple[np.ndarray, float]:  # noqa: ARG001
    return plain, 1.0


def _linear(plain: np.ndarray, base: float, length: int | None, *, factor: float) -> tuple[np.ndarray, float]:  # noqa: ARG001
    return plain / factor, 1.0


def _dynamic(
    plain: np.ndarray, base: float, length: int | None, *, factor: float, original_max_position_embeddings: int
) -> tuple[np.ndarray, float]:
    if length is None:
        raise RegardError("dynamic rope scaling depends on the length of the text; give length")
    dim, original = 2 * len(plain), original_max_position_embeddings
    if dim == 2:
        return plain, 1.0  # the first pair turns by one radian whatever the base
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

    def pair_that_turns(times: float) -> float:
        return dim * math.log(original_max_position_embeddings / (times * 2 * math.pi)) / (2 * math.log(base))

    def magnitude(weight: float = 1.0) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    low, high = pair_that_turns(beta_fast), pair_that_turns(beta_slow)
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
    if high_freq_factor <= low_freq_factor:
        raise RegardError(f"high_freq_factor {high_freq_factor} must be above low_freq_factor {low_freq_factor}")
    turns = original_max_position_embeddings * plain / (2 * math.pi)  # of each pair over the original length
    kept = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
    return plain / factor * (1 - kept) + plain * kept, 1.0


_STRETCHED = frozenset({"factor", "original_max_position_embeddings"})
_SCALINGS: dict[Any, tuple[frozenset[str], frozenset[str], Any]] = {
    "default": (frozenset(), frozenset(), _default),
    "linear": (frozenset({"factor"}), frozenset(), _linear),
    "dynamic": (_STRETCHED, frozenset(), _dynamic),
    "yarn": (
        _STRETCHED,
        frozenset({"beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"}),
        _yarn,
    ),
    "llama3": (_STRETCHED | {"low_freq_factor", "high_freq_factor"}, frozenset(), _llama3),
}


def _check_even(rotary_dim: int) -> None:
    if not isinstance(rotary_dim, int | np.integer) or rotary_dim < 2 or rotary_dim % 2:
        raise RegardError(f"features turn in pairs: rotary_dim must be even and at least 2, got {rotary_dim!r}")
