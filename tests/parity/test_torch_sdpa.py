"""The drop-in for PyTorch's attention: its numbers and gradients, and the block that uses it."""

import inspect
import math
import threading

import numpy as np
import pytest
import torch
from attention_matrix import compiled
from torch.nn import functional as F

from regard import RegardError
from regard.torch import attention, scaled_dot_product_attention, use_regard
from sweeps import sweep_after

# Random calls; so many of each kind run in the default session.
DRAWN = {"sdpa": 1400, "compiled": 100}
KEPT = {"sdpa": 150, "compiled": 6}
BOUNDS = {torch.float64: 1e-12, torch.float32: 3e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def tensor(rng, *shape, dtype=torch.float64):
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def in_any_memory(rng, x):
    """Return the same numbers as they lie elsewhere: with other strides, or in the midst of a larger tensor."""
    way = rng.integers(4)
    if way == 1:
        return x.transpose(-3, -2).contiguous().transpose(-3, -2)
    if way == 2:
        return F.pad(x, (1, 2))[..., 1:-2]
    if way == 3:
        return torch.stack([x, x], -2).flatten(-3, -2)[..., ::2, :]
    return x


def draw_call(seed):
    """Return tensors, and keywords, of a random call of PyTorch's attention; the float mask is learned."""
    rng = np.random.default_rng(seed)
    dtype = (torch.float64, torch.float64, torch.float32, torch.bfloat16, torch.float16)[rng.integers(5)]
    batch, groups, shared = (int(rng.integers(1, 4)) for _ in range(3))
    queries, keys = (int(rng.choice([1, 2, 7, 16, 33, 70])) for _ in range(2))
    dim, width = (int(rng.choice([1, 3, 8, 16])) for _ in range(2))
    heads, gqa = groups * shared, bool(shared > 1)
    q = in_any_memory(rng, tensor(rng, batch, heads, queries, dim, dtype=dtype))
    k = in_any_memory(rng, tensor(rng, batch, groups, keys, dim, dtype=dtype))
    v = in_any_memory(rng, tensor(rng, batch, groups, keys, width, dtype=dtype))
    options, learned = {"enable_gqa": gqa}, []
    kind = rng.choice(["none", "causal", "mask", "float mask"])
    options["is_causal"] = bool(kind == "causal" or (kind != "none" and rng.random() < 0.3))
    shape = [(queries, keys), (batch, 1, queries, keys), (1, heads, queries, keys), (batch, 1, 1, keys)][
        rng.integers(4)
    ]
    if kind == "mask":
        options["attn_mask"] = torch.from_numpy(rng.random(shape) < rng.choice([0.2, 0.8]))
    elif kind == "float mask":
        mask = tensor(rng, *shape, dtype=dtype)
        hidden = torch.from_numpy(rng.random(shape) < rng.choice([0.0, 0.3]))
        learned = [mask.masked_fill(hidden, -torch.inf)]
    if rng.random() < 0.3:
        options["scale"] = float(rng.choice([0.1, 1.0, -0.5]))
    return [q, k, v, *learned], options


def derivatives(function, given, options, direction):
    given = [x.detach().requires_grad_() for x in given]
    mask = {"attn_mask": given[3]} if len(given) > 3 else {}
    output = function(*given[:3], **mask, **options)
    return output.detach(), *torch.autograd.grad(output, given, direction.to(output.dtype))


def with_one_mask(q, k, v, attn_mask=None, is_causal=False, **options):
    """Return PyTorch's numbers, with the causal order in the mask.

    Both together are an error of some of PyTorch's implementations, and all is NaN with a negative scale, which makes
    its −inf inf.
    """
    if is_causal:
        causal = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        if attn_mask is None:
            attn_mask = causal
        elif attn_mask.dtype is torch.bool:
            attn_mask = attn_mask & causal
        else:
            attn_mask = attn_mask.masked_fill(~causal, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask, **options)


def check(seed, function):
    given, options = draw_call(seed)
    dtype = given[0].dtype
    direction = tensor(np.random.default_rng(seed), *given[0].shape[:-1], given[2].shape[-1])
    theirs = derivatives(with_one_mask, [x.double() for x in given], options, direction)
    for one, other in zip(derivatives(function, given, options, direction), theirs, strict=True):
        assert one.dtype == dtype
        assert one.shape == other.shape
        assert (one.double() - other).abs().max() <= BOUNDS[dtype] * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("seed", sweep_after(KEPT["sdpa"], range(DRAWN["sdpa"])))
def test_the_numbers_and_gradients_of_pytorch(seed):
    check(seed, scaled_dot_product_attention)


@pytest.mark.parametrize("seed", sweep_after(KEPT["compiled"], range(5000, 5000 + DRAWN["compiled"])))
def test_the_numbers_and_gradients_of_pytorch_compiled(seed):
    check(seed, compiled(scaled_dot_product_attention))


def test_the_signature_is_pytorchs():
    ours = [(name, x.default) for name, x in inspect.signature(scaled_dot_product_attention).parameters.items()]
    empty = inspect.Parameter.empty
    assert ours == [
        ("query", empty), ("key", empty), ("value", empty), ("attn_mask", None), ("dropout_p", 0.0),
        ("is_causal", False), ("scale", None), ("enable_gqa", False),
    ]  # fmt: skip
    assert all(f"{name}" in F.scaled_dot_product_attention.__doc__ for name, _ in ours)


@pytest.mark.parametrize("lengths", [(5, 7), (7, 5), (6, 6)], ids=str)
@pytest.mark.parametrize("kind", ["no mask", "boolean", "floating", "boolean, empty row", "floating, empty row"])
def test_causal_order_and_queries_without_keys_are_those_of_pytorch(kind, lengths):
    """Causal order begins at the first key. With a mask that has no gradient, PyTorch computes both together too."""
    rng = np.random.default_rng(7)
    queries, keys = lengths
    for of in ((2, 3), (3,), ()) if kind == "no mask" else (lengths, (2, 1, 1, keys), (2, 3, queries, keys)):
        lead, mask = of if kind == "no mask" else (2, 3), None
        given = [tensor(rng, *lead, n, 4).requires_grad_() for n in (queries, keys, keys)]
        if "empty" in kind:
            mask = torch.arange(queries)[:, None].expand(lengths) != 2
        elif kind != "no mask":
            mask = torch.from_numpy(rng.random(of) < 0.6)
        if "floating" in kind:
            mask = torch.zeros(lengths).double().masked_fill(~mask, -torch.inf) if "empty" in kind else tensor(rng, *of)
        found = []
        for function in (scaled_dot_product_attention, F.scaled_dot_product_attention):
            output = function(*given, attn_mask=mask, is_causal="empty" not in kind)
            found.append([output, *torch.autograd.grad(output.sum(), given)])
        torch.testing.assert_close(*found)


def test_heads_that_broadcast():
    rng = np.random.default_rng(3)
    q, k, v = tensor(rng, 1, 6, 5, 4), tensor(rng, 2, 1, 7, 4), tensor(rng, 2, 6, 7, 4)
    for given in ((q, k, v), (q[:, :1], k, v)):
        ours, theirs = (f(*given) for f in (scaled_dot_product_attention, F.scaled_dot_product_attention))
        torch.testing.assert_close(ours, theirs)


def test_dropout_is_of_pytorchs_generator():
    q, k, v = torch.zeros(2, 4, 64, 8), torch.zeros(2, 4, 400, 8), torch.ones(2, 4, 400, 8)

    def dropped(function=scaled_dot_product_attention):
        torch.manual_seed(3)
        return function(q, k, v, dropout_p=0.25)

    found = dropped()
    assert torch.equal(found, dropped())
    assert torch.equal(found, dropped(compiled(scaled_dot_product_attention)))
    assert not torch.equal(found, scaled_dot_product_attention(q, k, v, dropout_p=0.25))
    kept = found * 0.75  # the share of the weights that is kept, for each query
    bound = 5 * math.sqrt(0.25 * 0.75 / 400)
    assert (kept - 0.75).abs().max() < bound
    assert abs(float(kept[..., 0].mean()) - 0.75) < bound / math.sqrt(kept[..., 0].numel())
    assert not scaled_dot_product_attention(q, k, v, dropout_p=1.0).any()


def test_gradients_are_of_the_weights_that_were_kept():
    rng = np.random.default_rng(4)
    given = [tensor(rng, 2, 9, 4).requires_grad_() for _ in range(3)]

    def function(*x):
        return attention(*x, dropout=0.4, rng=torch.Generator().manual_seed(5))

    assert torch.autograd.gradcheck(function, given)
    with_numpy = attention(*given, dropout=0.4, rng=np.random.default_rng(5))
    assert not torch.equal(function(*given), with_numpy)


# The block that replaces PyTorch's own.

OWN = F.scaled_dot_product_attention


def is_regards():
    """Tell whether PyTorch's function now computes regard's numbers, which have other last bits."""
    rng = np.random.default_rng(6)
    given = [tensor(rng, 2, 3, 50, 16, dtype=torch.float32) for _ in range(3)]
    found, ours, theirs = (f(*given) for f in (F.scaled_dot_product_attention, scaled_dot_product_attention, OWN))
    assert not torch.equal(ours, theirs)
    torch.testing.assert_close(found, theirs)
    return torch.equal(found, ours)


def test_a_block_of_code_uses_regard():
    assert not is_regards()
    with use_regard():
        assert is_regards()
        with use_regard():
            assert is_regards()
        assert is_regards()
    assert not is_regards()
    with pytest.raises(KeyError), use_regard(), use_regard():
        raise KeyError
    assert F.scaled_dot_product_attention is OWN
    assert use_regard()(is_regards)()  # it decorates a function
    assert F.scaled_dot_product_attention is OWN


def test_only_the_thread_that_entered_uses_regard():
    found, entered, done = [], threading.Event(), threading.Event()

    def block():
        with use_regard():
            entered.set()
            done.wait(60)
            found.append(is_regards())

    thread = threading.Thread(target=block)
    thread.start()
    assert entered.wait(60)
    assert not is_regards()
    with use_regard():
        assert is_regards()
    assert not is_regards()
    done.set()
    thread.join()
    assert found == [True]
    assert F.scaled_dot_product_attention is OWN


def test_layers_of_pytorch_in_a_block():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, dtype=torch.float64).train()
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64)
    wanted = layer(x, src_mask=mask)
    with use_regard():
        ours = layer(x, src_mask=mask)
    torch.testing.assert_close(ours, wanted)


def test_a_function_is_compiled_once_for_blocks_and_once_for_outside():
    torch._dynamo.reset()
    operators = []

    def backend(graph, inputs):
        operators.append({str(node.target) for node in graph.graph.nodes if node.op == "call_function"})
        return graph.forward

    function = torch.compile(lambda x: F.scaled_dot_product_attention(x, x, x), fullgraph=True, backend=backend)
    x = tensor(np.random.default_rng(7), 2, 3, 4)
    for _ in range(3):
        torch.testing.assert_close(function(x), OWN(x, x, x))
        with use_regard():
            torch.testing.assert_close(function(x), OWN(x, x, x))
    assert ["regard.attention" in names for names in operators] == [False, True]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_other_devices_and_nested_tensors_stay_with_pytorch_in_a_block():
    meta = torch.empty(2, 3, 4, device="meta")
    nested = torch.nested.nested_tensor([torch.randn(2, 3, 4), torch.randn(2, 5, 4)])
    with use_regard():
        assert F.scaled_dot_product_attention(meta, meta, meta).is_meta
        assert F.scaled_dot_product_attention(nested, nested, nested).is_nested
    with pytest.raises(RegardError, match="not nested or sparse"):
        scaled_dot_product_attention(nested, nested, nested)


# Errors

X = torch.zeros(2, 3, 5, 4)
WRONG = {
    "device": (lambda: attention(X.to("meta"), X, X), r"^q is on meta, but .* on the CPU; move it with \.cpu\(\)$"),
    "array": (lambda: attention(X, X.numpy(), X), r"^k of .* must be a tensor of PyTorch, got ndarray$"),
    "complex": (lambda: attention(X.cfloat(), X, X), "must be real numbers, got torch.complex64"),
    "boolean": (lambda: attention(X.bool(), X, X), "must be real numbers, got torch.bool"),
    "mask that is learned": (
        lambda: attention(X, X, X, mask=torch.zeros(5, 5).requires_grad_()), "must be boolean .* scores are bias=$",
    ),
    "boolean bias": (lambda: attention(X, X, X, bias=torch.ones(5, 5).bool()), "bias is boolean.*use mask=$"),
    "shapes": (lambda: attention(X, X[..., :3], X), "need the same head dimension D"),
    "mask of another shape": (lambda: attention(X, X, X, mask=torch.ones(4, 5).bool()), "does not broadcast"),
    "generator": (lambda: attention(X, X, X, dropout=0.1, rng=3), "rng must be a generator of PyTorch or NumPy"),
    "rate": (lambda: attention(X, X, X, dropout=2.0), "dropout must be a number with 0 ≤ dropout < 1"),
    "argument": (lambda: attention(X, X, X, is_causal=True), "attention has no argument is_causal: it is causal= here"),
    "device of the drop-in": (lambda: scaled_dot_product_attention(X, X.to("meta"), X), "^key is on meta"),
    "device of a mask": (
        lambda: scaled_dot_product_attention(X, X, X, torch.ones(5, 5, device="meta")), "^attn_mask is on meta",
    ),
    "dtypes": (lambda: scaled_dot_product_attention(X, X.double(), X), "must have one dtype, got torch.float32, "),
    "integers": (lambda: scaled_dot_product_attention(*[X.long()] * 3), "must be floating, got torch.int64"),
    "heads": (lambda: scaled_dot_product_attention(X[:, [0, 1, 2, 0]], X[:, :2], X[:, :2]), "enable_gqa=True lets"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_error_is_a_clear_sentence(name):
    call, message = WRONG[name]
    with pytest.raises((RegardError, TypeError), match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, RuntimeError | TypeError)  # what falls back on PyTorch's own errors does on these


def test_what_wraps_the_replacement_may_stay(monkeypatch):
    monkeypatch.setattr(F, "scaled_dot_product_attention", OWN)  # which is put back at the end
    with use_regard():
        inner = F.scaled_dot_product_attention
        F.scaled_dot_product_attention = lambda *args, **options: inner(*args, **options)
    with use_regard():
        torch.testing.assert_close(F.scaled_dot_product_attention(X, X, X), OWN(X, X, X))
        meta = X.to("meta")
        assert F.scaled_dot_product_attention(meta, meta, meta).is_meta
