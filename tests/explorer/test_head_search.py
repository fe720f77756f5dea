"""Which heads matter: each head ablated once, and heads found by the cells that were chosen."""

import numpy as np
import pytest
from explorations import explored

import regard
from regard.functional import softmax
from regard.views.similarity import cosine


@pytest.mark.parametrize("layer", [0, 1])
def test_a_sweep_is_the_ablation_of_each_head_by_itself(causal, layer):
    text, position = "some text that is long", 3
    found = explored(causal, text).sweep(0, layer, position=position)
    plain = softmax(np.asarray(causal(text).logits[0, position], np.float64))
    assert found["token"] == int(plain.argmax())
    assert found["text"] == causal.tokenizer.decode([found["token"]])
    assert found["before"] == pytest.approx(plain.max(), rel=1e-6)
    for head, after in enumerate(found["after"]):
        logits = np.asarray(causal(text, edit=regard.edits.ablate((layer, head))).logits[0, position], np.float64)
        assert after == pytest.approx(softmax(logits)[found["token"]], rel=1e-4)


def test_a_sweep_of_an_encoder_compares_the_vector_of_a_token(bert):
    text, position = "the cat sat", 2
    found = explored(bert, text).sweep(0, 1, position=position)
    plain = bert(text).hidden[0, position]
    assert (found["before"], found["token"]) == (1.0, None)
    for head, after in enumerate(found["after"]):
        edited = bert(text, edit=regard.edits.ablate((1, head))).hidden[0, position]
        assert after == pytest.approx(cosine(plain, edited), abs=1e-6)


def test_a_sweep_of_an_encoder_decoder_is_of_its_prediction(bart):
    text = "some text"
    found = explored(bart, text).sweep(0, 0)
    for head, after in enumerate(found["after"]):
        output = bart(text, edit=regard.edits.ablate(("encoder.blocks.0.attn", head)))
        assert after == pytest.approx(softmax(np.asarray(output.logits[0, -1], np.float64))[found["token"]], rel=1e-4)


def test_a_sweep_is_of_the_probability_of_the_chosen_token_a_few_heads_at_a_time(causal, monkeypatch):
    text = "some text that is long"
    found = explored(causal, text).sweep(0, 1, token=5)
    assert found["token"] == 5
    assert found["before"] == pytest.approx(softmax(np.asarray(causal(text).logits[0, -1], np.float64))[5], rel=1e-5)
    monkeypatch.setattr("regard.explorer.queries.head_search._TOKENS_PER_BATCH", 8)
    np.testing.assert_allclose(explored(causal, text).sweep(0, 1, token=5)["after"], found["after"], rtol=1e-5)


def test_heads_are_found_by_the_mean_weight_of_some_cells(bert):
    text = "the cat sat"
    weights = regard.Trace()
    bert(text, trace=weights)
    cells = [(1, 2), (3, 1), (3, 3)]
    found = explored(bert, text).find_heads(0, cells)["values"]
    for layer in range(2):
        maps = weights[f"blocks.{layer}.attn.weights"][0]
        expected = [np.mean([head[cell] for cell in cells]) for head in maps]
        np.testing.assert_allclose(found[layer], expected, rtol=1e-5)
