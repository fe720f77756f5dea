"""Captures and generation: caches, ends of runs, and texts that are looked into when they are written."""

import numpy as np
import pytest
import torch
from capture_models import LENGTH, captured, close, inputs, run

import regard
from regard import RegardError, Trace, edits


def test_queries_after_a_cache(pair):
    model, eager = pair("llama")
    ids = inputs()["input_ids"]
    state = run(model, {"input_ids": ids[:, :9]}, use_cache=True).cache
    whole = run(eager, {"input_ids": ids}, output_attentions=True).attentions
    with regard.capture(model) as trace:
        run(model, {"input_ids": ids[:, 9:]}, cache=state, use_cache=True)
    close(trace["blocks.2.attn.weights"], whole[2][:, :, 9:])
    assert torch.equal(torch.tensor(trace.map("blocks.2.attn").shape), torch.tensor([2, 4, 4, LENGTH]))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bart"])
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
    trace = captured(model, {"input_ids": ids, "decoder_input_ids": written} if has_encoder else {"input_ids": written})
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


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("positions", [[0, 3], [-1], [8, 9], [-2, 8]])
def test_positions_of_an_edit_are_those_of_each_text_while_it_is_generated(pair, kind, positions):
    """The oracle is a hook that changes each whole text, run without a cache and without padding."""
    model, eager = pair(kind)
    given = inputs("left")
    vector = 5 * torch.randn(64, generator=torch.Generator().manual_seed(0))[: model.config.hidden_size]
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    edit = edits.add(vector.numpy(), "blocks.1.output", positions=positions)
    with regard.capture(model, record=(), edit=edit):
        found = model.generate(**given, **options)[:, -5:]
    block = (eager.model.layers if kind == "llama" else eager.transformer.h)[1]
    for row, mask, tokens in zip(given["input_ids"], given["attention_mask"], found, strict=True):
        ids = row[mask > 0][None]
        absolute = [p % ids.shape[1] if p < 0 else p for p in positions]

        def change(_, __, output, absolute=absolute):
            hidden = (output[0] if isinstance(output, tuple) else output).clone()
            hidden[:, [p for p in absolute if p < hidden.shape[1]]] += vector
            return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

        handle = block.register_forward_hook(change)
        for _ in range(5):
            with torch.no_grad():
                ids = torch.cat([ids, eager(ids, use_cache=False).logits[:, -1].argmax(-1)[:, None]], 1)
        handle.remove()
        assert ids[0, -5:].tolist() == tokens.tolist()
