"""transformers with attn_implementation="regard" beside its own "eager", model type by model type."""

import re
from pathlib import Path

import pytest
import torch
from transformers_models import (
    DECODERS,
    ENCODER_DECODERS,
    ENCODERS,
    OTHERS,
    SUPPORTED,
    UNSUPPORTED,
    UNTOUCHED,
    make_model,
)

import regard
from regard import RegardError
from regard.torch import transformers as interface

TOLERANCE = 2.0**-15  # of the largest number: 256 roundings of float32
B, T, U = 2, 11, 7
IDS = torch.randint(4, 50, (B, T), generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def calls(transformers, monkeypatch):
    """Count the calls of regard's attention."""
    regard.torch.register()
    count = []

    def counted(*args, **options):
        count.append(args[0])
        return interface.attention_forward(*args, **options)

    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "regard", counted)
    return count


def padded(side):
    """Return an attention mask: none, or one of a batch whose first text is three tokens shorter."""
    if side == "none":
        return None
    mask = torch.ones_like(IDS)
    mask[0, slice(0, 3) if side == "left" else slice(-3, None)] = 0
    return mask


def inputs_of(name, side):
    """Return the input of a model, and which rows of its output are not of padding."""
    mask = padded(side)
    tokens = torch.ones(B, T, dtype=torch.bool) if mask is None else mask.bool()
    if name == "whisper":
        features = torch.randn(B, 6, 40, generator=torch.Generator().manual_seed(4))
        return {"input_features": features, "decoder_input_ids": IDS[:, :U]}, ...
    if name == "wav2vec2":
        return {"input_values": torch.randn(B, 400, generator=torch.Generator().manual_seed(4))}, ...
    if name in OTHERS:
        images = {"pixel_values": torch.randn(B, 3, 12, 12, generator=torch.Generator().manual_seed(4))}
        return (images | {"input_ids": IDS, "attention_mask": mask} if name == "clip" else images), ...
    if name in ENCODER_DECODERS:
        return {"input_ids": IDS, "attention_mask": mask, "decoder_input_ids": IDS[:, :U]}, ...
    return {"input_ids": IDS, "attention_mask": mask}, tokens


def output_and_gradients(model, inputs, rows):
    model.zero_grad()
    output = model(**inputs)
    output = output.logits_per_text if hasattr(output, "logits_per_text") else output[0]
    output = output[rows]
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(5))
    (output * weights).sum().backward()
    return output.detach(), {name: x.grad for name, x in model.named_parameters() if x.grad is not None}


def assert_close(actual, expected, largest=None, note=""):
    largest = expected.detach().abs().max() if largest is None else largest
    torch.testing.assert_close(
        actual, expected, rtol=0, atol=TOLERANCE * float(largest), msg=lambda text: f"{note}: {text}"
    )


@pytest.mark.parametrize("name", SUPPORTED)
def test_output_and_gradients(transformers, calls, name):
    eager, model = (make_model(transformers, name, kind) for kind in ("eager", "regard"))
    for side in ("none",) if name in OTHERS else ("none", "left", "right"):
        inputs, rows = inputs_of(name, side)
        calls.clear()
        expected, expected_gradients = output_and_gradients(eager, inputs, rows)
        assert not calls
        output, gradients = output_and_gradients(model, inputs, rows)
        assert calls
        assert_close(output, expected, note=side)
        assert gradients.keys() == expected_gradients.keys()
        largest = max(x.abs().max() for x in expected_gradients.values())
        for parameter, gradient in gradients.items():
            assert_close(gradient, expected_gradients[parameter], largest, note=(side, parameter))


@pytest.mark.pairwise
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("side", ["none", "left"])
@pytest.mark.parametrize("name", [*DECODERS, *ENCODER_DECODERS])
def test_generation(transformers, calls, name, side, cache):
    mask = torch.ones_like(IDS) if side == "none" else padded(side)
    options = {"max_new_tokens": 7, "min_new_tokens": 7, "do_sample": False, "num_beams": 1, "pad_token_id": 0}
    if cache == "static":
        options |= {"cache_implementation": "static", "disable_compile": True}
    expected = make_model(transformers, name).generate(IDS, attention_mask=mask, **options)
    assert torch.equal(make_model(transformers, name, "regard").generate(IDS, attention_mask=mask, **options), expected)
    assert calls


def test_whisper_generates(transformers, calls):
    inputs, _ = inputs_of("whisper", "none")
    options = {"max_new_tokens": 7, "min_new_tokens": 7, "do_sample": False, "num_beams": 1}
    expected, ids = (
        make_model(transformers, "whisper", name).generate(inputs["input_features"], **options)
        for name in ("eager", "regard")
    )
    assert torch.equal(ids, expected)
    assert calls


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_cannot_says_why(transformers, name):
    reason = UNSUPPORTED[name][1]
    with pytest.raises((RegardError, KeyError), match=reason):
        make_model(transformers, name, "regard")(input_ids=IDS)


@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_runs_without_the_interface_runs_as_before(transformers, calls, name):
    expected, output = (make_model(transformers, name, kind)(input_ids=IDS)[0] for kind in ("eager", "regard"))
    assert torch.equal(output, expected)
    assert not calls


def test_the_documentation_lists_these_models():
    page = (Path(__file__).parents[2] / "docs" / "transformers.md").read_text(encoding="utf-8")
    supported, others = page.split("## What does not")
    assert re.findall(r"`([\w-]+)`", supported.split("Decoders:")[1]) == [
        *DECODERS,
        *ENCODERS,
        *ENCODER_DECODERS,
        *OTHERS,
    ]
    listed = re.findall(r"^\| (.*?) \|", others, re.MULTILINE)
    assert {x for row in listed for x in re.findall(r"`([\w-]+)`", row)} == {*UNSUPPORTED, *UNTOUCHED}
    assert len(SUPPORTED) >= 40
