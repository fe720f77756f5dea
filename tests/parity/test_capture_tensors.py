"""Tensors of running PyTorch models, and the gradients at them: against regard's own, and PyTorch's by hooks."""

import numpy as np
import pytest
import torch
from capture_models import TEXT_FAMILIES, FamilyPair, captured, inputs, run

import make_golden
import regard
from regard import RegardError, Trace, edits

FAMILIES = {family: next(iter(make_golden.CASES[family].cases)) for family in TEXT_FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_at_the_steps_of_every_family_are_those_of_regard(transformers, tmp_path, family):
    pair = FamilyPair(transformers, family, FAMILIES[family], tmp_path)
    trace, output = pair.run_theirs(record="*", tensors=True)
    factors = np.linspace(-1, 1, output.shape[-1], dtype=np.float32)
    output[0, -2].mul(torch.tensor(factors)).sum().backward()
    is_vectors = "logits" not in trace

    def compute(run):
        return ((run.hidden if is_vectors else run.logits)[0, -2] * factors).sum()

    # Rows that all texts share have one gradient in regard; that of a masked weight or score is any
    left_out = ("position_embeddings", "type_embeddings", "logits", "scores", "capped", "biased", "weights")
    names = [name for name in trace if trace[name].grad is not None and name.rpartition(".")[2] not in left_out]
    names = [
        name
        for name in names
        if name not in ("encoder.embeddings", "decoder.embeddings") or family not in ("t5", "mt5")
    ]
    assert len(names) > 12
    expected = pair.gradients(compute, names)
    largest = max(np.abs(expected[name]).max() for name in names)
    for name in names:
        found = trace[name].grad.numpy()
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=2e-5 * largest, err_msg=name)


def test_all_steps_are_on_the_way(pair):
    """Each has a gradient after backward, also the weights, and where all parameters are frozen."""
    model, _ = pair("llama")
    model.requires_grad_(False)
    with regard.capture(model, record="*", tensors=True) as trace:
        model(**inputs()).logits[:, -1].square().sum().backward()
    assert {"blocks.0.attn.weights", "blocks.2.attn_residual", "final_norm", "token_embeddings"} <= set(trace)
    for name in trace:
        assert trace[name].grad is not None, name
        assert trace[name].grad.abs().max() > 0, name


def test_no_gradients_where_there_are_none(pair):
    model, _ = pair("llama")
    for context in (torch.no_grad, torch.inference_mode):
        with context(), regard.capture(model, record="residual, logits", tensors=True) as trace:
            output = model(**inputs()).logits
        assert torch.equal(trace["logits"], output)
        assert not any(trace[name].requires_grad for name in trace)


def test_a_vector_that_steers_has_a_gradient(pair):
    model, _ = pair("llama")
    vector = torch.zeros(24, requires_grad=True)
    with regard.capture(model, record=(), tensors=True, edit={"blocks.1.output": lambda x: x + vector}):
        first = model(**inputs()).logits[:, -1].square().sum()
    with regard.capture(model, record="blocks.1.output", tensors=True) as trace:
        second = model(**inputs()).logits[:, -1].square().sum()
    gradient = torch.autograd.grad(second, trace["blocks.1.output"])[0]
    torch.testing.assert_close(torch.autograd.grad(first, vector)[0], gradient.sum((0, 1)), rtol=1e-4, atol=1e-5)
    with regard.capture(model, record=(), tensors=True, edit=edits.add(vector, "blocks.1.output")):
        third = model(**inputs()).logits[:, -1].square().sum()
    torch.testing.assert_close(torch.autograd.grad(third, vector)[0], gradient.sum((0, 1)), rtol=1e-4, atol=1e-5)


EDITS = {
    "ablate": lambda trace: edits.ablate((1, 1), (0, 2)),
    "mean": lambda trace: edits.ablate((1, 1), by="mean"),
    "pattern": lambda trace: edits.force_pattern("previous", (1, 0)),
    "patch": lambda trace: edits.patch(trace, "blocks.0.mlp.output", positions=[2, 5]),
    "freeze": lambda trace: edits.freeze(trace, "blocks.*.attn.weights"),
    "mean of a set": lambda trace: edits.mean_ablate(trace, "blocks.1.attn_residual"),
    "resample": lambda trace: edits.resample_ablate(trace, (1, 2)),
    "add": lambda trace: edits.add(np.arange(24.0), "blocks.0.output", positions=-1),
    "scale": lambda trace: edits.scale(0.5, "final_norm"),
    "both": lambda trace: edits.scale(0.5, "blocks.0.output") | edits.ablate((1, 0)),
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_ready_made_edits_of_tensors(pair, kind, name):
    """The numbers of those of arrays, and the gradients of all parameters too."""
    model, _ = pair(kind)
    other = {"input_ids": inputs()["input_ids"].flip(1)}
    trace = captured(model, other, trace=Trace())
    found = []
    for tensors in (False, True):
        model.zero_grad()
        with regard.capture(model, record=(), tensors=tensors, edit=EDITS[name](trace)):
            output = model(**inputs()).logits
        output[:, -3:].square().mean().backward()
        found.append((output.detach().numpy(), {n: p.grad.numpy().copy() for n, p in model.named_parameters()}))
    assert np.abs(found[0][0] - run(model, inputs())[0].numpy()).max() > 1e-4
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5, atol=1e-5)
    largest = max(np.abs(x).max() for x in found[0][1].values())
    for parameter, gradient in found[0][1].items():
        np.testing.assert_allclose(found[1][1][parameter], gradient, rtol=0, atol=1e-5 * largest, err_msg=parameter)


def test_a_patch_from_tensors_has_the_gradient_of_the_run_that_it_comes_from(pair):
    model, _ = pair("llama")
    with regard.capture(model, record="blocks.1.output", tensors=True) as source:
        model(input_ids=inputs()["input_ids"].flip(1))
    edit = edits.patch(source, "blocks.1.output", positions=[0, -1])
    with regard.capture(model, record=(), tensors=True, edit=edit):
        loss = model(**inputs()).logits[:, -1].square().sum()
    gradient = torch.autograd.grad(loss, source["blocks.1.output"])[0]
    assert gradient[:, -1].abs().max() > 0
    assert not gradient[:, 1:-1].any()


def test_what_a_trace_does_tensors_do_too(pair, tmp_path):
    model, _ = pair("llama")
    with regard.capture(model, record="residual, weights", tensors=True) as trace:
        model(**inputs())
    stacked = trace["blocks.[0-9].output"]
    assert stacked.shape == (3, 2, 13, 24)
    assert stacked.requires_grad
    assert trace.axes("blocks.1.attn.weights") == "B H T S"
    trace.save(tmp_path / "trace.safetensors")
    read = Trace.load(tmp_path / "trace.safetensors")
    np.testing.assert_array_equal(read["blocks.2.output"], trace["blocks.2.output"].detach().numpy())
    assert "blocks.2.output" in repr(trace.to_trace().names())
    assert trace.select(1)["blocks.0.output"].shape == (1, 13, 24)
    assert regard.metrics.head_metrics(trace.to_trace())
    assert "llama" in trace._repr_html_().lower()


def test_later_writing_into_a_tensor_does_not_change_what_is_recorded(pair):
    model, _ = pair("llama")
    handle = model.model.layers[1].register_forward_pre_hook(lambda _, args: args[0].mul_(2))
    with torch.no_grad(), regard.capture(model, record="blocks.0.*", tensors=True) as trace:
        model(**inputs())
    handle.remove()
    plain = captured(model, record="blocks.0.output")
    np.testing.assert_allclose(trace["blocks.0.output"].numpy(), plain["blocks.0.output"], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda x: None, "returned nothing"),
        (lambda x: x.detach().numpy(), "returned a ndarray; with tensors=True return a tensor"),
        (lambda x: x[:, :2], r"returned shape \(2, 2, 24\) instead of \(2, 13, 24\)"),
        (lambda x: x > 0, r"returned torch\.bool"),
    ],
)
def test_edits_that_do_not_fit(pair, edit, message):
    model, _ = pair("llama")
    with pytest.raises(RegardError, match=rf"the edit of blocks\.1\.output {message}"):  # noqa: SIM117
        with regard.capture(model, record=(), tensors=True, edit={"blocks.1.output": edit}):
            run(model, inputs())


def test_blocks_that_are_computed_again_have_no_tensors(pair):
    model, _ = pair("llama")
    model.train().model.gradient_checkpointing = True
    message = r"call model\.gradient_checkpointing_disable"
    with pytest.raises(RegardError, match=message), regard.capture(model, record="mlp", tensors=True):
        pass


def test_what_is_computed_a_second_time_has_no_tensors():
    layer = torch.nn.TransformerEncoderLayer(12, 2, 20, batch_first=True)
    model, x = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 5, 12)
    with regard.capture(model, record="attn, mlp, residual", tensors=True) as trace:
        model(x).sum().backward()
    assert trace["blocks.0.attn.output"].grad.abs().max() > 0
    with pytest.raises(RegardError, match="not with tensors=True"), regard.capture(model, tensors=True):
        model(x)
