"""Tensors of other classes than PyTorch's plain one: what they mean is honoured, PyTorch's affair, or refused."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from attention_matrix import compiled
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import regard
from regard import RegardError
from regard.torch import attention, scaled_dot_product_attention, use_regard

pytestmark = [pytest.mark.filterwarnings("ignore:Lower right causal bias will produce NaNs")]
SIZES = ((5, 7), (7, 5), (6, 6), (1, 7), (7, 1))
BIASES = {f.__name__: f for f in (causal_lower_right, causal_upper_left)}


def in_a_block(*given, **options):
    with use_regard():
        return F.scaled_dot_product_attention(*given, **options)


def in_a_program(*given, **options):
    return compiled(scaled_dot_product_attention)(*given, **options)


def compiled_in_a_block(*given, **options):
    torch._dynamo.reset()
    with use_regard():
        return torch.compile(F.scaled_dot_product_attention, backend="aot_eager")(*given, **options)


WAYS = {f.__name__: f for f in (scaled_dot_product_attention, in_a_block, in_a_program, compiled_in_a_block)}


def draw(queries, keys, *, heads=2, groups=2):
    generator = torch.Generator().manual_seed(queries * 100 + keys)
    shapes = (2, heads, queries, 4), (2, groups, keys, 4), (2, groups, keys, 3)
    return [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]


def outcome(function, given, mask, **options):
    output = function(*given, attn_mask=mask, **options)
    return [output, *torch.autograd.grad(output.sin().sum(), given)]


@pytest.mark.pairwise
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("sizes", SIZES)
def test_a_causal_bias_means_what_its_variant_says(way, bias, sizes):
    for options in ({}, {"scale": 0.3}, {"enable_gqa": True}):
        given = draw(*sizes, heads=4 if "enable_gqa" in options else 2)
        mask = BIASES[bias](*sizes)
        ours = outcome(WAYS[way], given, mask, **options)
        torch.testing.assert_close(ours, outcome(F.scaled_dot_product_attention, given, mask, **options))


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("made", [*itertools.product((1, 5, 6), (1, 7, 6))])
def test_the_sizes_of_a_causal_bias_count_as_for_pytorch(bias, made):
    given, mask = draw(5, 7), BIASES[bias](*made)
    try:
        theirs = F.scaled_dot_product_attention(*given, attn_mask=mask)
    except RuntimeError:
        with pytest.raises(RegardError, match="does not broadcast to the scores"):
            scaled_dot_product_attention(*given, attn_mask=mask)
    else:
        torch.testing.assert_close(scaled_dot_product_attention(*given, attn_mask=mask), theirs)


@pytest.mark.parametrize("function", [scaled_dot_product_attention, in_a_block])
def test_a_causal_bias_is_causal_itself(function):
    with pytest.raises(RegardError, match=r"^attn_mask is a CausalBias, .*leave out is_causal=True$"):
        function(*draw(5, 7), attn_mask=causal_lower_right(5, 7), is_causal=True)


def test_a_causal_bias_in_a_thread_beside_a_block():
    given, mask = draw(5, 7), causal_lower_right(5, 7)
    wanted = F.scaled_dot_product_attention(*given, attn_mask=mask)
    with use_regard(), ThreadPoolExecutor(1) as pool:
        found = pool.submit(F.scaled_dot_product_attention, *given, attn_mask=mask).result()
    assert torch.equal(found, wanted)


class Upper(torch.Tensor):
    """A mask whose numbers do not count: it compares the function that is called with PyTorch's by its name."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.scaled_dot_product_attention:
            return func(*args[:3], is_causal=True)
        return super().__torch_function__(func, types, args, kwargs or {})


TABLE = {
    F.scaled_dot_product_attention: lambda q, k, v, *_, **__: F.scaled_dot_product_attention(q, k, v, None, 0.0, True)
}


class Listed(torch.Tensor):
    """The same, with a table of functions."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in TABLE:
            return TABLE[func](*args, **kwargs or {})
        return super().__torch_function__(func, types, args, kwargs or {})


class Named(torch.Tensor):
    """A class without a meaning."""


@pytest.mark.parametrize("kind", [Upper, Listed, Named])
def test_other_classes_of_tensors_go_to_pytorch_in_a_block(kind):
    mask, given = torch.randn(5, 7, dtype=torch.float64).as_subclass(kind), draw(5, 7)
    theirs, ours = (f(*given, attn_mask=mask) for f in (F.scaled_dot_product_attention, in_a_block))
    assert type(ours) is type(theirs)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["query", "key", "value", "attn_mask"])
@pytest.mark.parametrize("kind", [Upper, Named])
def test_other_classes_of_tensors_are_refused_directly(name, kind):
    given = dict(zip(("query", "key", "value"), draw(5, 5), strict=True), attn_mask=torch.zeros(5, 5).double())
    given[name] = given[name].detach().as_subclass(kind)
    with pytest.raises(RegardError, match=f"^{name} .* is of the class {kind.__name__}.*as_subclass"):
        scaled_dot_product_attention(**given)


DIRECT = {
    "regard.attention": regard.attention,
    "regard.torch.attention": attention,
    "compiled": torch.compile(regard.attention, backend="aot_eager"),
    "attention_weights": lambda q, k, v, **options: regard.attention_weights(q, k, **options),
    "attention_vjp": regard.attention_vjp,
    "attention_partial": regard.attention_partial,
}
# Classes that are no arguments of attention: the tensor of such a class, the arguments tried, what the error says.
REFUSED = {
    "CausalBias": (lambda _: causal_upper_left(5, 5), ("mask", "bias", "sinks"), "; give causal=True"),
    "Named": (
        lambda x: x.as_subclass(Named),
        ("q", "k", "mask", "bias", "sinks", "key_lengths"), r"{name}.*\.as_subclass\(torch\.Tensor\)",
    ),
    "MaskedTensor": (
        lambda x: torch.masked.masked_tensor(x, torch.ones_like(x, dtype=torch.bool)),
        ("q", "k", "mask", "bias"), r"; give get_data\(\) of it",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors is in prototype stage")
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, (_, names, _) in REFUSED.items() for name in names])
def test_tensors_of_other_classes_are_no_arguments_of_attention(kind, name):
    make, _, message = REFUSED[kind]
    arrays = [x.detach() if kind == "MaskedTensor" else x for x in draw(5, 5)]
    given = dict(zip("qkv", arrays, strict=True)) | {
        "mask": torch.ones(5, 5, dtype=torch.bool), "bias": torch.zeros(5, 5), "sinks": torch.zeros(2),
        "key_lengths": torch.tensor([3, 5]),
    }  # fmt: skip
    given = {
        each: make(x.detach()) if each == name else x for each, x in given.items() if each in ("q", "k", "v", name)
    }
    q, k, v = (given.pop(x) for x in "qkv")
    for way, function in DIRECT.items():
        if (kind, way) != ("MaskedTensor", "compiled"):  # PyTorch compiles none
            torch._dynamo.reset()
            with pytest.raises(RegardError, match=f"^{name}.* is of the class {kind}, .*{message.format(name=name)}"):
                function(q, k, v, **given)


def test_distributed_tensors_are_no_arguments_of_attention(tmp_path):
    """A tensor of one process, of which all is here, is refused as one of many."""
    from torch import distributed
    from torch.distributed.tensor import distribute_tensor, init_device_mesh

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        q, k, v = (x.detach() for x in draw(5, 5))
        sharded = distribute_tensor(q, init_device_mesh("cpu", (1,)))
        with pytest.raises(RegardError, match=r"^q is of the class DTensor, .*; give full_tensor\(\) or to_local\(\)"):
            regard.attention(sharded, k, v)
        assert torch.equal(regard.attention(sharded.full_tensor(), k, v), regard.attention(q, k, v))
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("name", ["q", "alibi_slopes", "cu_seqlens_q"])
def test_tensors_of_other_classes_are_no_arguments_of_attention_of_sequences(name):
    x, starts = torch.randn(5, 2, 4), torch.tensor([0, 2, 5])
    given = {"q": x, "k": x, "v": x, "cu_seqlens_q": starts, "cu_seqlens_k": starts, "alibi_slopes": torch.rand(2)}
    given[name] = given[name].as_subclass(Named)
    with pytest.raises(RegardError, match=f"^{name} is of the class Named"):
        regard.attention_varlen(**given)
