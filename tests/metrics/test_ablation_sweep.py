"""A sweep against one run with `ablate` for each head of each text."""

import numpy as np
import pytest

import golden
import regard
from regard import RegardError, edits, training
from regard.functional import cross_entropy
from regard.metrics import ablation_sweep

CASES = [
    next(case for case in golden.KEPT if case.startswith(family)) for family in ("llama", "gpt_neox", "gemma2", "bert")
]
TEXTS = [5, 8, 4, 9, 7, 6, 5], [3, 3, 8, 4]


def loss(output):
    return float(cross_entropy(output.logits[0, :-1].astype(float), np.array(output.encodings[0].ids[1:])))


def first_number(output):
    return output.hidden[0, 1, 0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("by", ["zero", "mean"])
def test_a_sweep_is_a_loop_of_ablated_runs(case, by):
    model = regard.load(golden.FOLDER / case, dtype=np.float64)
    texts = [model.tokenizer.from_ids(ids) for ids in TEXTS]
    metric, measured = (first_number, first_number) if case.startswith("bert") else ("loss", loss)
    sweep = ablation_sweep(model, texts, metric, by=by, batch_size=2)
    for n, text in enumerate(texts):
        assert sweep.baselines[n] == pytest.approx(measured(model(text)), rel=1e-9)
        for i, head in np.ndindex(sweep.values.shape[1:]):
            expected = measured(model(text, edit=edits.ablate((i, head), by=by)))
            assert sweep.values[n, i, head] == pytest.approx(expected, rel=1e-9), (n, i, head)
    assert len(set(np.round(sweep.effects.ravel(), 9))) > sweep.values.shape[1]
    assert sweep.to_columns()["effect"][-1] == sweep.effects[-1, -1, -1]


def test_each_text_has_the_number_of_its_own_answer(induction):
    sweep = ablation_sweep(induction, ["qzkfqz"], ("k", "f"))
    without = [regard.metrics.logit_difference(induction, ["qzkfqz"], [("k", "f")], edit=edits.ablate((1, h)))[0]
               for h in range(4)]  # fmt: skip
    np.testing.assert_allclose(sweep.values[0, 1], without, rtol=1e-4)
    assert repr(sweep) == "<AblationSweep of 1 text, 2 × 4 heads: logit of 'k' minus that of 'f'>"


def test_a_sweep_of_the_only_head_over_texts_of_an_iterator():
    config = {"model_type": "gpt2", "vocab_size": 63, "n_positions": 8, "n_embd": 4, "n_layer": 1, "n_head": 1}
    model = training.new_model(config, regard.load("induction").tokenizer, dtype=np.float64).model
    sweep = ablation_sweep(model, iter(["abab", "cb"]))
    without = [loss(model(text, edit=edits.ablate((0, 0)))) for text in ("abab", "cb")]
    np.testing.assert_allclose(sweep.values[:, 0, 0], without, rtol=1e-9)


def test_what_cannot_be_swept_is_refused():
    model, encoder = regard.load("induction"), regard.load(golden.FOLDER / CASES[-1])
    with pytest.raises(RegardError, match="there is no text; give at least one"):
        ablation_sweep(model, [])
    with pytest.raises(RegardError, match="by must be one of zero, mean"):
        ablation_sweep(model, ["ab"], by="median")
    with pytest.raises(RegardError, match="predicts no next token, whose loss"):
        ablation_sweep(encoder, [[1, 2]])
    with pytest.raises(RegardError, match=r"text 1: .* at least two tokens"):
        ablation_sweep(model, ["ab", "a"])
    with pytest.raises(RegardError, match="text 2: the text has 200 tokens"):
        ablation_sweep(model, ["ab", "abc", "ab" * 100])
