"""The bends between two linear maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from regard._utils.errors import RegardError
from regard._utils.typing import Array
from regard.functional.arrays import as_array, compute_dtype, namespace, result_dtype
from regard.functional.native import ops


def gelu(x: Array, approximate: Literal["none", "tanh"] = "none", *, bias: Array | None = None) -> Array:
    """Return x · Φ(x): the input times the chance that a standard normal number is below it.

    Parameters
    ----------
    x : array, any shape
    approximate : {"none", "tanh"}
        ``"none"`` is exact, Φ(x) = erfc(−x/√2) / 2, accurate in the far negative tail too.
        ``"tanh"`` is the older formula x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), which some models
        (BERT's first code, GPT-2) were trained with.
    bias : array, ``F`` for x ``... F``, optional
        Added to x first: that of the linear map before.

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
    asked = _asked("gelu" if approximate == "none" else "gelu_tanh", x, (), (bias,))
    if asked is not None:
        return asked
    (x,), dtype = _checked({"x": x}, {"bias": bias})
    xp = namespace(x)
    half = 0.5 * _finite_below(x)
    x = xp.clip(x, -_FAR, _FAR)
    if approximate == "tanh":
        bent = half * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    else:
        bent = half * _erfc(x * -math.sqrt(0.5))
    return xp.astype(bent, dtype, copy=False)


def silu(x: Array, *, bias: Array | None = None) -> Array:
    """Return x / (1 + exp(−x)), also called swish: the input times its logistic share.

    Parameters
    ----------
    x : array, any shape
    bias : array, ``F`` for x ``... F``, optional
        Added to x first.

    Returns
    -------
    array, shape of `x`

    References
    ----------
    Elfwing, Uchibe and Doya (2017), "Sigmoid-weighted linear units", https://arxiv.org/abs/1702.03118.

    Examples
    --------
    >>> silu([-1.0, 0.0, 1.0]).round(6)
    array([-0.268941,  0.      ,  0.731059])
    """
    asked = _asked("silu", x, (), (bias,))
    if asked is not None:
        return asked
    (x,), dtype = _checked({"x": x}, {"bias": bias})
    return namespace(x).astype(_silu(x), dtype, copy=False)


def swiglu(gate: Array, up: Array, *, gate_bias: Array | None = None, up_bias: Array | None = None) -> Array:
    """Return silu(gate) × up: one linear map of the input says how much of another goes on.

    Parameters
    ----------
    gate, up : array, ``... F``
    gate_bias, up_bias : array, ``F``, optional
        Added to each first.

    Returns
    -------
    array, ``... F``

    References
    ----------
    Shazeer (2020), "GLU variants improve Transformer", https://arxiv.org/abs/2002.05202.

    Examples
    --------
    >>> swiglu([1.0, 2.0], [3.0, 0.0]).round(6)
    array([2.193176, 0.      ])
    """
    asked = _asked("swiglu", gate, (up,), (gate_bias, up_bias))
    if asked is not None:
        return asked
    (gate, up), dtype = _checked({"gate": gate, "up": up}, {"gate_bias": gate_bias, "up_bias": up_bias})
    return namespace(gate, up).astype(_silu(gate) * up, dtype, copy=False)


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
        "silu": silu,
        "swish": silu,
    }
    if name not in known:
        raise RegardError(f"unknown activation {name!r}; known are {', '.join(known)}")
    return known[name]


def _gelu_tanh(x: Array) -> Array:
    return gelu(x, "tanh")


def _silu(x: Array) -> Array:
    xp = namespace(x)
    small = xp.exp(-xp.abs(x))  # never overflows
    return _finite_below(x) * (xp.where(x < 0, small, xp.ones_like(x)) / (1 + small))


def _finite_below(x: Array) -> Array:
    """Return `x` with 0 for −∞, where its product with a share that vanishes has the limit 0."""
    xp = namespace(x)
    return xp.where(x == -xp.inf, xp.zeros_like(x), x)


def _asked(bend: str, x: Array, others: tuple[Array, ...], biases: tuple[Array | None, ...]) -> Array | None:
    """Return what the kernel makes of arrays of one dtype; None where it makes nothing of them."""
    dtype = getattr(x, "dtype", None)
    if any([a is not None and getattr(a, "dtype", None) != dtype for a in (*others, *biases)]):  # noqa: C419
        return None
    return ops.apply_op(bend, x, others, biases)


def _checked(arrays: dict[str, Array], biases: dict[str, Array | None]) -> tuple[list[Array], Any]:
    """Return the arrays, with their biases added, in the precision to compute in, and the dtype of the result."""
    found = {name: as_array(x, name) for name, x in arrays.items()}
    added = {name: as_array(b, name) for name, b in biases.items() if b is not None}
    first, x = next(iter(found.items()))
    for name, a in (*found.items(), *added.items()):
        shape = tuple(x.shape[-1:]) if name in added else tuple(x.shape)
        if tuple(a.shape) != shape:
            raise RegardError(f"{name} {tuple(a.shape)} must be {shape} for {first} {tuple(x.shape)}")
    everything = (*found.values(), *added.values())
    xp, dtype = namespace(*everything), result_dtype(*everything)
    work = compute_dtype(xp, dtype)
    sums = []
    for a, bias in zip(found.values(), biases, strict=True):
        a = xp.astype(a, work, copy=False)
        sums.append(a + xp.astype(added[bias], work, copy=False) if bias in added else a)
    return sums, dtype


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
