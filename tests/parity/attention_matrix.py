"""What attention is asked in each library: masks and biases, and the ways in which a library computes derivatives.

Every combination means the same in every library, so NumPy's numbers, which `test_every_argument_torch` holds against
PyTorch's autograd, are what each way is compared with. A way takes all masks and biases but those of `NOT_TAKEN`.
"""

import functools

import numpy as np
import torch
from jax_arrays import jax, jnp

import regard
import regard.jax
from invented_rules import DilatedMask, KindBias
from library_calls import HEADS, KEYS, MASK, NUMBERS, OPTIONS, QUERIES, SEGMENTS, SINKS, K, Q, V, draw
from regard import attention_vjp
from regard.functional import (
    ALiBi,
    Causal,
    DenseMask,
    DistanceBias,
    KeyRangeMask,
    RelativePositionBias,
    SegmentMask,
    SlidingWindow,
    alibi_slopes,
)
from regard.torch import attention as operator

OF_CELLS, OF_KEYS, OF_KINDS, ONE_WAY = (
    draw(5, *shape) for shape in ((HEADS, QUERIES, KEYS), (2, 1, 1, KEYS), (HEADS, 3), (6, HEADS))
)
OF_ENTRIES, SLOPES, KINDS = draw(3, 2, 1, QUERIES, KEYS) > -0.5, alibi_slopes(HEADS), np.arange(KEYS) % 3
STARTS, ENDS = np.array([0, 1, 2, 3, 4]), np.array([2, 3, 2, 6, 7])
STRIDES, HIDDEN = np.array([[1, 2, 3, 4], [2, 2, 5, 1]]), np.array([[0, 0, 1, 0, 0, 0, 1], [1, 0, 0, 0, 1, 0, 0]], bool)

# Options of a call, given what makes arrays of the library.
MASKS = {
    "all keys": lambda to: {},
    "causal": lambda to: {"causal": True},
    "causal, nothing for the first": lambda to: {"causal": True, "query_offset": -2},
    "causal from the top left": lambda to: {"causal": True, "query_offset": 0},
    "window": lambda to: {"window": (2, 1)},
    "mask of keys": lambda to: {"mask": to(MASK[0, 0])},
    "mask of each entry": lambda to: {"mask": to(OF_ENTRIES)},
    "lengths and offsets": lambda to: {
        "key_lengths": to(np.array([3, 7])), "causal": True, "query_offset": to(np.array([2, -1])),
    },
    "segments": lambda to: {"mask": SegmentMask(*map(to, SEGMENTS))},
    "one rule or the other": lambda to: {"mask": Causal(1) | SlidingWindow(0, 2, 0)},
    "spans or a mask": lambda to: {"mask": KeyRangeMask(to(STARTS), to(ENDS)) | DenseMask(to(MASK))},
    "invented": lambda to: {"mask": DilatedMask(to(STRIDES), to(HIDDEN), also_self=True)},
    "all at once": lambda to: {
        "mask": to(MASK), "causal": True, "window": (3, None), "key_lengths": to(np.array([3, 7])), "softcap": 2.0,
    },
    "of NumPy": lambda to: {"mask": MASK & SegmentMask(*SEGMENTS), "key_lengths": np.array([5, 7])},
    **{name: OPTIONS[name] for name in (
        "causal window", "mask", "mask of all", "key lengths", "rules", "spans", "a function", "a mask in blocks",
    )},
}  # fmt: skip
BIASES = {
    "bias": lambda to: {"bias": to(OF_CELLS)},
    "sinks": lambda to: {"sinks": to(SINKS)},
    "nothing": lambda to: {},
    "slopes": OPTIONS["ALiBi"],
    "bias of keys": lambda to: {"bias": to(OF_KEYS)},
    "table": OPTIONS["relative positions"],
    "distances": OPTIONS["numbers of distances"],
    "softcap and sinks": lambda to: {"softcap": 0.8, "scale": 0.7, "sinks": to(SINKS)},
    "bias that hides": OPTIONS["bias"],
    "table one way": lambda to: {
        "bias": RelativePositionBias(to(ONE_WAY), bidirectional=False, max_distance=4)
    },
    "invented": lambda to: {"bias": KindBias(to(OF_KINDS), to(KINDS))},
    "slopes and sinks": lambda to: {"bias": ALiBi(to(SLOPES)), "sinks": to(SINKS), "softcap": 2.0},
    "distances of NumPy": lambda to: {"bias": DistanceBias(NUMBERS, -7)},
}  # fmt: skip
# A compiled program has no place for what is no array of its library.
FUNCTIONS = {"a function", "a mask in blocks", "of NumPy", "distances of NumPy"}


def combinations(shift: int, without: set[str] = frozenset()) -> list[tuple[str, str]]:
    """Return every mask with a bias, and every bias with a mask; another shift gives other pairs."""
    masks, biases = ([x for x in table if x not in without] for table in (MASKS, BIASES))
    return [(mask, biases[(i + shift) % len(biases)]) for i, mask in enumerate(masks)]


def arrays_and_call(mask: str, bias: str):
    """Return the arrays of a call, q, k and v first, and the call as a function of such arrays."""
    arrays = [Q, K, V]

    def options(to):
        return MASKS[mask](to) | BIASES[bias](to)

    options(lambda x: arrays.append(x) or x)

    def call(attention, *given):
        rest = iter(given[3:])
        return attention(*given[:3], **options(lambda _: next(rest)))

    return arrays, call


def differentiable(arrays) -> tuple[int, ...]:
    """Return which arrays have gradients: those of floats."""
    return tuple(i for i, x in enumerate(arrays) if x.dtype.kind == "f")


@functools.cache
def expected(mask: str, bias: str):
    """Return the output, a gradient of it, and those of every array of floats."""
    arrays, call = arrays_and_call(mask, bias)
    seen = {}

    def noted(*given, **options):
        seen.update(options)
        return attention_vjp(*given, **options)

    output, pullback = call(noted, *arrays)
    d_output = draw(9, *output.shape)
    gradients = pullback(d_output)._asdict()
    of_rules = (arrays[i] for i in differentiable(arrays)[3:])
    names = [*"qkv", *("sinks" if x is seen.get("sinks") else "bias" for x in of_rules)]
    return output, d_output, [gradients[name] for name in names]


# Ways: output and gradients of a function of arrays along a direction.


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def autograd(function, values, d_output):
    values = [x.detach().clone().requires_grad_() for x in values]
    output = function(*values)
    return output.detach(), *torch.autograd.grad(output, values, d_output, materialize_grads=True)


def autograd_compiled(function, values, d_output):
    program = compiled(function)
    with torch.no_grad():
        plain = program(*values)
    output, *gradients = autograd(program, values, d_output)
    torch.testing.assert_close(plain, output)
    return output, *gradients


def functional(function, values, d_output):
    output, pullback = torch.func.vjp(function, *values)
    return output, *pullback(d_output)


def by_operations(function, values, d_output):
    output, pullback = jax.vjp(function, *values)
    return output, *pullback(d_output)


def by_program(function, values, d_output):
    return jax.jit(functools.partial(by_operations, function))(values, d_output)


def by_formula(implementation):
    return functools.partial(regard.attention, implementation=implementation)


# What makes an array, the function that is called, how it is differentiated, and what it does not take.
WAYS = {
    "torch, reference": (torch.tensor, by_formula("reference"), autograd, set()),
    "torch, blockwise": (torch.tensor, by_formula("blockwise"), autograd, set()),
    "torch, kernel": (torch.tensor, operator, autograd, set()),
    "torch, compiled": (torch.tensor, operator, autograd_compiled, FUNCTIONS),
    "torch, functional": (torch.tensor, operator, functional, FUNCTIONS),
    "jax, reference": (jnp.asarray, by_formula("reference"), by_program, set()),
    "jax, blockwise": (jnp.asarray, by_formula("blockwise"), by_program, set()),
    "jax, kernel": (jnp.asarray, regard.jax.attention, by_program, set()),
    "jax, operations": (jnp.asarray, regard.jax.attention, by_operations, set()),
}  # fmt: skip
