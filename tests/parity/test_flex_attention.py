"""Functions of indices and scores, block masks: PyTorch's FlexAttention; linear attention by its autograd."""

import numpy as np
import pytest
import torch
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import (
    BlockMask,
    and_masks,
    create_block_mask as theirs_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)

import regard
from regard import RegardError, attention_vjp, create_block_mask, linear_attention, linear_attention_vjp
from regard.functional import ScoreMod
from sweeps import sweep_after

BATCH, HEADS, GROUPS, QUERIES, KEYS = 2, 4, 2, 130, 210
RNG = np.random.default_rng(1)
DOCUMENT, PREFIX, WIDTHS = np.arange(KEYS) // 37, np.array([20, 90]), np.array([3, 40, 200, 9])
SHIFT, TABLE = np.arange(BATCH * KEYS).reshape(BATCH, KEYS) % 5, RNG.random((HEADS, KEYS, KEYS)) < 0.5
SLOPES, CELLS = RNG.random(HEADS), RNG.standard_normal((BATCH, KEYS, KEYS))


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Let FlexAttention compute as it is written: else it traces itself anew for each function and shape."""
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def causal(b, h, i, j):
    return i >= j


def document(b, h, i, j):
    return torch.as_tensor(DOCUMENT)[i] == torch.as_tensor(DOCUMENT)[j]


# Functions of an array library: what they index is made by `to`.
MODS = {
    "causal": lambda to: causal,
    "document": lambda to: lambda b, h, i, j: to(DOCUMENT)[i] == to(DOCUMENT)[j],
    "document & causal": lambda to: lambda b, h, i, j: (to(DOCUMENT)[i] == to(DOCUMENT)[j]) & (i >= j),
    "causal & a head's width": lambda to: lambda b, h, i, j: (i >= j) & (i - j <= to(WIDTHS)[h]),
    "causal | prefix": lambda to: lambda b, h, i, j: (i >= j) | (j < to(PREFIX)[b]),
    "a head's width": lambda to: lambda b, h, i, j: abs(i - j) <= to(WIDTHS)[h],
    "each entry's": lambda to: lambda b, h, i, j: to(SHIFT)[b, i] == to(SHIFT)[b, j],
    "table": lambda to: lambda b, h, i, j: to(TABLE)[h, i, j],
    "stripes": lambda to: lambda b, h, i, j: ((i - j) % 7 == 0) | (j < 7),
}
OF_TENSORS = {  # which only PyTorch can evaluate
    "one index after the other": lambda b, h, i, j: torch.as_tensor(SHIFT)[b][j] + i >= j,
    "where": lambda b, h, i, j: torch.where(i > 64, i >= j, i == j),
    "and_masks": and_masks(causal, document),
    "or_masks": or_masks(document, lambda b, h, i, j: j < 5),
    "logical": lambda b, h, i, j: torch.logical_and(i >= j, ~(j % 3 == 1)),
    "constant": lambda b, h, i, j: i.new_ones((), dtype=torch.bool),
}
# With their derivatives; those of numbers that are added are 1.
SCORES = [
    (lambda to: lambda s, b, h, i, j: s + to(SLOPES)[h] * (j - i), 1),
    (lambda to: lambda s, b, h, i, j: s + to(CELLS)[b, i, j], 1),
    (lambda to: lambda s, b, h, i, j: s * to(SLOPES)[h], lambda s, b, h, *_: SLOPES[h] + 0 * s),
    (lambda to: lambda s, b, h, i, j: s * s / 4 + s, lambda s, *_: s / 2 + 1),
    None,
]


def formula(q, k, v, allowed, score_mod):
    """Return attention on the whole map, for its gradients: FlexAttention has none on the CPU."""
    b, h = torch.arange(q.shape[0])[:, None, None, None], torch.arange(q.shape[1])[:, None, None]
    indices = (b, h, torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :])
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores if score_mod is None else score_mod(scores, *indices)
    return torch.nan_to_num(torch.where(allowed, scores, -torch.inf).softmax(-1)) @ v  # 0 for a query without keys


CASES = [(mask, i % 5) for i, mask in enumerate((*MODS, *OF_TENSORS))]
OTHERS = [(mask, score) for mask in (*MODS, *OF_TENSORS) for score in range(5) if (mask, score) not in CASES]


@pytest.mark.parametrize("case", [*CASES, *sweep_after(0, OTHERS)], ids=lambda x: f"{x[0]}-{x[1]}")
def test_functions_and_block_masks_are_those_of_flex_attention(case):
    """As a function, as a block mask of regard, and as block masks of PyTorch, which may be of all heads."""
    name, score = case
    mod = OF_TENSORS[name] if name in OF_TENSORS else MODS[name](torch.as_tensor)
    axes = BATCH, HEADS, QUERIES, KEYS
    rng = np.random.default_rng([len(name), score])
    q, d_output = rng.standard_normal((2, BATCH, HEADS, QUERIES, 8))
    k, v = rng.standard_normal((2, BATCH, GROUPS, KEYS, 8))
    theirs = None if SCORES[score] is None else SCORES[score][0](torch.as_tensor)
    bias = None if SCORES[score] is None else ScoreMod(SCORES[score][0](np.asarray), SCORES[score][1])
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    blocks = theirs_block_mask(mod, *axes, device="cpu")
    plain = (x.detach() for x in tensors)
    expected = flex_attention(*plain, score_mod=theirs, block_mask=blocks, enable_gqa=True)
    dense = create_mask(mod, *axes, device="cpu")
    formula(*tensors, dense, theirs).backward(torch.tensor(d_output))
    masks = [
        create_block_mask(mod, *axes),
        *(theirs_block_mask(mod, *axes, device="cpu", BLOCK_SIZE=x) for x in ((32, 64), 16)),
    ]
    if name in MODS:
        masks += [MODS[name](np.asarray), create_block_mask(MODS[name](np.asarray), *axes)]
    if (dense == dense[:1, :1]).all():
        masks.append(theirs_block_mask(mod, None, None, QUERIES, KEYS, device="cpu"))
    for mask in (blocks, *masks):
        output, pullback = attention_vjp(q, k, v, mask=mask, bias=bias)
        np.testing.assert_allclose(output, expected.numpy(), rtol=1e-9, atol=1e-10)
        for gradient, tensor in zip(pullback(d_output), tensors, strict=False):
            np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-8, atol=1e-9)
    found = regard.attention_weights(np.zeros(q.shape), np.zeros(k.shape), mask=masks[0]) > 0
    assert np.array_equal(found, dense.numpy())


def test_blocks_count_more_than_the_function():
    """A block that is listed as full is; one that is not listed is empty."""
    mask = BlockMask.from_kv_blocks(
        kv_num_blocks=torch.tensor([[[1, 0]]], dtype=torch.int32),
        kv_indices=torch.tensor([[[0, 1], [0, 1]]], dtype=torch.int32)[None],
        full_kv_num_blocks=torch.tensor([[[0, 1]]], dtype=torch.int32),
        full_kv_indices=torch.tensor([[[0, 1], [1, 0]]], dtype=torch.int32)[None],
        BLOCK_SIZE=16,
        mask_mod=causal,
    )
    x = np.zeros((32, 2))
    found = regard.attention_weights(x, x, mask=mask) > 0
    wanted = np.zeros((32, 32), bool)
    wanted[:16, :16] = np.tri(16, dtype=bool)
    wanted[16:, 16:] = True
    assert np.array_equal(found, wanted)


def test_errors_of_a_function_are_its_own():
    with pytest.raises(KeyError, match="mine"):
        create_block_mask(lambda b, h, i, j: {}["mine"], 1, 1, 4, 4)
    with pytest.raises(RegardError, match="must return booleans"):
        create_block_mask(lambda b, h, i, j: torch.as_tensor(DOCUMENT)[i] + j, 1, 1, 4, 4)
    mask = theirs_block_mask(causal, None, None, 64, 64, device="cpu")
    with pytest.raises(RegardError, match=r"the BlockMask is of \(1, 1, 64, 64\)"):
        regard.attention(*[np.zeros((2, 32, 4))] * 3, mask=mask)


@pytest.mark.parametrize("by_feature", [False, True])
@pytest.mark.parametrize("rule", [(), ("decay",), ("beta",), ("decay", "beta")], ids=" ".join)
def test_linear_attention_is_differentiated_by_pytorch(rule, by_feature):
    """As by its own pullback, which `tests/functional/test_linear_attention.py` holds against differences."""
    rng = np.random.default_rng(3)
    batch, heads, groups, length, dim, width = 2, 4, 2, 70, 5, 3
    shapes = {
        "q": (batch, heads, length, dim), "k": (batch, groups, length, dim), "v": (batch, groups, length, width),
        "state": (batch, groups, dim, width), "decay": (batch, groups, length, dim if by_feature else 1),
        "beta": (batch, groups, length),
    }  # fmt: skip
    inputs = {name: rng.standard_normal(shape) for name, shape in shapes.items() if name not in ("decay", "beta")}
    inputs |= {name: rng.random(shapes[name]) * {"decay": -1, "beta": 1}[name] for name in rule}
    inputs["k"] /= np.linalg.norm(inputs["k"], axis=-1, keepdims=True)
    result, pullback = linear_attention_vjp(**inputs)
    d_result = [rng.standard_normal(x.shape) for x in result]
    gradients = pullback(*d_result)
    tensors = {name: torch.tensor(x, requires_grad=True) for name, x in inputs.items()}
    found = linear_attention(**tensors, chunk_size=5)
    sum((x * torch.tensor(d)).sum() for x, d in zip(found, d_result, strict=True)).backward()
    for ours, theirs in zip(found, result, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-10, atol=1e-11)
    for name, tensor in tensors.items():
        np.testing.assert_allclose(tensor.grad.numpy(), getattr(gradients, name), rtol=1e-9, atol=1e-10, err_msg=name)
