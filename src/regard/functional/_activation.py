"""The bends between two linear maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from regard._errors import RegardError
from regard._typing import Array
from regard.functional._arrays import as_array, compute_dtype, namespace, result_dtype


def gelu(x: Array, approximate: Literal["none", "tanh"] = "none") -> Array:
    """Return x · Φ(x): the input times the chance that a standard normal number is below it.

    Parameters
    ----------
    x : array, any shape
    approximate : {"none", "tanh"}
        ``"none"`` is exact, Φ(x) = erfc(−x/√2) / 2, accurate in the far negative tail too.
        ``"tanh"`` is the older formula x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), which some models
        (BERT's first code, GPT-2) were trained with.

    Returns
    -------
    array, shape of `x`

    References
    ----------
    Hendrycks and Gimpel (2016), "Gaussian error linear units", https://arxiv.org/abs/1606.08415.

    Examples
    --------
    >>> gelu([-1.0, 0.0, 1.0]).round(6)
    array([-0.158655,  0.      ,  0.841345])
    """
    if approximate not in ("none", "tanh"):
        raise RegardError(f'approximate is "none" or "tanh", not {approximate!r}')
    x = as_array(x, "x")
    xp = namespace(x)
    dtype = result_dtype(x)
    x = xp.astype(x, compute_dtype(xp, dtype), copy=False)
    half = xp.where(x == -xp.inf, xp.zeros_like(x), 0.5 * x)  # at −∞ the product's limit is 0
    x = xp.clip(x, -_FAR, _FAR)
    if approximate == "tanh":
        bent = half * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    else:
        bent = half * _erfc(x * -math.sqrt(0.5))
    return xp.astype(bent, dtype, copy=False)


def relu(x: Array) -> Array:
    """Return the larger of x and 0.

    References
    ----------
    Nair and Hinton (2010), "Rectified linear units improve restricted Boltzmann machines".
    """
    x = as_array(x, "x")
    xp = namespace(x)
    x = xp.astype(x, result_dtype(x), copy=False)
    return xp.where(x < 0, xp.zeros_like(x), x)


def activation(name: str) -> Callable[[Array], Array]:
    """Return the activation that model configurations call `name`.

    Raises
    ------
    RegardError
        The name is unknown.
    """
    known: dict[str, Callable[[Array], Array]] = {
        "gelu": gelu,
        "gelu_new": _gelu_tanh,
        "gelu_pytorch_tanh": _gelu_tanh,
        "relu": relu,
    }
    if name not in known:
        raise RegardError(f"unknown activation {name!r}; known are {', '.join(known)}")
    return known[name]


def _gelu_tanh(x: Array) -> Array:
    return gelu(x, "tanh")


_FAR = 250.0  # here Φ is 0 or 1 in any precision, and the powers of x are still far from overflow

# (z + 5/2) · exp(z²) · erfc(z) for z ≥ 0 as a Chebyshev series in t = (z − 5/2) / (z + 5/2), which brings the
# half line to −1 ≤ t < 1 (the substitution of Shepherd and Laframboise, Math. Comp. 36, 1981). The
# coefficients were computed with 60 digits; what is left out after 11 terms is below 2e-8, after 25 below 4e-17.
_ERFC_SERIES = (
    1.2902866648572717, -0.928062659632869, 0.2391465012523722, -0.040319600567842395,
    0.002772855388549252, 0.0004824705745218763, -0.00011487827843823175, -5.5181084826797454e-06,
    3.780394426025323e-06, 1.0549660085878431e-07, -1.3703150230603065e-07, -6.501049234463565e-09,
    5.393216976020352e-09, 5.528836177050437e-10, -2.083442698386716e-10, -4.2568142479038234e-11,
    6.354938032549719e-12, 2.8331013660882506e-12, -9.429320366899919e-15, -1.557240828525074e-13,
    -2.070492911150502e-14, 5.972542459247917e-15, 2.1577181412195315e-15, -8.266898428360053e-18,
    -1.3583108873730923e-16,
)  # fmt: skip


def _erfc(x: Array) -> Array:
    """Return 1 − erf(x), the complementary error function, accurate relative to its own size."""
    xp = namespace(x)
    series = _ERFC_SERIES[:11] if x.dtype == xp.float32 else _ERFC_SERIES
    z = xp.abs(x)
    t = 1 - 5 / (z + 2.5)
    ahead = later = xp.zeros_like(t)
    for coefficient in reversed(series[1:]):  # Clenshaw's recurrence
        ahead, later = 2 * t * ahead - later + coefficient, ahead
    upper = (t * ahead - later + series[0]) / (z + 2.5) * xp.exp(-z * z)
    return xp.where(x < 0, 2 - upper, upper)
