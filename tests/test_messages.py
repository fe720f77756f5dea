"""What is said to somebody who types what another library has: what to do instead."""

import numpy as np
import pytest

import regard
from regard import RegardError
from regard.views import select

X = np.ones((2, 3, 4))


def traced():
    trace = regard.Trace()
    regard.load("induction")("abc", trace=trace)
    return trace


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: regard.Trace()["blocks.0.attn.weights"], "it has recorded nothing yet: run a model with it"),
        (lambda: regard.Model("minilm"), r'a model is loaded: regard\.load\("minilm"\)'),
        (
            lambda: regard.load("no/such", download=False),
            "not on this machine: run `regard pull no/such` with a network",
        ),
        (lambda: regard.load("gpt2"), "Any other is org/name of the Hugging Face hub, or a folder or GGUF file"),
        (lambda: regard.load("smolm2"), r"did you mean smollm2\? .* or GGUF file$"),
        (lambda: regard.attention(X, X, X, mask=np.ones((3, 3), int)), "of 0 and 1 make one, mask != 0"),
        (lambda: regard.attention(X, X, X, bias=np.ones((3, 3), int)), "that mask keys make mask=bias != 0"),
        (lambda: regard.load("induction")(None), "ids, got None"),
        (lambda: regard.load("induction")(np.array(["a", "b"])), r"a NumPy array of strings: array\.tolist\(\)"),
        (lambda: regard.Trace().save("t.npz"), r"as a \.safetensors file, not as t\.npz"),
        (lambda: select(traced(), head="L3H1"), "there is no layer 3: choose from 0 to 1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(RegardError, match=message):
        call()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"attn_mask": None}, "no argument attn_mask: it is mask="),
        ({"is_causal": True}, "no argument is_causal: it is causal="),
        ({"dropout_p": 0.1}, "no argument dropout_p: it is dropout= with rng="),
        ({"enable_gqa": True}, "no argument enable_gqa: it is not needed"),
        ({"need_weights": True}, r"no argument need_weights: it is attention_weights\(q, k, \.\.\.\) here"),
        ({"cauzal": True}, r"no argument cauzal; did you mean causal\?"),
        ({"mystery": 1}, "no argument mystery$"),
    ],
)
def test_names_of_other_libraries(option, message):
    with pytest.raises(TypeError, match=message):
        regard.attention(X, X, X, **option)


@pytest.mark.parametrize(
    ("option", "meant"),
    [("max_tokens", "max_new_tokens"), ("max_length", "max_new_tokens"), ("temprature", "temperature")],
)
def test_options_of_generation(option, meant):
    with pytest.raises(TypeError, match=f"no argument {option}; did you mean {meant}"):
        regard.load("induction").generate("abc", **{option: 3})


def test_a_part_of_a_name_of_a_step():
    trace = traced()
    with pytest.raises(RegardError, match=r"no 'attn'; did you mean blocks\.\*\.attn\.weights"):
        trace["attn"]


@pytest.mark.parametrize("name", ["generate", "stream", "circuits"])
def test_what_an_encoder_has_not(write_bert, name):
    model = regard.load(write_bert())
    assert not hasattr(model, name)
    with pytest.raises(AttributeError, match=rf"has no {name}: load a .*, such as regard\.load\('smollm2'\)"):
        getattr(model, name)
    with pytest.raises(AttributeError, match="'Bert' object has no attribute 'odd'"):
        model.odd  # noqa: B018


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("last_hidden_state", "its vectors are .hidden"),
        ("attentions", "trace['blocks.0.attn.weights']"),
        ("mystery", "has no attribute 'mystery'$"),
    ],
)
def test_what_transformers_calls_otherwise(name, here):
    with pytest.raises(AttributeError, match=here.replace("[", "\\[")):
        getattr(regard.load("induction")("abc"), name)
