"""Edits of attention in a running PyTorch model, and the gradients that go through them."""

import contextlib

import numpy as np
import pytest
import torch
from capture_models import LENGTH, captured, inputs, run

import regard
from regard import RegardError, Trace, edits


def test_an_edit_is_an_edit_of_the_model_s_run(pair):
    """A head of which the weights are all on the first key hands on the first value."""
    model, _ = pair("llama")

    def first_key(weights):
        weights[:, 1] = 0
        weights[:, 1, :, 0] = 1
        return weights

    plain = run(model, inputs())[0]
    edits = Trace(only="blocks.1.*", edit={"blocks.1.attn.weights": first_key})
    with regard.capture(model, trace=edits) as trace:
        edited = run(model, inputs())[0]
    assert not torch.allclose(edited, plain, atol=1e-3)
    value = trace["blocks.1.attn.v"][:, 0, :1]
    np.testing.assert_allclose(trace["blocks.1.attn.context"][:, 1], np.repeat(value, LENGTH, 1), rtol=1e-5, atol=1e-6)
    nowhere = Trace(edit={"blocks.9.attn.weights": first_key})
    with pytest.raises(RegardError, match=r"'blocks\.9\.attn\.weights'"), regard.capture(model, trace=nowhere):
        run(model, inputs())


def edited_loss(model, edit):
    """Return the loss of a run and the gradients of all parameters; a hook, or an edit inside capture, changes it."""
    model.zero_grad()
    with edit:
        out = model(**inputs(), labels=inputs()["input_ids"])
        out.loss.backward()
    return out.loss, {name: p.grad.clone() for name, p in model.named_parameters()}


def halve(values):
    changed = values * 0.5
    changed[:, 1] = values[:, 1] ** 2
    return changed


def same_gradients(ours, theirs):
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-6, atol=1e-6)
    for name, gradient in theirs[1].items():
        torch.testing.assert_close(ours[1][name], gradient, rtol=2e-4, atol=5e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("step", ["q", "v", "context"])
def test_the_gradient_through_an_edit_is_that_of_the_same_edit_by_a_hook(pair, step):
    model, _ = pair("gpt2")
    attention = model.transformer.h[1].attn

    def heads(x):  # B T E to B H T D
        return x.unflatten(-1, (4, 6)).transpose(1, 2)

    def rows(x):
        return x.transpose(1, 2).flatten(-2)

    def after(_, args, output):
        parts = list(output.split(24, -1))
        at = {"q": 0, "v": 2}[step]
        parts[at] = rows(halve(heads(parts[at])))
        return torch.cat(parts, -1)

    def before(_, args):
        return (rows(halve(heads(args[0]))),)

    @contextlib.contextmanager
    def hooked():
        if step == "context":
            handle = attention.c_proj.register_forward_pre_hook(before)
        else:
            handle = attention.c_attn.register_forward_hook(after)
        yield
        handle.remove()

    trace = Trace(only=(), edit={f"blocks.1.attn.{step}": halve})
    same_gradients(edited_loss(model, regard.capture(model, trace=trace)), edited_loss(model, hooked()))
    plain = edited_loss(model, contextlib.nullcontext())
    assert not torch.equal(plain[0], edited_loss(model, hooked())[0])


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_the_gradient_through_edited_weights_is_that_of_torch(transformers, pair, kind):
    model, eager = pair(kind)

    def own(module, query, key, value, mask, scaling, softcap=None, **_):
        k, v = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
        scores = query @ k.mT * scaling
        scores = scores if softcap is None else softcap * (scores / softcap).tanh()
        weights = (scores + mask).softmax(-1)
        return ((halve(weights) if module.layer_idx == 1 else weights) @ v).transpose(1, 2).contiguous(), None

    interfaces = (transformers.AttentionInterface, transformers.AttentionMaskInterface)
    for interface, function in zip(interfaces, (own, transformers.masking_utils.eager_mask), strict=True):
        interface.register("edited-eager", function)
    eager.config._attn_implementation = "edited-eager"
    try:
        theirs = edited_loss(eager, contextlib.nullcontext())
    finally:
        for interface in interfaces:
            interface._global_mapping.pop("edited-eager")
    trace = Trace(maps=True, edit={"blocks.1.attn.weights": halve})
    same_gradients(edited_loss(model, regard.capture(model, trace=trace)), theirs)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda x: np.multiply(x, 0.5), "fails on a tensor"),
        (lambda x: np.ones(x.shape, np.float32), "returns a ndarray for a tensor"),
        (lambda x: x / x.std(-1, keepdims=True), "other numbers"),
        (lambda x: x * 0.5 if isinstance(x, np.ndarray) else x[0], "other numbers"),
    ],
)
def test_an_edit_without_a_gradient_says_so_where_one_is_taken(pair, edit, message):
    """In a run it is not an error."""
    model, _ = pair("gpt2")
    with regard.capture(model, trace=Trace(only=(), edit={"blocks.1.attn.v": edit})):
        out = model(**inputs(), labels=inputs()["input_ids"])
    with pytest.raises(RegardError, match=rf"gradient .* edit of blocks\.1\.attn\.v.*{message}"):
        out.loss.backward()


@pytest.mark.parametrize("constant", [lambda x: x * 0, lambda x: torch.zeros(x.shape), "patched"])
def test_a_value_with_a_constant_in_its_place_has_no_gradient(pair, constant):
    model, _ = pair("gpt2")
    plain = captured(model, trace=Trace(only="*.v"))
    edit = edits.patch(plain, "blocks.1.attn.v") if constant == "patched" else {"blocks.1.attn.v": constant}
    _, gradients = edited_loss(model, regard.capture(model, trace=Trace(only=(), edit=edit)))
    assert (gradients["transformer.h.1.attn.c_attn.weight"][:, -24:] == 0).all()


def test_a_run_calls_an_edit_once_and_its_gradient_once_more(pair):
    model, _ = pair("gpt2")
    calls = []
    trace = Trace(only=(), edit={"blocks.1.attn.v": lambda x: calls.append(type(x).__name__) or x})
    with regard.capture(model, trace=trace):
        out = model(**inputs(), labels=inputs()["input_ids"])
    assert calls == ["ndarray"]
    out.loss.backward()
    assert calls == ["ndarray", "Tensor"]


def test_half_precision_keeps_the_gradient_of_an_edit():
    x = torch.randn(2, 3, 4, dtype=torch.bfloat16, requires_grad=True)
    trace = Trace(only=(), edit={"weights": lambda weights: weights**2})
    regard.attention(x, x.detach(), x.detach(), trace=trace).sum().backward()
    assert x.grad.dtype == torch.bfloat16
    y = x.detach().float().requires_grad_()
    ((y @ y.detach().mT / 2).softmax(-1) ** 2 @ y.detach()).sum().backward()
    torch.testing.assert_close(x.grad.float(), y.grad, rtol=0.05, atol=0.02)
