"""A call of attention on arrays of JAX, as operands that JAX may trace and the rest, which can be hashed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from regard.functional.arrays import Array, is_jax
from regard.functional.biases.base import DenseBias
from regard.functional.dropout import Dropout, make_dropout
from regard.functional.inputs import AttentionInputs, Options, validate_inputs
from regard.functional.masks.base import DenseMask
from regard.functional.rules import Rule, RuleField, is_declared, replaced

# How many of the axes ... H T S an array lacks at the end; None: it has no batch axes.
SCORES, ROWS, PER_SEQUENCE = 0, 2, 3
_OPTIONS: dict[str, int | None] = {
    "mask": SCORES, "bias": SCORES, "sinks": ROWS, "query_offset": PER_SEQUENCE, "key_lengths": PER_SEQUENCE,
    "seed": None,
}  # fmt: skip
DIFFERENTIABLE = ("q", "k", "v", "bias", "sinks")


def is_traced(*arrays: Array) -> bool:
    """Tell whether JAX traces, maps or differentiates one of these."""
    import jax

    return any([isinstance(x, jax.core.Tracer) for x in arrays])  # noqa: C419


def reason_against_device(*arrays: Array) -> str | None:
    """Return where arrays are that the kernel cannot read, or None."""
    import jax

    for x in arrays:
        if isinstance(x, jax.core.Tracer):
            default = jax.config.jax_default_device
            platform = getattr(default, "platform", default) or jax.default_backend()
            if platform != "cpu":
                return f"a program compiled for {platform}"
        elif is_jax(x):
            devices = x.devices()
            if len(devices) > 1:
                return f"{len(devices)} devices"
            if next(iter(devices)).platform != "cpu":
                return str(next(iter(devices)))
    return None


@dataclass(frozen=True)
class _Slot:
    """The place of an operand in the options."""

    name: str


@dataclass(frozen=True, eq=False)
class JaxCall:
    """What a call is besides its operands; equal for equal calls, so that JAX compiles each once.

    Operands are q, k, v and all arrays of the options; `axes` says how many each has, `lacks` how many of the axes of
    the scores it lacks at the end.
    """

    template: dict[str, Any]
    key: tuple[Any, ...]
    axes: dict[str, int]
    lacks: dict[str, int | None]
    rate: float
    is_foreign: bool

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JaxCall) and self.key == other.key

    def options(self, operands: dict[str, Array]) -> Options:
        """Return the options with operands in their places, without dropout."""
        return cast(Options, {name: _filled(value, operands) for name, value in self.template.items()})

    def inputs(self, operands: dict[str, np.ndarray]) -> AttentionInputs:
        """Return the inputs of the call."""
        p = validate_inputs(*(operands[name] for name in "qkv"), **self.options(operands))
        if "seed" not in operands:
            return p
        low, high = (int(x) for x in operands["seed"])
        return p.replace(dropout=Dropout(self.rate, high << 32 | low))


def split_call(q: Array, k: Array, v: Array, options: Options) -> tuple[JaxCall, dict[str, Array]]:
    """Return a call and its operands by name."""
    import jax.numpy as jnp

    operands, lacks = {"q": q, "k": k, "v": v}, dict[str, int | None](q=SCORES, k=SCORES, v=SCORES)
    foreign: list[Any] = []  # rules of which nobody says what their arrays are

    def without_arrays(value: Any, name: str, lacking: int | None) -> tuple[Any, Any]:
        """Return a value with slots in the place of its arrays, and what says whether it equals another one."""
        if isinstance(value, list):
            value = np.asarray(value)
        if isinstance(value, np.ndarray) or is_jax(value):
            name = name if name not in operands else f"array{len(operands)}"
            operands[name], lacks[name] = (jnp.asarray(value) if isinstance(value, np.ndarray) else value), lacking
            return _Slot(name), _Slot(name)
        if not isinstance(value, Rule):
            return value, (type(value), value if value.__hash__ is not None else id(value))
        if not is_declared(value):
            foreign.append(value)
        declared = {field.name: field for field in value.rule_fields}
        emptied, keys = {}, []
        for name, x in vars(value).items():
            field = declared.get(name, RuleField(name, None, None, ()))
            if field.axes is None and (isinstance(x, np.ndarray | list) or is_jax(x)):
                foreign.append(value)
            inner = "bias" if name == "parameter" else f"array{len(operands)}"
            emptied[name], key = without_arrays(x, inner, field.lacking)
            keys.append((name, key))
        return replaced(value, emptied), (type(value), tuple(keys))

    rate, rng = options.get("dropout", 0.0), options.get("rng")
    dropout = make_dropout(rate, np.random.default_rng(0) if is_jax(rng) else rng)
    template, keys = {}, []
    for name, value in options.items():
        if name in ("dropout", "rng", "implementation"):
            continue
        if name == "window" and isinstance(value, list):
            value = tuple(value)
        if name == "bias" and (isinstance(value, np.ndarray | list) or is_jax(value)):
            value = DenseBias(value)
        if name == "mask" and (isinstance(value, np.ndarray | list) or is_jax(value)):
            value = DenseMask(value)
        template[name], key = without_arrays(value, name, _OPTIONS.get(name))
        keys.append((name, key))
    if dropout is not None:
        operands["seed"], lacks["seed"] = _seed(dropout, rng), None
    axes = {name: x.ndim for name, x in operands.items()}
    key = (tuple(keys), tuple(axes.items()), rate)
    return JaxCall(template, key, axes, lacks, rate, bool(foreign)), operands


def in_numpy(q: Array, k: Array, v: Array, options: Options) -> tuple[Array, Array, Array, Options]:
    """Return a call in NumPy, where the kernel reads its arrays; as it is if JAX traces it or on another device."""
    call, operands = split_call(q, k, v, options)
    if is_traced(*operands.values()) or reason_against_device(*operands.values()) is not None:
        return q, k, v, options
    numbers = {name: np.asarray(x) for name, x in operands.items()}
    implementation = options.get("implementation", "auto")
    return numbers["q"], numbers["k"], numbers["v"], {**call.options(numbers), "implementation": implementation}


def _seed(dropout: Dropout, rng: Any) -> Array:
    """Return the seed as two numbers of 32 bits, from a key of JAX or from that of NumPy's generator."""
    import jax

    if is_jax(rng):
        return jax.random.bits(rng, (2,), "uint32")
    return jax.numpy.asarray(np.array([dropout.seed % 2**32, dropout.seed >> 32], np.uint32))


def _filled(value: Any, operands: dict[str, Array]) -> Any:
    if isinstance(value, _Slot):
        return operands[value.name]
    if not isinstance(value, Rule):
        return value
    return replaced(value, {name: _filled(x, operands) for name, x in vars(value).items()})
