"""Looking into models of PyTorch: the weights that eager gives, while the model runs as it always does."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import regard
from regard import RegardError, Trace, edits
from regard.torch.masks import mask_of

TOLERANCE = 1e-5
SMALL = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 20}
GROUPED = {**SMALL, "num_key_value_heads": 2}
MODELS = {
    "bert": ("BertModel", "BertConfig", SMALL),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "mistral": ("MistralModel", "MistralConfig", {**GROUPED, "sliding_window": 5}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 3}),
    "gemma2": (
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {**GROUPED, "head_dim": 6, "sliding_window": 4, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 7},
    ),
    "gpt_oss": (
        "GptOssModel",
        "GptOssConfig",
        {
            **GROUPED,
            "head_dim": 6,
            "sliding_window": 4,
            "num_local_experts": 3,
            "num_experts_per_tok": 2,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
}
BART = {
    "vocab_size": 50,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 40,
}
ALBERT = {**SMALL, "embedding_size": 8, "num_hidden_layers": 4}
SHARED = {
    "albert": ("AlbertModel", "AlbertConfig", ALBERT),
    "albert of two groups": ("AlbertForMaskedLM", "AlbertConfig", {**ALBERT, "num_hidden_groups": 2}),
    "albert of pairs": ("AlbertModel", "AlbertConfig", {**ALBERT, "num_hidden_layers": 2, "inner_group_num": 2}),
}
T5 = {"vocab_size": 50, "d_model": 24, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 3}
SEQ2SEQ = {"bart": ("BartModel", "BartConfig", BART), "t5": ("T5Model", "T5Config", T5)}
WRITERS = {"bart with a head": ("BartForConditionalGeneration", "BartConfig", BART)}
ALONE_IN_EAGER = ("gemma2", "gpt_oss")  # transformers has no other attention on a processor with softcap or sinks
LENGTH = 13


@pytest.fixture
def pair(transformers):
    """Return a function that makes a random model, and the same one that computes attention step by step."""
    import torch

    def pair(kind, implementation=None):
        model_kind, config_kind, sizes = (MODELS | SEQ2SEQ | WRITERS | SHARED)[kind]
        torch.manual_seed(3)
        config = getattr(transformers, config_kind)(**sizes)
        implementation = implementation or ("eager" if kind in ALONE_IN_EAGER else "sdpa")
        made = [
            getattr(transformers, model_kind)._from_config(copy.deepcopy(config), attn_implementation=name).eval()
            for name in (implementation, "eager")
        ]
        with torch.no_grad():
            for parameter in made[0].parameters():
                parameter.normal_(0, 0.4)
        made[1].load_state_dict(made[0].state_dict())
        return made

    return pair


def inputs(padding="none", length=LENGTH):
    import torch

    ids = torch.randint(3, 50, (2, length), generator=torch.Generator().manual_seed(5))
    if padding == "none":
        return {"input_ids": ids}
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    mask = {"right": mask, "left": mask.flip(1), "hole": mask.roll(-3, 1)}[padding]
    return {"input_ids": ids, "attention_mask": mask}


def run(model, given, **options):
    import torch

    with torch.no_grad():
        return model(**given, **options)


def close(ours, theirs, rows=None):
    """Compare ``B H T S``, where `rows`, ``B T``, are not padding: what those look at means nothing."""
    theirs = theirs.numpy()
    assert ours.shape == theirs.shape
    keep = np.ones(theirs.shape[:1] + theirs.shape[2:3], bool) if rows is None else rows
    np.testing.assert_allclose(ours.swapaxes(1, 2)[keep], theirs.swapaxes(1, 2)[keep], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("padding", ["none", "right", "left", "hole"])
@pytest.mark.parametrize("kind", MODELS)
def test_the_weights_are_those_of_eager_and_the_output_is_unchanged(pair, kind, padding):
    import torch

    model, eager = pair(kind)
    given = inputs(padding)
    rows = given["attention_mask"].numpy() > 0 if padding != "none" else None
    theirs = run(eager, given, output_attentions=True)
    plain = run(model, given)[0]
    with regard.capture(model) as trace:
        looked_at = run(model, given)[0]
    if kind in ALONE_IN_EAGER:  # computed by regard, without n² weights
        real = torch.ones(2, LENGTH, dtype=torch.bool) if rows is None else torch.tensor(rows)
        torch.testing.assert_close(looked_at[real], plain[real], rtol=1e-5, atol=1e-5)
    else:
        assert torch.equal(looked_at, plain)
    assert trace.names() == tuple(f"blocks.{i}.attn.weights" for i in range(len(theirs.attentions)))
    for layer, weights in enumerate(theirs.attentions):
        close(trace[f"blocks.{layer}.attn.weights"], weights, rows)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", SHARED)
def test_layers_that_share_a_module_are_numbered_by_the_order_of_their_calls(pair, kind, implementation):
    model, eager = pair(kind, implementation)
    given = inputs("right")
    rows = given["attention_mask"].numpy() > 0
    theirs = run(eager, given, output_attentions=True).attentions
    with regard.capture(model) as trace:
        run(model, given)
    assert trace.names() == tuple(f"blocks.{i}.attn.weights" for i in range(4))
    for layer, weights in enumerate(theirs):
        close(trace[f"blocks.{layer}.attn.weights"], weights, rows)
    edits = Trace(only=(), edit={"blocks.2.attn.context": np.zeros_like})
    with regard.capture(model, trace=edits):
        edited = [run(model, given)[0] for _ in range(2)]  # nothing is recorded, so it may run again
    assert not np.allclose(edited[0], run(model, given)[0])
    np.testing.assert_array_equal(*edited)


def test_a_second_run_of_shared_layers_is_an_error_also_of_a_part_of_the_model(pair):
    model, _ = pair("albert")
    hidden = model.embeddings(inputs()["input_ids"])
    with regard.capture(model):
        run(model, inputs())
        with pytest.raises(RegardError, match="a trace holds one run"):
            run(model, inputs())
    with pytest.raises(RegardError, match="recorded already"), regard.capture(model):
        model.encoder(hidden)


def test_one_layer_in_several_places_of_a_list():
    import torch

    torch.manual_seed(2)
    layer = torch.nn.TransformerEncoderLayer(12, 2, 20, batch_first=True).eval()
    model = torch.nn.TransformerEncoder(layer, 1)
    model.layers = torch.nn.ModuleList([layer] * 3)
    x = torch.randn(2, 5, 12)
    with torch.no_grad(), regard.capture(model) as trace:
        model(x)
    assert trace.names() == tuple(f"blocks.{i}.attn.weights" for i in range(3))
    with torch.no_grad():
        second = layer(x)
        theirs = layer.self_attn(second, second, second, average_attn_weights=False)[1]
    close(trace["blocks.1.attn.weights"], theirs)


@pytest.mark.parametrize("padding", ["none", "right", "left"])
@pytest.mark.parametrize("kind", SEQ2SEQ)
def test_an_encoder_and_a_decoder(pair, kind, padding):
    import torch

    model, eager = pair(kind)
    given = inputs(padding)
    rows = given["attention_mask"].numpy() > 0 if padding != "none" else None
    given["decoder_input_ids"] = torch.arange(7)[None].repeat(2, 1) + 4
    theirs = run(eager, given, output_attentions=True)
    plain = run(model, given)[0]
    with regard.capture(model) as trace:
        assert torch.equal(run(model, given)[0], plain)
    assert len(trace) == 6
    for layer in range(2):
        close(trace[f"encoder.blocks.{layer}.attn.weights"], theirs.encoder_attentions[layer], rows)
        close(trace[f"decoder.blocks.{layer}.attn.weights"], theirs.decoder_attentions[layer])
        close(trace[f"decoder.blocks.{layer}.cross_attn.weights"], theirs.cross_attentions[layer])


def test_t5_keeps_its_bias_as_a_number_for_each_distance(pair):
    import torch

    model, _ = pair("t5")
    sizes = []
    for length in (20, 40):
        given = inputs(length=length) | {"decoder_input_ids": torch.full((2, length), 4)}
        with regard.capture(model) as trace:
            run(model, given)
        arrays, _ = trace.map("encoder.blocks.1.attn").to_arrays()
        sizes.append(sum(array.nbytes for array in arrays.values()))
    assert sizes[1] < 2.01 * sizes[0]


def test_queries_after_a_cache(pair):
    import torch

    model, eager = pair("llama")
    ids = inputs()["input_ids"]
    state = run(model, {"input_ids": ids[:, :9]}, use_cache=True).past_key_values
    whole = run(eager, {"input_ids": ids}, output_attentions=True).attentions
    with regard.capture(model) as trace:
        run(model, {"input_ids": ids[:, 9:]}, past_key_values=state, use_cache=True)
    close(trace["blocks.2.attn.weights"], whole[2][:, :, 9:])
    assert torch.equal(torch.tensor(trace.map("blocks.2.attn").shape), torch.tensor([2, 4, 4, LENGTH]))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bart with a head"])
def test_generation_is_looked_into_when_it_has_ended(pair, kind):
    """As the error says; the weights of each generated token are those of its generation step."""
    model, eager = pair(kind)
    has_encoder = model.config.is_encoder_decoder
    ids = inputs()["input_ids"][:1, :7]
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "forced_eos_token_id": None}
    with pytest.raises(RegardError, match=r"let it end first.*model\(ids\) inside capture"), regard.capture(model):
        model.generate(ids, **options)
    written = model.generate(ids, **options)
    steps = eager.generate(ids, **options, output_attentions=True, return_dict_in_generate=True)
    assert steps.sequences.tolist() == written.tolist()
    with regard.capture(model) as trace:
        run(model, {"input_ids": ids, "decoder_input_ids": written} if has_encoder else {"input_ids": written})
    found = (
        {"attn": steps.decoder_attentions, "cross_attn": steps.cross_attentions}
        if has_encoder
        else {"attn": steps.attentions}
    )
    for name, passes in found.items():
        first = 0
        for weights in passes:
            rows, keys = weights[1].shape[2:]
            part = f"decoder.blocks.1.{name}.weights" if has_encoder else f"blocks.1.{name}.weights"
            close(trace[part][:, :, first : first + rows, :keys], weights[1])
            first += rows
        assert first == written.shape[1] - 1  # the last token has not been a query yet


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_generation_of_a_padded_batch_is_looked_into_when_it_has_ended(pair, kind):
    import torch

    model, eager = pair(kind)
    given = inputs("left")
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    steps = eager.generate(**given, **options, output_attentions=True, return_dict_in_generate=True)
    ids = steps.sequences
    mask = torch.cat([given["attention_mask"], torch.ones(2, 4, dtype=torch.int64)], 1)
    with regard.capture(model) as trace:
        run(model, {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(0)})
    weights = trace["blocks.1.attn.weights"]
    close(weights[:, :, :LENGTH, :LENGTH], steps.attentions[0][1], given["attention_mask"].numpy() > 0)
    for i, theirs in enumerate(steps.attentions[1:], LENGTH):
        close(weights[:, :, i : i + 1, : i + 1], theirs[1])


def test_beams_are_looked_into_when_they_have_ended(pair):
    """A run over the likeliest text: its scores are those by which it was chosen."""
    import torch

    model, _ = pair("llama")
    ids, options = inputs()["input_ids"][:1], {"max_new_tokens": 5, "eos_token_id": None, "do_sample": False}
    with pytest.raises(RegardError, match="let it end first"), regard.capture(model):
        model.generate(ids, num_beams=3, **options)
    found = model.generate(ids, num_beams=3, **options, output_scores=True, return_dict_in_generate=True)
    with regard.capture(model) as trace:
        logits = run(model, {"input_ids": found.sequences}).logits
    chosen = logits.log_softmax(-1)[:, :-1].gather(2, found.sequences[:, 1:, None])[:, LENGTH - 1 :].sum(1)
    torch.testing.assert_close(chosen[:, 0] / 5, found.sequences_scores, rtol=1e-4, atol=1e-4)
    assert trace["blocks.1.attn.weights"].shape[2:] == (LENGTH + 5, LENGTH + 5)


def test_a_run_ends_after_the_step_that_stop_names(pair):
    model, text = pair("llama")[0], inputs()
    with regard.capture(model) as whole:
        model(**text)
    ran = []
    hook = model.model.layers[1].register_forward_pre_hook(lambda *_: ran.append(1))
    with regard.capture(model, trace=Trace(maps=True, stop="blocks.0.attn.weights")) as trace:
        model(**text)
        raise AssertionError("the context has ended")
    hook.remove()
    assert not ran
    assert "blocks.1.attn.weights" not in trace
    np.testing.assert_array_equal(trace["blocks.0.attn.weights"], whole["blocks.0.attn.weights"])
    beyond = Trace(maps=True, stop="blocks.7.attn.weights")
    with pytest.raises(RegardError, match="stop= matched no step"), regard.capture(model, trace=beyond):
        model(**text)


def test_an_edit_without_a_record_acts_on_every_step_of_generation(pair):
    """A trace that keeps nothing may be run into as often as one likes."""
    model, _ = pair("llama")
    ids, options = inputs()["input_ids"][:1], {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    calls = []

    def none(weights):
        calls.append(weights.shape[2])
        return np.zeros_like(weights)

    with regard.capture(model, trace=Trace(only=(), edit={"blocks.1.attn.weights": none})):
        model.generate(ids, **options)
    assert calls == [LENGTH, 1, 1, 1, 1]


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_precisions(pair, dtype):
    import torch

    model, eager = (m.to(getattr(torch, dtype)) for m in pair("bert"))
    with regard.capture(model) as trace:
        run(model, inputs())
    theirs = run(eager, inputs(), output_attentions=True).attentions[0]
    if dtype == "float64":
        np.testing.assert_allclose(trace["blocks.0.attn.weights"], theirs.numpy(), rtol=0, atol=1e-12)
    else:  # eager rounds scores to 8 bits before the softmax
        np.testing.assert_allclose(trace["blocks.0.attn.weights"], theirs.float().numpy(), rtol=0, atol=0.03)


def test_a_mask_and_a_bias_of_ones_own(pair):
    import torch

    model, eager = pair("bert")
    given = inputs()
    generator = torch.Generator().manual_seed(2)
    bias = torch.randn(2, 1, LENGTH, LENGTH, generator=generator)
    bias[torch.rand(bias.shape, generator=generator) < 0.3] = -torch.inf
    bias[..., 0] = 0.0
    given["attention_mask"] = bias
    with regard.capture(model) as trace:
        run(model, given)
    theirs = run(eager, given, output_attentions=True)
    for layer, weights in enumerate(theirs.attentions):
        close(trace[f"blocks.{layer}.attn.weights"], weights)


def test_the_tokens_and_a_file(pair, tmp_path):
    class Tokenizer:
        all_special_ids = (3,)

        def convert_ids_to_tokens(self, ids):
            return [f"w{i}" for i in ids]

    model, _ = pair("bert")
    given = inputs("right")
    with regard.capture(model, Tokenizer()) as trace:
        run(model, given)
    assert [len(encoding) for encoding in trace.encodings] == [LENGTH, 8]
    assert trace.encodings[1].tokens[0] == f"w{int(given['input_ids'][1, 0])}"
    assert trace.model == "BertModel"
    trace.save(tmp_path / "bert.safetensors")
    kept = Trace.load(tmp_path / "bert.safetensors")
    np.testing.assert_array_equal(kept["blocks.1.attn.weights"], trace["blocks.1.attn.weights"])


def test_everything_that_a_trace_can_keep(pair):
    model, eager = pair("llama")
    seen = {}
    hook = model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(lambda _, args: seen.update(x=args[0]))
    with regard.capture(model, trace=Trace()) as trace:
        run(model, inputs())
    hook.remove()
    layer = "blocks.1.attn"
    assert {f"{layer}.{name}" for name in ("q", "k", "v", "scores", "biased", "weights", "context")} <= set(trace)
    context = trace[f"{layer}.context"].swapaxes(1, 2).reshape(2, LENGTH, -1)
    np.testing.assert_array_equal(context, seen["x"].numpy())
    close(trace[f"{layer}.weights"], run(eager, inputs(), output_attentions=True).attentions[1])


def test_an_edit_is_an_edit_of_the_model_s_run(pair):
    """A head of which the weights are all on the first key hands on the first value."""
    import torch

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
    import torch

    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-6, atol=1e-6)
    for name, gradient in theirs[1].items():
        torch.testing.assert_close(ours[1][name], gradient, rtol=2e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("step", ["q", "v", "context"])
def test_the_gradient_through_an_edit_is_that_of_the_same_edit_by_a_hook(pair, step):
    import torch

    model, _ = pair("gpt2")
    attention = model.transformer.h[1].attn

    def heads(x):  # B T E to B H T D
        return x.unflatten(-1, (3, 8)).transpose(1, 2)

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


def with_all_weight_on_the_first(weights):
    weights = weights * 0
    weights[..., 0] = 1
    return weights


@pytest.mark.parametrize(
    ("step", "ready_made", "change"),
    [
        ("context", edits.ablate((1, 1)), lambda x: x * 0),
        ("context", edits.ablate((1, 1), by="mean"), lambda x: x.mean(1, keepdims=True)),
        ("weights", edits.force_pattern("uniform", (1, 1)), lambda x: (x > 0) / (x > 0).sum(-1, keepdims=True)),
        ("weights", edits.force_pattern("first", (1, 1)), with_all_weight_on_the_first),
    ],
    ids=["zero", "mean", "uniform", "first"],
)
def test_the_gradient_through_a_ready_made_edit_is_that_of_the_same_change(pair, step, ready_made, change):
    model, _ = pair("gpt2")

    def own(value):
        value[:, 1] = change(value[:, 1])
        return value

    ours, theirs = (
        edited_loss(model, regard.capture(model, trace=Trace(only=(), edit=edit)))
        for edit in (ready_made, {f"blocks.1.attn.{step}": own})
    )
    same_gradients(ours, theirs)


def test_a_patched_value_has_no_gradient(pair):
    model, _ = pair("gpt2")
    with regard.capture(model, trace=Trace(only="*.v")) as plain:
        run(model, inputs())
    trace = Trace(only=(), edit=edits.patch(plain, "blocks.1.attn.v"))
    _, gradients = edited_loss(model, regard.capture(model, trace=trace))
    assert (gradients["transformer.h.1.attn.c_attn.weight"][:, -24:] == 0).all()


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
    """In a run it is no error."""
    model, _ = pair("gpt2")
    with regard.capture(model, trace=Trace(only=(), edit={"blocks.1.attn.v": edit})):
        out = model(**inputs(), labels=inputs()["input_ids"])
    with pytest.raises(RegardError, match=rf"gradient .* edit of blocks\.1\.attn\.v.*{message}"):
        out.loss.backward()


def test_an_edit_may_put_a_constant_in_place_of_a_value(pair):
    import torch

    model, _ = pair("gpt2")
    for edit in (lambda x: x * 0, lambda x: torch.zeros(x.shape)):
        _, gradients = edited_loss(model, regard.capture(model, trace=Trace(only=(), edit={"blocks.1.attn.v": edit})))
        of_values = gradients["transformer.h.1.attn.c_attn.weight"][:, -24:]
        assert (of_values == 0).all()


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
    import torch

    x = torch.randn(2, 3, 4, dtype=torch.bfloat16, requires_grad=True)
    trace = Trace(only=(), edit={"weights": lambda weights: weights**2})
    regard.attention(x, x.detach(), x.detach(), trace=trace).sum().backward()
    assert x.grad.dtype == torch.bfloat16
    y = x.detach().float().requires_grad_()
    ((y @ y.detach().mT / 2).softmax(-1) ** 2 @ y.detach()).sum().backward()
    torch.testing.assert_close(x.grad.float(), y.grad, rtol=0.05, atol=0.02)


def registered():
    from transformers import AttentionInterface, AttentionMaskInterface

    return {name for kind in (AttentionInterface, AttentionMaskInterface) for name in kind._global_mapping}


def test_everything_is_put_back(pair):
    model, _ = pair("bert")
    before, hooks = registered(), len(model._forward_pre_hooks)
    with regard.capture(model):
        assert registered() > before
        assert model.config._attn_implementation != "sdpa"
    unknown = {"input_ids": inputs()["input_ids"] + 50}
    with pytest.raises(IndexError), regard.capture(model):
        run(model, unknown)
    assert (registered(), model.config._attn_implementation) == (before, "sdpa")
    assert len(model._forward_pre_hooks) == hooks
    twice = regard.capture(model)
    twice.__enter__()
    run(model, inputs())
    with pytest.raises(RegardError, match="a trace holds one run") as error:
        run(model, inputs())
    assert not twice.__exit__(RegardError, error.value, None)
    assert (registered(), model.config._attn_implementation) == (before, "sdpa")


@pytest.mark.parametrize("kind", ["bert", "gemma2"])
@pytest.mark.parametrize("order", [1, -1], ids=["first out", "last out"])
def test_two_at_once(pair, kind, order):
    model, eager = pair(kind)
    before, implementation = registered(), model.config._attn_implementation
    contexts = [regard.capture(model) for _ in range(2)]
    traces = [context.__enter__() for context in contexts]
    run(model, inputs())
    for context in contexts[::order]:
        context.__exit__(None, None, None)
    assert (registered(), model.config._attn_implementation) == (before, implementation)
    run(model, inputs())
    theirs = run(eager, inputs(), output_attentions=True).attentions
    for trace in traces:
        close(trace["blocks.1.attn.weights"], theirs[1])


@pytest.mark.parametrize("kind", ["bert", "gemma2"])
@pytest.mark.parametrize("first", [0, 1])
def test_one_capture_goes_on_after_another_has_ended(pair, kind, first):
    model, eager = pair(kind)
    before, implementation = registered(), model.config._attn_implementation
    contexts = [regard.capture(model) for _ in range(2)]
    traces = [context.__enter__() for context in contexts]
    contexts[first].__exit__(None, None, None)
    run(model, inputs())
    contexts[1 - first].__exit__(None, None, None)
    assert (registered(), model.config._attn_implementation) == (before, implementation)
    assert len(traces[first]) == 0
    close(traces[1 - first]["blocks.1.attn.weights"], run(eager, inputs(), output_attentions=True).attentions[1])


def test_two_models_in_two_threads(pair):
    models = [pair("bert"), pair("llama")]
    traces = [None, None]

    def look(i):
        with regard.capture(models[i][0]) as traces[i]:
            run(models[i][0], inputs())

    threads = [threading.Thread(target=look, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for trace, (_, eager) in zip(traces, models, strict=True):
        close(trace["blocks.0.attn.weights"], run(eager, inputs(), output_attentions=True).attentions[0])


def test_what_the_user_sets_inside_stays(pair):
    model, _ = pair("bert")
    before = registered()
    with regard.capture(model):
        model.set_attn_implementation("eager")
    assert (registered(), model.config._attn_implementation) == (before, "eager")


def test_gradients_are_those_of_the_model(pair):
    import torch

    model, _ = pair("llama")
    given = inputs() | {"labels": inputs()["input_ids"]}
    found = []
    for look in (False, True):
        model.zero_grad()
        if look:
            with regard.capture(model):
                model(**given).loss.backward()
        else:
            model(**given).loss.backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("kind", "implementation", "message"),
    [
        ("bert", "flex_attention", "does not support: call model.set_attn"),
        ("t5", "eager", "may bypass the attention interface"),
    ],
)
def test_unsupported_implementations_are_errors(pair, kind, implementation, message):
    model, _ = pair(kind)
    model.config._attn_implementation = implementation
    before = registered()
    with pytest.raises(RegardError, match=message), regard.capture(model):
        pass
    assert (registered(), model.config._attn_implementation) == (before, implementation)


def test_only_what_a_model_can_use_is_advised(transformers, pair):
    model, _ = pair("gpt_oss")
    model.config._attn_implementation = "flex_attention"
    with (
        pytest.raises(RegardError, match=r"call model\.set_attn_implementation\('eager'\) first"),
        regard.capture(model),
    ):
        pass
    deberta = transformers.DebertaModel(transformers.DebertaConfig(**SMALL))
    for implementation in ("eager", "flex_attention"):
        deberta.config._attn_implementation = implementation
        with pytest.raises(RegardError, match=r"DebertaModel .* has no other that capture supports") as error:
            regard.capture(deberta).__enter__()
        assert "sdpa" not in str(error.value)


def test_mistakes(pair):
    import torch

    model, _ = pair("bert")
    with pytest.raises(RegardError, match=r"takes a torch\.nn\.Module, got int"), regard.capture(5):
        pass
    with pytest.raises(RegardError, match="Linear has no attention"), regard.capture(torch.nn.Linear(2, 2)):
        pass
    with pytest.raises(RegardError, match="records into a Trace"), regard.capture(model, trace=[]):
        pass
    with pytest.raises(RegardError, match="without input_ids"), regard.capture(model, object()):
        run(model, {"inputs_embeds": torch.zeros(1, 3, 24)})
    message = "one of transformers or of regard, got object"
    with pytest.raises(RegardError, match=message), regard.capture(model, object()):
        run(model, inputs())
    gemma = pair("gemma2")[0].train()
    gemma.config.attention_dropout = 0.5
    for layer in gemma.model.layers:
        layer.self_attn.attention_dropout = 0.5
    with pytest.raises(RegardError, match="without dropout"), regard.capture(gemma):
        gemma(**inputs())


def peak(work):
    """Return how many bytes more than at its beginning the process held at most while `work` ran."""
    status = Path("/proc/self/status")

    def held(field):
        return 1024 * int(next(line for line in status.read_text().splitlines() if line.startswith(field)).split()[1])

    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)  # free memory that is still held would be used again, and not be counted
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    before = held("VmRSS")
    result = work()
    return result, held("VmHWM") - before


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system for the peak in Linux's way")
@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_memory_grows_with_the_text_and_not_with_its_square(pair, kind):
    """One map of 8,192 tokens would be 1 GiB for its 4 heads; there are three of them."""
    model, _ = pair(kind)
    model = model.model  # without logits

    def look(length):
        with regard.capture(model) as trace:
            run(model, {"input_ids": inputs(length=length)["input_ids"][:1]})
        return trace

    look(64)  # what is loaded once
    sizes, peaks = [], []
    for length in (4096, 8192):
        trace, most = peak(lambda length=length: look(length))
        sizes.append(sum(trace.map(f"blocks.{i}.attn").nbytes for i in range(3)))
        peaks.append(most)
    assert sizes[1] == 2 * sizes[0] == 3 * 8192 * (4 * 24 + 2 * 24 + 16 * 4)  # q, k, and two numbers for each row
    assert peaks[1] < 60_000_000 < 8192**2, peaks  # not even one byte for each pair of tokens
    row = trace.map("blocks.2.attn")[0, 1, 8191]
    assert row.shape == (8192,)
    np.testing.assert_allclose(row.sum(), 1, atol=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system for the peak in Linux's way")
def test_a_mask_leaves_no_holes_in_memory():
    """Whether small arrays of each block fragment the heap depends on its state: one of four lengths shows it."""
    import torch

    def brought_down(length):
        keys = torch.arange(length)
        return mask_of(lambda rows: (keys <= keys[rows, None])[None, None], (1, 1), length, length)

    brought_down(64)
    peaks = []
    for length in (8192, 8092, 7992, 7892):
        rule, most = peak(lambda length=length: brought_down(length))
        peaks.append(most)
        np.testing.assert_array_equal(rule.last[-3:], [length - 2, length - 1, length])
    assert max(peaks) < 60_000_000 < length**2, peaks


# Plain PyTorch


def multihead(**options):
    import torch

    torch.manual_seed(4)
    module = torch.nn.MultiheadAttention(12, 3, **options).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.5)
    return module


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_first": True}, {"bias": False}, {"kdim": 5, "vdim": 7}, {"add_bias_kv": True, "add_zero_attn": True}],
    ids=str,
)
@pytest.mark.parametrize("masks", ["none", "padding", "causal", "numbers", "padding and numbers", "each head"])
def test_multihead_attention(options, masks):
    import torch

    module = multihead(**options)
    generator = torch.Generator().manual_seed(7)
    shapes = [(2, n, width) for n, width in ((5, 12), (7, options.get("kdim", 12)), (7, options.get("vdim", 12)))]
    q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
    if not options.get("batch_first"):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    given = {}
    if "padding" in masks:
        given["key_padding_mask"] = torch.arange(7) >= torch.tensor([[7], [4]])
    if "causal" in masks:
        given["attn_mask"] = torch.ones(5, 7, dtype=torch.bool).triu(1)
    if "numbers" in masks:
        given["attn_mask"] = torch.randn(5, 7, generator=generator)
        if "padding" in masks:
            given["key_padding_mask"] = torch.zeros(2, 7).masked_fill(given["key_padding_mask"], -torch.inf)
    if "head" in masks:
        given["attn_mask"] = torch.rand(6, 5, 7, generator=generator) < 0.3
        given["attn_mask"][..., 0] = False
    with torch.no_grad():
        plain = module(q, k, v, need_weights=False, **given)[0]
        theirs = module(q, k, v, average_attn_weights=False, **given)[1]
        with regard.capture(module) as trace:
            looked_at = module(q, k, v, need_weights=False, **given)[0]
    torch.testing.assert_close(looked_at, plain, rtol=0, atol=1e-6)
    close(trace["weights"], theirs)


def test_a_text_without_a_batch():
    import torch

    module, x = multihead(), torch.randn(5, 12)
    with torch.no_grad(), regard.capture(module) as trace:
        weights = module(x, x, x, average_attn_weights=False)[1]
    close(trace["weights"], weights[None])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("padded", [False, True])
def test_the_fast_path_of_an_encoder_is_looked_at_too(padded):
    import torch

    torch.manual_seed(6)
    layer = torch.nn.TransformerEncoderLayer(12, 2, 20, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3).eval()
    x = torch.randn(2, 6, 12)
    given = {"src_key_padding_mask": torch.arange(6) >= torch.tensor([[6], [4]])} if padded else {}
    with torch.no_grad():
        plain = model(x, **given)
        with regard.capture(model) as trace:
            looked_at = model(x, **given)
    rows = np.arange(6) < np.array([[6], [4 if padded else 6]])
    np.testing.assert_allclose(looked_at.numpy()[rows], plain.numpy()[rows], rtol=0, atol=1e-5)
    assert trace.names() == tuple(f"blocks.{i}.attn.weights" for i in range(3))
    with torch.no_grad():
        hide = given.get("src_key_padding_mask")
        theirs = model.layers[0].self_attn(x, x, x, key_padding_mask=hide, average_attn_weights=False)[1]
    close(trace["blocks.0.attn.weights"], theirs)
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_transformer_of_plain_pytorch():
    import torch

    model = torch.nn.Transformer(12, 2, 2, 2, 20, batch_first=True).eval()
    source, target = torch.randn(2, 6, 12), torch.randn(2, 5, 12)
    hidden = torch.nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad(), regard.capture(model) as trace:
        model(source, target, tgt_mask=hidden)
    assert trace["decoder.blocks.1.cross_attn.weights"].shape == (2, 2, 5, 6)
    assert not np.triu(trace["decoder.blocks.0.attn.weights"][0, 0], 1).any()
    assert "encoder.blocks.1.attn.weights" in trace


@pytest.mark.parametrize("order", [1, -1])
def test_two_captures_of_multihead_attention_at_once(order):
    import torch

    module, x = multihead(), torch.randn(5, 12)
    contexts = [regard.capture(module) for _ in range(2)]
    traces = [context.__enter__() for context in contexts]
    module(x, x, x)
    for context in contexts[::order]:
        assert not torch.backends.mha.get_fastpath_enabled()
        context.__exit__(None, None, None)
    assert torch.backends.mha.get_fastpath_enabled()
    assert not module._forward_pre_hooks
    np.testing.assert_array_equal(traces[0]["weights"], traces[1]["weights"])


def test_plain_attention_is_not_edited():
    import torch

    module, x = multihead(), torch.randn(5, 12)
    edits = Trace(edit={"weights": np.negative})
    with pytest.raises(RegardError, match="not edited"), regard.capture(module, trace=edits):
        module(x, x, x)
    assert torch.backends.mha.get_fastpath_enabled()
    assert not module._forward_pre_hooks
