"""Activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from regard._utils.errors import RegardError
from regard.functional.arrays import Array, as_array, compute_dtype, namespace, result_dtype
from regard.functional.native import ops
from regard.functional.variable import Pullback, Vjp, is_recorded, record_vjp

__all__ = (
    "activation", "gelu", "gelu_vjp", "quick_gelu", "quick_gelu_vjp", "relu", "relu_vjp", "silu", "silu_vjp", "swiglu",
    "swiglu_vjp",
)  # fmt: skip


def gelu(x: Array, approximate: Literal["none", "tanh"] = "none", *, bias: Array | None = None) -> Array:
    """Return x · Φ(x), with Φ the cumulative distribution function of the standard normal.

    Parameters
    ----------
    x : array, any shape
    approximate : {"none", "tanh"}
        ``"none"`` is exact, Φ(x) = erfc(−x/√2) / 2, accurate in the far negative tail too.
        ``"tanh"`` is the older formula x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), with which some models
        (BERT's first code, GPT-2) were trained.
    bias : array, ``F`` for x ``... F``, optional
        Added to x first: the bias of the preceding linear map.

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
        raise RegardError(f'approximate must be "none" or "tanh", got {approximate!r}')
    y = _native("gelu" if approximate == "none" else "gelu_tanh", x, (), (bias,))
    if y is not None:
        return y
    if is_recorded(x, bias):
        return record_vjp(gelu_vjp, x if bias is None else x + bias, approximate=approximate)
    (x,), dtype = _validated({"x": x}, {"bias": bias})
    xp = namespace(x)
    half = 0.5 * _zero_neginf(x)
    x = xp.clip(x, -_SATURATION, _SATURATION)
    if approximate == "tanh":
        y = half * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    else:
        y = half * _erfc(x * -math.sqrt(0.5))
    return xp.astype(y, dtype, copy=False)


def silu(x: Array, *, bias: Array | None = None) -> Array:
    """Return x · sigmoid(x) = x / (1 + exp(−x)), also called swish.

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
    y = _native("silu", x, (), (bias,))
    if y is not None:
        return y
    if is_recorded(x, bias):
        return record_vjp(silu_vjp, x if bias is None else x + bias)
    (x,), dtype = _validated({"x": x}, {"bias": bias})
    return namespace(x).astype(_silu(x), dtype, copy=False)


def quick_gelu(x: Array) -> Array:
    """Return x · sigmoid(1.702 x), an approximation of `gelu` with which CLIP was trained.

    Parameters
    ----------
    x : array, any shape

    Returns
    -------
    array, shape of `x`

    References
    ----------
    Hendrycks and Gimpel (2016), "Gaussian error linear units", section 2, https://arxiv.org/abs/1606.08415.

    Examples
    --------
    >>> quick_gelu([-1.0, 0.0, 1.0]).round(6)
    array([-0.154204,  0.      ,  0.845796])
    """
    if is_recorded(x):
        return record_vjp(quick_gelu_vjp, x)
    (x,), dtype = _validated({"x": x}, {"bias": None})
    xp = namespace(x)
    return xp.astype(_zero_neginf(x) * _sigmoid(_QUICK * xp.clip(x, -800, 800)), dtype, copy=False)


def swiglu(gate: Array, up: Array, *, gate_bias: Array | None = None, up_bias: Array | None = None) -> Array:
    """Return silu(gate) × up, a gated linear unit.

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
    y = _native("swiglu", gate, (up,), (gate_bias, up_bias))
    if y is not None:
        return y
    if is_recorded(gate, up, gate_bias, up_bias):
        gate, up = (x if b is None else x + b for x, b in ((gate, gate_bias), (up, up_bias)))
        return record_vjp(swiglu_vjp, gate, up)
    (gate, up), dtype = _validated({"gate": gate, "up": up}, {"gate_bias": gate_bias, "up_bias": up_bias})
    return namespace(gate, up).astype(_silu(gate) * up, dtype, copy=False)


def relu(x: Array) -> Array:
    """Return max(x, 0).

    References
    ----------
    Nair and Hinton (2010), "Rectified linear units improve restricted Boltzmann machines".
    """
    if is_recorded(x):
        return record_vjp(relu_vjp, x)
    x = as_array(x, "x")
    xp = namespace(x)
    x = xp.astype(x, result_dtype(x), copy=False)
    return xp.where(x < 0, xp.zeros_like(x), x)


def gelu_vjp(x: Array, approximate: Literal["none", "tanh"] = "none") -> tuple[Array, Pullback]:
    """Return `gelu` and its vector-Jacobian product: d_x = d × (Φ(x) + x · φ(x)), with φ the density of the normal.

    For the tanh formula, with u = 2 √(2/π) · (x + 0.044715 x³) and s = sigmoid(u):
    d_x = d × (s + x · s · (1 − s) · u′).
    """

    def pullback(d: Array) -> tuple[Array]:
        d_x = _native("gelu_tanh_vjp" if approximate == "tanh" else "gelu_vjp", x, (d,), ())
        if d_x is not None:
            return (d_x,)
        xp = namespace(x)
        z = xp.clip(x, -_SATURATION, _SATURATION)
        if approximate == "tanh":
            twice_root = 2 * math.sqrt(2 / math.pi)
            s = _sigmoid(twice_root * (z + 0.044715 * z * z * z))
            return (d * (s + z * s * (1 - s) * twice_root * (1 + 3 * 0.044715 * z * z)),)
        density = xp.exp(-0.5 * z * z) * (1 / math.sqrt(2 * math.pi))
        return (d * (0.5 * _erfc(z * -math.sqrt(0.5)) + z * density),)

    return gelu(x, approximate), pullback


def silu_vjp(x: Array) -> tuple[Array, Pullback]:
    """Return `silu` and its vector-Jacobian product: with s = sigmoid(x), d_x = d × (s + x · s · (1 − s))."""
    return silu(x), lambda d: (_silu_pullback(x, d),)


def quick_gelu_vjp(x: Array) -> tuple[Array, Pullback]:
    """Return `quick_gelu` and its vector-Jacobian product: with s = sigmoid(a x), d_x = d × (s + a x · s · (1 − s))."""

    def pullback(d: Array) -> tuple[Array]:
        z = _QUICK * namespace(x).clip(x, -800, 800)  # s or 1 − s is 0 from there on
        s = _sigmoid(z)
        return (d * (s * (1 + z * (1 - s))),)

    return quick_gelu(x), pullback


def swiglu_vjp(gate: Array, up: Array) -> tuple[Array, Pullback]:
    """Return `swiglu` and its vector-Jacobian product: d_gate = d × up × silu′(gate), d_up = d × silu(gate)."""
    return swiglu(gate, up), lambda d: (_silu_pullback(gate, d * up), d * silu(gate))


def relu_vjp(x: Array) -> tuple[Array, Pullback]:
    """Return `relu` and its vector-Jacobian product: d_x = d where x > 0, else 0."""
    return relu(x), lambda d: (namespace(x).where(x > 0, d, namespace(x).zeros_like(d)),)


def _gelu_tanh(x: Array) -> Array:
    return gelu(x, "tanh")


class Activation(NamedTuple):
    """One line of `ACTIVATIONS`."""

    function: Callable[[Array], Array]
    vjp: Vjp
    kernel_name: str | None  # in csrc/ops/activation_list.h; None: computed by the formula only


# By the name that model configurations use. A new activation takes a line here.
ACTIVATIONS = {
    "gelu": Activation(gelu, gelu_vjp, "gelu"),
    "gelu_new": Activation(_gelu_tanh, gelu_vjp, "gelu_tanh"),
    "gelu_pytorch_tanh": Activation(_gelu_tanh, gelu_vjp, "gelu_tanh"),
    "quick_gelu": Activation(quick_gelu, quick_gelu_vjp, None),
    "relu": Activation(relu, relu_vjp, None),
    "silu": Activation(silu, silu_vjp, "silu"),
    "swish": Activation(silu, silu_vjp, "silu"),
}


def activation(name: str) -> Callable[[Array], Array]:
    """Return the activation that model configurations call `name`.

    Raises
    ------
    RegardError
        The name is unknown.
    """
    return _entry(name).function


def kernel_activation(name: str | None) -> str | None:
    """Return the kernel's name of an activation, ``"identity"`` for None; None where the kernel lacks it."""
    return "identity" if name is None else _entry(name).kernel_name


def _entry(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise RegardError(f"unknown activation {name!r}; known are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _silu(x: Array) -> Array:
    return _zero_neginf(x) * _sigmoid(x)


def _silu_pullback(x: Array, d: Array) -> Array:
    """Return d × silu′(x)."""
    d_x = _native("silu_vjp", x, (d,), ())
    if d_x is not None:
        return d_x
    s = _sigmoid(x)
    return d * (s * (1 + namespace(x).clip(x, -800, 800) * (1 - s)))  # s or 1 − s is 0 from there on


def _sigmoid(x: Array) -> Array:
    xp = namespace(x)
    exponential = xp.exp(-xp.abs(x))  # never overflows
    return xp.where(x < 0, exponential, xp.ones_like(x)) / (1 + exponential)


def _zero_neginf(x: Array) -> Array:
    """Return `x` with 0 for −∞, where its product with a vanishing factor has the limit 0."""
    xp = namespace(x)
    return xp.where(x == -xp.inf, xp.zeros_like(x), x)


def _native(op: str, x: Array, others: tuple[Array, ...], biases: tuple[Array | None, ...]) -> Array | None:
    """Return the kernel's result for arrays of one dtype; None where it does not take them."""
    dtype = getattr(x, "dtype", None)
    if any([a is not None and getattr(a, "dtype", None) != dtype for a in (*others, *biases)]):  # noqa: C419
        return None
    return ops.apply_op(op, x, others, biases)


def _validated(arrays: dict[str, Array], biases: dict[str, Array | None]) -> tuple[list[Array], Any]:
    """Return the arrays plus their biases in the compute dtype, and the dtype of the result."""
    inputs = {name: as_array(x, name) for name, x in arrays.items()}
    added = {name: as_array(b, name) for name, b in biases.items() if b is not None}
    first, x = next(iter(inputs.items()))
    for name, a in (*inputs.items(), *added.items()):
        shape = tuple(x.shape[-1:]) if name in added else tuple(x.shape)
        if tuple(a.shape) != shape:
            raise RegardError(f"{name} {tuple(a.shape)} must be {shape} for {first} {tuple(x.shape)}")
    everything = (*inputs.values(), *added.values())
    xp, dtype = namespace(*everything), result_dtype(*everything)
    work = compute_dtype(xp, dtype)
    sums = []
    for a, bias in zip(inputs.values(), biases, strict=True):
        a = xp.astype(a, work, copy=False)
        sums.append(a + xp.astype(added[bias], work, copy=False) if bias in added else a)
    return sums, dtype


_QUICK = 1.702  # a of sigmoid(a x), with which it is within 0.0095 of Φ(x)
_SATURATION = 250.0  # Φ is 0 or 1 there in any precision, and x³ is far from overflow

# (z + 5/2) · exp(z²) · erfc(z) for z ≥ 0 as a Chebyshev series in t = (z − 5/2) / (z + 5/2), which maps the
# half line to −1 ≤ t < 1 (the substitution of Shepherd and Laframboise, Math. Comp. 36, 1981). The
# coefficients were computed with 60 digits; the truncation error is below 2e-8 after 11 terms, 4e-17 after 25.
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
    """Return 1 − erf(x), the complementary error function, to full relative accuracy."""
    xp = namespace(x)
    series = _ERFC_SERIES[:11] if x.dtype == xp.float32 else _ERFC_SERIES
    z = xp.abs(x)
    t = 1 - 5 / (z + 2.5)
    b1 = b2 = xp.zeros_like(t)
    for coefficient in reversed(series[1:]):  # Clenshaw's recurrence
        b1, b2 = 2 * t * b1 - b2 + coefficient, b1
    upper = (t * b1 - b2 + series[0]) / (z + 2.5) * xp.exp(-z * z)
    return xp.where(x < 0, 2 - upper, upper)
