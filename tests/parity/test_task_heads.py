"""Task heads of encoders against transformers, live: masked words, classes of texts and of tokens."""

import numpy as np
import pytest
import torch
from written_models import IDS as RUN_IDS, run, written

import regard
from sweeps import sweep_except

MASKED, TEXTS, TOKENS = "MaskedLM", "SequenceClassification", "TokenClassification"
CLASSES = {
    "albert": "Albert",
    "bert": "Bert",
    "camembert": "Camembert",
    "deberta-v2": "DebertaV2",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "modernbert": "ModernBert",
    "mpnet": "MPNet",
    "nomic_bert": "NomicBert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
}
OPTIONS = {  # in the order of the tasks
    "deberta-v2": ({"legacy": False}, {"pooler_hidden_act": "tanh"}, {}),
    "modernbert": (
        {"decoder_bias": False, "classifier_activation": "silu"},
        {"classifier_pooling": "mean", "classifier_bias": True},
        {"classifier_activation": "silu", "norm_bias": True},
    ),
    "bert": ({"tie_word_embeddings": False}, {"problem_type": "multi_label_classification"}, {}),
    "electra": ({"embedding_size": 6}, {"embedding_size": 6}, {}),
}
PLAIN = [(family, task, False) for family in CLASSES for task in (MASKED, TEXTS, TOKENS)]
WITH_OPTIONS = [(family, task, True) for family in OPTIONS for task in (MASKED, TEXTS, TOKENS)]
ALWAYS = [*PLAIN[3:6], ("deberta-v2", MASKED, True), ("modernbert", TEXTS, True), ("electra", TEXTS, True)]
IDS = np.array([[5, 9, 13, 17, 21, 25], [6, 7, 8, 9, 0, 0]])
MASK = np.array([[1] * 6, [1, 1, 1, 1, 0, 0]])


@pytest.mark.parametrize("case", sweep_except(ALWAYS, PLAIN + WITH_OPTIONS), ids=str)
def test_the_logits_of_transformers(transformers, tmp_path, case):
    family, task, has_options = case
    kind = getattr(transformers, f"{CLASSES[family]}For{task}")
    options = OPTIONS[family][(MASKED, TEXTS, TOKENS).index(task)] if has_options else {}
    more = {} if task == MASKED else {"id2label": {0: "no", 1: "yes", 2: "perhaps"}}
    peer = written(transformers, tmp_path, family, kind=kind, pad_token_id=0, **more, **options)
    with torch.no_grad():
        expected = peer(input_ids=torch.tensor(IDS), attention_mask=torch.tensor(MASK)).logits.numpy()
    model = regard.load(tmp_path)
    output = model({"input_ids": IDS, "attention_mask": MASK})
    assert output.labels == (() if task == MASKED else ("no", "yes", "perhaps"))
    rows = [expected] if task == TEXTS else [expected[0], expected[1, :4]]
    found = [output.logits] if task == TEXTS else [output.logits[0], output.logits[1, :4]]
    for x, y in zip(found, rows, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=2e-5 * np.abs(expected).max())
    place = {} if task == TEXTS else {"position": 2}
    likeliest = model.predictions(IDS[0].tolist(), k=3, **place)
    logits = torch.tensor(expected[0] if task == TEXTS else expected[0, 2]).double()
    is_independent = options.get("problem_type") is not None
    probabilities = (logits.sigmoid() if is_independent else logits.softmax(-1)).numpy()
    assert [each.id for each in likeliest] == np.argsort(-probabilities)[:3].tolist()
    np.testing.assert_allclose([each.probability for each in likeliest], np.sort(probabilities)[::-1][:3], rtol=1e-4)


def test_the_gradient_of_a_class_is_that_of_torch(transformers, tmp_path):
    kind = transformers.DebertaV2ForSequenceClassification
    peer = written(transformers, tmp_path, "deberta-v2", kind=kind, pad_token_id=0)
    output = peer(input_ids=torch.tensor(IDS[:1]), output_hidden_states=True)
    vectors = output.hidden_states[1]
    vectors.retain_grad()
    output.logits[0, 1].backward()
    gradients = regard.load(tmp_path).gradients(IDS[0].tolist(), lambda o: o.logits[0, 1], at="blocks.0.output")
    expected = vectors.grad.numpy()
    np.testing.assert_allclose(
        gradients.gradients["blocks.0.output"], expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max()
    )


def test_a_newer_head_of_deberta_is_read_where_the_file_has_it(transformers, tmp_path):
    kind = transformers.DebertaV2ForMaskedLM
    peer = written(
        transformers, tmp_path, "deberta-v2", lambda fields: fields | {"legacy": True}, kind=kind, legacy=False
    )
    model = regard.load(tmp_path)
    (expected,) = run(peer)
    np.testing.assert_allclose(model(RUN_IDS).logits[0], expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())
