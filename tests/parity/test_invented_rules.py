"""Rules that nothing but their own class knows, through the operator of PyTorch and the functions of JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from invented_rules import DilatedMask, KindBias, TwiceBias, invented_case
from regard import attention
from regard.functional import ALiBi, Causal
from regard.functional.biases.base import DenseBias
from regard.torch import attention as attention_torch
from regard.torch.rule_codec import Encoder, bias_axes

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def moved(rules, to):
    """Return the invented rules with their arrays in another library."""
    mask, bias = rules["mask"], rules["bias"]
    return {
        "mask": DilatedMask(to(mask.strides), to(mask.hidden), mask.also_self),
        "bias": KindBias(to(bias.parameter), to(bias.kinds)),
    }


def test_tensors_and_compiled_functions_of_pytorch():
    arrays, rules, dense = invented_case(np.float32)
    q, k, v = map(torch.as_tensor, arrays)
    expected, options = attention(*arrays, **dense), moved(rules, torch.as_tensor)
    np.testing.assert_allclose(attention_torch(q, k, v, **options), expected, **CLOSE)
    torch.compiler.reset()
    counts = []

    def counting(graph, inputs):
        counts.append([node.target for node in graph.graph.nodes if "regard" in str(node.target)])
        return graph

    compiled = torch.compile(lambda q: attention_torch(q, k, v, **options), fullgraph=True, backend=counting)
    np.testing.assert_allclose(compiled(q), expected, **CLOSE)
    assert [[str(x) for x in targets] for targets in counts] == [["regard.attention"]]


def test_a_bias_of_a_bias_is_computed_the_general_way():
    slopes, factors = torch.tensor([0.5, 0.25]), torch.tensor([1.0, 2.0])
    assert not Encoder().add_options({"bias": TwiceBias(factors, ALiBi(slopes))})
    q = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    found = attention_torch(q, q, q, bias=TwiceBias(factors, ALiBi(slopes)))
    np.testing.assert_allclose(found, attention(*[q.numpy()] * 3, bias=ALiBi((slopes * factors).numpy())), **CLOSE)
    encoder = Encoder()
    assert encoder.add_options({"mask": Causal(), "bias": DenseBias(torch.zeros(2, 5, 5))})
    assert bias_axes(" ".join(encoder.words)) == 0


def test_gradients_and_mapped_axes_of_pytorch():
    arrays, rules, dense = invented_case(np.float32)
    q, k, v = map(torch.as_tensor, arrays)
    options = moved(rules, torch.as_tensor)
    parameter = options["bias"].parameter

    def loss(q, parameter, **masks):
        return (attention_torch(q, k, v, bias=KindBias(parameter, options["bias"].kinds), **masks) ** 2).sum()

    masks = {"mask": options["mask"]}
    found = torch.func.grad(loss, argnums=(0, 1))(q, parameter, **masks)
    masks = {"mask": torch.as_tensor(dense["mask"]), "implementation": "reference"}
    expected = torch.func.grad(loss, argnums=(0, 1))(q, parameter, **masks)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)

    def call(q, strides, kinds):
        mask = DilatedMask(strides, options["mask"].hidden, also_self=True)
        return attention_torch(q, k, v, mask=mask, bias=KindBias(parameter, kinds))

    several = torch.stack([q, q * 2]), torch.stack([options["mask"].strides, options["mask"].strides + 1])
    kinds = torch.stack([options["bias"].kinds, options["bias"].kinds.flip(0)])
    ours = torch.vmap(call)(*several, kinds)
    one_by_one = torch.stack([call(*each) for each in zip(*several, kinds, strict=True)])
    np.testing.assert_allclose(ours, one_by_one, **CLOSE)


@pytest.mark.parametrize("with_kinds", [False, True])
def test_functions_of_jax(with_kinds):
    arrays, rules, dense = invented_case(np.float32)
    q, k, v = map(jnp.asarray, arrays)
    options = moved(rules, jnp.asarray)

    def call(q, strides, parameter, kinds, implementation="auto"):
        mask = DilatedMask(strides, options["mask"].hidden, also_self=True)
        return attention(q, k, v, mask=mask, bias=KindBias(parameter, kinds), implementation=implementation)

    given = q, options["mask"].strides, options["bias"].parameter, options["bias"].kinds
    np.testing.assert_allclose(jax.jit(call)(*given), attention(*arrays, **dense), **CLOSE)
    assert "pure_callback" in str(jax.make_jaxpr(call)(*given))
    several = jnp.stack([q, q * 2]), jnp.stack([given[1], given[1] + 1]), jnp.stack([given[2], -given[2]])
    kinds = jnp.stack([given[3], given[3][::-1]])
    mapped = jax.jit(jax.vmap(call, in_axes=(0, 0, 0, 0 if with_kinds else None)))
    one = jax.jit(call)
    each = [one(*x, kinds[i] if with_kinds else given[3]) for i, x in enumerate(zip(*several, strict=True))]
    np.testing.assert_allclose(mapped(*several, kinds if with_kinds else given[3]), jnp.stack(each), **CLOSE)

    def loss(q, parameter, implementation):
        return (call(q, given[1], parameter, given[3], implementation) ** 2).sum()

    gradient = jax.jit(jax.grad(loss, (0, 1)), static_argnums=2)
    gradients = [gradient(q, given[2], implementation) for implementation in ("auto", "reference")]
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
