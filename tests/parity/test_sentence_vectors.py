"""Sentence vectors against transformers on PyTorch and the pooling that the model's configuration names."""

from __future__ import annotations

import numpy as np
from texts import TEXTS, varied_strings


def test_minilm_sentence_vectors(minilm, peer):
    import torch

    tokenizer, model = peer
    sentences = [*TEXTS[:15], *(text for text in varied_strings(200) if text.strip())][:100]
    assert len(sentences) == 100
    expected = []
    for sentence in sentences:
        inputs = tokenizer(sentence, return_tensors="pt", truncation=True, max_length=512)
        with torch.no_grad():
            hidden = model(**inputs).last_hidden_state
        mean = (hidden * inputs["attention_mask"][..., None]).sum(1) / inputs["attention_mask"].sum(1, keepdim=True)
        expected.append(torch.nn.functional.normalize(mean)[0].numpy())
    ours = minilm.embed(sentences, truncate=True)
    assert ours.shape == (100, 384)
    cosines = (ours * np.array(expected)).sum(1)
    assert cosines.min() >= 0.99999, cosines.min()
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, rtol=1e-5)
