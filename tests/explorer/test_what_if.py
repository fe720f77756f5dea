"""Other scores of a row, as the page asks: the softmax of these, and a run of the model with its weights."""

import numpy as np
import pytest
from explorations import explored

import regard
from regard.explorer import Exploration
from regard.explorer.run import recorded

TEXT = "some text that is not short"


def of_the_model(model, text, layer, head, i, weights, edits=()):
    def edit(before):
        after = before.copy()
        after[0, head, i] = weights
        return after

    trace = regard.Trace(edit={**dict(edits), f"blocks.{layer}.attn.weights": edit})
    return model(text, trace=trace), trace


@pytest.mark.parametrize("scores", [[(1, None)], [(0, 3.5)], [(0, -40.0), (3, 2.0)], [(4, 900.0)]])
def test_the_model_runs_with_the_softmax_of_the_changed_row(causal, scores):
    layer, head, i = 1, 2, 4
    exploration = explored(causal, TEXT)
    answer = exploration.what_if(0, layer, head, i, scores)
    row = exploration.runs[0].layers[layer].tile(head, [i], None, "biased")[0].astype(np.float64)
    for key, score in scores:
        row[key] = -np.inf if score is None else score
    weights = regard.functional.softmax(row)
    np.testing.assert_allclose(answer["weights"], weights, atol=1e-6)
    before, (after, trace) = causal(TEXT), of_the_model(causal, TEXT, layer, head, i, weights)
    np.testing.assert_allclose(trace[f"blocks.{layer}.attn.weights"][0, head, i], weights, rtol=1e-6)
    a, b = before.hidden[0], after.hidden[0]
    cosines = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    np.testing.assert_allclose(answer["cosines"], cosines, atol=2e-6)
    assert min(answer["cosines"][:i]) == pytest.approx(1)  # a later token is not seen
    probabilities = regard.functional.softmax(after.logits[0, -1].astype(np.float64))
    likeliest = {causal.tokenizer.decode([n]): p for n, p in enumerate(probabilities)}
    assert answer["next_tokens"]
    for each in answer["next_tokens"]:
        assert each["after"] == pytest.approx(likeliest[each["token"]], abs=1e-5)


def test_a_row_with_its_own_scores_changes_nothing(short):
    row = short.runs[0].layers[0].tile(1, [2], None, "biased")[0]
    answer = short.what_if(0, 0, 1, 2, [(0, float(row[0])), (3, float(row[3]))])
    np.testing.assert_allclose(answer["cosines"], 1, atol=1e-6)
    assert answer["next_tokens"] is None


def test_a_text_of_a_batch_is_run_alone(causal):
    trace = regard.Trace(maps=True, only="*")
    causal(["some text", TEXT], trace=trace)
    answers = [each.what_if(0, 1, 2, 4, [(1, None)]) for each in
               (Exploration(trace, models=[causal], batch=1), explored(causal, TEXT))]  # fmt: skip
    assert answers[0]["weights"] == pytest.approx(answers[1]["weights"], abs=1e-5)


def test_all_keys_masked_is_a_row_of_zeros(short):
    keys = range(short.runs[0].length)
    assert not any(short.what_if(0, 0, 1, 2, [(key, None) for key in keys])["weights"])


def test_what_was_switched_off_stays_so(causal):
    exploration = explored(causal, TEXT)
    run = exploration.ablate([[0, 1]])["run"]
    answer = exploration.what_if(run, 1, 2, 4, [(0, None)])
    ablated = regard.edits.ablate((0, 1))
    before, (after, _) = causal(TEXT, edit=ablated), of_the_model(causal, TEXT, 1, 2, 4, answer["weights"], ablated)
    probabilities = [regard.functional.softmax(x.logits[0, -1].astype(np.float64)) for x in (before, after)]
    names = [causal.tokenizer.decode([n], skip_special_tokens=False) for n in range(len(probabilities[0]))]
    for each in answer["next_tokens"]:
        at = names.index(each["token"])
        assert [each["before"], each["after"]] == pytest.approx([p[at] for p in probabilities], abs=1e-5)


def test_an_encoder_decoder_has_the_rows_of_its_blocks(bart):
    exploration = Exploration(recorded(bart, "w5 w6 w7 w8 → w8 w6 w9"), models=[bart])
    run = exploration.runs[0]
    for layer in range(len(run.layers)):
        rows, cols = run.block(layer)
        cell = exploration.cell(0, layer, 1, rows[-1], cols[0])
        if not run.can_ablate:
            with pytest.raises(regard.RegardError, match="another run of the model"):
                exploration.what_if(0, layer, 1, rows[-1], [(cols[0], None)])
            continue
        answer = exploration.what_if(0, layer, 1, rows[-1], [(cols[0], None)])
        assert cell["weight"] > 0
        assert answer["weights"][cols[0]] == 0
        assert sum(answer["weights"]) == pytest.approx(1, abs=1e-4)
